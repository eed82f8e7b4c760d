"""Several servers as one on Debian's redis-server: which node has a phone, and what happens when a node or the database
is gone."""

import re
import signal
import sys
import time
from pathlib import Path

from cases import case
from server import Server
from sip import Client, register
from sipp import Sipp

sys.path.insert(0, str(Path(__file__).resolve().parent))

from database import HOST, Redis, Sentinels

USERS = {"alice": "wonderland", "bob": "builder", "carol": "singer", "dave": "diver"}
# A lease lives for five seconds.
LEASE = 5
# What a phone sees of a request that has come over two nodes.
OVER_TWO = {"too_many_vias": "Via:.*Via:.*Via:.*Via:", "max_forwards": 68}
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


def rings_nowhere(c, server, user):
    """A call for a user whom no live node has is answered at once."""
    with Client(server.host, server.port) as client:
        began = time.monotonic()
        invite = client.proved(server, "alice", "INVITE", f"sip:{user}@{server.domain}",
                               headers=[f"Contact: <sip:alice@127.0.0.1:{client.local[1]}>"])
        answer = client.ask(invite)
        c.expect(answer is not None and answer.status == 480, f"expected 480, got {answer and answer.start}")
        c.expect(time.monotonic() - began < 2, "the answer came late")


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


@case("cluster/call-by-another-node", limit=60)
def another(c):
    """A phone registers at one node and is called by another; a node that is killed is passed over, and the phone found
    where it registers then."""
    _, _, first, second = pair(c)
    bob, carol = Phone(c, "bob"), Phone(c, "carol")
    bob.register(first)
    carol.register(first)
    bob.is_called(second)
    c.expect(metric(second, "read_total") > 0, "the other node did not ask the database")
    # By what the node remembers.
    bob.is_called(second)
    first.kill()
    c.until(lambda: metric(second, "nodes") == 0, LEASE + 3, "the node that was killed is not dropped")
    rings_nowhere(c, second, "bob")
    bob.register(second)
    bob.is_called(second, hops=1)
    # It starts again with the registrations of its file, and publishes them.
    first.start()
    together(c, first, second)
    carol.is_called(second)


@case("cluster/paused-database", limit=60)
def paused(c):
    """The database does nothing for five seconds: a call goes on and known users are called; a registration gets 503
    and Retry-After soon; the metrics say so; then all is well."""
    primary, _, first, second = pair(c)
    bob, carol = Phone(c, "bob"), Phone(c, "carol")
    bob.register(first)
    carol.register(first)
    carol.is_called(second)
    going = bob.begin(second, hold=3000)
    c.until(lambda: "ACK " in text(c, "uas-bob1.msg"), 5, "the call is not answered")
    primary.pause()
    began = time.monotonic()
    for attempt in range(3):
        answer, took = answered(first, "dave", 9)
        c.expect(answer is not None and answer.status == 503 and answer.get("retry-after"),
                 f"expected 503 with Retry-After, got {answer and answer.start}")
        c.expect(took < (2 if attempt == 0 else 1), f"the answer took {took:.1f} s")
    c.expect(metric(first, "present") == 0 and metric(first, "ready") == 0, "the metrics do not show it")
    c.expect(metric(first, "refused_total") + metric(first, "failed_total") >= 3, "the refusals are not counted")
    # The other node knows where carol is.
    c.until(lambda: metric(second, "present") == 0, 3, "the other node does not notice")
    carol.is_called(second)
    for program in going:
        program.passed()
    c.sleep(max(0.0, 5 - (time.monotonic() - began)))
    primary.go_on()
    together(c, first, second)
    answer, _ = answered(first, "dave", 9)
    c.expect(answer is not None and answer.status == 200, f"expected 200, got {answer and answer.start}")
    bob.is_called(second)


def text(c, name):
    """What a program has logged."""
    path = c.folder / name
    return path.read_text(errors="replace") if path.exists() else ""


