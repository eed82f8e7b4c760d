"""How long routers that start at the same time need until they reach each other.

Two methods. *Published*: start, wait 0, 2, 4 .. seconds, ping 200 random pairs within two seconds, stop; again from the
beginning for each wait. *Fine*: start once and send the same 100 pings a second all the time; the share at a time is
that of the two seconds after it, so both ask the same, the latter at each half of a second.
"""

import random
import time

from probe import WAITING, share, spread

PAIRS, SPAN = 200, 2.0
# Seconds between two waits, and between two points of the fine method.
STEP, FINE = 2.0, 0.5
# What counts as converged, percent.
GOAL = 95.0
EACH = int(PAIRS * FINE / SPAN)


def windows(times):
    """The share of answered pings in the two seconds after each point, as far as all of them are decided."""
    found = []
    for begin in range(0, len(times) - PAIRS + 1, EACH):
        window = times[begin:begin + PAIRS]
        if WAITING in window:
            break
        found.append(share(window))
    return found


def loaded(lab):
    """What the daemons have used since they were started, and how many have ended by themselves."""
    cpu, resident, _ = lab.load()
    return {"cpu_seconds": cpu, "resident_mb": resident, "ended": len(lab.ended())}


def fine(lab, daemon, seed, limit, down_up):
    """One start; the share of the two seconds after each half of a second and when it reached the goal; and the share
    of each half of a second by itself."""
    points = int(limit / FINE) + PAIRS // EACH
    pairs = lab.graph.pairs(random.Random(seed), EACH * points)
    begun, took = lab.start(daemon, down_up)
    plan = spread(pairs, begun, FINE * points)

    def enough(times):
        # Looking at them is work: once a point is enough.
        return len(times) % EACH == 0 and max(windows(times), default=0) >= GOAL
    times = lab.probe.run(plan, lab.addresses(daemon), enough)
    shares = windows(times)
    load = loaded(lab)
    lab.stop()
    reached = next((FINE * index for index, value in enumerate(shares) if value >= GOAL), None)
    halves = [share(times[begin:begin + EACH]) for begin in range(0, len(times) - EACH + 1, EACH)]
    return {"reached": reached, "start_seconds": took, "shares": shares, "halves": halves, **load}


def published(lab, daemon, seed, limit, down_up):
    """A start for each wait; the share after each, and the first wait after which it was the goal."""
    rng, shares, took, load = random.Random(seed), [], 0.0, {}
    while (not shares or shares[-1] < GOAL) and STEP * len(shares) < limit:
        _, took = lab.start(daemon, down_up)
        time.sleep(STEP * len(shares))
        shares.append(share(lab.probe.ping(lab.graph.pairs(rng, PAIRS), SPAN, lab.addresses(daemon))))
        load = loaded(lab)
        lab.stop()
    reached = STEP * (len(shares) - 1) if shares[-1] >= GOAL else None
    return {"reached": reached, "start_seconds": took, "shares": shares, **load}


METHODS = {"fine": fine, "published": published}
