"""What a TCP sender's window did, and whether that is what the standards ask for.

Everything is held against the packets that were sent and acknowledged, not against a clock of ours,
so that it does not matter how evenly the machine let a sender run. Sizes are in segments.
"""

import itertools
from dataclasses import dataclass

# RFC 6928: the initial window, which both senders use.
INITIAL = 10
# RFC 9438 sections 4.1.1, 4.6 and 4.3.
C, CUBIC_BETA = 0.4, 0.7
CUBIC_ALPHA = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA)
# RFC 5681 section 3.1, equation 4.
RENO_BETA = 0.5
# How far a window may be from what the formula says: so many segments, and so much of it. Windows
# are whole segments with one sender and bytes with the other, and an acknowledgment may count late.
SEGMENTS, SHARE = 2, 0.06
# Packets from one comparison of two senders to the next.
EVERY = 20


@dataclass
class Row:
    """A sender after something arrived for it."""

    at: float  # milliseconds by the clock its sender goes by
    packets: int  # data packets it has put on the link, lost ones too
    cwnd: float
    ssthresh: float  # 0 before there was any loss
    flight: float
    recovers: bool

    @property
    def acked(self):
        """Data packets that are no longer on their way."""
        return self.packets - self.flight


def read(path):
    """The rows of a trace that our program wrote."""
    rows = []
    for line in path.read_text().splitlines():
        at, packets, cwnd, ssthresh, flight, recovers = line.split()
        rows.append(Row(float(at), int(packets), float(cwnd), float(ssthresh), float(flight), recovers == "1"))
    return rows


def near(one, other, segments=SEGMENTS):
    """Whether a window is what it should be."""
    return abs(one - other) <= segments + SHARE * other


def reductions(rows):
    """The rows just before and just after each loss was noticed."""
    return [(a, b) for a, b in itertools.pairwise(rows) if b.recovers and not a.recovers]


def stretches(rows):
    """The rows between repairs."""
    found, last = [[]], False
    for row in rows:
        if last and not row.recovers:
            found.append([])
        last = row.recovers
        if not row.recovers:
            found[-1].append(row)
    return found


def falls(who, rows, losses, beta):
    """RFC 5681 section 3.2, RFC 6675 section 5: the window falls once for each loss, to `beta` of what
    was in flight, and stands at ssthresh when the loss is repaired. Gives what is wrong."""
    wrong, found = [], reductions(rows)
    if len(found) != losses:
        wrong.append(f"{who} fell {len(found)} times for {losses} losses")
    for before, after in found:
        if before.flight < before.cwnd - SEGMENTS:
            wrong.append(f"{who} did not use its window: {before}")
        if abs(after.ssthresh - beta * before.cwnd) > 1:
            wrong.append(f"{who} fell from {before.cwnd} to ssthresh {after.ssthresh}, not to {beta} of it")
    wrong.extend(f"{who} went on from a repair at {stretch[0].cwnd} with ssthresh {stretch[0].ssthresh}"
                 for stretch in stretches(rows)[1:]
                 if stretch and abs(stretch[0].cwnd - stretch[0].ssthresh) > SEGMENTS)
    return wrong


def slow_start(who, rows):
    """RFC 5681 section 3.1: before the first loss, a segment for each one acknowledged."""
    return first_wrong(who, "slow start", ((row, row.cwnd, INITIAL + row.acked, INITIAL + row.acked)
                                           for row in stretches(rows)[0] if row.flight))


def reno(who, rows):
    """RFC 5681 section 3.1: after a loss, a segment for each window acknowledged."""
    def expected():
        for stretch in stretches(rows)[1:]:
            grown, last = Growth(stretch[0].cwnd), stretch[0]
            for row in stretch:
                grown.add(row.acked - last.acked, 1)
                last = row
                yield row, row.cwnd, grown.window, grown.window
    return first_wrong(who, "congestion avoidance", expected())


class Growth:
    """A window that grows by `alpha` for each window acknowledged."""

    def __init__(self, window):
        self.window = window

    def add(self, acked, alpha):
        """So many segments were acknowledged."""
        self.window += alpha * acked / self.window


