// A plot over time with zoom. Its picture is drawn when what it shows changes; the cursor is on a canvas above it.
//
// A layer is { name, style, colour, t, y } with t ascending; styles are "step", "dashed" (a step, too), "dots", "squares"
// and "crosses". Steps are drawn with a vertical line a column of pixels, and of the points in one square of the
// picture only the first: what is drawn is bounded by the pixels, however many values there are.

const CELL = 2;
const DRAG = 5;
const MARGIN = { left: 62, right: 12, top: 8, bottom: 24 };
const MAX_ROW_NAME = 150;
/** A dashed line is left out of the range of values where it is so many times higher than all others. */
const FAR = 3;

class Plot {
  /** `view` is the part of time that all plots show; `clock` has the time of the cursor. */
  constructor({ title, unit, view, clock, bands, rows, nothing }) {
    Object.assign(this, { title, unit, view, clock, bands, nothing, rows: rows ?? null, layers: [], range: null });
    this.element = document.createElement("section");
    this.element.className = "plot";
    this.head = document.createElement("div");
    this.head.className = "head";
    const heading = document.createElement("h2");
    heading.textContent = title;
    this.head.append(heading);
    const area = document.createElement("div");
    area.className = "area";
    [this.under, this.over] = ["under", "over"].map((name) => {
      const canvas = document.createElement("canvas");
      canvas.className = name;
      area.append(canvas);
      return canvas;
    });
    this.under.setAttribute("aria-hidden", "true");
    this.over.tabIndex = 0;
    this.over.setAttribute("role", "img");
    this.readout = document.createElement("p");
    this.readout.className = "readout";
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.element.append(this.head, area, this.readout, this.legend);
    this.pointer = null;
    listenTo(this);
  }

  /** Shows other layers. */
  show(layers) {
    this.layers = layers;
    this.range = null;
    this.legend.replaceChildren(...layers.map((layer) =>
      legendEntry((context) => drawSample(context, layer), layer.name)));
    this.describe();
    this.render();
  }

  /** Sets the text for those who do not see the plot. */
  describe() {
    const parts = this.layers.map(({ name, t, y }) => {
      if (t.length === 0) return `${name}: no values`;
      let [low, high] = [Infinity, -Infinity];
      for (const value of y) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
      return this.rows ? `${name}: ${t.length} packets` : `${name}: ${t.length} values from ${this.text(low)} to ${this.text(high)}`;
    });
    const all = parts.length > 0 ? parts.join("; ") : "nothing to show";
    this.over.setAttribute("aria-label", `${this.title}. ${all}.`);
  }

  /** Returns the lowest and the highest value in the part of time that is shown. */
  extent() {
    if (this.rows) return [-0.5, this.rows.length - 0.5];
    if (this.range) return this.range;
    let [low, high] = [Infinity, -Infinity];
    for (const layer of [...this.layers].sort((a, b) => (a.style === "dashed") - (b.style === "dashed"))) {
      const { t, y, style } = layer;
      const isStep = style === "step" || style === "dashed";
      const first = Math.max(0, upperBound(t, this.view.from, 0, t.length) - (isStep ? 1 : 0));
      const last = upperBound(t, this.view.to, 0, t.length);
      const most = style === "dashed" && high > 0 ? FAR * high : Infinity;
      for (let i = first; i < last; i++) {
        if (y[i] < low) low = y[i];
        if (y[i] > high && y[i] <= most) high = y[i];
      }
    }
    if (low > high) return [0, 1];
    if (low > 0 && low < 0.6 * high) low = 0;
    const room = Math.max((high - low) * 0.05, high === low ? Math.max(Math.abs(high) * 0.1, 1) : 0);
    return [low === 0 ? 0 : low - room, high + room];
  }

