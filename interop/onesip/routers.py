"""Routers with a LAN and a host each, contacts of users on these hosts, and a line of such routers."""

import contextlib
import ctypes
import itertools
import json
import os
import re
import threading
import time

import network
import server
import sip

CLONE_NEWNET = 0x40000000
DOMAIN, PASSWORD = "mesh", "correct-horse"
# Until the routers of a line know each other and keep each other's records.
SETTLED = 40
# The host of each LAN with IPv4.
HOST4 = "10.50.60.20"
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(space):
    """This process is in a namespace for the duration of the block."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/run/netns/{space.name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        if _libc.setns(home, CLONE_NEWNET) != 0:
            os.abort()
        os.close(there)
        os.close(home)


class Router:
    """A server that is a router, with a LAN of its own and one host on it."""

    def __init__(self, c, number, ipv4=False, config=None):
        self.c, self.number, self.ipv4, self.config = c, number, ipv4, config
        self.space, self.lan = network.Space(c, f"r{number}"), network.Space(c, f"h{number}")
        self.folder = c.folder / f"router{number}"
        self.folder.mkdir()
        self.process, self.interfaces = None, []
        self.plug()

    def plug(self, *options):
        """Connects the host."""
        self.space.inside("link", "add", "lan0", "type", "veth", "peer", "name", "phone0", *options, "netns",
                          self.lan.name)
        # Linux takes routes to networks from advertisements only where that is switched on (RFC 4191).
        self.c.run("sysctl", [*self.lan.enter(), "sh", "-c",
                              "echo 64 >/proc/sys/net/ipv6/conf/phone0/accept_ra_rt_info_max_plen"])
        self.lan.inside("link", "set", "phone0", "up")
        self.space.inside("link", "set", "lan0", "up")

    def connect(self, other):
        """A wire to another router."""
        ours, theirs = f"to{other.number}", f"to{self.number}"
        self.space.inside("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", other.space.name)
        for router, device in ((self, ours), (other, theirs)):
            router.space.inside("link", "set", device, "up")
            router.interfaces.append(device)

    def start(self):
        """Starts the server with what an operator would type."""
        named = [word for device in self.interfaces for word in ("--interface", device)]
        if self.config is not None:
            file = self.folder / "ringway.toml"
            file.write_text(self.config)
            named += ["--config", str(file)]
        self.process = self.space.start(
            f"serve{self.number}", [server.binary(), "serve", "--mesh", *named, "--lan", "lan0",
                                    *(["--lan-ipv4"] if self.ipv4 else []), "--http", "off"],
            env={"XDG_STATE_HOME": str(self.folder)})

    def ready(self):
        """Waits until it serves."""
        self.c.expect(self.process.wait_output("serving", 20), self.process.output())

    def command(self, *words, stdin=None):
        """Runs a command of an operator of this router."""
        argv = [*self.space.enter(), server.binary(), *words]
        status, output = self.c.run(f"command{self.number}", argv, stdin=stdin,
                                    env={"XDG_STATE_HOME": str(self.folder)})
        self.c.expect(status == 0, f"{' '.join(words)}: {output}")
        return output

    def add(self, *users):
        """Adds users here."""
        for user in users:
            self.command("user", "add", user, "--password-stdin", stdin=f"{PASSWORD}\n")

    def settled(self):
        """Whether its place on the ring has not changed for a while."""
        return self.status()["settled"]

    def deputies(self):
        """How many routers stand in for it."""
        return self.status()["deputies"]

    def status(self):
        """What it says about itself in the mesh."""
        return json.loads(self.command("mesh", "status", "--json", "--state", str(self.folder / "ringway" / "mesh")))

    def address(self):
        """Its address in the mesh."""
        text = self.command("mesh", "address", "--json", "--state", str(self.folder / "ringway" / "mesh"))
        return json.loads(text)["address"]

    def host4(self):
        """The IPv4 address of the host on the LAN. All LANs have the same addresses."""
        self.lan.inside("address", "replace", f"{HOST4}/24", "dev", "phone0")
        return HOST4

    def take(self, other):
        """Plugs the host of another router's LAN into this one's, instead of a host that is there."""
        _, output = self.c.run("ip", ["ip", "-n", other.lan.name, "-j", "link", "show", "dev", "phone0"])
        other.space.inside("link", "delete", "lan0")
        # It may have none.
        self.c.run("ip", ["ip", "-n", self.space.name, "link", "delete", "lan0"])
        self.lan = other.lan
        self.plug("address", json.loads(output)[0]["address"])

    def host(self):
        """The address in the mesh of the host on the LAN, once it has one by router advertisement."""
        prefix = self.address().removesuffix(":1")

        def found():
            _, output = self.c.run("ip", ["ip", "-n", self.lan.name, "-6", "-o", "address", "show", "dev", "phone0"])
            return next((one for one in re.findall(r"inet6 (fd\S+)/64 (?!.*tentative)", output)
                         if one.startswith(prefix)), None)
        return self.c.until(found, 30, "no address by router advertisement")


class Phone:
    """A contact of a user, and what it hears. Not a user agent: the phones that others wrote are below."""

    def __init__(self, router, user, password=PASSWORD, at=None):
        """At the router's own address, or `at` another of it; it receives from no other."""
        self.c, self.router, self.user, self.password = router.c, router, user, password
        with inside(router.lan):
            self.client = sip.Client(at or router.address(), 5060, source=router.host())
        router.c.after(self.client.close)
        self.domain = DOMAIN
        self.wanted = server.Wanted(domain=DOMAIN, users={user: password})

    def register(self, expires=300):
        """Registers. Returns the status of the answer."""
        host, port = self.client.local
        contact = f"<sip:{self.user}@[{host}]:{port}>"
        answer = self.client.register(self.user, self.password, DOMAIN, [contact], expires=expires)
        return answer and answer.status

    def registered(self, seconds=SETTLED):
        """Registers until that is acknowledged."""
        self.c.until(lambda: self.register() == 200, seconds, f"{self.user} is not registered")

    def send(self, to, sender=None, method="MESSAGE", headers=()):
        """Sends a request to a user. Returns the status of the answer, or 0."""
        uri = f"sip:{to}@{DOMAIN}"
        fields = {} if sender is None else {"sender": f"sip:{sender}@{DOMAIN}"}
        answer = self.client.ask(self.client.proved(self, self.user, method, uri, headers=headers, **fields))
        return answer.status if answer else 0

    def answer(self, seconds=10):
        """Answers the next request with 200. Returns it, or None."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            request = self.client.receive(max(0.1, deadline - time.monotonic()))
            if request is not None and not request.status:
                kept = [f"{name.title()}: {value}" for name, value in request.headers
                        if name in ("via", "from", "to", "call-id", "cseq")]
                kept = [f"{line};tag=x" if line.startswith("To:") else line for line in kept]
                self.client.send("\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0", "", ""]))
                return request
        return None


def line(c, count, ipv4=(), configs=()):
    """Routers in a line that serve, with a user on each: alice, bob, carol, dave. LANs of those in `ipv4` have IPv4.
    `configs` has the configuration of some, by number."""
    configs = dict(configs)
    routers = [Router(c, number, number in ipv4, configs.get(number)) for number in range(count)]
    for one, other in itertools.pairwise(routers):
        one.connect(other)
    for router in routers:
        router.start()
    for router in routers:
        router.ready()
    for router, user in zip(routers, ("alice", "bob", "carol", "dave"), strict=False):
        router.add(user)
    c.until(lambda: all(router.settled() for router in routers), SETTLED, "the ring does not settle")
    return routers


def delivered(c, sender, receiver, seconds=20, number=None):
    """Sends a message from one phone to another, by its user or a number, until it arrives."""
    def once():
        heard = []
        listener = threading.Thread(target=lambda: heard.append(receiver.answer(5)))
        listener.start()
        status = sender.send(number or receiver.user)
        listener.join()
        return status == 200 and heard[0] is not None
    c.until(once, seconds, f"no message of {sender.user} reaches {receiver.user}")
