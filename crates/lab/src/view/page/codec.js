// The data of the page: base64, columns of numbers (view/pack.rs writes them), and what they describe.

/** Returns the bytes of a block of base64. */
function blockBytes(id) {
  const element = document.getElementById(id);
  const binary = atob(element.textContent.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  // The text is as large as the data and is not needed again.
  element.remove();
  return bytes;
}

/** Writes a column of `out.length` numbers: differences with runs, of variable length. */
function unpack(bytes, offset, out) {
  let at = offset;
  const number = () => {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      // No shifts: they have 32 bits.
      scale *= 128;
    }
  };
  let value = 0;
  for (let i = 0; i < out.length;) {
    const token = number();
    const zigzag = Math.floor(token / 2);
    const half = Math.floor(zigzag / 2);
    const difference = zigzag % 2 === 1 ? -half - 1 : half;
    let count = token % 2 === 1 ? number() + 2 : 1;
    for (; count > 0 && i < out.length; count--) {
      value += difference;
      out[i++] = value;
    }
  }
  return out;
}

/** Reads both blocks: what the data is, and functions that return its columns. */
function readData() {
  const about = JSON.parse(new TextDecoder().decode(blockBytes("about")));
  const bytes = blockBytes("data");
  return {
    about,
    /** Returns a column of packed numbers in an array of that type. */
    numbers: (name, Type, count) => unpack(bytes, about.columns[name][0], new Type(count)),
    /** Returns a column of 64-bit numbers. */
    floats: (name) => {
      const [offset, length] = about.columns[name];
      return new Float64Array(bytes.slice(offset, offset + length).buffer);
    },
  };
}
