"""Several servers as one on Debian's redis-server: which node has a phone, and what happens when a node or the database
is gone."""

import contextlib
import itertools
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from cases import case
from phones import Baresip
from server import Server
from sip import Client
from sipp import Sipp

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tokens
import watching
from database import HOST, LEASE_SLOT, Redis, RedisCluster, Sentinels, slot_of
from nodes import (
    ECHOED,
    KEY,
    LEASE,
    USERS,
    Phone,
    answered,
    documented_rules,
    metric,
    node,
    pair,
    record,
    registers,
    rings_nowhere,
    together,
)


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


@case("cluster/two-flows", limit=90)
def two_flows(c):
    """RFC 5626: baresip has a flow to each of two nodes, and rings once. When one of them does nothing any more, not
    even refuse a connection, the other is asked for it within the lifetime of a lease."""
    _, _, first, second = pair(c)
    third = node(c, first.wanted.store)
    together(c, first, second, third)
    bob = Baresip(c, "bob", USERS["bob"], first.domain, first, tone=440, transport="tcp", second=second)
    c.until(lambda: all(one.contacts() == 1 for one in (first, second)), 20,
            lambda: f"no two flows: {bob.process.output()[-400:]}")
    for one in (first, second, third):
        rings_once(c, bob, one)
    for gone in (first, second):
        gone.process.signal(signal.SIGSTOP)
        took = rings_once(c, bob, third)
        print(f"{took:.2f} s from the stop of a node to the answer by the other flow")
        c.expect(took < LEASE + 3, f"the other flow was not used for {took:.1f} s")
        gone.process.signal(signal.SIGCONT)
        together(c, first, second, third)


# What baresip prints of a call.
INVITE, ANSWER = "\nINVITE sip:", "\nSIP/2.0 200 Answering"


def rings_once(c, phone, server):
    """Has alice call baresip by a node; how long it took until the call was up."""
    rings, answers = (phone.process.output().count(line) for line in (INVITE, ANSWER))
    began = time.monotonic()
    caller = Sipp(c, f"uac-{c.ports.take()}", "uac-call", remote=(server.host, server.port), service=phone.user,
                  login=("alice", USERS["alice"]), words={"hold": 500})
    c.until(lambda: phone.process.output().count(ANSWER) > answers, 20, "the call is not answered")
    took = time.monotonic() - began
    caller.passed()
    rings = phone.process.output().count(INVITE) - rings
    c.expect(rings == 1, f"the phone rang {rings} times")
    return took


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
    # One that has only just come acknowledges once a second at first.
    c.until(lambda: answered(careful, "bob", 9)[0].status == 200, 10, "registrations are refused")


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
    c.until(lambda: sentinels.primary() != primary.port, 15, "no replica is promoted")
    promoted = next(other for other in others if other.port == sentinels.primary())
    c.until(lambda: "role:master" in promoted.cli("INFO", "replication"), 5, "the replica is not the primary")
    lost = [user for user in acknowledged if promoted.cli("EXISTS", KEY % user).strip() != "1"]
    c.expect(not lost, f"acknowledged and lost: {lost}")
    before = set(promoted.cli("HVALS", "ringway:nodes").split("\n"))
    for one in (first, second):
        one.process.signal(signal.SIGCONT)
    # What they report at once is of the time before they were stopped.
    renewed = lambda: len(set(promoted.cli("HVALS", "ringway:nodes").split("\n")) - before) == 2  # noqa: E731
    c.until(renewed, 15, "the nodes do not renew their leases")
    together(c, first, second)
    print(f"the nodes take registrations {time.monotonic() - began:.1f} s after the primary was killed")
    bob.is_called(second)
    answer, _ = answered(second, "carol", 9)
    c.expect(answer.status == 200, f"expected 200, got {answer.start}")


def settled(c, *nodes):
    """Waits until no node has lost the database for two seconds: on a busy machine Sentinel is late at first."""
    def outages():
        return [metric(one, "outages_total") for one in nodes]

    def unchanged():
        before = outages()
        c.sleep(2)
        return outages() == before

    c.until(unchanged, 20, "the database is lost again and again")


