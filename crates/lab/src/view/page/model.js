// The run: packets, hops by lane, losses, and which of them concern a time. Times are nanoseconds.
//
// A lane is one direction of a link. Its hops are in the order in which they came, and an index by time holds the
// first hop that has not ended, so that a frame looks only at those of its time.

const BUCKETS = 4096;

/** Returns the first index of `values`, which ascend between `low` and `high`, whose value is above `x`. */
function upperBound(values, x, low, high) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Builds the model from the data of the page. */
function buildModel({ about, numbers }) {
  const { network } = about;
  const packets = {
    count: about.packets,
    flow: numbers("packet.flow", Uint16Array, about.packets),
    back: numbers("packet.back", Uint8Array, about.packets),
    kind: numbers("packet.kind", Uint8Array, about.packets),
    what: numbers("packet.what", Uint8Array, about.packets),
    size: numbers("packet.size", Uint32Array, about.packets),
    seq: numbers("packet.seq", Float64Array, about.packets),
    ack: numbers("packet.ack", Float64Array, about.packets),
    stream: numbers("packet.stream", Uint32Array, about.packets),
  };
  const hops = {
    count: about.hops,
    packet: numbers("hop.packet", Uint32Array, about.hops),
    node: numbers("hop.node", Uint16Array, about.hops),
    at: numbers("hop.at", Float64Array, about.hops),
    start: numbers("hop.waited", Float64Array, about.hops),
    sending: numbers("hop.sending", Float64Array, about.hops),
    flying: numbers("hop.flying", Float64Array, about.hops),
    lost: numbers("hop.lost", Uint8Array, about.hops),
    end: new Float64Array(about.hops),
    lane: new Uint32Array(about.hops),
  };
  const ends = (i) => {
    const { at, start, sending, flying, lost } = hops;
    const waited = start[i];
    start[i] = waited > 0 ? at[i] + waited - 1 : Infinity;
    const parts = [waited, sending[i], flying[i]];
    const known = parts.reduce((sum, part) => sum + Math.max(part - 1, 0), at[i]);
    sending[i] = Math.max(sending[i] - 1, 0);
    // What is missing had not happened when the run ended.
    return lost[i] > 0 || parts.every((part) => part > 0) ? known : Infinity;
  };
  for (let i = 0; i < hops.count; i++) hops.end[i] = ends(i);
  const ended = Math.max(network.ended_ns, 1);
  const lanes = buildLanes(about, hops, ended);
  return { network, about, packets, hops, lanes, ended, losses: lossesOf(hops), firstHop: firstHops(packets, hops) };
}

/** Returns the lanes with their index by time; the last one is that of losses at nodes. */
function buildLanes(about, hops, ended) {
  const { links } = about.network;
  const width = ended / BUCKETS;
  let first = 0;
  return about.lanes.map((count, index) => {
    const begin = first;
    first += count;
    const alive = new Uint32Array(BUCKETS + 1).fill(begin + count);
    for (let i = begin; i < begin + count; i++) {
      hops.lane[i] = index;
      const bucket = Math.min(BUCKETS, Math.floor(hops.end[i] / width));
      if (i < alive[bucket]) alive[bucket] = i;
    }
    for (let b = BUCKETS - 1; b >= 0; b--) alive[b] = Math.min(alive[b], alive[b + 1]);
    const link = links[index >> 1];
    const reverse = index & 1;
    const nodes = link ? (reverse ? [link.between[1], link.between[0]] : link.between) : [];
    const direction = link ? (reverse ? link.back : link.there) : { text: "", down_ns: [] };
    return {
      index, begin, end: begin + count, link, nodes,
      name: link ? `${link.name}${reverse ? " back" : ""}` : "",
      text: direction.text,
      down: direction.down_ns ?? [],
      /** Returns the range of hops among which are all that concern the time `t`. */
      at(t) {
        const bucket = Math.min(BUCKETS, Math.max(0, Math.floor(t / width)));
        return [alive[bucket], upperBound(hops.at, t, begin, begin + count)];
      },
      /** Returns whether it is down at `t`. */
      isDown(t) {
        return this.down.some(([from, to]) => from <= t && t < to);
      },
    };
  });
}

/** Returns the indices of lost hops in the order of their losses, and these times. */
function lossesOf(hops) {
  const hop = [];
  for (let i = 0; i < hops.count; i++) if (hops.lost[i] > 0) hop.push(i);
  hop.sort((a, b) => hops.end[a] - hops.end[b]);
  return { hop: Uint32Array.from(hop), at: Float64Array.from(hop, (i) => hops.end[i]) };
}

/** Returns the first hop of each packet. */
function firstHops(packets, hops) {
  const first = new Int32Array(packets.count).fill(-1);
  for (let i = 0; i < hops.count; i++) {
    const packet = hops.packet[i];
    if (first[packet] < 0 || hops.at[i] < hops.at[first[packet]]) first[packet] = i;
  }
  return first;
}

/** Returns the times at which something begins or ends, in ascending order. */
function eventTimes({ hops, ended, lanes }) {
  const more = [0, ended, ...lanes.flatMap((lane) => lane.down.flat())];
  const all = new Float64Array(3 * hops.count + more.length);
  all.set(hops.at, 0);
  all.set(hops.start, hops.count);
  all.set(hops.end, 2 * hops.count);
  all.set(more, 3 * hops.count);
  all.sort();
  return all.subarray(0, upperBound(all, ended, 0, all.length));
}

/** Describes a packet in one line. */
function describePacket({ packets, about, network }, packet) {
  const flow = packets.flow[packet] > 0 ? network.flows[packets.flow[packet] - 1].name : "no flow";
  const kind = KINDS[packets.kind[packet]];
  const what = about.words[packets.what[packet]] ?? "";
  const number = (name, value) => (value > 0 ? `, ${name} ${value - 1}` : "");
  return `${flow}${packets.back[packet] ? " (back)" : ""}: ${what}, ${kind}, ${packets.size[packet]} bytes`
    + number("number", packets.seq[packet]) + number("expects", packets.ack[packet])
    + number("stream", packets.stream[packet]);
}
