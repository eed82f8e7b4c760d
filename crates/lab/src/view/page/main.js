// The page: its clock, its controls, and `window.ringway`, by which tests look at it (docs/lab-view.md).

const SPEEDS = [];
for (let power = -6; power <= 1; power++) for (const n of [1, 2, 5]) SPEEDS.push(n * 10 ** power);

/** Time, in nanoseconds, and its speed: seconds of the run in a second. */
class Clock {
  constructor(ended) {
    Object.assign(this, { ended, t: 0, speed: 1, playing: false, changed: () => {} });
  }

  seek(t) {
    this.t = Math.min(this.ended, Math.max(0, t));
    this.changed();
  }

  play(on) {
    this.playing = on;
    if (on && this.t >= this.ended) this.t = 0;
    this.before = null;
    this.changed();
  }

  /** Goes on, at the time `now` of the browser in milliseconds. */
  tick(now) {
    if (this.playing && this.before !== null) {
      // A page that was hidden does not jump.
      const passed = Math.min(now - this.before, 100) / 1e3;
      this.t = Math.min(this.ended, this.t + passed * this.speed * 1e9);
      if (this.t >= this.ended) this.play(false);
    }
    this.before = now;
  }
}

/** The part of time that plots show. */
class View {
  constructor(ended) {
    Object.assign(this, { from: 0, to: ended, ended, changed: () => {} });
  }

  set(from, to) {
    const span = Math.min(this.ended, Math.max(to - from, Math.max(this.ended / 1e7, 10)));
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(0, middle - span / 2), this.ended - span);
    this.to = this.from + span;
    this.changed();
  }
}

/** Returns the speed at which a packet takes about half a second for a link. */
function pleasantSpeed({ hops, packets, ended }) {
  const spans = [];
  const every = Math.max(1, Math.floor(hops.count / 2000));
  for (let i = 0; i < hops.count; i += every) {
    const span = hops.sending[i] + hops.flying[i];
    if (span > 0 && packets.kind[hops.packet[i]] <= 1) spans.push(span);
  }
  spans.sort((a, b) => a - b);
  const wanted = spans.length > 0 ? spans[spans.length >> 1] / 0.5e9 : ended / 2e10;
  return SPEEDS.reduce((best, speed) => (Math.abs(Math.log(speed / wanted)) < Math.abs(Math.log(best / wanted)) ? speed : best));
}

const byId = (id) => document.getElementById(id);
const source = readData();
const model = buildModel(source);
const clock = new Clock(model.ended);
const view = new View(model.ended);
theme.read();
const stage = new Stage(byId("stage"), model, clock);
const plots = makePlots(model, source.about, source.floats, source.numbers, { view, clock });
let events = null;
let dirty = true;
let plotsDirty = false;

clock.changed = () => {
  dirty = true;
};
view.changed = () => {
  plotsDirty = true;
};

/** Shows what is beside the canvas. */
function showTime() {
  const step = Math.max(1, (clock.speed * 1e9) / 100);
  const text = seconds(clock.t, Math.min(step, model.ended / 1e3));
  byId("time").textContent = text;
  byId("seek").value = String(clock.t);
  byId("seek").setAttribute("aria-valuetext", text);
  byId("play").textContent = clock.playing ? "Pause" : "Play";
  const status = stage.status();
  byId("stage").setAttribute("aria-label", `Animation at ${text}: ${status}`);
  // While it plays, a screen reader would read without end.
  byId("status").setAttribute("aria-live", clock.playing ? "off" : "polite");
  byId("status").textContent = status;
}

/** Draws all that is not as it should be. */
function frame(now) {
  clock.tick(now);
  if (plotsDirty) for (const plot of plots) plot.render();
  if (dirty || clock.playing) {
    stage.render();
    for (const plot of plots) plot.renderOver();
    showTime();
  }
  dirty = plotsDirty = false;
  requestAnimationFrame(frame);
}