@case("cluster/sentinel-by-tls", limit=60)
def sentinel_by_tls(c):
    """Sentinels by TLS that ask for a password, and their database by TLS: nodes find each other's phones, also when a
    replica has taken over."""
    certificate = Server(c, start=False, tls=True)
    primary = Redis(c, "primary", certificate=certificate)
    for i in range(2):
        Redis(c, f"replica{i}", replica_of=primary, certificate=certificate)
    sentinels = Sentinels(c, primary, certificate)
    trust = f'roots = "{certificate.certificate}"\n'
    first, second = (node(c, sentinels.uri(), cluster=trust) for _ in range(2))
    together(c, first, second)
    bob, carol = Phone(c, "bob"), Phone(c, "carol")
    bob.register(first)
    bob.is_called(second)
    primary.kill()
    c.until(lambda: sentinels.primary() != primary.served, 15, "no replica is promoted")
    c.until(lambda: answered(second, "carol", carol.port)[0].status == 200, 20, "registrations are refused")
    together(c, first, second)
    settled(c, first, second)
    carol.is_called(first)
    bob.is_called(second)
    c.expect(not any("sesame" in one.process.output() for one in (first, second)), "the password is in the log")
    words = sentinels.uri().split("?")
    stranger = node(c, words[0], cluster=trust)
    c.until(lambda: "does not answer" in stranger.process.output(), 5, "no password is asked for")


@case("cluster/acl-and-tls", limit=60)
def secured(c):
    """The database by TLS, as an ACL user who may do what docs/cluster.md lists and no more."""
    certificate = Server(c, start=False, tls=True)
    rules = documented_rules().replace("PASSWORD", "let-me-in").split()
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
    watching.Watcher(c, second, "bob", "bob", "reg").has(bob.port)
    c.expect("let-me-in" not in first.process.output(), "the password is in the log")
    stranger = node(c, store, cluster="replicas = 0\n")
    c.until(lambda: "does not answer" in stranger.process.output(), 5, "a certificate of nobody is accepted")


@case("cluster/strangers-at-a-node", limit=60)
def strangers(c):
    """Another program on a node's host, or a phone behind it, is no node: it is challenged, and no key is in what
    phones get."""
    primary, _, first, second = pair(c)
    bob = Phone(c, "bob")
    bob.register(first)
    fields = {"sender": f"sip:alice@{first.domain}", "body": "hello"}
    for transport in ("tcp", "udp"):
        with Client(first.host, first.port, transport) as stranger:
            answer = stranger.ask(stranger.request("MESSAGE", f"sip:bob@{first.domain}", **fields))
            c.expect(answer is not None and answer.status == 407,
                     f"{transport}: expected 407, got {answer and answer.start}")
    with Client(first.host, first.port, "tcp") as behind:
        contact = f"<sip:dave@{HOST}:9>"
        answer = behind.register("dave", USERS["dave"], first.domain, [contact])
        c.expect(answer is not None and answer.status == 200,
                 f"a phone at the host of a node: {answer and answer.start}")
    bob.is_called(second)
    keys = re.findall(r"\b[0-9a-f]{32}\b", primary.cli("HGETALL", "ringway:nodes"))
    c.expect(len(set(keys)) == 2, f"{keys} are not two keys")
    for name in ("uas-bob1.msg", "uac-bob1.msg"):
        c.expect(not any(key in text(c, name) for key in keys), f"{name} has the key of a node")
    for one in (first, second):
        c.expect(not any(key in one.process.output() for key in keys), "the log has the key of a node")


