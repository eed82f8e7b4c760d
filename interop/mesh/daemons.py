"""The mesh routers that are compared: what starts each, and where its address is.

A daemon has a `name`, the `device` that carries its global IPv6 address, `missing()` (why it cannot be tried here, or
None), `prepare(lab)` (what must be there before the start and is not timed) and `commands(lab, node)`.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from ether import TARGET
from laboratory import path_of
from spaces import UPLINK, Program, Trouble, end, run

# Addresses of routers whose daemon brings none of its own.
SUBNET = "fd52:696e:6777:6179::"

# Longest time for making what daemons need, seconds.
PREPARED = 120


class Daemon:
    """A routing daemon that installs kernel routes between addresses that it is given."""

    name, program, device, version = "", "", UPLINK, "-V"

    def missing(self):
        """Why it cannot be tried here, or None."""
        return None if path_of(self.program) else f"{self.program} is not installed (scripts/install-test-tools --mesh)"

    def about(self):
        """Its version."""
        asked = subprocess.run([path_of(self.program), self.version], capture_output=True, text=True, check=False)
        return ((asked.stdout + asked.stderr).strip().splitlines() or ["?"])[0]

    def prepare(self, lab):
        """Each router forwards and has an address."""
        for node in lab.graph.nodes:
            lab.spaces.write(node, {"net/ipv6/conf/all/forwarding": 1})
        self.address(lab)

    def address(self, lab):
        """Gives each router its address, once more after its uplink was down."""
        for number, node in enumerate(lab.graph.nodes, 1):
            lab.spaces.ip(node, f"address replace {SUBNET}{number:x}/128 dev {UPLINK} nodad")

    def commands(self, lab, node):  # noqa: ARG002 without a daemon there is nothing to know
        """The programs of a router."""
        return []


class Babeld(Daemon):
    """The reference implementation of Babel."""

    name, program = "babeld", "babeld"

    def commands(self, lab, node):
        return [[path_of("babeld"), "-I", "", "-S", lab.folder_of(node) / "babel-state", UPLINK]]


class Bird(Daemon):
    """BIRD's implementation of Babel."""

    name, program, version = "bird", "bird", "--version"

    def commands(self, lab, node):
        folder = lab.folder_of(node)
        number = lab.graph.nodes.index(node) + 1
        (folder / "bird.conf").write_text(f"""
            router id 10.0.{number // 256}.{number % 256};
            protocol device {{}}
            protocol direct {{ ipv6; interface "{UPLINK}"; }}
            protocol kernel {{ ipv6 {{ export all; import none; }}; }}
            protocol babel {{ ipv6 {{ export all; import all; }}; interface "{UPLINK}" {{ type wireless; }}; }}
        """, encoding="ascii")
        return [[path_of("bird"), "-f", "-c", folder / "bird.conf", "-s", folder / "bird.ctl"]]


class Yggdrasil(Daemon):
    """An overlay with a tree, encrypted from end to end; addresses follow from keys."""

    name, program, device = "yggdrasil", "yggdrasil", "tun0"

    def __init__(self, mtu=None):
        self.mtu = mtu

    def about(self):
        asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "yggdrasil"], capture_output=True, text=True,
                               check=False)
        return f"yggdrasil {asked.stdout}"

    def address(self, lab):
        """It has one of its own."""

    def prepare(self, lab):
        """New keys for each router, as at a start without a configuration."""
        for node in lab.graph.nodes:
            settings = json.loads(run([path_of("yggdrasil"), "-genconf", "-json"]))
            settings |= {"AdminListen": "none", "IfName": self.device, "MulticastInterfaces": [
                {"Regex": f"^({'|'.join(lab.interfaces(node))})$", "Beacon": True, "Listen": True, "Port": 0,
                 "Priority": 0}]}
            if self.mtu:
                settings["IfMTU"] = self.mtu
            (lab.folder_of(node) / "yggdrasil.conf").write_text(json.dumps(settings), encoding="utf-8")

    def commands(self, lab, node):
        return [[path_of("yggdrasil"), "-useconffile", lab.folder_of(node) / "yggdrasil.conf"]]


class Static(Daemon):
    """No daemon: the shortest routes, set once. What the network itself costs."""

    name, program = "static", "ip"

    def about(self):
        return "static routes"

    def prepare(self, lab):
        super().prepare(lab)
        graph, spaces = lab.graph, lab.spaces
        link_local = {node: next(address for address, _ in spaces.addresses(node, UPLINK) if address.is_link_local)
                      for node in graph.nodes}
        neighbours = graph.neighbours()
        for node in graph.nodes:
            spaces.ip(node, *(
                f"route replace {SUBNET}{graph.nodes.index(to) + 1:x}/128 dev {UPLINK} via "
                f"{link_local[min(neighbours[node], key=lambda other: graph.hops_from(other)[to])]}"
                for to in graph.nodes if to != node and to in graph.hops_from(node)))


class Ringway(Daemon):
    """`ringway mesh`, as `cargo build` leaves it or as `RINGWAY` names it; optimised, if there is a choice."""

    name, program, device = "ringway", "ringway", "tun0"

    def __init__(self, path=None):
        found = [TARGET / profile / "ringway" for profile in ("release", "quick", "debug")]
        path = path or os.environ.get("RINGWAY") or next((path for path in found if path.exists()), found[0])
        self.path = Path(path).resolve()

    def missing(self):
        if self.path.exists():
            asked = subprocess.run([self.path, "mesh", "run", "--help"], capture_output=True, check=False)
            if asked.returncode == 0:
                return None
        return "ringway mesh: not built (cargo build --release -p ringway)"

    def about(self):
        return f"{run([self.path, '--version']).strip()} ({self.path.parent.name})"

    def address(self, lab):
        """It has one of its own."""

    def prepare(self, lab):
        """An identity for each router that has none: its proof of work is done once in a router's life, and fifty at
        once would be the first seconds of what is measured."""
        states = [lab.folder_of(node) / "state" for node in lab.graph.nodes]
        making = [Program(["unshare", "-n", *self.command(state, ())], state.parent / "identity.log", None)
                  for state in states if not state.exists()]
        deadline = time.monotonic() + PREPARED
        try:
            while not all("ready" in program.said() for program in making):
                if time.monotonic() > deadline or any(program.child.poll() is not None for program in making):
                    raise Trouble(f"ringway makes no identity: {[program.said() for program in making][:3]}")
                time.sleep(0.1)
        finally:
            end(making)

    def command(self, state, interfaces):
        """The words that start a router."""
        return [self.path, "mesh", "run", "--tun", self.device, "--state", state,
                *(word for name in interfaces for word in ("--interface", name))]

    def commands(self, lab, node):
        return [self.command(lab.folder_of(node) / "state", lab.interfaces(node))]


class Batman(Daemon):
    """The kernel's mesh router."""

    name = "batman-adv"

    def missing(self):
        made = subprocess.run(["unshare", "-n", "ip", "link", "add", "bat0", "type", "batadv"], capture_output=True,
                              check=False)
        return "this kernel has no batman-adv" if made.returncode else "no adapter: no kernel had it so far"


ALL = {daemon.name: daemon for daemon in (Ringway, Babeld, Yggdrasil, Bird, Batman, Static)}
