"""How many pings arrive while the routers move: all move a step, there is time to notice, 200 pairs are pinged."""

import random
import time

from probe import share

PAIRS, SPAN = 200, 2.0


def movement(lab, daemon, seed, steps, distance, every, report):
    """The share of answered pings of each step; `report` is called with each."""
    rng, shares, changed = random.Random(seed), [], []
    lab.start(daemon)
    address = lab.addresses(daemon)
    for _ in range(steps):
        begun, before = time.monotonic(), lab.graph.links
        lab.change(lab.graph.moved(rng, distance))
        changed.append(len(lab.graph.links - before))
        time.sleep(max(0.0, begun + every - time.monotonic()))
        shares.append(share(lab.probe.ping(lab.graph.pairs(rng, PAIRS), SPAN, address)))
        report(shares[-1])
    cpu, resident, _ = lab.load()
    gone = len(lab.ended())
    lab.stop()
    return {"mean": sum(shares) / len(shares), "shares": shares, "new_links": sum(changed) / len(changed),
            "cpu_seconds": cpu, "resident_mb": resident, "ended": gone}