@case("cluster/foreign-records", limit=60)
def foreign(c):
    """Another program writes to the database: a key of another type concerns its user only, fields that are no records
    are passed over and removed, and leases that end in a century are dropped."""
    primary, _, first, second = pair(c)
    primary.cli("SET", KEY % "bob", "something else")
    here = f"sip:{first.host}:{first.port}"
    nines = "9" * 400
    for field, text in ((here, f"1 {nines} 1 {nines} 500"), ("sip:10.9.9.9:5060", f"1 1 1 {nines} 500"),
                        ("x" * 100_000, "1 1 1 99999999999999 500"), ("", ""), ("sip:10.9.9.8:5060", "\x01")):
        primary.cli("HSET", KEY % "carol", field, text)
        primary.cli("HSET", "ringway:nodes", field if field != here else "sip:10.9.9.7:5060", text)
    primary.cli("HSET", "ringway:nodes", "sip:10.9.9.6:5060", "1 1 99999999999999")
    primary.cli("HSET", "ringway:nodes", here, "1 99999999999999 99999999999999")
    registers(c, first, "bob", 503)
    carol = Phone(c, "carol")
    for _ in range(3):
        carol.register(first)
        rings_nowhere(c, second, "bob", status=504)
    carol.is_called(second)
    registers(c, first, "dave", 200)
    together(c, first, second)
    for one in (first, second):
        c.expect(metric(one, "outages_total") == 0, f"the database counts as absent: {one.process.output()[-400:]}")
    c.expect(metric(first, "unusable_total") > 0, "what is unusable is not counted")
    for one in (first, second):
        c.expect(f"{KEY % 'bob'}" in one.process.output() and "is no hash" in one.process.output(),
                 "the log does not name the key")
    c.expect("10.9.9" not in primary.cli("HGETALL", KEY % "carol"), "what is no record stays")
    c.expect(primary.cli("HLEN", "ringway:nodes").strip() == "2", "what is no lease stays")
    primary.cli("DEL", KEY % "bob")
    bob = Phone(c, "bob")
    bob.register(first)
    bob.is_called(second)


@case("cluster/other-clocks", limit=60)
def clocks(c):
    """A record of a later run, as a node leaves it whose clock is set back; and one that has ended by the clock of the
    database, as after a jump of that: the node publishes its users again, and they are called."""
    primary, _, first, second = pair(c)
    here = f"sip:{first.host}:{first.port}"
    bob, carol = Phone(c, "bob"), Phone(c, "carol")
    carol.register(first)
    _, boot, seq, ends, q, _ = record(primary, first, "carol")
    primary.cli("HSET", KEY % "carol", here, f"1 {boot} {seq} {int(ends) - 86_400_000} {q}")
    primary.cli("CLIENT", "KILL", "TYPE", "normal")
    c.until(lambda: int(record(primary, first, "carol")[3]) > int(ends) - 3_600_000, 10,
            lambda: f"a record that has ended stays as it is: {record(primary, first, 'carol')}")
    carol.is_called(second)
    later = int(boot) + 1_000_000
    primary.cli("HSET", KEY % "bob", here, f"1 {later} 1 {int(ends) + 3_600_000} 1000")
    bob.register(first)
    c.expect(record(primary, first, "bob")[1] == str(later + 1), f"{record(primary, first, 'bob')} is another run")
    c.until(lambda: record(primary, first, "carol")[1] == str(later + 1), 5, "other users are of the run before")
    together(c, first, second)
    for one in (bob, carol):
        one.is_called(second)


@case("cluster/drain", limit=90)
def drain(c):
    """A node that is to stop has its phones on UDP called until the requests of before are answered. Then other nodes
    pass it over, and calls for its phones wait a while: for it to be back, or for them to register elsewhere. What is
    not answered five seconds later is refused, and its phone stops ringing."""
    primary, _, first, second = pair(c)
    carol = Phone(c, "carol")
    carol.register(first)
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Client(first.host, first.port)) for _ in range(2)]
        bob, dave = phones = [stack.enter_context(Client(first.host, first.port)) for _ in range(2)]
        for user, phone in zip(("bob", "dave"), phones, strict=True):
            answer = phone.register(user, USERS[user], first.domain, [f"<sip:{user}@{HOST}:{phone.local[1]}>"])
            c.expect(answer.status == 200, f"expected 200, got {answer.start}")
        called = tokens.rings(c, first, callers[0], bob, "bob")
        first.process.signal(signal.SIGTERM)
        c.until(lambda: first.kind.status()["phase"] != "serving", 5, "the node goes on as before")
        answer, _ = answered(first, "carol", carol.port)
        c.expect(answer.status == 503, f"a registration there: expected 503, got {answer.start}")
        carol.is_called(second)
        tokens.rings(c, first, callers[1], dave, "dave")
        c.sleep(2)
        c.expect(metric(second, "nodes") == 1, "the node is passed over while a call of before rings")
        carol.is_called(second)
        tokens.respond(bob, called, 486)
        began = time.monotonic()
        c.until(lambda: metric(second, "nodes") == 0, 3, "the node that stops is not passed over")
        print(f"passed over after {time.monotonic() - began:.2f} s")
        waiting = carol.begin(second, hops=1)
        c.sleep(1)
        carol.register(second)
        for program in waiting:
            program.passed()
        c.expect(first.process.running(), "the node does not wait for the later call")
        tokens.heard(c, dave, "CANCEL")
        print(f"the later call ends after {time.monotonic() - began:.2f} s")
        answer = tokens.final(callers[1])
        c.expect(answer is not None and answer.status == 503 and answer.get("retry-after"),
                 f"expected 503 and Retry-After, got {answer and answer.text}")
    carol.is_called(second, hops=1)
    status = first.process.wait(5)
    c.expect(status == 0, f"expected exit 0, got {status}")
    c.expect(f":{first.port}" not in primary.cli("HGETALL", "ringway:nodes"), "its lease stays")


