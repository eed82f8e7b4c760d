// Colours, from the style sheet, and the shapes of packets.

const KINDS = ["data", "retransmission", "ack", "control"];
const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const PALETTE = 8;

/** The colours in use; `read` is called when the page changes between light and dark. */
const theme = {
  read() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    for (const name of ["ground", "panel", "ink", "faint", "line", "grid", "node", "loss", "down", "cursor"]) {
      this[name] = colour(name);
    }
    this.nodeInk = colour("node-ink");
    this.palette = Array.from({ length: PALETTE }, (_, i) => colour(`c${i}`));
  },
  /** Returns the colour of the entry `index` of any list. */
  entry(index) {
    return this.palette[index % PALETTE];
  },
};

/** Sets the size of a canvas to that of its box, in the pixels of the screen; returns its context and its size. */
function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

/** Heights of packets by kind, as parts of the height of data. */
const THICKNESS = [1, 1, 0.45, 0.75];

/** Draws a packet from `from` to `to` pixels along a line whose unit vector is (ux, uy) and that begins at (x, y). */
function drawPacket(context, x, y, ux, uy, from, to, height, kind, colour) {
  const h = height * THICKNESS[kind] / 2;
  const [ax, ay, bx, by] = [x + ux * from, y + uy * from, x + ux * to, y + uy * to];
  const [nx, ny] = [-uy * h, ux * h];
  context.beginPath();
  context.moveTo(ax + nx, ay + ny);
  context.lineTo(bx + nx, by + ny);
  context.lineTo(bx - nx, by - ny);
  context.lineTo(ax - nx, ay - ny);
  context.closePath();
  if (kind === 3) {
    context.fillStyle = theme.panel;
    context.fill();
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.stroke();
    return;
  }
  context.fillStyle = colour;
  context.fill();
  if (kind === 1) {
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5;
    context.stroke();
  }
}

/** Returns an entry of a legend: a small drawing and a name. */
function legendEntry(draw, name) {
  const item = document.createElement("li");
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  const ratio = 2;
  canvas.width = 26 * ratio;
  canvas.height = 14 * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  draw(context);
  item.append(canvas, name);
  return item;
}
