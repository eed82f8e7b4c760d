// The four plots of a run: sequence numbers, windows, queues, and the links that flows use.

const MAX_CURVES = 16;

/** Returns a labelled list of choices. */
function chooser(label, options, change) {
  const select = document.createElement("select");
  for (const [value, text] of options) {
    const option = document.createElement("option");
    option.value = value;
    option.textContent = text;
    select.append(option);
  }
  select.addEventListener("change", () => change(select.value));
  const element = document.createElement("label");
  element.append(`${label} `, select);
  return { element, select };
}

const entryColour = (index) => () => theme.entry(index);
const lossColour = () => theme.loss;
const inkColour = () => theme.faint;

/** Returns the intervals in which any link is down. */
function downBands({ lanes }) {
  const merged = [];
  for (const [from, to] of lanes.flatMap((lane) => lane.down).sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

/** Makes the plots. `common` is what all share: the part of time, the clock. */
function makePlots(model, about, floats, numbers, common) {
  const bands = downBands(model);
  const make = (options) => new Plot({ ...common, bands, ...options });
  return [
    sequencePlot(model, make),
    windowPlot(model, make, readCurves(about, floats, numbers)),
    queuePlot(model, make),
    pathPlot(model, make),
  ];
}

/** Returns the directions of flows that have sequence numbers, as [key, name]. */
function directions({ packets, network }) {
  const found = new Set();
  for (let p = 0; p < packets.count; p++) {
    if (packets.flow[p] > 0 && packets.seq[p] > 0) found.add((packets.flow[p] - 1) * 2 + packets.back[p]);
  }
  const name = (key) => `${network.flows[key >> 1].name}${key & 1 ? " (back)" : ""}`;
  return [...found].sort((a, b) => a - b).map((key) => [key, name(key)]);
}

function sequencePlot(model, make) {
  const plot = make({ title: "Sequence numbers", unit: "", nothing: "No packet has a sequence number" });
  const { network } = model;
  const names = {
    kind: (group) => (group === 1 ? "sent again" : "sent"),
    path: (group) => `sent by ${network.links[group]?.name ?? "no link"}`,
    stream: (group) => `stream ${group}`,
  };
  let by = "kind";
  const show = () => {
    const key = Number(flow.select.value || 0);
    if (flow.select.options.length === 0) return plot.show([]);
    const { sent, lost, acked } = sequenceSeries(model, key >> 1, key & 1, by);
    const points = sent.slice(0, MAX_CURVES).map(({ group, t, y }) => ({
      name: names[by](group), style: by === "kind" && group === 1 ? "squares" : "dots", colour: entryColour(group), t, y,
    }));
    const more = [
      { name: "acknowledged up to", style: "step", colour: inkColour, ...acked },
      { name: "lost", style: "crosses", colour: lossColour, ...lost },
    ];
    plot.show([...points, ...more.filter(({ t }) => t.length > 0)]);
  };
  const flow = chooser("Flow", directions(model), show);
  const colour = chooser("Colour", [["kind", "kind"], ["path", "path"], ["stream", "stream"]], (value) => {
    by = value;
    show();
  });
  plot.head.append(flow.element, colour.element);
  plot.start = show;
  return plot;
}

/** Returns the windows of senders. */
function readCurves(about, floats, numbers) {
  return about.curves.map(({ flow, path, count }, i) => ({
    flow, path,
    t: numbers(`curve.${i}.at`, Float64Array, count),
    cwnd: floats(`curve.${i}.cwnd`),
    ssthresh: floats(`curve.${i}.ssthresh`),
    flight: floats(`curve.${i}.flight`),
    srtt: numbers(`curve.${i}.srtt`, Float64Array, count).map((ns) => (ns > 0 ? (ns - 1) / 1e6 : NaN)),
  }));
}

function windowPlot(model, make, curves) {
  const plot = make({ title: "Congestion window", unit: "B", nothing: "No flow has a window" });
  const choices = {
    window: ["cwnd", "ssthresh"],
    flight: ["cwnd", "flight"],
    srtt: ["srtt"],
  };
  const show = (choice) => {
    plot.unit = choice === "srtt" ? "ms" : "B";
    const layers = curves.slice(0, MAX_CURVES).flatMap((curve, i) => {
      const name = model.network.flows[curve.flow].name + (curve.path ? ` by ${curve.path}` : "");
      return choices[choice].map((what, n) => ({
        name: `${name}: ${what === "flight" ? "in flight" : what}`, style: n === 0 ? "step" : "dashed", colour: entryColour(i),
        t: curve.t, y: curve[what],
      }));
    });
    plot.show(layers.filter(({ y }) => y.some(Number.isFinite)));
  };
  const what = chooser("Show", [["window", "window, threshold"], ["flight", "window, in flight"], ["srtt", "round-trip time"]], show);
  plot.head.append(what.element);
  plot.start = () => show(what.select.value);
  return plot;
}

function queuePlot(model, make) {
  const plot = make({ title: "Queues", unit: "packets", nothing: "No packet ever waits" });
  plot.start = () => {
    const found = model.lanes.flatMap((lane) => {
      const series = lane.link ? queueSeries(model, lane) : null;
      return series ? [{ lane, ...series, high: series.y.reduce((a, b) => Math.max(a, b), 0) }] : [];
    });
    const most = found.sort((a, b) => b.high - a.high || a.lane.index - b.lane.index).slice(0, MAX_CURVES / 2);
    plot.show(most.map(({ lane, t, y }, i) => ({ name: lane.name, style: "step", colour: entryColour(i), t, y })));
  };
  return plot;
}

function pathPlot(model, make) {
  const { network } = model;
  const found = pathSeries(model).slice(0, MAX_CURVES);
  const several = new Set(found.map(({ flow }) => flow)).size > 1;
  const rows = found.map(({ flow, link }) => {
    const name = network.links[link].name;
    return several ? `${network.flows[flow].name}: ${name}` : name;
  });
  const plot = make({ title: "Link in use by data", unit: "", rows, nothing: "No flow sends data" });
  plot.start = () => {
    const layers = found.map(({ flow, t }, row) => ({
      name: rows[row], style: "ticks", colour: entryColour(several ? flow : row), t, y: new Float64Array(t.length).fill(row),
    }));
    plot.show(layers);
  };
  return plot;
}