@case("cluster/moved-phones", limit=60)
def moved_phones(c):
    """A node that is to stop closes the connections of its phones first: the other flow of baresip is used from then
    on, and a phone whose only flow it was knows before the node is gone. One on UDP is called when the node is back."""
    _, _, first, second = pair(c)
    third = node(c, first.wanted.store)
    together(c, first, second, third)
    bob = Baresip(c, "bob", USERS["bob"], first.domain, first, tone=440, transport="tcp", second=second)
    dave = Phone(c, "dave")
    dave.register(first)
    with Client(first.host, first.port, "tcp") as carol:
        contact = (f"<sip:carol@127.0.0.1:{carol.local[1]};transport=tcp;ob>;reg-id=1"
                   ';+sip.instance="<urn:uuid:00000000-0000-1000-8000-000A95A0E128>"')
        answer = carol.register("carol", USERS["carol"], first.domain, [contact], headers=["Supported: outbound, path"])
        c.expect(answer.status == 200, f"expected 200, got {answer.start}")
        c.until(lambda: (first.contacts(), second.contacts()) == (3, 1), 20, "not all phones are registered")
        first.process.signal(signal.SIGTERM)
        began = time.monotonic()
        c.expect(carol.receive(5) is None, "carol's connection brings something")
        print(f"carol's connection is closed after {time.monotonic() - began:.2f} s")
        c.expect(time.monotonic() - began < 3, "carol's connection was not closed")
    print(f"bob is called after {rings_once(c, bob, third):.2f} s")
    c.until(lambda: not first.process.running(), 10, "the node does not stop")
    c.expect("phones have moved; left here connections=0" in first.process.output(), "not all phones were moved")
    waiting = dave.begin(third)
    c.sleep(1)
    first.start()
    for program in waiting:
        program.passed()


@case("cluster/tokens", limit=60)
def tokens_of_nodes(c):
    """What one node has made another reads: a nonce is stale and not wrong, a temporary GRUU leads to its phone, and a
    call goes on at a server that takes the address of one that is gone, with nothing of its file."""
    primary, _, first, second = pair(c)
    c.until(lambda: len(primary.cli("HVALS", tokens.SECRETS).split()) == 3, 5, "there is not one secret")
    c.until(lambda: all("secrets of tokens" in one.process.output() for one in (first, second)), 5,
            "the nodes have not read the secret")
    shared = primary.cli("HGETALL", tokens.SECRETS)
    answer = tokens.nonce_at(c, first, second, "bob", USERS["bob"])
    asked = answer.get("www-authenticate")
    c.expect(answer.status == 401 and "stale=true" in asked, f"another nonce, but: {asked}")
    answer = tokens.nonce_at(c, first, second, "bob", "wrong")
    c.expect(answer.status == 401 and "stale" not in answer.get("www-authenticate"), "a wrong password counts as right")
    with Client(first.host, first.port) as bob, Client(second.host, second.port) as alice:
        gruu = tokens.gruu(c, first, bob, "bob", USERS["bob"])
        ended = tokens.answered_call(c, second, alice, bob, gruu)
        tokens.ends(c, alice, bob, ended)
        with Client(first.host, first.port) as carol:
            held = tokens.answered_call(c, first, carol, bob, f"sip:bob@{first.domain}")
            first.kill()
            for file in c.folder.glob("node-*.redb"):
                if str(file) in first.wanted.extra:
                    file.unlink()
            first.start()
            together(c, first, second)
            tokens.ends(c, carol, bob, held)
    # A database that has lost it has it from a node again; what another program writes there is reported.
    primary.cli("DEL", tokens.SECRETS)
    c.until(lambda: primary.cli("HGETALL", tokens.SECRETS) == shared, 15, "the secret is another one")
    primary.cli("SET", tokens.SECRETS, "of another program")
    c.until(lambda: "is no hash of ours" in first.process.output() + second.process.output(), 15, "it is not reported")


