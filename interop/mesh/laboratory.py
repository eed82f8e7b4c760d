"""A network of namespaces with links of either kind, and the daemons in it."""

import os
import shutil
import time
from pathlib import Path

from ether import TARGET, Ether
from hubs import Hubs
from probe import Probe
from spaces import UPLINK, Spaces, end

KINDS = {"hub": Hubs, "ether": Ether}


class Laboratory:
    """Made with the block, removed after it. `links` is the class of the links: `Hubs` or `Ether`."""

    def __init__(self, graph, links, name="mesh", **link):
        self.graph, self.make_links = graph, links
        self.folder = TARGET / "interop-mesh" / f"{name}-{os.getpid()}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.link, self.spaces, self.links, self.probe, self.programs = link, None, None, None, []

    def __enter__(self):
        try:
            self.spaces = Spaces(self.graph.nodes, self.folder, self.make_links.further)
            self.links = self.make_links(self.spaces, self.graph, **self.link)
            for number, node in enumerate(self.graph.nodes):
                self.spaces.ip(node, f"link set {UPLINK} address 02:00:00:00:{number // 256:02x}:{number % 256:02x} up")
            self.probe = Probe(self.spaces, self.graph.nodes)
            self.spaces.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        for part in (self.probe, self.links, self.spaces):
            if part is not None:
                part.close()
        self.probe = self.links = self.spaces = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def change(self, graph):
        """Makes the links those of another graph of the same nodes."""
        self.graph = graph
        self.links.change(graph)

    def start(self, daemon, down_up=False):
        """Starts the daemon in all namespaces at once; returns when that began and how long it took, seconds.

        With `down_up` each uplink is taken down and up before, so that its link-local address is new."""
        daemon.prepare(self)
        if down_up:
            self.spaces.each(f"link set {UPLINK} down", f"link set {UPLINK} up")
            daemon.address(self)
        begun = time.monotonic()
        for node in self.graph.nodes:
            for number, argv in enumerate(daemon.commands(self, node)):
                self.programs.append(self.spaces.start(node, argv, f"{daemon.name}-{number}-{node}"))
        return begun, time.monotonic() - begun

    def stop(self):
        """Ends the daemons."""
        end(self.programs)
        self.programs = []

    def ended(self):
        """Daemons that are not running any more, with what they said."""
        return [program for program in self.programs if program.child.poll() is not None]

    def interfaces(self, node):  # noqa: ARG002 all are alike, unless a network says otherwise
        """Devices over which a router is linked with others."""
        return [UPLINK]

    def folder_of(self, node):
        """A folder of a router's own."""
        folder = self.folder / node
        folder.mkdir(exist_ok=True)
        return folder

    def addresses(self, daemon):
        """A function that returns the address of a node, None while it has none; looked up until there is one."""
        known = {}

        def address(node):
            if known.get(node) is None:
                known[node] = self.spaces.address(node, daemon.device)
            return known[node]
        return address

    def load(self):
        """Processor seconds of all daemons so far, and mean and largest resident MB of a router's daemons."""
        figures = [program.figures() for program in self.programs]
        each = max(1, len(self.programs) // len(self.graph.nodes))
        resident = [sum(figure[1] for figure in figures[i:i + each]) / 1024 for i in range(0, len(figures), each)]
        return sum(figure[0] for figure in figures), sum(resident) / max(1, len(resident)), max(resident, default=0.0)


def path_of(name):
    """A program's path, also where only root has it, or None."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/lib/frr") or (
        name if Path(name).is_file() else None)