def cubic(who, rows, rtt):
    """RFC 9438 sections 4.2, 4.3 and 4.7: after a loss, the larger of W_cubic and W_est.

    `rtt` in seconds is how far W_cubic may be ahead (section 4.2: the target is a round trip ahead)
    or behind (the window follows the target within one). W_est may, as section 4.3 says, grow by a whole segment a
    window once it is where the loss was, or go on as before (as Linux does).
    """
    def expected():
        w_max = 0
        for (before, _), stretch in zip(reductions(rows), stretches(rows)[1:], strict=False):
            if not stretch:
                continue
            prior, start = before.cwnd, stretch[0]
            w_max = prior * (1 + CUBIC_BETA) / 2 if prior < w_max else prior
            k = (max(w_max - start.cwnd, 0) / C) ** (1 / 3)
            least, most, last = Growth(start.cwnd), Growth(start.cwnd), start
            for row in stretch:
                acked, t, last = row.acked - last.acked, (row.at - start.at) / 1000, row
                least.add(acked, CUBIC_ALPHA)
                most.add(acked, 1 if most.window >= prior else CUBIC_ALPHA)
                low, high = (C * (t + ahead - k) ** 3 + w_max for ahead in (-rtt, rtt))
                yield row, row.cwnd, max(least.window, low), max(most.window, high)
    return first_wrong(who, "growth", expected())


def first_wrong(who, what, windows):
    """The first of (row, window, least, most) that is not in between, if any."""
    for row, window, least, most in windows:
        if not (window >= least or near(window, least)) or not (window <= most or near(window, most)):
            return [f"{who}: {what}: expected a window of {least:.1f} to {most:.1f}, got {row}"]
    return []


def alike(ours, kernel):
    """Two senders whose windows go by packets alone must be alike at the same packet after as many
    losses."""
    def at(rows):
        return {(losses, row.packets // EVERY): row.cwnd
                for losses, stretch in enumerate(stretches(rows)) for row in stretch}
    mine, theirs = at(ours), at(kernel)
    both = sorted(mine.keys() & theirs.keys())
    if len(both) * EVERY < kernel[-1].packets / 2:
        return ["the traces have too little in common"]
    return [f"at packet {step * EVERY} our window is {mine[losses, step]:.1f}, "
            f"the kernel's {theirs[losses, step]:.1f}"
            for losses, step in both if not near(mine[losses, step], theirs[losses, step])][:1]


def summary(rows):
    """Where each loss found the window, and where it left ssthresh."""
    return ", ".join(f"{before.cwnd:.0f} to {after.ssthresh:.0f}" for before, after in reductions(rows))


def ticks(most):
    """Round numbers up to `most`, four to nine of them."""
    step = next(step for power in range(9) for step in (10 ** power, 2 * 10 ** power, 5 * 10 ** power)
                if most / step < 10)
    return range(0, int(most) + 1, step)


def drawing(traces, path):
    """Windows over packets sent as one picture: the first solid, the second dashed."""
    width, height, margin = 900, 400, 60
    most = max(row.packets for trace in traces.values() for row in trace)
    highest = max(row.cwnd for trace in traces.values() for row in trace) * 1.05
    styles = (("#0072b2", ""), ("#d55e00", 'stroke-dasharray="6 4" '))

    def place(packets, cwnd):
        return margin + packets / most * width, margin + height - cwnd / highest * height

    parts = [
        (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * margin}" height="{height + 2 * margin}" '
         'font-family="sans-serif" font-size="14">'),
        f'<rect width="{width + 2 * margin}" height="{height + 2 * margin}" fill="white"/>',
        f'<text x="{margin + width / 2}" y="{height + 2 * margin - 12}" text-anchor="middle">data packets sent</text>',
        (f'<text transform="translate(18 {margin + height / 2}) rotate(-90)" text-anchor="middle">'
         'congestion window, segments</text>'),
    ]
    for value in ticks(most):
        x, y = place(value, 0)
        parts.append(f'<path d="M{x:.1f} {margin}V{y}" stroke="#ddd"/>'
                     f'<text x="{x:.1f}" y="{y + 20}" text-anchor="middle">{value}</text>')
    for value in ticks(highest):
        x, y = place(0, value)
        parts.append(f'<path d="M{x} {y:.1f}h{width}" stroke="#ddd"/>'
                     f'<text x="{x - 8}" y="{y + 5:.1f}" text-anchor="end">{value}</text>')
    for number, ((name, trace), (colour, dash)) in enumerate(zip(traces.items(), styles, strict=False)):
        points, last = [], None
        for row in trace:
            x, y = place(row.packets, row.cwnd)
            if last is not None:
                points.append(f"{x:.1f},{last:.1f}")
            points.append(f"{x:.1f},{y:.1f}")
            last = y
        line = f'fill="none" stroke="{colour}" stroke-width="1.5" {dash}'
        left = margin + 20 + 180 * number
        parts.append(f'<polyline {line}points="{" ".join(points)}"/><path {line}d="M{left} {margin - 20}h40"/>'
                     f'<text x="{left + 48}" y="{margin - 15}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>"]))
