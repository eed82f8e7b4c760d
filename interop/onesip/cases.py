"""All routers of a mesh are one SIP server: `ringway serve --mesh` in network namespaces, as it is shipped, and phones
on the LANs behind the routers."""

import asyncio
import contextlib
import json
import re
import secrets
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "mesh")]

import away
import lamps
import network
import sip
import topology
from baresip import ANYCAST, RECORDED_BYTES, RECORDED_SECOND, ROUTER4, TONES, Baresip, talk
from book import BOOK_PORT, LDAP_PORT, Book
from fleet import Fleet
from linphone import Linphone
from paths import TwoWays
from routers import DOMAIN, HOST4, PASSWORD, SETTLED, Phone, Router, delivered, inside, line
from story import Story

# 64 times T1: after that a callee that has got no ACK ends the call.
ACK_AWAITED = 32
# What baresip prints when a call is ended by a BYE.
ENDED = "session closed: "
# Until a network of short numbers is created, and the last router has been granted some.
NUMBERED = 120
# A list of the mesh is as good as new for so long.
LISTED = 40
GATEWAY_PORT = 5080
# Of the 64,000 bits a second of G.711 so many are heard where nothing is lost.
FULL_RATE = 60_000
# Until a home has all deputies that there are: it looks for them after 15 s, and then less and less often.
DEPUTIES = 120


@network.case("onesip/four-routers", limit=120)
def four_routers(c):
    """Each user registers at its own router; a message goes from any to any over up to three links, and so does a
    subscription to what only a phone knows. Who does not exist is not found, and who has not registered is not
    available."""
    routers = line(c, 4)
    alice, dave = Phone(routers[0], "alice"), Phone(routers[3], "dave")
    alice.registered()
    dave.registered()
    delivered(c, alice, dave)
    delivered(c, dave, alice)
    contact = f"Contact: <sip:alice@[{alice.client.local[0]}]:{alice.client.local[1]}>"
    carried(c, alice, "dave", dave, method="SUBSCRIBE", headers=[contact, "Event: conference", "Expires: 600"])
    c.expect((got := alice.send("nobody")) == 404, f"nobody: expected 404, got {got}")
    c.expect((got := alice.send("carol", method="INFO")) == 480, f"carol: expected 480, got {got}")


def carried_by(c, transport):
    """Routers that are set to it reach each other by a transport, both ways, and again after one has restarted."""
    settings = f'[mesh]\ntransport = "{transport}"\n'
    routers = line(c, 3, configs=dict.fromkeys(range(3), settings))
    alice, carol = Phone(routers[0], "alice"), Phone(routers[2], "carol")
    alice.registered()
    carol.registered()

    def once(sender, receiver):
        heard = []
        listener = threading.Thread(target=lambda: heard.append(receiver.answer(5)))
        listener.start()
        status = sender.send(receiver.user)
        listener.join()
        return heard[0] if status == 200 else None

    def both():
        for sender, receiver in ((alice, carol), (carol, alice)):
            request = c.until(lambda: once(sender, receiver), 30,  # noqa: B023, called at once
                              f"no message of {sender.user} reaches {receiver.user}")
            vias = [value.split()[0] for name, value in request.headers if name == "via"]
            expected = ["SIP/2.0/UDP", f"SIP/2.0/{transport.upper()}", "SIP/2.0/UDP"]
            c.expect(vias == expected, f"expected the ways {expected}, got {vias}")
    both()
    routers[2].process.signal(signal.SIGKILL)
    routers[2].process.wait(10)
    routers[2].start()
    routers[2].ready()
    carol.registered()
    both()


@network.case("onesip/routers-tcp", limit=150)
def routers_tcp(c):
    """Routers reach each other by TCP."""
    carried_by(c, "tcp")


@network.case("onesip/routers-sctp", limit=150)
def routers_sctp(c):
    """Routers reach each other by SCTP."""
    carried_by(c, "sctp")


def two_paths(c, profile):
    """An association between routers has two paths that share no link. A wire of the first drops everything: all
    requests are answered. How long the slowest waits is printed, with two paths and with one."""
    net = TwoWays(c, profile)
    for paths in (2, 1):
        net.reached()
        way = net.apart() if paths == 2 else net.way(net.trace(1))
        before, after = net.cut(way)
        print(f"{profile}, paths: {paths}; slowest request before the cut {before:.2f} s, after {after:.2f} s")
        net.heal(way)
        if paths == 2:
            net.one_address()