@case("cluster/tokens-of-another-secret", limit=180)
def tokens_of_another_secret(c):
    """A secret that has been in use for thirty days is replaced while nodes run: they announce the next, all use it a
    minute later, and a call and a temporary GRUU of before are good still."""
    primary = Redis(c, "primary")
    Redis(c, "replica", replica_of=primary)
    made = int(primary.cli("TIME").split()[0]) * 1000 - tokens.ROTATION + 15_000
    primary.cli("HSET", tokens.SECRETS, str(made), f"1 {made} {'5a' * 32}")
    first, second = (node(c, f"redis://{HOST}:{primary.port}") for _ in range(2))
    together(c, first, second)
    count = tokens.changes
    c.until(lambda: count(first) == count(second) == 1, 15, "the nodes have not read the secret")
    with Client(first.host, first.port) as bob, Client(second.host, second.port) as alice:
        gruu = tokens.gruu(c, first, bob, "bob", USERS["bob"])
        held = tokens.answered_call(c, second, alice, bob, gruu)
        c.until(lambda: count(first) == count(second) == 2, 40, "no node has made another secret")
        c.expect(len(primary.cli("HKEYS", tokens.SECRETS).split()) == 2, "two nodes have made one each")
        c.until(lambda: count(first) == count(second) == 3, 75, "the other secret is not in use")
        tokens.ends(c, alice, bob, held)
        held = tokens.answered_call(c, second, alice, bob, gruu)
        tokens.ends(c, alice, bob, held)
    answer = tokens.nonce_at(c, first, second, "bob", USERS["bob"])
    c.expect("stale=true" in answer.get("www-authenticate"), "a nonce of the other node is taken for a wrong one")


@case("cluster/strange-names", limit=60)
def strange(c):
    """Users whose names have what separates fields and keys of the database: each is found by the other node, and no
    other user is."""
    primary = Redis(c, "primary")
    open_because = "the users are many, each registers once"
    first, second = (node(c, f"redis://{HOST}:{primary.port}", cluster="replicas = 0\n", open_because=open_because)
                     for _ in range(2))
    together(c, first, second)
    names = ["a%7Db", "a%7D", "%7Bc%7D", "d:e", "%C3%BC", "f%00g", "f", "h%20i", "j%0D%0Ak", "*", "u" * 400]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as phone:
        phone.bind((HOST, 0))
        phone.settimeout(5)
        for name in names:
            answer, _ = answered(first, name, phone.getsockname()[1])
            c.expect(answer.status == 200, f"{name}: expected 200, got {answer.start}")
        for name in names:
            with Client(second.host, second.port) as client:
                client.send(client.request("MESSAGE", f"sip:{name}@{first.domain}", body="hello"))
                message, sender = phone.recvfrom(65_536)
                lines = message.decode().split("\r\n")
                phone.sendto("\r\n".join(["SIP/2.0 200 OK", *(line for line in lines if line.startswith(ECHOED)),
                                          "Content-Length: 0", "", ""]).encode(), sender)
                got, answer = lines[0], client.receive()
                c.expect(answer is not None and answer.status == 200, f"{name}: {answer and answer.start}")
                c.expect(got == f"MESSAGE sip:{name}@127.0.0.1:{phone.getsockname()[1]} SIP/2.0", f"{name}: {got}")
    c.expect(len(primary.cli("KEYS", "ringway:at:*").splitlines()) == len(names), "two users have one key")