  /** Draws all but the cursor. */
  render() {
    const { context, width, height } = fitted(this.under);
    if (width === 0) return;
    const [low, high] = this.extent();
    const left = this.leftMargin(context);
    const box = { x: left, y: MARGIN.top, w: width - left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
    const { from, to } = this.view;
    this.box = box;
    this.scale = {
      x: (t) => box.x + ((t - from) / (to - from)) * box.w,
      y: (v) => box.y + box.h - ((v - low) / (high - low)) * box.h,
      t: (x) => from + ((x - box.x) / box.w) * (to - from),
      v: (y) => low + ((box.y + box.h - y) / box.h) * (high - low),
    };
    context.clearRect(0, 0, width, height);
    this.drawBands(context);
    this.drawAxes(context, low, high, width);
    context.save();
    context.beginPath();
    context.rect(box.x, box.y - 3, box.w, box.h + 6);
    context.clip();
    for (const layer of this.layers) drawLayer(context, layer, this.scale, this.box, this.view);
    context.restore();
    if (this.layers.every(({ t }) => t.length === 0)) {
      context.fillStyle = theme.faint;
      context.textAlign = "center";
      context.fillText(this.nothing, box.x + box.w / 2, box.y + box.h / 2);
    }
    this.renderOver();
  }

  /** Returns the room for the names of rows. */
  leftMargin(context) {
    if (!this.rows) return MARGIN.left;
    context.font = `11px ${FONT}`;
    const widest = this.rows.reduce((most, name) => Math.max(most, context.measureText(name).width), 0);
    return Math.max(MARGIN.left, Math.min(MAX_ROW_NAME, widest) + 14);
  }

  drawBands(context) {
    const { box, scale } = this;
    context.fillStyle = theme.down;
    for (const [from, to] of this.bands) {
      const [a, b] = [Math.max(scale.x(from), box.x), Math.min(scale.x(to), box.x + box.w)];
      if (b > a) context.fillRect(a, box.y, Math.max(b - a, 1), box.h);
    }
  }

  drawAxes(context, low, high, width) {
    const { box, scale } = this;
    context.font = `11px ${FONT}`;
    context.lineWidth = 1;
    const time = ticks(this.view.from, this.view.to, width / 110);
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const t of time.all) {
      const x = Math.round(scale.x(t)) + 0.5;
      context.strokeStyle = theme.grid;
      line(context, x, box.y, x, box.y + box.h);
      context.fillStyle = theme.faint;
      const text = seconds(t, time.step);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x, half + 2), width - half - 2), box.y + box.h + 7);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    const values = this.rows
      ? this.rows.map((name, i) => [i, clipped(context, name, MAX_ROW_NAME)])
      : ticks(low, high, box.h / 40).all.map((v) => [v, short(v)]);
    for (const [v, text] of values) {
      const y = Math.round(scale.y(v)) + 0.5;
      context.strokeStyle = theme.grid;
      line(context, box.x, y, box.x + box.w, y);
      context.fillStyle = theme.faint;
      context.fillText(text, box.x - 7, y);
    }
    context.strokeStyle = theme.line;
    context.strokeRect(box.x + 0.5, box.y + 0.5, box.w - 1, box.h - 1);
  }

  /** Draws the cursor, and the part that is being selected. */
  renderOver() {
    const { context, width, height } = fitted(this.over);
    context.clearRect(0, 0, width, height);
    if (!this.scale) return;
    const { box, scale } = this;
    const x = scale.x(this.clock.t);
    if (x >= box.x && x <= box.x + box.w) {
      context.strokeStyle = theme.cursor;
      context.lineWidth = 1;
      line(context, x, box.y, x, box.y + box.h);
    }
    if (this.drag?.selects) {
      const { x0, y0, x1, y1 } = this.drag;
      const whole = this.rows || Math.abs(y1 - y0) < 3 * DRAG;
      context.fillStyle = theme.down;
      context.strokeStyle = theme.faint;
      const [top, high] = whole ? [box.y, box.h] : [Math.min(y0, y1), Math.abs(y1 - y0)];
      context.fillRect(Math.min(x0, x1), top, Math.abs(x1 - x0), high);
      context.strokeRect(Math.min(x0, x1), top, Math.abs(x1 - x0), high);
    }
    this.read();
  }

  /** Writes the values at the pointer, or at the cursor. */
  read() {
    const at = this.pointer && this.scale ? this.scale.t(this.pointer.x) : this.clock.t;
    const step = (this.view.to - this.view.from) / 1000;
    const parts = [seconds(at, Math.min(step, 1e6))];
    for (const { name, style, t, y } of this.layers) {
      if (style !== "step" && style !== "dashed") continue;
      const value = stepAt({ t, y }, at);
      if (Number.isFinite(value)) parts.push(`${name} ${this.text(value)}`);
    }
    this.readout.textContent = parts.slice(0, 7).join("  \u00b7  ");
  }

  /** Writes a value with the unit. */
  text(value) {
    return this.unit === "packets" ? `${count(value)} packets` : short(value, this.unit);
  }

  /** Zooms the time by `factor` around the part `share` of the picture. */
  zoom(factor, share) {
    const { from, to } = this.view;
    const at = from + (to - from) * share;
    this.view.set(at - (at - from) * factor, at + (to - at) * factor);
  }

  /** Moves the time by a part of what is shown. */
  pan(share) {
    const by = (this.view.to - this.view.from) * share;
    this.view.set(this.view.from + by, this.view.to + by);
  }

  /** Shows everything. */
  reset() {
    this.range = null;
    this.view.set(0, this.view.ended);
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** Returns a text that is at most `width` pixels wide. */
function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}\u2026`).width > width) length--;
  return `${text.slice(0, length)}\u2026`;
}

function drawSample(context, layer) {
  const isStep = layer.style === "step" || layer.style === "dashed";
  const t = isStep ? Float64Array.of(0, 1) : Float64Array.of(0.5);
  const scale = { x: (v) => 3 + v * 20, y: () => 7 };
  drawLayer(context, { ...layer, t, y: t }, scale, { x: 0, y: 0, w: 26, h: 14 }, { from: 0, to: 1 });
}

function drawLayer(context, layer, scale, box, view) {
  context.strokeStyle = layer.colour();
  context.fillStyle = layer.colour();
  if (layer.style === "step" || layer.style === "dashed") drawStep(context, layer, scale, box, view);
  else drawPoints(context, layer, scale, box, view);
}

/** Draws a step line: for each column of pixels the values that it has there. */
function drawStep(context, { t, y, style }, scale, box, view) {
  const first = Math.max(0, upperBound(t, view.from, 0, t.length) - 1);
  const last = Math.min(t.length, upperBound(t, view.to, 0, t.length));
  context.lineWidth = 1.5;
  context.setLineDash(style === "dashed" ? [5, 4] : []);
  context.beginPath();
  let drawing = false;
  for (let i = first; i < last;) {
    const column = Math.floor(scale.x(t[i]));
    let [low, high, end] = [Infinity, -Infinity, i];
    for (; end < last && (end === i || Math.floor(scale.x(t[end])) === column); end++) {
      if (y[end] < low) low = y[end];
      if (y[end] > high) high = y[end];
    }
    const x = Math.max(end - i > 1 ? column : scale.x(t[i]), box.x - 2);
    if (!Number.isFinite(y[i])) {
      drawing = false;
      i = end;
      continue;
    }
    if (drawing) context.lineTo(x, scale.y(y[i]));
    else context.moveTo(x, scale.y(y[i]));
    drawing = true;
    if (end - i > 1) {
      context.lineTo(x, scale.y(low));
      context.lineTo(x, scale.y(high));
      context.lineTo(x, scale.y(y[end - 1]));
    }
    drawing = Number.isFinite(y[end - 1]);
    const until = end < t.length ? scale.x(t[end]) : scale.x(view.ended ?? view.to);
    if (drawing) context.lineTo(Math.min(until, box.x + box.w + 2), scale.y(y[end - 1]));
    i = end;
  }
  context.stroke();
  context.setLineDash([]);
}

/** Draws points, one for each square of the picture at most. */
function drawPoints(context, { t, y, style }, scale, box, view) {
  const columns = Math.ceil(box.w / CELL) + 2;
  const used = new Uint8Array(columns * (Math.ceil(box.h / CELL) + 2));
  const first = upperBound(t, view.from - (view.to - view.from) * 0.01, 0, t.length);
  const last = upperBound(t, view.to, 0, t.length);
  // Many crosses beside each other would hide what they are drawn upon.
  const dense = last - first > box.w;
  const size = style === "crosses" ? (dense ? 2 : 3.5) : style === "squares" ? 2.5 : 1.5;
  context.lineWidth = dense ? 1.1 : 1.6;
  context.beginPath();
  for (let i = first; i < last; i++) {
    const [px, py] = [scale.x(t[i]), scale.y(y[i])];
    const cell = Math.floor((px - box.x) / CELL + 1) + columns * Math.floor((py - box.y) / CELL + 1);
    if (!(cell >= 0 && cell < used.length) || used[cell]) continue;
    used[cell] = 1;
    if (style === "crosses") {
      context.moveTo(px - size, py - size);
      context.lineTo(px + size, py + size);
      context.moveTo(px - size, py + size);
      context.lineTo(px + size, py - size);
    } else if (style === "ticks") {
      context.rect(px - 0.75, py - 6, 1.5, 12);
    } else {
      context.rect(px - size, py - size, 2 * size, 2 * size);
    }
  }
  if (style === "crosses") context.stroke();
  else context.fill();
}

/** Connects a plot with pointer, wheel and keys. */
function listenTo(plot) {
  const { over } = plot;
  const point = (event) => {
    const box = over.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const share = ({ x }) => Math.min(1, Math.max(0, (x - plot.box.x) / plot.box.w));
  over.addEventListener("wheel", (event) => {
    event.preventDefault();
    plot.zoom(1.2 ** Math.sign(event.deltaY), share(point(event)));
  }, { passive: false });
  over.addEventListener("pointerdown", (event) => {
    const { x, y } = point(event);
    over.setPointerCapture(event.pointerId);
    plot.drag = { x0: x, y0: y, x1: x, y1: y, moves: event.shiftKey || event.button === 1, from: plot.view.from, to: plot.view.to };
  });
  over.addEventListener("pointermove", (event) => {
    plot.pointer = point(event);
    const { drag } = plot;
    if (drag) {
      [drag.x1, drag.y1] = [plot.pointer.x, plot.pointer.y];
      const far = Math.abs(drag.x1 - drag.x0) > DRAG;
      if (drag.moves && far) {
        const by = ((drag.x0 - drag.x1) / plot.box.w) * (drag.to - drag.from);
        plot.view.set(drag.from + by, drag.to + by);
      } else if (far) {
        drag.selects = true;
      }
    }
    plot.renderOver();
  });
  over.addEventListener("pointerup", () => {
    const { drag } = plot;
    plot.drag = null;
    if (drag?.selects) select(plot, drag);
    else if (drag && Math.abs(drag.x1 - drag.x0) <= DRAG) plot.clock.seek(plot.scale.t(drag.x0));
  });
  over.addEventListener("pointercancel", () => {
    plot.drag = null;
  });
  over.addEventListener("pointerleave", () => {
    plot.pointer = null;
    plot.renderOver();
  });
  over.addEventListener("dblclick", () => plot.reset());
  over.addEventListener("keydown", (event) => {
    const actions = {
      "+": () => plot.zoom(0.8, 0.5),
      "=": () => plot.zoom(0.8, 0.5),
      "-": () => plot.zoom(1.25, 0.5),
      0: () => plot.reset(),
      ArrowLeft: () => plot.pan(-0.1),
      ArrowRight: () => plot.pan(0.1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}

/** Zooms to the part that was selected. */
function select(plot, { x0, y0, x1, y1 }) {
  const { scale, rows } = plot;
  if (!rows && Math.abs(y1 - y0) >= 3 * DRAG) plot.range = [scale.v(Math.max(y0, y1)), scale.v(Math.min(y0, y1))];
  plot.view.set(scale.t(Math.min(x0, x1)), scale.t(Math.max(x0, x1)));
}