@network.case("onesip/two-paths", limit=200)
def two_paths_standard(c):
    """Two paths with the timers of RFC 9260."""
    two_paths(c, "standard")


@network.case("onesip/two-paths-ss7", limit=200)
def two_paths_ss7(c):
    """Two paths with the timers of signalling networks."""
    two_paths(c, "ss7")


@network.case("onesip/any-router", limit=120)
def any_router(c):
    """A user registers at a router that does not know the password, and is called there, also when the home is gone. A
    wrong password is refused there as at home."""
    routers = line(c, 4)
    guest, caller = Phone(routers[3], "alice"), Phone(routers[1], "bob")
    wrong = Phone(routers[3], "alice", "a guess")
    caller.registered()
    c.expect((got := wrong.register()) == 401, f"a wrong password: expected 401, got {got}")
    guest.registered()
    delivered(c, caller, guest)
    delivered(c, guest, caller)
    routers[0].process.signal(signal.SIGKILL)
    delivered(c, caller, guest, 40)


@network.case("onesip/registered-address", limit=120)
def registered_address(c):
    """A phone that registers at the address that all routers have is called from there: it receives from no other, as
    behind a firewall. So is one that registers at its router's own address, and each by the other."""
    routers = line(c, 2)
    alice, bob = Phone(routers[0], "alice", at=ANYCAST), Phone(routers[1], "bob")
    for phone in (alice, bob):
        phone.registered()
    delivered(c, bob, alice)
    delivered(c, alice, bob)
    # Of one that knows both addresses, each contact gets its requests from the address that it has registered at.
    other = Phone(routers[0], "alice")
    other.registered()
    for receiver, idle in ((alice, other), (other, alice)):
        delivered(c, bob, receiver)
        while idle.client.receive(0.2) is not None:
            pass


@network.case("onesip/moves-in-registration", limit=120)
def moves_in_registration(c):
    """A phone is challenged by one router, plugged into the LAN of another, and answers there, at the same address of
    the server: it is challenged anew, registers, and is called where it is. Plugged back, it is called there again."""
    routers = line(c, 3, ipv4=(0, 1, 2))
    caller = Phone(routers[1], "bob")
    caller.registered()
    uri, aor = f"sip:{DOMAIN}", f"sip:alice@{DOMAIN}"

    def door(phone):
        """The server at the address that is the same everywhere."""
        with inside(phone.router.lan):
            client = sip.Client(ANYCAST, 5060, source=phone.client.local[0])
        c.after(client.close)
        return client

    def ask(client, cseq, *proof):
        host, port = client.local
        fields = [f"Contact: <sip:alice@[{host}]:{port}>", "Expires: 300", *proof]
        return client.ask(client.request("REGISTER", uri, to=aor, sender=aor, cseq=cseq, call_id="moves",
                                         headers=fields))

    def proof(refused):
        challenge = refused.get("www-authenticate")
        return "Authorization: " + sip.credentials(challenge, "alice", PASSWORD, "REGISTER", uri)

    first = Phone(routers[0], "alice")
    refused = ask(door(first), 1)
    c.expect(refused is not None and refused.status == 401, f"expected a challenge, got {refused and refused.start}")
    routers[2].take(routers[0])
    moved = Phone(routers[2], "alice")
    there = door(moved)
    again = c.until(lambda: ask(there, 2, proof(refused)), 30, "no answer after the phone has moved")
    c.expect(again.status == 401, f"the nonce of another router: expected 401, got {again.start}")
    # Without it a phone would have to take its password for wrong (RFC 7616 section 3.3).
    c.expect("stale=true" in again.get("www-authenticate"), f"not stale: {again.get('www-authenticate')}")
    done = ask(there, 3, proof(again))
    c.expect(done is not None and done.status == 200, f"expected 200, got {done and done.start}")
    moved.client = there
    delivered(c, caller, moved)
    delivered(c, moved, caller)
    routers[0].take(routers[2])
    back = Phone(routers[0], "alice")
    back.registered()
    delivered(c, caller, back)


