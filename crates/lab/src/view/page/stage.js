// The animation: nodes, links, packets on them, queues at their entries, and packets that fall off.
//
// A packet enters a link when its first bit is sent and has left it when its last bit arrives. Its length is the share
// of the sending in that time, within limits.

const PACKET = 9;
const MAX_SHARE = 0.35;
const QUEUE_MAX = 84;
const QUEUE_SQUARE = 7;
const FALL_SECONDS = 0.9;
const FALL_PIXELS = 46;
const MAX_FALLING = 400;

class Stage {
  constructor(canvas, model, clock) {
    Object.assign(this, { canvas, model, clock, colourBy: "kind", labels: true, drawn: null, spots: [] });
    this.camera = new Camera(model.network.nodes);
    this.groups = bundles(model.network.links);
  }

  colour(packet) {
    const { packets } = this.model;
    return theme.entry(this.colourBy === "flow" ? Math.max(packets.flow[packet] - 1, 0) : packets.kind[packet]);
  }

  /** Draws the time of the clock. Notes what was drawn, for the status line and for tests. */
  render() {
    const { context, width, height } = fitted(this.canvas);
    if (width === 0) return;
    const { network, lanes } = this.model;
    const { t } = this.clock;
    this.camera.fit(width, height);
    this.places = network.nodes.map((node) => this.camera.place(node.position));
    this.centre = [0, 1].map((k) => this.places.reduce((sum, place) => sum + place[k], 0) / this.places.length);
    this.ways = placeLinks(network.links, this.groups, this.places);
    this.drawn = { queued: 0, moving: 0, falling: 0, marks: 0, down: [], queues: {} };
    this.spots = [];
    context.clearRect(0, 0, width, height);
    context.textBaseline = "middle";
    this.lanes = lanes.slice(0, -1).map((lane) => placeLane(this.ways[lane.index >> 1], lane.index & 1));
    network.links.forEach((link, i) => this.drawLink(context, link, i, t));
    network.nodes.forEach((node, i) => this.drawNode(context, node, this.places[i]));
    lanes.forEach((lane) => lane.link && this.drawLane(context, lane, this.lanes[lane.index], t));
    this.drawFalling(context, t);
  }

  drawLink(context, link, i, t) {
    const { x, y, ux, uy, length, shift, ax, ay, bx, by } = this.ways[i];
    const [ex, ey] = [x + ux * length, y + uy * length];
    const { lanes } = this.model;
    const down = [0, 1].filter((end) => lanes[2 * i + end].isDown(t));
    context.strokeStyle = down.length > 0 ? theme.loss : theme.line;
    context.lineWidth = down.length > 0 ? 2.5 : 2;
    context.setLineDash(down.length > 0 ? [7, 7] : []);
    line(context, x, y, ex, ey);
    if (shift !== 0) {
      // A link beside others is bent to its nodes.
      line(context, ax, ay, x, y);
      line(context, bx, by, ex, ey);
    }
    context.setLineDash([]);
    const [mx, my] = [x + (ux * length) / 2, y + (uy * length) / 2];
    if (down.length > 0) {
      this.drawn.down.push(link.name);
      drawCross(context, mx, my, 8, theme.loss, 3);
    }
    const isReadable = this.model.network.links.length <= 40 && length > 70;
    if (isReadable) this.drawLinkText(context, link, this.ways[i], [mx, my], down);
  }

  drawLinkText(context, link, { ux, uy, length }, [mx, my], down) {
    const same = (link.there.text ?? "") === (link.back.text ?? "");
    const what = same ? link.there.text : `${link.there.text} / ${link.back.text}`;
    const state = down.length === 2 ? "down" : down.length === 1 ? `down ${down[0] ? "back" : "there"}` : what;
    context.font = `11px ${FONT}`;
    context.fillStyle = down.length > 0 ? theme.loss : theme.faint;
    // On the outer side of the network, out of the way of packets and their labels. A link that has none has its text above
    // it, below if it is level, and to the right if it is upright.
    const out = (mx - this.centre[0]) * -uy + (my - this.centre[1]) * ux;
    const level = Math.abs(ux) > 0.95 ? Math.sign(ux) : Math.abs(ux) < 0.05 ? -Math.sign(uy) : -Math.sign(ux);
    const side = Math.abs(out) > Math.min(0.05 * length, 12) ? Math.sign(out) : level;
    const [nx, ny] = [-uy * side, ux * side];
    const [px, py] = [mx + nx * (LANE + (Math.abs(nx) > 0.9 ? 70 : 30)), my + ny * (LANE + 34) - (ny < 0 ? 10 : 4)];
    const steep = Math.abs(nx) > 0.4;
    context.textAlign = steep ? (nx > 0 ? "left" : "right") : "center";
    const room = steep ? 180 : Math.abs(ux) * length + 30;
    haloText(context, clipped(context, link.name, room), px, py);
    haloText(context, clipped(context, state, room), px, py + 14);
  }