/** Goes to the next event, or to the one before. */
function stepTo(direction) {
  events ??= eventTimes(model);
  clock.play(false);
  const after = upperBound(events, clock.t, 0, events.length);
  if (direction > 0) return clock.seek(after < events.length ? events[after] : model.ended);
  let before = after - 1;
  while (before >= 0 && events[before] >= clock.t) before--;
  return clock.seek(before >= 0 ? events[before] : 0);
}

function showLegend() {
  const { network, packets } = model;
  const present = new Set();
  for (const key of stage.colourBy === "kind" ? packets.kind : packets.flow) present.add(key);
  const entries = stage.colourBy === "kind"
    ? KINDS.map((name, i) => [i, name, i]).filter(([i]) => present.has(i))
    : network.flows.map((flow, i) => [i, `${flow.name} (${flow.transport})`, 0]).filter(([i]) => present.has(i + 1)).slice(0, 24);
  const items = entries.map(([index, name, kind]) =>
    legendEntry((context) => drawPacket(context, 3, 7, 1, 0, 0, 20, 9, kind, theme.entry(index)), name));
  if (model.losses.hop.length > 0) items.push(legendEntry((context) => drawCross(context, 13, 7, 5, theme.loss, 2), "lost"));
  byId("legend").replaceChildren(...items);
}

function refresh() {
  theme.read();
  showLegend();
  for (const plot of plots) {
    plot.show(plot.layers);
  }
  dirty = true;
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
}

function start() {
  const { network } = model;
  document.title = `${network.title} - Ringway`;
  byId("title").textContent = network.title;
  const counts = `${count(model.packets.count)} packets, ${count(model.losses.hop.length)} losses, ${seconds(model.ended, 1e6)}`;
  const rest = network.left_out > 0 ? `; ${count(network.left_out)} later steps are not recorded` : "";
  byId("facts").textContent = `${counts}, seed ${network.seed}, version ${network.version}${rest}`;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches);
  theme.read();
  for (const speed of SPEEDS) {
    const option = document.createElement("option");
    option.value = String(speed);
    option.textContent = speed >= 1 ? `\u00d7 ${speed}` : `\u00d7 1/${Math.round(1 / speed)}`;
    byId("speed").append(option);
  }
  clock.speed = pleasantSpeed(model);
  byId("speed").value = String(clock.speed);
  byId("seek").max = String(model.ended);
  stage.colourBy = network.flows.length > 1 ? "flow" : "kind";
  byId("colour").value = stage.colourBy;
  byId("plots").append(...plots.map((plot) => plot.element));
  for (const plot of plots) plot.start();
  showLegend();
  connect(dark);
  requestAnimationFrame(frame);
}

/** Connects the controls. */
function connect(dark) {
  dark.addEventListener("change", () => {
    setTheme(dark.matches);
    refresh();
  });
  byId("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme !== "dark");
    refresh();
  });
  byId("play").addEventListener("click", () => clock.play(!clock.playing));
  byId("back").addEventListener("click", () => stepTo(-1));
  byId("forward").addEventListener("click", () => stepTo(1));
  byId("seek").addEventListener("input", (event) => clock.seek(Number(event.target.value)));
  byId("speed").addEventListener("change", (event) => {
    clock.speed = Number(event.target.value);
    dirty = true;
  });
  byId("colour").addEventListener("change", (event) => {
    stage.colourBy = event.target.value;
    showLegend();
    dirty = true;
  });
  byId("labels").addEventListener("change", (event) => {
    stage.labels = event.target.checked;
    dirty = true;
  });
  document.addEventListener("keydown", (event) => {
    const isControl = ["INPUT", "SELECT", "BUTTON"].includes(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || (isControl && event.key === " ")) return;
    const action = { " ": () => clock.play(!clock.playing), ",": () => stepTo(-1), ".": () => stepTo(1) }[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });
  new ResizeObserver(() => {
    dirty = plotsDirty = true;
  }).observe(document.body);
  connectStage();
}