@network.case("onesip/stranger", limit=120)
def stranger(c):
    """A host of a LAN gains nothing: not the name of another user, nor by the address of its router."""
    routers = line(c, 3)
    alice, carol = Phone(routers[0], "alice"), Phone(routers[2], "carol")
    alice.registered()
    carol.registered()
    c.expect((got := alice.send("carol", sender="bob")) == 403, f"as another user: expected 403, got {got}")
    # Past the own router, to another one: there it is a phone like any other, and must prove who it is.
    with inside(routers[0].lan):
        direct = sip.Client(routers[2].address(), 5060, source=routers[0].host())
    c.after(direct.close)
    answer = direct.ask(direct.request("MESSAGE", f"sip:carol@{DOMAIN}", sender=f"sip:bob@{DOMAIN}"), 5)
    c.expect(answer is not None and answer.status == 407, f"expected 407, got {answer and answer.start}")
    # With the address of a router: of its own, to another, and of another, to its own. Neither is believed.
    for claimed, target in ((routers[0], routers[2]), (routers[2], routers[0])):
        source = claimed.address()
        routers[0].lan.inside("address", "add", f"{source}/128", "dev", "phone0", "nodad")
        with inside(routers[0].lan):
            forger = sip.Client(target.address(), 5060, source=source)
        c.after(forger.close)
        user = "alice" if claimed is routers[0] else "carol"
        uri = f"sip:forged-{claimed.number}@{DOMAIN}"
        forger.send(forger.request("MESSAGE", uri, sender=f"sip:{user}@{DOMAIN}"))
        c.sleep(2)
        routers[0].lan.inside("address", "del", f"{source}/128", "dev", "phone0")
        c.expect(uri not in target.process.output(), f"{uri} was taken for a request of a router")


class Gateway:
    """A peer on the LAN of a router that carries calls into another network: it answers every request with 200."""

    def __init__(self, router):
        with inside(router.lan):
            self.client = sip.Client(ROUTER4, 5060, source=router.host4(), source_port=GATEWAY_PORT)
        self.c, self.router, self.open = router.c, router, True
        router.c.after(self.close)

    def close(self):
        """Ends it: what comes then is refused by its host."""
        if self.open:
            self.client.close()
        self.open = False

    answer = Phone.answer


def carried(c, sender, to, receiver, seconds=60, **request):
    """Sends a request to a user or number until it arrives at a phone or gateway. Returns the URI with which it
    arrives. What the receiver has of earlier attempts is answered and does not count."""
    headers = request.pop("headers", [])

    def once():
        mark, heard, ended = secrets.token_hex(8), [], threading.Event()

        def listen():
            while not ended.is_set():
                got = receiver.answer(0.5)
                if got is not None and got.get("x-attempt") == mark:
                    heard.append(got)
        listener = threading.Thread(target=listen)
        listener.start()
        status = sender.send(to, headers=[*headers, f"X-Attempt: {mark}"], **request)
        ended.set()
        listener.join()
        return heard[0] if status == 200 and heard else None
    return c.until(once, seconds, f"no request to {to} arrives where it should").start.split()[1]


GATEWAY = """
trusted = ["{host}"]
[[route]]
prefix = "0"
next_hops = [{{ uri = "sip:{host}:{port}" }}]
share = {{ cost = {cost} }}
[[mesh.service]]
number = "112"
users = ["{operator}"]
"""


@network.case("onesip/gateways", limit=300)
def gateways(c):
    """Two routers have gateways for numbers that begin with 0, and an operator each for 112. Users of other routers
    call by the cheaper gateway, by the other when that is gone, and the operator who is nearest, then the other; and
    they are called by the gateways."""
    def config(cost, operator):
        return GATEWAY.format(host=HOST4, port=GATEWAY_PORT, cost=cost, operator=operator)
    routers = line(c, 4, ipv4=(1, 3), configs={1: config(20, "bob"), 3: config(10, "dave")})
    far, near = Gateway(routers[3]), Gateway(routers[1])
    alice = Phone(routers[0], "alice")
    alice.registered()
    uri = carried(c, alice, "0301234", far)
    c.expect(uri == f"sip:0301234@{DOMAIN}", uri)
    # A stranger has to prove who calls, and a number of no gateway is none.
    answer = alice.client.ask(alice.client.request("MESSAGE", f"sip:0301234@{DOMAIN}", sender="sip:eve@example.com"))
    c.expect(answer is not None and answer.status == 407, f"expected 407, got {answer and answer.start}")
    c.expect((got := alice.send("7301234")) == 404, f"a number of no gateway: expected 404, got {got}")
    # In from the other network.
    heard = []
    listener = threading.Thread(target=lambda: heard.append(alice.answer(5)))
    listener.start()
    answer = near.client.ask(near.client.request("MESSAGE", f"sip:alice@{DOMAIN}", sender="sip:+4930@example.net"), 5)
    listener.join()
    c.expect(answer is not None and answer.status == 200 and heard[0] is not None, f"from outside: {answer}")
    # The operators: the nearest first.
    bob, dave = Phone(routers[1], "bob"), Phone(routers[3], "dave")
    dave.registered()
    carried(c, alice, "112", dave)
    bob.registered()
    c.sleep(3)  # it is known for two seconds who is registered
    carried(c, alice, "112", bob)
    c.expect(bob.register(0) == 200, "bob does not unregister")
    carried(c, alice, "112", dave)
    bob.registered()
    # One gateway refuses, then its router dies.
    far.close()
    carried(c, alice, "0301234", near)
    routers[3].process.signal(signal.SIGKILL)
    carried(c, alice, "0305678", near)
    carried(c, alice, "112", bob)