  drawNode(context, node, [x, y]) {
    context.beginPath();
    context.arc(x, y, NODE, 0, 2 * Math.PI);
    context.fillStyle = theme.node;
    context.fill();
    const many = this.model.network.nodes.length > 60 && this.camera.zoom < 2;
    if (many) return;
    context.textAlign = "center";
    context.font = `600 12px ${FONT}`;
    if (context.measureText(node.name).width < 2 * NODE - 5) {
      context.fillStyle = theme.nodeInk;
      context.fillText(node.name, x, y + 0.5);
    } else {
      context.fillStyle = theme.ink;
      context.fillText(clipped(context, node.name, 140), x, y + NODE + 11);
    }
  }

  /** Draws the packets of a lane: those that wait at its entry, and those on their way. */
  drawLane(context, lane, place, t) {
    const { hops } = this.model;
    const [first, last] = lane.at(t);
    const waiting = [];
    const moving = [];
    for (let i = first; i < last; i++) {
      if (hops.end[i] <= t) continue;
      if (t < hops.start[i]) waiting.push(i);
      else moving.push(i);
    }
    if (waiting.length > 0) this.drawQueue(context, lane, place, waiting);
    this.drawMoving(context, lane, place, moving, t);
  }

  drawQueue(context, lane, place, waiting) {
    const { hops, packets } = this.model;
    this.drawn.queued += waiting.length;
    this.drawn.queues[lane.name] = waiting.length;
    const size = Math.min(QUEUE_SQUARE, QUEUE_MAX / waiting.length);
    const gap = size > 4 ? 1 : 0;
    const x0 = place.x + place.ux * 5 + place.nx * 8;
    const y0 = place.y + place.uy * 5 + place.ny * 8;
    // Of those that share a pixel one is drawn.
    const step = Math.max(1, Math.floor(1 / size));
    for (let n = 0; n < waiting.length; n += step) {
      const packet = hops.packet[waiting[n]];
      const [x, y] = [x0 + place.nx * n * size, y0 + place.ny * n * size];
      const long = Math.max(size - gap, 0.75);
      context.fillStyle = this.colour(packet);
      drawPacket(context, x, y, place.nx, place.ny, 0, long, 9, packets.kind[packet] === 1 ? 1 : 0, context.fillStyle);
      this.drawn.marks++;
    }
    const far = waiting.length * size + 11;
    context.font = `11px ${FONT}`;
    context.fillStyle = theme.ink;
    context.textAlign = "center";
    context.fillText(String(waiting.length), x0 + place.nx * far, y0 + place.ny * far);
    this.spots.push({ x: x0 + (place.nx * far) / 2, y: y0 + (place.ny * far) / 2, reach: Math.max(far / 2, 8), lane, waiting });
  }

  drawMoving(context, lane, place, moving, t) {
    const { hops, packets } = this.model;
    let [lastPixel, lastKind] = [-1, -1];
    this.drawn.moving += moving.length;
    for (const i of moving) {
      const [from, to] = stretch(hops, i, t, place.length);
      const packet = hops.packet[i];
      const kind = packets.kind[packet];
      const pixel = Math.round(to);
      if (pixel === lastPixel && kind === lastKind) continue;
      [lastPixel, lastKind] = [pixel, kind];
      const colour = this.colour(packet);
      drawPacket(context, place.x, place.y, place.ux, place.uy, from, to, PACKET, kind, colour);
      this.drawn.marks++;
      const middle = (from + to) / 2;
      const [x, y] = [place.x + place.ux * middle, place.y + place.uy * middle];
      this.spots.push({ x, y, reach: Math.max((to - from) / 2, 7), packet, lane });
      if (this.labels && moving.length <= 4 && place.length > 110) this.drawLabel(context, place, x, y, packet);
    }
  }

  drawLabel(context, place, x, y, packet) {
    const { packets, about } = this.model;
    const number = packets.seq[packet] || packets.ack[packet];
    context.font = `10px ${FONT}`;
    context.fillStyle = theme.ink;
    const side = Math.abs(place.nx) > 0.4;
    context.textAlign = side ? (place.nx > 0 ? "left" : "right") : "center";
    const text = `${about.words[packets.what[packet]] ?? ""}${number > 0 ? ` ${number - 1}` : ""}`;
    haloText(context, text, x + place.nx * 11, y + place.ny * 13);
  }