class Load:
    """Registers users of one shard at a node, one after the other and again and again, until it is to end."""

    def __init__(self, server, users):
        # When each was answered, who, and what.
        self.server, self.users, self.answers, self.ends = server, users, [], False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        """Registers."""
        while not self.ends:
            for user in self.users:
                answer, _ = answered(self.server, user, 9)
                self.answers.append((time.monotonic(), user, answer.status if answer else 0))
                if self.ends:
                    break
                time.sleep(0.01)

    def end(self):
        """Ends it; what was answered otherwise than by 200."""
        self.ends = True
        self.thread.join()
        return [entry for entry in self.answers if entry[2] != 200]

    def acknowledged(self):
        """The users who were answered by 200."""
        return {user for _, user, status in self.answers if status == 200}

    def gap(self):
        """The longest time without a 200."""
        times = [at for at, _, status in self.answers if status == 200]
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


def shards(c, replicas=1, certificate=None):
    """A Redis Cluster, and two nodes on it; by TLS with a certificate."""
    database = RedisCluster(c, documented_rules(), certificate)
    open_because = "registers hundreds of users, each again and again"
    cluster = f"replicas = {replicas}\n"
    if certificate:
        cluster += f'roots = "{certificate.certificate}"\n'
    first, second = (node(c, database.uri(), open_because=open_because, cluster=cluster) for _ in range(2))
    together(c, first, second)
    all_take(c, database, first, second)
    return database, first, second


def all_present(c, *nodes):
    """Waits until the nodes find all shards there."""
    for one in nodes:
        c.until(lambda one=one: metric(one, "shards_present") == metric(one, "shards") == 3, 15,
                lambda one=one: f"shards are missing: {one.process.output()[-900:]}")


def all_take(c, database, *nodes):
    """Waits until a registration in each shard is acknowledged: a replica that has only just come acknowledges what it
    has got so far, and the next only up to a second later."""
    all_present(c, *nodes)
    for one in nodes:
        for user, in database.users(1).values():
            c.until(lambda one=one, user=user: answered(one, user, 9)[0].status == 200, 10, "registrations are refused")


def expect_keys(c, database, users):
    """Nothing that was acknowledged is lost."""
    keys = database.keys()
    lost = [user for user in users if KEY % user not in keys]
    c.expect(not lost, f"acknowledged and lost: {lost}")


@case("cluster/shards", limit=60)
def many_primaries(c):
    """Three primaries have the users: each is found by the other node. The first host of the URI is down, and the ACL
    user may do what docs/cluster.md lists."""
    database, first, second = shards(c)
    users = database.users(30)
    for names in users.values():
        for user in names:
            registers(c, first, user, 200)
    expect_keys(c, database, [user for names in users.values() for user in names])
    for primary, names in users.items():
        c.expect(KEY % names[0] in primary.cli("KEYS", "ringway:at:*"), "a user is in another shard")
        phone = Phone(c, names[0])
        phone.register(first)
        phone.is_called(second)
    watching.Watcher(c, second, names[0], names[0], "reg").has(9, phone.port)
    for one in (first, second):
        c.expect(metric(one, "outages_total") == 0, f"a shard was absent: {one.process.output()[-600:]}")
        c.expect(RedisCluster.password not in one.process.output(), "the password is in the log")


@case("cluster/shards-by-tls", limit=60)
def many_primaries_by_tls(c):
    """A Redis Cluster by TLS: users of each primary are found by the other node, also when the replica of one has taken
    over."""
    database, first, second = shards(c, certificate=Server(c, start=False, tls=True))
    users = {one: names[0] for one, names in database.users(1).items()}
    for user in users.values():
        phone = Phone(c, user)
        phone.register(first)
        phone.is_called(second)
    lost = next(one for one in users if one is not database.primary_of(LEASE_SLOT))
    slot = slot_of(users[lost])
    lost.kill()
    c.until(lambda: database.primary_of(slot), 15, "no replica is promoted")
    expect_keys(c, database, users.values())
    lost.start()
    all_take(c, database, first, second)
    phone.is_called(second)
    phone = Phone(c, users[lost])
    phone.register(second)
    phone.is_called(first)


