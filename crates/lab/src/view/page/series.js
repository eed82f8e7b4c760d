// What plots show, computed from the hops of a run. A series has times (`t`, nanoseconds) and values (`y`).

/** Collects points in any order and returns them as typed arrays in the order of time. */
class Points {
  constructor() {
    this.all = [];
  }

  add(t, y) {
    this.all.push([t, y]);
  }

  done() {
    this.all.sort((a, b) => a[0] - b[0]);
    return { t: Float64Array.from(this.all, (p) => p[0]), y: Float64Array.from(this.all, (p) => p[1]) };
  }
}

/** Returns the number of the group of a packet: of its kind, its path or its stream. */
function groupOf({ packets, hops, firstHop }, packet, by) {
  if (by === "stream") return Math.max(packets.stream[packet] - 1, 0);
  if (by === "path") return hops.lane[firstHop[packet]] >> 1;
  return packets.kind[packet] === 1 ? 1 : 0;
}

/** Returns the sequence numbers of one direction of a flow: sent by group, lost, and acknowledged. */
function sequenceSeries(model, flow, back, by) {
  const { packets, hops, firstHop } = model;
  const groups = new Map();
  const lost = new Points();
  const acked = new Points();
  for (let p = 0; p < packets.count; p++) {
    if (packets.flow[p] !== flow + 1 || firstHop[p] < 0 || packets.seq[p] === 0 || packets.back[p] !== back) continue;
    const group = groupOf(model, p, by);
    if (!groups.has(group)) groups.set(group, new Points());
    groups.get(group).add(hops.at[firstHop[p]], packets.seq[p] - 1);
  }
  const sender = model.network.flows[flow][back ? "to" : "from"];
  for (let i = 0; i < hops.count; i++) {
    const p = hops.packet[i];
    if (packets.flow[p] !== flow + 1) continue;
    if (packets.back[p] === back) {
      if (hops.lost[i] > 0 && packets.seq[p] > 0) lost.add(hops.end[i], packets.seq[p] - 1);
    } else if (packets.ack[p] > 0 && hops.lost[i] === 0 && arrivesAt(model, i) === sender && hops.end[i] <= model.ended) {
      acked.add(hops.end[i], packets.ack[p] - 1);
    }
  }
  const line = acked.done();
  for (let i = 1; i < line.y.length; i++) line.y[i] = Math.max(line.y[i], line.y[i - 1]);
  const sent = [...groups].sort((a, b) => a[0] - b[0]).map(([group, points]) => ({ group, ...points.done() }));
  return { sent, lost: lost.done(), acked: line };
}

/** Returns the node at which a hop ends. */
function arrivesAt({ hops, lanes }, hop) {
  return lanes[hops.lane[hop]].nodes[1];
}

/** Returns the number of packets that wait for a lane over time; null if none ever waits. */
function queueSeries({ hops, ended }, lane) {
  const came = [];
  const left = [];
  for (let i = lane.begin; i < lane.end; i++) {
    const over = Math.min(hops.start[i], hops.lost[i] > 0 ? hops.end[i] : Infinity);
    if (over <= hops.at[i]) continue;
    came.push(hops.at[i]);
    if (over <= ended) left.push(over);
  }
  if (came.length === 0) return null;
  const gone = Float64Array.from(left).sort();
  const t = [0];
  const y = [0];
  let waiting = 0;
  for (let i = 0, j = 0; i < came.length || j < gone.length;) {
    const now = Math.min(i < came.length ? came[i] : Infinity, j < gone.length ? gone[j] : Infinity);
    for (; i < came.length && came[i] === now; i++) waiting++;
    for (; j < gone.length && gone[j] === now; j++) waiting--;
    t.push(now);
    y.push(waiting);
  }
  return { t: Float64Array.from(t), y: Float64Array.from(y) };
}

/** Returns the times at which each flow sent data over each link that leaves its sender. */
function pathSeries(model) {
  const { packets, hops, firstHop, network } = model;
  const found = new Map();
  for (let p = 0; p < packets.count; p++) {
    const flow = packets.flow[p] - 1;
    if (flow < 0 || firstHop[p] < 0 || packets.back[p] || packets.kind[p] > 1) continue;
    const link = hops.lane[firstHop[p]] >> 1;
    if (link >= network.links.length) continue;
    const key = flow * network.links.length + link;
    if (!found.has(key)) found.set(key, { flow, link, points: new Points() });
    found.get(key).points.add(hops.at[firstHop[p]], packets.kind[p]);
  }
  const all = [...found.values()].sort((a, b) => a.flow - b.flow || a.link - b.link);
  return all.map(({ flow, link, points }) => ({ flow, link, ...points.done() }));
}

/** Returns the value of a step at the time `t`; NaN before the first. */
function stepAt({ t, y }, time) {
  const index = upperBound(t, time, 0, t.length) - 1;
  return index < 0 ? NaN : y[index];
}
