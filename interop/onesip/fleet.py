"""Many servers that are routers, `ringway serve --mesh` as it is shipped, in namespaces linked as a graph says, each
with a LAN and a host on it."""

import ipaddress
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "mesh"))

import server
from ether import TARGET
from hubs import SWITCHES, Hubs
from spaces import UPLINK, Program, Spaces, Trouble, end
from topology import Graph

DOMAIN, PASSWORD = "mesh", "correct-horse"
LAN, PHONE = "lan0", "phone0"
# Until a router serves, and until a host has an address, seconds.
STARTED, ADDRESSED = 60, 60
# How many routers begin in a second: the proof of work of each costs a processor 0.15 s.
STARTS = 8


def host_of(node):
    """The name of the host behind a router."""
    return f"h{node}"


class Fleet:
    """Made with the block, removed after it. Routers in `absent` are not linked, and not started by `start`."""

    def __init__(self, graph, name="onesip", absent=()):
        self.whole, self.absent = graph, set(absent)
        self.folder = TARGET / "interop-mesh" / f"{name}-{os.getpid()}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.spaces, self.links, self.running, self.ended = None, None, {}, []

    def __enter__(self):
        try:
            nodes = self.whole.nodes
            self.spaces = Spaces(nodes, self.folder, (SWITCHES, *map(host_of, nodes)))
            self.links = Hubs(self.spaces, self.graph())
            for number, node in enumerate(nodes):
                self.spaces.ip(
                    node, f"link set {UPLINK} address 02:00:00:00:{number // 256:02x}:{number % 256:02x} up",
                    f"link add {LAN} type veth peer name {PHONE} netns {self.spaces.names[host_of(node)]}",
                    f"link set {LAN} up")
                # Linux takes routes to networks from advertisements only where that is switched on (RFC 4191).
                self.spaces.write(host_of(node), {f"net/ipv6/conf/{PHONE}/accept_ra_rt_info_max_plen": 64,
                                                  f"net/ipv6/conf/{PHONE}/router_solicitations": 3})
                self.spaces.ip(host_of(node), f"link set {PHONE} up")
            self.spaces.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end(list(self.running.values()))
        for part in (self.links, self.spaces):
            if part is not None:
                part.close()
        self.running, self.links, self.spaces = {}, None, None
        shutil.rmtree(self.folder, ignore_errors=True)

    def graph(self, without=()):
        """The links of all routers that are not absent, apart from those in `without`."""
        return Graph(self.whole.nodes, {link for link in self.whole.links - set(without)
                                        if not self.absent & set(link)})

    def cut(self, links):
        """Removes links, and puts back all others that were there at first."""
        self.links.change(self.graph(links))

    def add(self, node):
        """Links a router that was absent, and starts it."""
        self.absent.discard(node)
        self.cut(())
        self.start([node])

    def start(self, nodes):
        """Starts servers with what an operator would type; returns when the last one was, once all serve."""
        for node in nodes:
            folder = self.folder / node
            folder.mkdir(exist_ok=True)
            argv = ["env", f"XDG_STATE_HOME={folder}", server.binary(), "serve", "--mesh", "--interface", UPLINK,
                    "--lan", LAN, "--http", "off"]
            self.running[node] = Program(argv, folder / "log", self.spaces.files[node])
            if len(nodes) > 1:
                time.sleep(1 / STARTS)
        begun, deadline = time.monotonic(), time.monotonic() + STARTED
        for node in nodes:
            while "serving" not in self.log(node):
                if self.running[node].child.poll() is not None or time.monotonic() > deadline:
                    raise Trouble(f"router {node} does not serve: {self.log(node)[-400:]}")
                time.sleep(0.05)
        return begun

    def kill(self, node):
        """Ends a server at once, as if its power were gone."""
        program = self.running.pop(node)
        program.child.kill()
        program.child.wait()

    def log(self, node):
        """What a server has printed."""
        return (self.folder / node / "log").read_text(errors="replace")

    def keep(self, folder):
        """Copies what all servers have printed."""
        folder.mkdir(parents=True, exist_ok=True)
        for node in self.whole.nodes:
            if (self.folder / node / "log").exists():
                shutil.copy(self.folder / node / "log", folder / f"{node}.log")

    def command(self, node, *words, stdin=None):
        """Runs a command of the operator of a router; returns its output."""
        argv = ["ip", "netns", "exec", self.spaces.names[node], "env", f"XDG_STATE_HOME={self.folder / node}",
                server.binary(), *words]
        done = subprocess.run([str(word) for word in argv], input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Trouble(f"router {node}: {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def asked(self, node, what):
        """What `ringway mesh` reports of a router."""
        state = self.folder / node / "ringway" / "mesh"
        return json.loads(self.command(node, "mesh", what, "--json", "--state", state))

    def add_user(self, node, user):
        """Adds a user at its home."""
        self.command(node, "user", "add", user, "--password-stdin", stdin=f"{PASSWORD}\n")

    def host_address(self, node, prefix):
        """The address in the router's network that its host has by router advertisement, as soon as it has one."""
        network, deadline = ipaddress.ip_network(prefix), time.monotonic() + ADDRESSED
        while time.monotonic() < deadline:
            for address, unusable in self.spaces.addresses(host_of(node), PHONE):
                if address in network and not unusable:
                    return str(address)
            time.sleep(0.1)
        raise Trouble(f"the host of router {node} has no address in {prefix}")

    def load(self):
        """Of the routers that run: the processor seconds of each so far, and resident MB in order."""
        figures = {node: program.figures() for node, program in self.running.items()}
        return ({node: figure[0] for node, figure in figures.items()},
                sorted(figure[1] / 1024 for figure in figures.values()))

    def crashed(self):
        """Routers that have ended by themselves, with what they printed last."""
        return {node: self.log(node)[-400:] for node, program in self.running.items()
                if program.child.poll() is not None}
