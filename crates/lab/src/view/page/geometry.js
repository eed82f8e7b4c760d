// Where nodes and lanes are on the screen.

const NODE = 13;
const LANE = 7;
const STAGE_MARGIN = 56;

/** The part of the plane that is shown: fits all nodes, until it is zoomed or moved. */
class Camera {
  constructor(nodes) {
    this.nodes = nodes;
    this.reset();
  }

  reset() {
    this.zoom = 1;
    this.dx = 0;
    this.dy = 0;
  }

  /** Fits all nodes into a screen of this size. */
  fit(width, height) {
    const axis = (k) => {
      const all = this.nodes.map((node) => node.position[k]);
      return [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))];
    };
    const [[left, right], [top, bottom]] = [axis(0), axis(1)];
    const room = (size) => Math.max(size - 2 * STAGE_MARGIN, 40);
    const scale = Math.min(room(width) / Math.max(right - left, 1e-9), room(height) / Math.max(bottom - top, 1e-9));
    this.scale = Number.isFinite(scale) ? Math.min(scale, 1e6) : 1;
    Object.assign(this, { cx: (left + right) / 2, cy: (top + bottom) / 2, width, height });
  }

  place([x, y]) {
    const scale = this.scale * this.zoom;
    return [this.width / 2 + (x - this.cx) * scale + this.dx, this.height / 2 + (y - this.cy) * scale + this.dy];
  }

  /** Zooms by `factor`; the point (x, y) of the screen stays. */
  zoomAt(factor, x, y) {
    const next = Math.min(200, Math.max(0.2, this.zoom * factor));
    const by = next / this.zoom;
    this.dx = (this.dx + this.width / 2 - x) * by + x - this.width / 2;
    this.dy = (this.dy + this.height / 2 - y) * by + y - this.height / 2;
    this.zoom = next;
  }

  move(dx, dy) {
    this.dx += dx;
    this.dy += dy;
  }
}

/** Returns for each link its number among those between the same nodes, and how many these are. */
function bundles(links) {
  const seen = new Map();
  const key = ({ between: [a, b] }) => (a < b ? `${a} ${b}` : `${b} ${a}`);
  const number = links.map((link) => {
    const before = seen.get(key(link)) ?? 0;
    seen.set(key(link), before + 1);
    return before;
  });
  return links.map((link, i) => ({ number: number[i], count: seen.get(key(link)) }));
}

/** Returns for each link where it runs: from (x, y) along (ux, uy) for `length` pixels. */
function placeLinks(links, groups, places) {
  return links.map((link, i) => {
    const [[ax, ay], [bx, by]] = link.between.map((node) => places[node]);
    const distance = Math.max(Math.hypot(bx - ax, by - ay), 1e-6);
    const [ux, uy] = [(bx - ax) / distance, (by - ay) / distance];
    // Links between the same nodes are beside each other, in the same order from either end.
    const side = link.between[0] < link.between[1] ? 1 : -1;
    const { number, count } = groups[i];
    const step = Math.min(64, Math.max(30, distance / 6));
    const shift = (number - (count - 1) / 2) * step * side;
    const inset = Math.min(NODE + 3, distance / 3);
    return {
      x: ax - uy * shift + ux * inset, y: ay + ux * shift + uy * inset, ux, uy,
      length: Math.max(distance - 2 * inset, 1), shift, ax, ay, bx, by,
    };
  });
}

/** Returns a lane of a link: packets keep to the right of their way; queues grow away from the link. */
function placeLane({ x, y, ux, uy, length }, reverse) {
  const [dx, dy] = reverse ? [-ux, -uy] : [ux, uy];
  const [sx, sy] = reverse ? [x + ux * length, y + uy * length] : [x, y];
  const [nx, ny] = [-dy, dx];
  return { x: sx + nx * LANE, y: sy + ny * LANE, ux: dx, uy: dy, nx, ny, length };
}
