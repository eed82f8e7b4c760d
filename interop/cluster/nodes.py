"""The nodes of a cluster, and phones that register at any of them."""

import re
import time
from pathlib import Path

from database import HOST, Redis
from server import Server
from sip import Client, register
from sipp import Sipp

USERS = {"alice": "wonderland", "bob": "builder", "carol": "singer", "dave": "diver"}
# A lease lives for five seconds.
LEASE = 5
# What a phone sees of a request that has come over two nodes.
OVER_TWO = {"too_many_vias": "Via:.*Via:.*Via:.*Via:", "max_forwards": 68}
# Fields of a request that its response has too (RFC 3261 section 8.2.6.2).
ECHOED = ("Via:", "From:", "To:", "Call-ID:", "CSeq:")
KEY = "ringway:at:{sip:%s@ringway.test}"


def node(c, store, **wanted):
    """A node with the shipped defaults, and its own file."""
    extra = f'[cluster]\nfile = "{c.folder}/node-{c.ports.take()}.redb"\n' + wanted.pop("cluster", "")
    return Server(c, **{"users": USERS, "store": store, "extra": extra, **wanted})


def metric(server, name):
    """A figure of /metrics."""
    return float(re.search(rf"(?m)^ringway_cluster_{name} (\S+)$", server.kind.metrics()).group(1))


def together(c, *nodes):
    """Waits until the nodes know each other and take registrations."""
    for one in nodes:
        c.until(lambda one=one: metric(one, "ready") == 1 and metric(one, "nodes") == len(nodes) - 1, 10,
                lambda one=one: f"the nodes do not know each other: {one.process.output()[-600:]}")


def pair(c):
    """A primary and a replica, and two nodes on them."""
    primary = Redis(c, "primary")
    replica = Redis(c, "replica", replica_of=primary)
    store = f"redis://{HOST}:{primary.port}"
    first, second = node(c, store), node(c, store)
    together(c, first, second)
    return primary, replica, first, second


def answered(server, user, port):
    """The answer to a REGISTER, and how long it took."""
    began = time.monotonic()
    with Client(server.host, server.port) as client:
        contact = f"<sip:{user}@127.0.0.1:{port}>"
        answer = client.register(user, USERS.get(user, ""), server.domain, [contact])
    return answer, time.monotonic() - began


def rings_nowhere(c, server, user, status=480):
    """A call for a user whom no live node has is answered at once."""
    with Client(server.host, server.port) as client:
        began = time.monotonic()
        invite = client.proved(server, "alice", "INVITE", f"sip:{user}@{server.domain}",
                               headers=[f"Contact: <sip:alice@127.0.0.1:{client.local[1]}>"])
        answer = client.ask(invite)
        c.expect(answer is not None and answer.status == status,
                 f"expected {status}, got {answer and answer.start}")
        c.expect(time.monotonic() - began < 2, "the answer came late")


def registers(c, server, user, expected, seconds=2):
    """A REGISTER of a user is answered with this status soon."""
    answer, took = answered(server, user, 9)
    c.expect(answer is not None and answer.status == expected,
             f"REGISTER of {user}: expected {expected}, got {answer and answer.start}")
    c.expect(took < seconds, f"the answer to {user} took {took:.1f} s")


def record(database, server, user):
    """What the database has of a user at a node: version, run, number of the change, end in milliseconds, q, phones."""
    return database.cli("HGET", KEY % user, f"sip:{server.host}:{server.port}").split()


class Phone:
    """A user's phone at one address, which registers at any node and answers calls."""

    def __init__(self, c, user):
        self.c, self.user, self.port, self.calls = c, user, c.ports.take(2), 0

    def register(self, server):
        """Registers at a node."""
        register(server, self.user, self.port)

    def begin(self, server, hold=100, hops=2):
        """Has alice call by a node, over which the phone is so many nodes away; the caller and the callee."""
        self.calls += 1
        name = f"{self.user}{self.calls}"
        callee = Sipp(self.c, f"uas-{name}", "uas-answer", port=self.port, service=self.user,
                      words=OVER_TWO if hops == 2 else {}).listening()
        login = None if server.wanted.open_because else ("alice", USERS["alice"])
        caller = Sipp(self.c, f"uac-{name}", "uac-call", remote=(server.host, server.port), service=self.user,
                      login=login, words={"hold": hold})
        return caller, callee

    def is_called(self, server, hops=2):
        """Has alice call by a node, and hang up."""
        for program in self.begin(server, hops=hops):
            program.passed()


def three(c):
    """A database without a replica, and three nodes on it."""
    primary = Redis(c, "primary")
    nodes = [node(c, f"redis://{HOST}:{primary.port}", cluster="replicas = 0\n") for _ in range(3)]
    together(c, *nodes)
    return primary, *nodes


def documented_rules():
    """What the ACL user of docs/cluster.md may do."""
    document = (Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()
    return re.search(r"(?m)^ACL SETUSER ringway (.*)$", document).group(1)
