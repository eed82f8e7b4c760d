// Numbers and ticks for people.

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/** Writes a number with at most `digits` digits after the point, without zeros at its end. */
function plain(value, digits) {
  return String(Number(value.toFixed(digits)));
}

/** Writes a number of any size, with a prefix if it is large, and its unit. */
function short(value, unit) {
  const [scale, prefix] = PREFIXES.find(([scale]) => Math.abs(value) >= scale) ?? [1, ""];
  const text = plain(value / scale, Math.abs(value / scale) < 10 ? 3 : 1);
  return prefix || unit ? `${text} ${prefix}${unit ?? ""}` : text;
}

/** Writes a count in full. */
function count(value) {
  return value.toLocaleString("en-GB");
}

/** Writes a time in nanoseconds to the resolution `step`. */
function seconds(ns, step) {
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / 1e9))));
  return `${(ns / 1e9).toFixed(digits)} s`;
}

/** Returns a round step of which about `count` fit into `span`. */
function roundStep(span, count) {
  const raw = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= raw * 0.999);
}

/** Returns round numbers between `low` and `high`. */
function ticks(low, high, count) {
  const step = roundStep(high - low, count);
  const all = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) all.push(n * step);
  return { step, all };
}