@case("cluster/shards-lost-primary", limit=60)
def lost_primary(c):
    """A primary is killed while the nodes do nothing: its replica has every registration that was acknowledged. Then
    that of the leases is killed under registrations: users of other shards are not refused."""
    database, first, second = shards(c)
    users = database.users(60)
    for names in users.values():
        for user in names:
            registers(c, first, user, 200)
    leases = database.primary_of(LEASE_SLOT)
    lost = next(one for one in users if one is not leases)
    for one in (first, second):
        one.process.signal(signal.SIGSTOP)
    slot = slot_of(users[lost][0])
    lost.kill()
    c.until(lambda: database.primary_of(slot), 15, "no replica is promoted")
    expect_keys(c, database, [user for names in users.values() for user in names])
    for one in (first, second):
        one.process.signal(signal.SIGCONT)
    lost.start()
    c.until(database.is_whole, 20, "the server that was lost does not follow")
    all_take(c, database, first, second)
    loads = {one: Load(server, users[one]) for one, server in zip(users, (first, second, first), strict=True)}
    c.sleep(1)
    leases.kill()
    c.until(lambda: database.primary_of(LEASE_SLOT), 15, "no replica is promoted")
    leases.start()
    c.until(database.is_whole, 20, "the server that was lost does not follow")
    all_present(c, first, second)
    together(c, first, second)
    c.sleep(1)
    for one, load in loads.items():
        refused = load.end()
        print(f"{len(load.answers)} registrations, {len(refused)} refused, longest gap {load.gap():.2f} s"
              f"{' (shard of the leases)' if one is leases else ''}")
        c.expect(one is leases or not refused, f"users of another shard are refused: {refused[:3]}")
    expect_keys(c, database, [user for load in loads.values() for user in load.acknowledged()])
    for one in (first, second):
        logged = one.process.output().count(f"the shard {HOST}:{leases.port} of the database does not answer")
        c.expect(logged == 1, f"{logged} lines of a node say which shard is gone")
    for names in users.values():
        phone = Phone(c, names[0])
        phone.register(first)
        phone.is_called(second)


@case("cluster/shards-paused", limit=60)
def paused_shard(c):
    """A primary does nothing for some seconds, and is a replica afterwards: users of other shards are not refused, and
    a call for a known user of its shard goes on."""
    database, first, second = shards(c)
    users = database.users(40)
    paused = next(one for one in users if one is not database.primary_of(LEASE_SLOT))
    known = Phone(c, users[paused][0])
    known.register(first)
    known.is_called(second)
    loads = {one: Load(first, names[1:]) for one, names in users.items()}
    c.sleep(1)
    paused.pause()
    c.until(lambda: metric(second, "shards_present") == 2, 5, "the shard is not missed")
    known.is_called(second)
    c.until(lambda: database.primary_of(slot_of(users[paused][0])), 15, "no replica is promoted")
    # It is the replica that the new primary lacks.
    paused.go_on()
    c.until(database.is_whole, 20, "it does not follow")
    all_present(c, first, second)
    c.sleep(1)
    for one, load in loads.items():
        refused = load.end()
        print(f"{len(load.answers)} registrations, {len(refused)} refused, longest gap {load.gap():.2f} s"
              f"{' (paused)' if one is paused else ''}")
        c.expect(one is paused or not refused, f"users of another shard are refused: {refused[:3]}")
    expect_keys(c, database, [user for load in loads.values() for user in load.acknowledged()])
    all_present(c, first, second)
    c.expect(metric(second, "gaps_total") <= 1, "changes were not reported")


@case("cluster/shards-too-few-replicas", limit=60)
def shard_without_replica(c):
    """The replica of one shard is gone: registrations of its users get 503, all others go on."""
    database, first, _ = shards(c)
    users = database.users(5)
    lonely = next(one for one in users if one is not database.primary_of(LEASE_SLOT))
    replica = database.replica_of(lonely)
    replica.kill()
    c.until(lambda: metric(first, "shards_present") == 2, 10, "the missing replica is not noticed")
    for one, names in users.items():
        for user in names:
            answer, _ = answered(first, user, 9)
            expected = 503 if one is lonely else 200
            c.expect(answer.status == expected, f"expected {expected}, got {answer.start}")
            c.expect(answer.status == 200 or answer.get("retry-after"), "no Retry-After")
    c.expect(f"the shard {HOST}:{lonely.port} of the database has 0 replicas, expected 1" in first.process.output(),
             "the log does not say why")
    replica.start()
    all_take(c, database, first)