@network.case("onesip/baresip", limit=150, alone=True)
def baresip(c):
    """Two baresips, four routers between, one of them a guest at the far end: they hear each other's tone."""
    routers = line(c, 4)
    talk(c, Baresip(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/home-gone", limit=240, alone=True)
def home_gone(c):
    """When the home of a user is killed, its deputies check the password: a baresip registers at another router, calls
    and is heard; a wrong password is refused. When the home is back, the user is still registered there, and at home
    again."""
    routers = line(c, 4)
    home = routers[0]
    c.until(lambda: home.deputies() == 3, DEPUTIES, lambda: f"{home.deputies()} deputies")
    home.process.signal(signal.SIGKILL)
    home.process.wait(10)
    guest, bob = Baresip(routers[3], "alice"), Baresip(routers[1], "bob")
    talk(c, guest, bob)
    wrong, right, caller = Phone(routers[2], "alice", "a guess"), Phone(routers[2], "alice"), Phone(routers[1], "bob")
    c.until(lambda: wrong.register() == 401, SETTLED, "a wrong password is not refused")
    right.registered()
    caller.registered()
    delivered(c, caller, right)
    home.start()
    home.ready()
    c.until(home.settled, SETTLED, "the ring does not settle")
    delivered(c, caller, right, SETTLED)
    again = Phone(home, "alice")
    again.registered()
    delivered(c, caller, again, SETTLED)


@network.case("onesip/baresip-ipv4", limit=150, alone=True)
def baresip_ipv4(c):
    """The same of phones that know only IPv4 and have the same address, each on its LAN: the routers relay."""
    routers = line(c, 4, ipv4=(0, 3))
    talk(c, Baresip(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/baresip-ipv4-ipv6", limit=150, alone=True)
def baresip_both(c):
    """A phone that knows only IPv4 calls one that knows only IPv6."""
    routers = line(c, 4, ipv4=(0,))
    talk(c, Baresip(routers[0], "alice"), Baresip(routers[3], "bob"))


def numbered(c, routers, count):
    """Waits until all users of all routers have numbers. Users with their numbers."""
    def found():
        listed = [one for router in routers for one in json.loads(router.command("user", "list", "--json"))]
        numbers = {one["user"]: one.get("number") for one in listed}
        return numbers if len(numbers) == count and all(numbers.values()) else None
    return c.until(found, NUMBERED, "not everybody has a number")


def expect_documents(c, book, numbers):
    """Each format lists exactly these users, by their numbers."""
    expected = sorted(numbers.values())
    for path, entry, field in (
        ("/phonebook/yealink.xml", "DirectoryEntry", "Telephone"),
        ("/phonebook/snom.xml", "DirectoryEntry", "Telephone"),
        ("/phonebook/cisco.xml", "DirectoryEntry", "Telephone"),
        ("/phonebook/grandstream/phonebook.xml", "Contact", "Phone/phonenumber"),
    ):
        found = sorted(book.dialled(path, entry, field))
        c.expect(found == expected, f"{path} of {book.host}: expected {expected}, got {found}")
    c.expect(book.users() == numbers, f"JSON: expected {numbers}, got {book.users()}")
    c.expect(book.ldap() == numbers, f"LDAP: expected {numbers}, got {book.ldap()}")


@network.case("onesip/phonebook", limit=420)
def phonebook(c):
    """Users of both routers have numbers, all of them different, and are in the phonebook of both, in each format and
    by each address of a router on its LAN; registered are two. With one router gone the other still knows them all, and
    when it has returned the numbers are as they were."""
    routers = [Router(c, number, ipv4=True) for number in range(2)]
    routers[0].connect(routers[1])
    for router in routers:
        router.start()
    for router in routers:
        router.ready()
    routers[0].add("alice", "carol")
    routers[1].add("bob", "dave")
    c.until(lambda: all(router.settled() for router in routers), SETTLED, "the ring does not settle")
    numbers = numbered(c, routers, 8)
    c.expect(len(set(numbers.values())) == 8, f"a number is assigned twice: {numbers}")
    alice, bob = (Phone(router, user) for router, user in zip(routers, ("alice", "bob"), strict=True))
    alice.registered()
    bob.registered()
    delivered(c, alice, bob, 40, numbers["bob"])
    delivered(c, bob, alice, 40, numbers["alice"])
    present = {user: numbers[user] for user in ("alice", "bob")}
    hosts = [f"[{ANYCAST}]", ROUTER4]
    for router in routers:
        router.host4()
        books = [Book(router, host) for host in (*hosts, f"[{router.address()}]")]
        c.until(lambda books=books: books[0].users("?all") == numbers and books[0].users() == present, LISTED,
                lambda books=books: f"expected {numbers}, got {books[0].users('?all')}")
        for book in books:
            expect_documents(c, book, present)
        for path in ("/metrics", "/status", "/users", "/"):
            books[0].get(path, status=404)
    # A new user has a number at once.
    added = routers[1].command("user", "add", "erin", "--password-stdin", stdin=f"{PASSWORD}\n")
    number = re.search(r"number: (\d+)", added)
    c.expect(number is not None and number[1] not in numbers.values(), f"user add: {added}")
    routers[1].command("user", "del", "erin")
    c.expect("erin" not in routers[1].command("user", "list"), "erin is listed")
    book = Book(routers[0], hosts[0])
    routers[1].process.signal(signal.SIGKILL)
    routers[1].process.wait(10)
    c.sleep(LISTED)
    c.expect(book.users("?all") == numbers, f"with one router gone: {book.users('?all')}")
    c.expect("alice" in book.users(), "who is registered is not listed with one router gone")
    routers[1].start()
    routers[1].ready()
    c.expect(numbered(c, routers, 8) == numbers, "numbers are others after a restart")


def numbers_of(router):
    """The users of a router with their numbers."""
    return {one["user"]: one.get("number") for one in json.loads(router.command("user", "list", "--json"))}


@network.case("onesip/phonebook-join", limit=420)
def phonebook_join(c):
    """Two routers that do not know each other have assigned the same numbers. When they are joined, the users of one
    keep theirs and those of the other get others, and the phonebook of both has all."""
    routers = [Router(c, number, ipv4=True) for number in range(2)]
    routers[0].connect(routers[1])
    routers[0].space.inside("link", "set", "to1", "down")
    for router in routers:
        router.start()
    for router in routers:
        router.ready()
    routers[0].add("alice")
    routers[1].add("bob")
    for router in routers:
        c.until(lambda router=router: all(numbers_of(router).values()), NUMBERED, "not everybody has a number")
    apart = [numbers_of(router) for router in routers]
    c.expect(sorted(apart[0].values()) == sorted(apart[1].values()), f"expected the same numbers, got {apart}")
    routers[0].space.inside("link", "set", "to1", "up")

    def joined():
        together = [numbers_of(router) for router in routers]
        numbers = [number for one in together for number in one.values()]
        return together if all(numbers) and len(set(numbers)) == 6 else None
    together = c.until(joined, NUMBERED, "numbers are assigned twice")
    c.expect(sum(one == before for one, before in zip(together, apart, strict=True)) == 1,
             f"expected one router to keep its numbers: {apart}, then {together}")
    for router in routers:
        book = Book(router, f"[{router.address()}]")
        router.host()
        c.until(lambda book=book: book.users("?all") == together[0] | together[1], 2 * LISTED,
                lambda book=book: f"expected {together}, got {book.users('?all')}")
    tidy_numbers(c, *routers)


def tidy_numbers(c, first, second):
    """The operator ends the numbers of the earlier network, and takes over the blocks of a router that is lost."""
    def show(router):
        return json.loads(router.command("numbers", "show", "--json"))
    changed = [router for router in (first, second) if show(router)["earlier"]]
    c.expect(len(changed) == 1, f"earlier networks: {show(first)}, {show(second)}")
    earlier = show(changed[0])["earlier"][0]
    c.expect(earlier["users"] == 3, f"expected three users with earlier numbers: {earlier}")
    changed[0].command("numbers", "retire", earlier["mark"])
    c.expect(not show(changed[0])["earlier"], "the earlier network is not retired")
    before, lost = show(first), second.status()["id"]
    second.process.signal(signal.SIGKILL)
    second.process.wait(10)
    first.command("numbers", "reclaim", "--lost", lost)
    c.until(lambda: "are reclaimed" in (show(first)["found"] or ""), 60, lambda: f"not reclaimed: {show(first)}")
    c.expect(show(first)["free_blocks"] > before["free_blocks"], f"{before}, then {show(first)}")


@network.case("onesip/phonebook-strangers", limit=240)
def phonebook_strangers(c):
    """The phonebook is for the hosts of the LAN alone. One of them that holds connections, or sends what never ends,
    takes it from no other."""
    routers = [Router(c, number, ipv4=True) for number in range(2)]
    routers[0].connect(routers[1])
    for router in routers:
        router.start()
    for router in routers:
        router.ready()
    routers[0].add("alice")
    c.until(lambda: all(router.settled() for router in routers), SETTLED, "the ring does not settle")
    routers[0].host4()
    book = Book(routers[0], f"[{routers[0].address()}]")
    c.until(lambda: "alice" in book.users("?all"), LISTED, "no phonebook")
    # From the other router, from a host of its LAN, and from the router itself: not by the LAN.
    host = routers[1].host()
    def connects(source, port):
        bound = (source, 0) if source else None
        try:
            socket.create_connection((routers[0].address(), port), timeout=5, source_address=bound).close()
        except OSError:
            return False
        return True
    for space, source in ((routers[1].space, None), (routers[1].lan, host), (routers[0].space, None)):
        with inside(space):
            # SIP is for all of them, so they do reach the router.
            c.until(lambda source=source: connects(source, 5060), 10, f"{space.name} does not reach the router")
            for port in (BOOK_PORT, LDAP_PORT):
                c.expect(not connects(source, port), f"port {port} is open for {space.name}")
    hogs = []
    with inside(routers[0].lan):
        for port in (BOOK_PORT, LDAP_PORT):
            for number in range(100):
                hog = socket.create_connection((ROUTER4, port), timeout=5, source_address=(HOST4, 0))
                hogs.append(hog)
                with contextlib.suppress(OSError):
                    hog.sendall(b"GET /phonebook HTTP/1.1\r\nX: " if number % 2 else b"\x30")
    c.after(lambda: [hog.close() for hog in hogs])
    started = time.monotonic()
    c.expect("alice" in book.users("?all"), "a phone gets no answer beside a hog")
    book.ldap()
    c.expect(time.monotonic() - started < 5, "a phone waits for a hog")
    with inside(routers[0].lan), socket.create_connection((routers[0].address(), BOOK_PORT), timeout=10) as endless:
        endless.settimeout(10)
        with contextlib.suppress(OSError):
            for _ in range(1000):
                endless.sendall(b"X" * 10_000)
            c.expect(not endless.recv(4_096).startswith(b"HTTP/1.1 200"), "a request without an end is answered")
    c.expect("alice" in book.users("?all"), "no phonebook after a request without an end")


@network.case("onesip/linphone", limit=150, alone=True)
def linphone_calls(c):
    """linphone calls baresip over four routers, with IPv6."""
    routers = line(c, 4)
    talk(c, Linphone(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/linphone-ipv4", limit=150, alone=True)
def linphone_ipv4(c):
    """baresip calls linphone over four routers, where both know only IPv4 and have the same address."""
    routers = line(c, 4, ipv4=(0, 3))
    talk(c, Baresip(routers[0], "alice"), Linphone(routers[3], "bob"))


@network.case("onesip/ring-of-six", limit=90)
def ring_of_six(c):
    """Users of six routers call each other, guests among them; a router dies, and the ring is cut in two and joined
    again: each registration that was acknowledged is still found, each half goes on calling, and calls under way go on.
    What `interop/onesip/run` does with up to sixty."""
    async def tell(fleet):
        story = Story(fleet, quiet=2.0, sweep=20, pace=2.0)
        try:
            await story.begin(2, 1)
            await story.kill(story.dying)
            await story.part()
            await story.join()
        finally:
            story.close()
        return story.events
    with Fleet(topology.ring(6), "onesip-case") as fleet:
        events = asyncio.run(tell(fleet))
    faults = [fault for event in events for fault in event.failed()]
    c.expect(not faults, "\n".join(faults))
    c.expect(all(event.fields["held"] for event in events[1:]), "no calls were under way")


@network.case("onesip/lamps", limit=300)
def lamps_of_users(c):
    """A phone at one router has lamps of users whose phones hang on two others, one of them a guest; they follow a call
    from its beginning to its end. When the router of a party dies, its user is in no call any more."""
    routers = line(c, 3)
    # Her home is the first router; there is no user of the last one.
    caller, callee = Baresip(routers[1], "bob"), Baresip(routers[2], "alice")
    watcher = Phone(routers[0], "carol")
    watcher.registered()
    lamp = lamps.Lamp(c, watcher, ("alice", "bob", "carol"))
    for phone in (caller, callee):
        phone.registered()
    for _ in range(2):
        lamps.of_a_call(lamp, caller, callee)
    lamp.shows("carol", "terminated")
    lamps.of_a_dead_router(lamp, caller, callee)


@network.case("onesip/presence", limit=300)
def presence(c):
    """Two baresips at different routers watch each other's presence and publish their own: who has not registered is
    offline, who is in a call is busy, and whose router has died is offline."""
    routers = line(c, 4)
    watcher = Baresip(routers[0], "alice", contacts=["bob", "carol"])
    watcher.registered()

    def shown(user, status, seconds=lamps.SHOWN):
        c.until(lambda: lamps.presence_of(watcher, user) == status, seconds,
                lambda: f"{user} is shown as {lamps.presence_of(watcher, user)}, expected {status}: "
                        f"{watcher.process.output()[-800:]}")
    # What it learns first it does not print.
    c.until(lambda: watcher.process.output().count("<basic>closed</basic>") >= 2, lamps.SHOWN,
            lambda: f"nobody is shown: {watcher.process.output()[-800:]}")
    other, third = (Baresip(routers[at], user, contacts=["alice"]) for at, user in ((3, "bob"), (2, "carol")))
    for phone in (other, third):
        phone.registered()
    shown("bob", "Online")
    shown("carol", "Online")
    third.call("bob")
    shown("bob", "Busy")
    shown("carol", "Busy")
    third.command("hangup")
    shown("bob", "Online")
    shown("carol", "Online")
    routers[3].process.signal(signal.SIGKILL)
    shown("bob", "Offline", lamps.NOTICED)
    shown("carol", "Online")


@network.case("onesip/linphone-presence", limit=280, alone=True)
def linphone_presence(c):
    """A linphone, whose Contact is its GRUU, watches the user of a baresip at another router, who calls it."""
    # Without IPv4 it takes the network for down after a while, and ends everything.
    routers = line(c, 3, ipv4=(0,))
    watcher, other = Linphone(routers[0], "alice", friends=["bob"]), Baresip(routers[2], "bob", contacts=["alice"])
    for phone in (watcher, other):
        phone.registered()
    def shown(status):
        c.until(lambda: re.findall(r"<sip:bob@mesh> is ([\w ]+)", watcher.process.output())[-1:] == [status], 70,
                lambda: f"bob is not {status}: {watcher.process.output()[-800:]}")
    shown("Online")
    other.call("alice")
    shown("On the phone")
    other.command("hangup")
    shown("Online")


class MovedCall:
    """A call between two baresips, of which one is plugged into the LAN of another router in the middle of it: within a
    minute it notices its new address, registers, and sends a re-INVITE by the new router."""

    def __init__(self, c, dies=False):
        """`dies`: its old router is killed at the same moment."""
        self.c, self.routers = c, line(c, 3, ipv4=(0, 1, 2))
        self.moving = Baresip(self.routers[2], "carol", moves=True)
        self.staying = Baresip(self.routers[0], "alice", moves=True)
        self.phones = (self.moving, self.staying)
        for phone in self.phones:
            phone.registered()
        self.moving.call("alice")
        c.until(lambda: all(phone.recorded() >= RECORDED_BYTES for phone in self.phones), 30, "nothing is heard")
        if dies:
            # It is the home of the one that moves.
            c.until(lambda: self.routers[2].deputies() == 2, DEPUTIES, "it has no deputies")
            self.routers[2].process.signal(signal.SIGKILL)
        self.routers[1].take(self.routers[2])
        self.moving.router = self.routers[1]
        c.until(lambda: "address changed" in self.moving.process.output(), 70,
                "baresip does not notice that it has moved")

    def record(self, seconds, within, why):
        """Each records so much more."""
        before = [phone.recorded() for phone in self.phones]
        self.c.until(lambda: all(phone.recorded() >= was + seconds * RECORDED_SECOND
                                 for phone, was in zip(self.phones, before, strict=True)), within,
                     lambda: f"{why}: {[phone.process.output()[-800:] for phone in self.phones]}")

    def hold(self):
        """The other party puts the one that has moved on hold, and takes the call again: two re-INVITEs to it."""
        def silent():
            before = self.staying.recorded()
            time.sleep(2)
            return self.staying.recorded() - before < RECORDED_SECOND // 2
        self.staying.command("hold")
        self.c.until(lambda: "a=sendonly" in self.moving.process.output(), 20, "no re-INVITE arrives")
        self.c.until(silent, 20, lambda: f"it is not on hold: {self.moving.process.output()[-800:]}")
        before = [len(phone.process.output()) for phone in self.phones]
        self.staying.command("resume")

        def hears(phone, since):
            # baresip does not record any more after a hold. It prints the bits a second that it sends and receives.
            rates = re.findall(r"audio=\d+/(\d+)", phone.process.output()[since:])
            return any(int(rate) > FULL_RATE for rate in rates)
        self.c.until(lambda: all(map(hears, self.phones, before)), 20, "they do not hear each other after the hold")

    def end(self, by, other, seconds):
        """One of them hangs up. Each has heard the other for so many seconds."""
        for phone in self.phones:
            self.c.expect(ENDED not in phone.process.output(), f"the call has ended: {phone.process.output()[-800:]}")
        by.command("hangup")
        self.c.until(lambda: ENDED in other.process.output(), 10, f"{other.user} gets no BYE")
        for phone, heard in ((by, other), (other, by)):
            self.c.until(lambda phone=phone, heard=heard: phone.heard(TONES[heard.user]) >= seconds, 10,
                         f"{phone.user} does not hear {heard.user}")


@network.case("onesip/moves-in-call", limit=240)
def moves_in_call(c):
    """A baresip moves to another router in a call: both hear each other again, for longer than the callee waits for the
    ACK (RFC 3261 section 13.3.1.4), until the one that has moved hangs up."""
    call = MovedCall(c)
    call.record(3, 15, "they do not hear each other again")
    call.record(ACK_AWAITED + 8, ACK_AWAITED + 20, "the call does not last")
    call.end(call.moving, call.staying, ACK_AWAITED + 8)


@network.case("onesip/moved-is-reached", limit=240)
def moved_is_reached(c):
    """The other party of such a call puts the one that has moved on hold, takes the call again, and hangs up."""
    call = MovedCall(c)
    call.record(3, 15, "they do not hear each other again")
    call.hold()
    call.end(call.staying, call.moving, 3)


@network.case("onesip/moves-from-a-dead-router", limit=300)
def moves_from_a_dead_router(c):
    """The old router of such a call is killed as the phone is plugged off: the call goes on without it, both ways."""
    call = MovedCall(c, dies=True)
    call.record(3, 60, "they do not hear each other again")
    call.hold()
    call.end(call.staying, call.moving, 3)


@network.case("onesip/away", limit=240, alone=True)
def messages_away(c):
    """A message for a user who is registered nowhere is answered 202. It reaches the user's phone as it was sent, with
    a Date, and once; and a baresip at a third router although the sender's router was killed meanwhile."""
    routers = line(c, 4)
    alice, bob = Phone(routers[0], "alice"), Phone(routers[1], "bob")
    away.by_a_phone(c, bob, Phone(routers[2], "carol"))
    away.by_baresip(c, alice, "dave", lambda: Baresip(routers[1], "dave"))
