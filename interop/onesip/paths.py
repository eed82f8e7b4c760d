"""Two routers between which there are two ways, and requests that flow while one of them drops everything."""

import re
import threading
import time

import network
from routers import SETTLED, Phone, Router

# Routers between the ends, by way.
WAYS = ((1, 2), (3, 4))
ENDS = (0, 5)
# Until an apart route is found: it is looked for again and again while there are packets for it.
APART = 60
# Seconds between requests, and of requests before a way is cut, and after.
PAUSE = 0.1
BEFORE, AFTER = 3, 12


class Wire:
    """A wire between two routers by two switches, so that neither notices when what is between them carries nothing."""

    def __init__(self, c, one, other):
        number = f"{one.number}{other.number}"
        self.switches = network.Space(c, f"w{number}")
        self.trunk = f"trunk{number}"
        self.switches.inside("link", "add", self.trunk, "type", "veth", "peer", "name", f"{self.trunk}b")
        for router, far, trunk in ((one, other, self.trunk), (other, one, f"{self.trunk}b")):
            device, port, switch = f"to{far.number}", f"port{router.number}", f"switch{router.number}"
            router.space.inside("link", "add", device, "type", "veth", "peer", "name", port, "netns",
                                self.switches.name)
            self.switches.inside("link", "add", switch, "type", "bridge")
            for member in (port, trunk):
                self.switches.inside("link", "set", member, "master", switch, "up")
            self.switches.inside("link", "set", switch, "up")
            router.space.inside("link", "set", device, "up")
            router.interfaces.append(device)

    def carries(self, whether):
        """Has the wire carry everything, or nothing."""
        self.switches.inside("link", "set", self.trunk, "up" if whether else "down")


class TwoWays:
    """A ring of six routers, so that the ends of it have two ways; the wire in the middle of each can be cut."""

    def __init__(self, c, profile):
        self.c = c
        config = f'[mesh]\ntransport = "sctp"\n[sctp]\nprofile = "{profile}"\n'
        self.routers = [Router(c, number, config=config) for number in range(6)]
        self.wires = []
        for near, far in WAYS:
            self.routers[ENDS[0]].connect(self.routers[near])
            self.wires.append(Wire(c, self.routers[near], self.routers[far]))
            self.routers[far].connect(self.routers[ENDS[1]])
        for router in self.routers:
            router.start()
        for router in self.routers:
            router.ready()
        self.ends = [self.routers[number] for number in ENDS]
        for router, user in zip(self.ends, ("alice", "dave"), strict=True):
            router.add(user)
        c.until(lambda: all(router.settled() for router in self.routers), SETTLED, "the ring does not settle")
        self.numbers = {router.status()["id"]: router.number for router in self.routers}
        self.phones = [Phone(router, user) for router, user in zip(self.ends, ("alice", "dave"), strict=True)]
        for phone in self.phones:
            phone.registered()
        self.over = threading.Event()
        self.answering = threading.Thread(target=self.answer)
        self.answering.start()
        c.after(self.end)

    def answer(self):
        """The called phone answers all requests."""
        while not self.over.is_set():
            self.phones[1].answer(0.5)

    def end(self):
        """Ends the answers."""
        self.over.set()
        self.answering.join()

    def trace(self, host):
        """Numbers of the routers on the way from one end to an address of the other."""
        router, prefix = self.ends[0], self.ends[1].address().removesuffix(":1")
        text = router.command("mesh", "trace", f"{prefix}:{host}", "--state", str(router.folder / "ringway" / "mesh"))
        ids = re.findall(r"^ +\d+ +([0-9a-f]{16}) ", text, re.MULTILINE)
        return [self.numbers[name] for name in ids]

    def apart(self):
        """Waits until both addresses are reached by ways that share no link. Returns the index of the first one's
        way."""
        def ways():
            first, second = self.trace(1), self.trace(2)
            links = [set(zip([ENDS[0], *way], way, strict=False)) for way in (first, second)]
            return (first, second) if not links[0] & links[1] else None
        text = "the ways to both addresses share a link"
        first, second = self.c.until(ways, APART, text, every=1)
        print(f"ways to the first and the second address: {first} and {second}")
        return self.way(first)

    @staticmethod
    def way(routers):
        """Returns the index of the way that passes these routers."""
        return next(index for index, way in enumerate(WAYS) if set(way) & set(routers))

    def ask(self):
        """Sends a request from one end to the other. Returns the answer, or None, and how long it took."""
        alice, dave = self.phones
        data = alice.client.proved(alice, alice.user, "MESSAGE", f"sip:{dave.user}@{dave.domain}")
        start = time.monotonic()
        answer = alice.client.ask(data, 30)
        return answer, time.monotonic() - start

    def reached(self):
        """Waits until a request is answered: until the called phone is known everywhere."""
        self.c.until(lambda: getattr(self.ask()[0], "status", None) == 200, SETTLED, "no request is answered")

    def asked(self, seconds):
        """Sends requests one after the other, each of which must be answered with 200. Returns how long the slowest
        took."""
        deadline, slowest = time.monotonic() + seconds, 0.0
        while time.monotonic() < deadline:
            answer, took = self.ask()
            status = answer and answer.status
            self.c.expect(status == 200, f"expected 200, got {status}")
            slowest = max(slowest, took)
            # A source has a rate.
            time.sleep(PAUSE)
        return slowest

    def cut(self, way):
        """Returns the times of the slowest request before a way is cut and after it."""
        before = self.asked(BEFORE)
        self.wires[way].carries(False)
        return before, self.asked(AFTER)

    def heal(self, way):
        """Restores a way, and waits until its routers are neighbours."""
        self.wires[way].carries(True)
        ends = [self.routers[number] for number in WAYS[way]]
        self.c.until(lambda: all(router.status()["neighbours"] == 2 for router in ends), 30,
                     "the link does not come back")

    def one_address(self):
        """Takes the second address from both ends."""
        for router in self.ends:
            prefix = router.address().removesuffix(":1")
            router.space.inside("address", "del", f"{prefix}:2/128", "dev", "mesh0")