@case("cluster/shards-failover", limit=60)
def failover(c):
    """A replica takes over from a primary that lives, as when servers are upgraded: no other is missed, and nodes
    publish again the users of that one only."""
    database, first, second = shards(c)
    users = database.users(40)
    published = metric(first, "published_total")
    loads = {one: Load(first, names) for one, names in users.items()}
    c.sleep(1)
    old = next(one for one in users if one is not database.primary_of(LEASE_SLOT))
    slot, replica = slot_of(users[old][0]), database.replica_of(old)
    c.until(lambda: "OK" in replica.cli("CLUSTER", "FAILOVER"), 5, "no failover")
    c.until(lambda: database.primary_of(slot) is replica and database.is_whole(), 15, "the replica is not the primary")
    c.sleep(3)
    all_present(c, first, second)
    for one, load in loads.items():
        refused = load.end()
        print(f"{len(load.answers)} registrations, {len(refused)} refused, longest gap {load.gap():.2f} s"
              f"{' (failed over)' if one is old else ''}")
        c.expect(one is old or not refused, f"users of another shard are refused: {refused[:3]}")
    expect_keys(c, database, [user for load in loads.values() for user in load.acknowledged()])
    # What was registered, and once more those of one shard by each of two connections.
    again = metric(first, "published_total") - published - sum(len(load.answers) for load in loads.values())
    c.expect(again <= 3 * 40, f"{again} changes were published again")


@case("cluster/shards-moved", limit=60)
def moved(c):
    """Slots move to another primary under registrations, that of the leases among them: each registration is answered,
    and nothing that was acknowledged is lost."""
    database, first, second = shards(c)
    users = database.users(60)
    source = database.primary_of(LEASE_SLOT)
    target = next(one for one in users if one is not source)
    # A slot on its way: who is not there yet is written at the target (ASK).
    slot = slot_of(users[source][0])
    target.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", database.name(source))
    source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", database.name(target))
    asked = Phone(c, users[source][0])
    asked.register(first)
    asked.is_called(second)
    move(c, database, slot, source, target)
    asked.is_called(second)
    loads = {one: Load(server, users[one]) for one, server in zip(users, (first, second, first), strict=True)}
    status, output = c.run("reshard", [
        "redis-cli", "--cluster", "reshard", f"{HOST}:{target.port}", "--cluster-from", database.name(source),
        "--cluster-to", database.name(target), "--cluster-slots", 400, "--cluster-yes"])
    c.expect(status == 0, f"no migration: {output[-400:]}")
    if database.primary_of(LEASE_SLOT) is source:
        target.cli("CLUSTER", "SETSLOT", LEASE_SLOT, "IMPORTING", database.name(source))
        source.cli("CLUSTER", "SETSLOT", LEASE_SLOT, "MIGRATING", database.name(target))
        move(c, database, LEASE_SLOT, source, target)
    c.sleep(2)
    for load in loads.values():
        refused = load.end()
        print(f"{len(load.answers)} registrations, {len(refused)} refused, longest gap {load.gap():.2f} s")
        c.expect(not refused, f"registrations are refused: {refused[:3]}")
    expect_keys(c, database, [user for load in loads.values() for user in load.acknowledged()])
    together(c, first, second)
    all_present(c, first, second)
    asked.is_called(second)


def move(c, database, slot, source, target):
    """Ends the migration of a slot."""
    keys = source.cli("CLUSTER", "GETKEYSINSLOT", slot, 100).split()
    for key in keys:
        c.expect("OK" in source.cli("MIGRATE", HOST, target.port, key, 0, 1000), "a key does not move")
    for one in (target, source):
        c.expect("OK" in one.cli("CLUSTER", "SETSLOT", slot, "NODE", database.name(target)), "a slot does not move")