  /** Draws what was lost a moment ago. */
  drawFalling(context, t) {
    const { hops, losses, packets, about } = this.model;
    const span = FALL_SECONDS * this.clock.speed * 1e9;
    const last = upperBound(losses.at, t, 0, losses.at.length);
    const first = upperBound(losses.at, t - span, 0, last);
    this.drawn.falling = last - first;
    this.drawn.lost = last;
    const named = new Set();
    for (let n = last - 1; n >= Math.max(first, last - MAX_FALLING); n--) {
      const hop = losses.hop[n];
      const age = (t - losses.at[n]) / span;
      const [x, from] = this.lossPlace(hop);
      const top = Math.min(from, this.camera.height - FALL_PIXELS - 16);
      const y = top + FALL_PIXELS * age * age + 6 * age;
      const packet = hops.packet[hop];
      context.globalAlpha = 1 - 0.75 * age;
      const [ux, uy] = [Math.cos(age * 4), Math.sin(age * 4)];
      drawPacket(context, x, y, ux, uy, -5, 5, PACKET, packets.kind[packet], this.colour(packet));
      drawCross(context, x, y, 6, theme.loss, 2);
      context.globalAlpha = 1;
      this.drawn.marks++;
      this.spots.push({ x, y, reach: 8, packet, lost: about.reasons[hops.lost[hop] - 1] });
      const key = `${hops.lane[hop] >> 1} ${hops.lost[hop]}`;
      if (!named.has(key)) {
        named.add(key);
        context.font = `600 11px ${FONT}`;
        context.fillStyle = theme.loss;
        const right = x > this.camera.width - 190;
        context.textAlign = right ? "right" : "left";
        haloText(context, about.reasons[hops.lost[hop] - 1], x + (right ? -12 : 12), y);
      }
    }
  }

  /** Returns where a packet was when it was lost. */
  lossPlace(hop) {
    const { hops, lanes } = this.model;
    const lane = lanes[hops.lane[hop]];
    if (!lane.link) return this.places[hops.node[hop]];
    const place = this.lanes[lane.index];
    const gone = hops.end[hop] - hops.start[hop];
    if (gone > 0) {
      const along = place.length * Math.min(1, gone / this.usualTime(hop, gone));
      return [place.x + place.ux * along, place.y + place.uy * along];
    }
    // At the end of the queue.
    const aside = 30 + Math.min(QUEUE_MAX, (this.drawn.queues[lane.name] ?? 0) * QUEUE_SQUARE);
    return [place.x + place.ux * 5 + place.nx * aside, place.y + place.uy * 5 + place.ny * aside];
  }

  /** Returns the time that a packet takes for the lane of a hop: that of one before it which arrived. */
  usualTime(hop, otherwise) {
    const { hops, lanes } = this.model;
    const { begin } = lanes[hops.lane[hop]];
    for (let i = hop - 1; i >= Math.max(begin, hop - 1000); i--) {
      if (hops.lost[i] === 0 && hops.end[i] < Infinity) return Math.max(hops.end[i] - hops.start[i], 1);
    }
    return 2 * otherwise;
  }

  /** Returns what is at a point of the canvas, in words; null if nothing is. */
  hit(x, y) {
    const near = this.spots.filter((spot) => Math.hypot(spot.x - x, spot.y - y) <= spot.reach);
    const spot = near.sort((a, b) => Math.hypot(a.x - x, a.y - y) - Math.hypot(b.x - x, b.y - y))[0];
    if (!spot) return null;
    if (spot.waiting) return `${spot.waiting.length} packets wait for ${spot.lane.name}`;
    const text = describePacket(this.model, spot.packet);
    return spot.lost ? `${text}\nlost: ${spot.lost}` : `${text}\non ${spot.lane.name}`;
  }

  /** Describes what is drawn. */
  status() {
    const { queued, moving, lost, down } = this.drawn ?? { queued: 0, moving: 0, lost: 0, down: [] };
    const links = down.length > 0 ? `, down: ${down.slice(0, 8).join(", ")}` : "";
    return `${moving} on links, ${queued} waiting, ${lost} lost so far${links}`;
  }
}

/** Returns the pixels of a lane between which a packet is at the time `t`. */
function stretch(hops, hop, t, length) {
  const [sending, flying] = [hops.sending[hop], hops.flying[hop]];
  const whole = Math.max(sending + flying, 1);
  const share = Math.min(MAX_SHARE, sending / whole);
  const long = Math.max(share * length, 5);
  const front = Math.min(1, Math.max(0, (t - hops.start[hop]) / whole)) * (length + long);
  return [Math.max(0, front - long), Math.min(length, front)];
}

/** Writes text that can be read on anything. */
function haloText(context, text, x, y) {
  context.strokeStyle = theme.panel;
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.fillText(text, x, y);
}

function drawCross(context, x, y, size, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  line(context, x - size, y - size, x + size, y + size);
  line(context, x - size, y + size, x + size, y - size);
}
