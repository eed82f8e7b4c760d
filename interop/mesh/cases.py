"""The laboratory of mesh routers itself: delays are true, links change, nothing is left behind."""

import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

import daemons
import network
import server
import topology
from ether import DELAY_MS, Ether
from hubs import Hubs
from laboratory import Laboratory

ENDS = [("0", "2"), ("2", "0")]
# There and back over two links.
ROUND_TRIP = 4 * DELAY_MS / 1000


def line(c, links, daemon=None):
    """A laboratory of three routers in a line that ends with the case; Babel, where it is installed, unless another
    daemon is asked for."""
    lab = Laboratory(topology.line(3), links, c.case.name.replace("/", "-"))
    names = list(lab.__enter__().spaces.names.values())

    def end():
        lab.__exit__()
        c.expect(not any(Path("/run/netns", name).exists() for name in names), "namespaces are left")
        c.expect(not lab.folder.exists(), "files are left")
    c.after(lab.__exit__)
    if daemon is None:
        daemon = daemons.Static() if daemons.Babeld().missing() else daemons.Babeld()
    lab.start(daemon)
    return lab, lab.addresses(daemon), end


@network.case("mesh/line-with-delay", limit=20)
def with_delay(c):
    """Two links of a millisecond each are four milliseconds there and back; a link that is gone carries nothing, and
    one that comes back does."""
    lab, address, end = line(c, Ether)

    def ping():
        return lab.probe.ping(ENDS, 0.05, address)

    times = c.until(lambda: None not in (got := ping()) and got, 20, "the outer routers do not reach each other")
    c.expect(min(times) >= ROUND_TRIP, f"two links of {DELAY_MS} ms took {1000 * min(times):.2f} ms there and back")
    counts = lab.links.counts()
    c.expect(all(count["tx"] > 0 and count["rx"] > 0 for count in counts.values()), f"not all are counted: {counts}")
    lab.links.settings["loss"] = 1.0
    lab.change(lab.graph)
    c.expect(ping() == [None, None], "frames are delivered over links that lose all")
    lab.links.settings["loss"] = 0.0
    lab.change(topology.Graph("012", ["01"]))
    c.expect(ping() == [None, None], "frames are delivered over a link that is gone")
    lab.change(topology.line(3))
    c.until(lambda: None not in ping(), 30, "a link that is back carries nothing")
    switch = lab.links.program.child
    end()
    c.expect(switch.poll() is not None, "the switch still runs")


@network.case("mesh/line-of-hubs", limit=20)
def of_hubs(c):
    """The published set-up carries frames between neighbours only, and does not delay them."""
    lab, address, end = line(c, Hubs)

    def ping():
        return lab.probe.ping(ENDS, 0.05, address)

    c.until(lambda: None not in (got := ping()) and min(got) < ROUND_TRIP and got, 20,
            "the outer routers do not reach each other without delay")
    received, _ = lab.spaces.octets("0")
    lab.change(topology.Graph("012", ["12"]))
    c.expect(ping() == [None, None], "frames are delivered over a link that is gone")
    more = lab.spaces.octets("0")[0] - received
    c.expect(more < 1000, f"{more} octets came over a link that is gone")
    end()


@network.case("mesh/three-routers", limit=20)
def three_routers(c):
    """Three routers in a line find each other without any configuration; the outer ones reach each other over the
    middle one, and all end when they are asked to."""
    daemon = daemons.Ringway(server.binary())
    lab, address, end = line(c, Ether, daemon)

    def ping():
        return lab.probe.ping(ENDS, 0.05, address)

    times = c.until(lambda: None not in (got := ping()) and got, 10,
                    lambda: f"the outer routers do not reach each other: {[one.said() for one in lab.programs]}")
    c.expect(min(times) >= ROUND_TRIP, f"an answer came {1000 * min(times):.2f} ms after a ping over two links")
    programs = lab.programs
    end()
    c.expect([program.child.returncode for program in programs] == [0, 0, 0],
             f"they ended with {[program.child.returncode for program in programs]}")


@network.case("mesh/networks", limit=10)
def networks(c):
    """The networks have the size that the comparisons are stated for; a map in meshnet-lab's form is read."""
    for name, nodes, links, connected in (("grid", 49, 84, True), ("tree", 50, 49, True), ("line", 50, 49, True),
                                          ("disk", 50, 150, False), ("city", 279, 348, True)):
        graph = topology.named(name, 1)
        c.expect((len(graph.nodes), len(graph.links)) == (nodes, links), f"{name}: {graph.about()}")
        c.expect(not connected or len(graph.hops_from("0")) == nodes, f"{name} is not connected")
        pairs = graph.pairs(random.Random(1), 200)
        c.expect(all(graph.hops_from(a)[b] >= 2 for a, b in pairs), f"{name}: neighbours are pinged")
    moved = topology.named("disk", 1).moved(random.Random(1), 30)
    c.expect(len(moved.links) == 150, f"after a step the disk has {len(moved.links)} links")
    file = c.folder / "map.json"
    file.write_text('{"nodes": [{"id": "aa:bb:cc", "x": 1}], "links": [{"source": "aa:bb:cc", "target": 7, "tq": 1}]}',
                    encoding="utf-8")
    graph = topology.read(file)
    c.expect((len(graph.nodes), len(graph.links)) == (2, 1), f"a map is misread: {graph.about()}")