@case("cluster/too-few-replicas", limit=60)
def replicas(c):
    """Without a replica a registration is not acknowledged, unless the configuration says that there is none."""
    primary = Redis(c, "primary")
    store = f"redis://{HOST}:{primary.port}"
    careful, careless = node(c, store), node(c, store, cluster="replicas = 0\n")
    c.until(lambda: metric(careless, "ready") == 1 and metric(careful, "present") == 1, 10, "no database")
    answer, _ = answered(careful, "bob", 9)
    c.expect(answer.status == 503 and answer.get("retry-after"), f"expected 503, got {answer.start}")
    c.expect("has 0 replicas, expected 1" in careful.process.output(), "the log does not say why")
    answer, _ = answered(careless, "bob", 9)
    c.expect(answer.status == 200, f"expected 200, got {answer.start}")
    Redis(c, "replica", replica_of=primary)
    c.until(lambda: metric(careful, "ready") == 1, 5, "the replica is not noticed")
    answer, _ = answered(careful, "bob", 9)
    c.expect(answer.status == 200, f"expected 200, got {answer.start}")


@case("cluster/sentinel", limit=60)
def sentinel(c):
    """The primary is killed and Sentinel promotes a replica, while the nodes do nothing: the replica has every
    registration that was acknowledged. Then the nodes go on."""
    primary = Redis(c, "primary")
    others = [Redis(c, f"replica{i}", replica_of=primary) for i in range(2)]
    sentinels = Sentinels(c, primary)
    open_because = "registers hundreds of users, each once"
    first, second = (node(c, sentinels.uri(), open_because=open_because) for _ in range(2))
    together(c, first, second)
    acknowledged = [f"u{i}" for i in range(200) if answered(first, f"u{i}", 9)[0].status == 200]
    c.expect(len(acknowledged) == 200, f"{len(acknowledged)} of 200 registrations are acknowledged")
    bob = Phone(c, "bob")
    bob.register(first)
    for one in (first, second):
        one.process.signal(signal.SIGSTOP)
    primary.kill()
    began = time.monotonic()
    c.until(lambda: sentinels.primary(c) != primary.port, 15, "no replica is promoted")
    promoted = next(other for other in others if other.port == sentinels.primary(c))
    c.until(lambda: "role:master" in promoted.cli("INFO", "replication"), 5, "the replica is not the primary")
    lost = [user for user in acknowledged if promoted.cli("EXISTS", KEY % user).strip() != "1"]
    c.expect(not lost, f"acknowledged and lost: {lost}")
    for one in (first, second):
        one.process.signal(signal.SIGCONT)
    together(c, first, second)
    print(f"the nodes take registrations {time.monotonic() - began:.1f} s after the primary was killed")
    bob.is_called(second)
    answer, _ = answered(second, "carol", 9)
    c.expect(answer.status == 200, f"expected 200, got {answer.start}")


@case("cluster/acl-and-tls", limit=60)
def secured(c):
    """The database by TLS, as an ACL user who may do what docs/cluster.md lists and no more."""
    certificate = Server(c, start=False, tls=True)
    document = (Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()
    rules = re.search(r"(?m)^ACL SETUSER ringway (.*)$", document).group(1).replace("PASSWORD", "let-me-in").split()
    tls = ["--tls-port", c.ports.take(), "--tls-cert-file", certificate.certificate, "--tls-key-file", certificate.key,
           "--tls-auth-clients", "no"]
    database = Redis(c, "primary", options=tls)
    c.expect("OK" in database.cli("ACL", "SETUSER", "ringway", *rules), "the rules are refused")
    database.cli("ACL", "SETUSER", "default", "off")
    store = f"rediss://ringway:let-me-in@{HOST}:{tls[1]}"
    trust = f'replicas = 0\nroots = "{certificate.certificate}"\n'
    first, second = (node(c, store, cluster=trust) for _ in range(2))
    together(c, first, second)
    bob = Phone(c, "bob")
    bob.register(first)
    bob.is_called(second)
    c.expect("let-me-in" not in first.process.output(), "the password is in the log")
    stranger = node(c, store, cluster="replicas = 0\n")
    c.until(lambda: "does not answer" in stranger.process.output(), 5, "a certificate of nobody is accepted")