/** Connects the canvas of the animation with pointer, wheel and keys. */
function connectStage() {
  const canvas = byId("stage");
  const tip = byId("tip");
  const { camera } = stage;
  let last = null;
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const change = (act) => {
    act();
    dirty = true;
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    change(() => camera.zoomAt(1.2 ** -Math.sign(event.deltaY), ...point(event)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = point(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = point(event);
    if (last) {
      change(() => camera.move(x - last[0], y - last[1]));
      last = [x, y];
    }
    const text = last ? null : stage.hit(x, y);
    tip.hidden = text === null;
    tip.textContent = text ?? "";
    tip.style.left = `${Math.min(x + 14, Math.max(0, canvas.clientWidth - 310))}px`;
    tip.style.top = `${Math.min(y + 14, canvas.clientHeight - 60)}px`;
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => {
    last = null;
  });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("dblclick", () => change(() => camera.reset()));
  canvas.addEventListener("keydown", (event) => {
    const middle = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    const actions = {
      "+": () => camera.zoomAt(1.25, ...middle),
      "=": () => camera.zoomAt(1.25, ...middle),
      "-": () => camera.zoomAt(0.8, ...middle),
      0: () => camera.reset(),
      ArrowLeft: () => camera.move(40, 0),
      ArrowRight: () => camera.move(-40, 0),
      ArrowUp: () => camera.move(0, 40),
      ArrowDown: () => camera.move(0, -40),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    change(actions[event.key]);
  });
}

start();

window.ringway = {
  /** Packets, hops and seconds of the run. */
  run: { packets: model.packets.count, hops: model.hops.count, seconds: model.ended / 1e9 },
  /** Returns the time in seconds, whether it plays, and its speed. */
  clock: () => ({ time: clock.t / 1e9, playing: clock.playing, speed: clock.speed }),
  /** Goes to a time in seconds and draws it. Returns what was drawn. */
  seek(time) {
    clock.seek(time * 1e9);
    stage.render();
    for (const plot of plots) plot.renderOver();
    showTime();
    return stage.drawn;
  },
  /** Returns the screen's coordinates of the middle of a lane and of the entry of its queue. */
  lane(name) {
    const lane = model.lanes.find((lane) => lane.name === name);
    const { x, y, ux, uy, nx, ny, length } = stage.lanes[lane.index];
    return { middle: [x + (ux * length) / 2, y + (uy * length) / 2], entry: [x + ux * 5 + nx * 12, y + uy * 5 + ny * 12] };
  },
  camera: () => ({ zoom: stage.camera.zoom, x: stage.camera.dx, y: stage.camera.dy }),
  /** Returns the part of time that plots show, in seconds. */
  view: () => ({ from: view.from / 1e9, to: view.to / 1e9 }),
  /** Returns the series of all plots: title, and for each its name, times in nanoseconds and values. */
  plots: () => plots.map(({ title, layers }) => ({
    title, layers: layers.map(({ name, style, t, y }) => ({ name, style, t: Array.from(t), y: Array.from(y) })),
  })),
  /** Draws `count` frames at times spread over the run; returns the milliseconds that each took. */
  measure(count) {
    const took = [];
    for (let n = 0; n < count; n++) {
      clock.t = (model.ended * (n + 0.5)) / count;
      const began = performance.now();
      stage.render();
      for (const plot of plots) plot.renderOver();
      // What was drawn is done when a pixel of it is read.
      byId("stage").getContext("2d").getImageData(0, 0, 1, 1);
      took.push(performance.now() - began);
    }
    return took;
  },
  /** Draws all plots at `count` parts of time; returns the milliseconds that each took. */
  measurePlots(count) {
    const took = [];
    for (let n = 0; n < count; n++) {
      const began = performance.now();
      [view.from, view.to] = [0, model.ended / (1 + n)];
      for (const plot of plots) {
        plot.render();
        plot.under.getContext("2d").getImageData(0, 0, 1, 1);
      }
      took.push(performance.now() - began);
    }
    view.set(0, model.ended);
    return took;
  },
};
