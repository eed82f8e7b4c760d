"""What routers send and receive when nobody uses the network: octets at each uplink, Ethernet headers and the kernel's
own packets included. A multicast counts once where it is sent and once at each neighbour that hears it."""

import random
import statistics
import time

from probe import share

PAIRS, SPAN = 200, 2.0


def traffic(lab, daemon, seed, settle, window):
    """Octets a second of a router after `settle` seconds, over `window` seconds."""
    rng = random.Random(seed)
    started, _ = lab.start(daemon)
    time.sleep(max(0.0, started + settle - time.monotonic()))

    def counts():
        return {node: lab.spaces.octets(node) for node in lab.graph.nodes}
    (first, cpu_first), begun = (counts(), lab.load()[0]), time.monotonic()
    time.sleep(window)
    (last, load), took = (counts(), lab.load()), time.monotonic() - begun
    times = lab.probe.ping(lab.graph.pairs(rng, PAIRS), SPAN, lab.addresses(daemon))
    gone = len(lab.ended())
    lab.stop()
    rx, tx = ([(last[node][way] - first[node][way]) / took for node in lab.graph.nodes] for way in (0, 1))
    both = [a + b for a, b in zip(rx, tx, strict=True)]
    of = {name: {"mean": statistics.mean(values), "median": statistics.median(values), "max": max(values)}
          for name, values in (("tx", tx), ("rx", rx), ("both", both))}
    return {**of, "cpu_percent": 100 * (load[0] - cpu_first) / took / len(lab.graph.nodes), "resident_mb": load[1],
            "resident_max_mb": load[2], "reached": share(times), "ended": gone}
