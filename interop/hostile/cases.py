"""Packets that no sound peer sends, against a running server: SCTP in UDP, made by hand (lib/packets.py).

After each kind of them an association of somebody else's must still be served, and the server's memory must be what it
was, but for what its limits allow.
"""

import os
import random
import struct
from pathlib import Path

import cases
import packets as p
from packets import BEGIN, Peer, Stranger, chunk, data, init, parameter, sack
from server import binary

# Memory the server may have taken for good at the end, KiB: less than one association's buffers (256 KiB each way)
# for each of those that were opened, which all are gone.
KEPT = 4096
OPTIONS = """OPTIONS sip:host.test SIP/2.0\r
Via: SIP/2.0/SCTP 127.0.0.1:{port};branch=z9hG4bK{port}-{number}\r
From: <sip:a@host.test>;tag=1\r
To: <sip:host.test>\r
Call-ID: {port}-{number}\r
CSeq: 1 OPTIONS\r
Max-Forwards: 70\r
Content-Length: 0\r
\r
"""


def question(port, number):
    """A request that the server answers itself."""
    return OPTIONS.format(port=port, number=number).encode()


class Attacked:
    """A server, and a peer of its own that is to notice nothing."""

    def __init__(self, c):
        self.c, self.asked, self.port = c, 0, 41_000
        udp, http, self.encap = c.ports.take(), c.ports.take(), c.ports.take()
        config = c.folder / "ringway.toml"
        config.write_text(f"""\
listen = ["udp://127.0.0.1:{udp}", "sctp+udp://127.0.0.1:5060?encap={self.encap}"]
domains = ["host.test"]
store = "memory"
http = "127.0.0.1:{http}"
workers = 2
""")
        self.server = c.start("ringway", [binary(), "serve", "--config", config], env={"XDG_STATE_HOME": str(c.folder)})
        c.expect(self.server.wait_output("serving", 15), f"no server: {self.server.output()}")
        self.victim = Peer(self.encap, own_port=40_000)

    def memory(self):
        """What it holds, KiB."""
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def peer(self, **options):
        """A hostile one with an association."""
        self.port += 1
        return Peer(self.encap, own_port=self.port, **options)

    def stranger(self, **options):
        """A hostile one without."""
        self.port += 1
        return Stranger(self.encap, **{"own_port": self.port, **options})

    def serves(self, after):
        """That the association of somebody else's is served."""
        self.asked += 1
        self.victim.drain()
        self.victim.message(question(40_000, self.asked), self.asked % self.victim.streams)
        answer = self.victim.answer(5)
        self.c.expect(self.server.running(), f"after {after} the server ended: {self.server.output()[-600:]}")
        self.c.expect(answer is not None and answer.startswith(b"SIP/2.0 200 "),
                      f"after {after} the other association was not served: {answer}")


def lengths(attacked):
    """Every type of chunk with lengths that are not true, and packets that are too short for one."""
    stranger = attacked.stranger()
    for kind in range(256):
        for said in (0, 1, 3, 4, 5, 19, 20, 65535):
            stranger.send(chunk(kind, 0, bytes(16), said), tag=0)
            stranger.send(chunk(kind, 0xFF, b"", said), tag=attacked.victim.tag)
    for size in range(40):
        stranger.raw(os.urandom(size))


def inits(attacked):
    """INITs that are bundled, have values that may not be, or thousands of parameters."""
    stranger = attacked.stranger()
    for tag in (0, 5):
        for values in ({"tag": 0}, {"out": 0}, {"into": 0}, {"window": 0}, {"window": 1499},
                       {"out": 65535, "into": 65535}):
            for bundle in ((init(**values),), (init(**values), data(1)), (data(1), init(**values)), (init(), init())):
                stranger.send(*bundle, tag=tag)
    heaps = (b"".join(parameter(5, os.urandom(4)) for _ in range(4000)),
             b"".join(parameter(0x8000 | n, b"") for n in range(8000)),
             b"".join(parameter(0xC000 | n, b"1234") for n in range(4000)),
             parameter(p.SUPPORTED_EXTENSIONS, os.urandom(30_000)), parameter(0x8003, os.urandom(20_000)),
             parameter(0x8004, os.urandom(20_000)), parameter(0x8002, bytes(60_000)), parameter(11, b"host" * 3000),
             parameter(5, b"\1\2\3\4", 3), parameter(6, b""), parameter(12, os.urandom(4000)))
    for _ in range(20):
        for heap in heaps:
            stranger.send(init(parameters=heap), tag=0)


def cookies(attacked):
    """A cookie with any octet changed, cut, lengthened, sent from elsewhere: none is answered. The true one is, however
    often it comes, as one association."""
    c, stranger = attacked.c, attacked.stranger()
    stranger.send(init(), tag=0)
    answer = stranger.receive(p.INIT_ACK)
    c.expect(answer, "no INIT ACK")
    tag, cookie = struct.unpack_from(">I", answer[2])[0], p.parameters(answer[2][16:])[p.STATE_COOKIE]
    for place in range(len(cookie)):
        for bit in (1, 128):
            stranger.send(chunk(p.COOKIE_ECHO, 0, cookie[:place] + bytes([cookie[place] ^ bit]) + cookie[place + 1:]),
                          tag=tag)
        stranger.send(chunk(p.COOKIE_ECHO, 0, cookie[:place]), tag=tag)
    for more in (1, 100, 5000, 60_000):
        stranger.send(chunk(p.COOKIE_ECHO, 0, cookie + bytes(more)), tag=tag)
    elsewhere = attacked.stranger(), attacked.stranger(own_port=stranger.own_port, host="127.0.0.9")
    for one in elsewhere:
        one.send(chunk(p.COOKIE_ECHO, 0, cookie), tag=tag)
    for one in (stranger, *elsewhere):
        told = one.receive(p.COOKIE_ACK, p.ABORT, p.ERROR, seconds=0.2)
        c.expect(told is None, f"a forged cookie was answered: {told}")
    for _ in range(100):
        stranger.send(chunk(p.COOKIE_ECHO, 0, cookie), tag=tag)
    c.expect(stranger.receive(p.COOKIE_ACK), "the true cookie was not taken")
    stranger.send(chunk(p.ABORT), tag=tag)


def forged(attacked):
    """What ends or begins an association, from another address and with wrong tags, in the name of the other's."""
    stranger = attacked.stranger(own_port=40_000, host="127.0.0.7")
    for _ in range(1000):
        stranger.send(chunk(p.ABORT), tag=random.getrandbits(32))
        stranger.send(chunk(p.SHUTDOWN_ACK), tag=0)
        stranger.send(chunk(p.ABORT, 1), tag=attacked.victim.my_tag ^ 1)
        stranger.send(init(tag=random.getrandbits(32) | 1), tag=0)


def acknowledgements(attacked):
    """Of what was never sent: the association is ended (RFC 9260 section 6.2.1), with or without gaps."""
    for wild in (lambda t: sack(t + 1000), lambda t: sack(t, gaps=[(1, 65535)]),
                 lambda t: sack(t, gaps=[(n, n) for n in range(300, 1, -1)]), lambda t: sack(t + 0x7FFFFFFF)):
        peer = attacked.peer()
        for _ in range(100):
            peer.send(wild(peer.theirs))
        peer.send(chunk(p.ABORT))


def gaps(attacked):
    """The same TSN again and again, then every second one."""
    peer = attacked.peer()
    for _ in range(5000):
        peer.send(data(peer.first, body=b"\r\n\r\n"))
    for n in range(10_000):
        peer.send(data(peer.first + 2 * n + 3, 0, n + 1, bytes(20)))
    peer.send(chunk(p.ABORT))


def fragments(attacked):
    """Beginnings without an end on every stream, a message without an end, and pieces that overlap."""
    peer = attacked.peer(out=65535, into=65535)
    for n in range(3000):
        peer.send(data(peer.first + n, n % peer.streams, 0, bytes(1000), BEGIN))
    peer = attacked.peer()
    for n in range(500):
        peer.send(data(peer.first + n, 0, 0, bytes(1000), 0 if n else BEGIN))
    for seed in range(20):
        peer, chance = attacked.peer(), random.Random(seed)
        for _ in range(200):
            peer.send(data(peer.first + chance.randrange(100), chance.randrange(20), chance.randrange(4),
                           chance.randbytes(chance.randrange(1, 50)), chance.randrange(8)))
        peer.send(chunk(p.ABORT))


def control(attacked):
    """Chunks that ask for answers, or for what was not agreed on, each by a peer of its own."""
    for make in (lambda *_: chunk(p.HEARTBEAT, 0, parameter(1, os.urandom(1300))),
                 lambda *_: chunk(p.ERROR, 0, parameter(6, os.urandom(1200))),
                 lambda *_: chunk(p.RE_CONFIG, 0, os.urandom(60)),
                 lambda n, o: chunk(p.RE_CONFIG, 0, parameter(13, struct.pack(">III", n, 0, o.tsn) + bytes(400))),
                 lambda *_: chunk(p.ASCONF, 0, os.urandom(80)),
                 lambda n, o: chunk(p.FORWARD_TSN, 0, struct.pack(">I", o.first + 70_000 * n & 0xFFFFFFFF)),
                 lambda *_: chunk(0xFE, 0, os.urandom(1000)), lambda *_: chunk(12) + chunk(13)):
        peer = attacked.peer()
        for n in range(300):
            peer.send(make(n, peer))
        peer.send(chunk(p.ABORT))


def closed_window(attacked):
    """Questions without end from a peer that takes no answer: it is cut."""
    peer = attacked.peer(window=1500)
    for n in range(4000):
        peer.message(question(peer.own_port, n), n % peer.streams)
        if n % 20 == 0:
            peer.drain()
            peer.send(sack(peer.theirs, 0))
            # Nothing is sent twice here, so that the server must have time to read it.
            attacked.c.sleep(0.01)

    def gone():
        """Whether the association is."""
        peer.drain()
        peer.send(chunk(p.HEARTBEAT, 0, parameter(1, b"still there")))
        return (peer.receive(p.ABORT, p.HEARTBEAT_ACK) or (None,))[0] == p.ABORT
    attacked.c.until(gone, 40, "a peer that asks without end and takes nothing was not cut")


# Of a peer that has as much as possible: partial reliability, re-configuration, interleaving and addresses that change.
EXTENSIONS = parameter(p.FORWARD_TSN_SUPPORTED) + parameter(
    p.SUPPORTED_EXTENSIONS, bytes([p.FORWARD_TSN, p.RE_CONFIG, p.I_DATA, p.ASCONF, p.ASCONF_ACK]))


def mutations(attacked):
    """All kinds of chunks in any order with some bits turned over."""
    chance = random.Random(7)

    def some(peer):
        """Chunks of which each could be right."""
        return (
            data(peer.tsn, chance.randrange(12), chance.randrange(3), chance.randbytes(chance.randrange(60)),
                 chance.randrange(16)),
            sack(peer.theirs + chance.randrange(-2, 3), chance.choice((0, 1, 1 << 17)),
                 [(chance.randrange(5), chance.randrange(9))]),
            chunk(p.HEARTBEAT, 0, parameter(1, b"abcd")),
            chunk(p.RE_CONFIG, 0, parameter(chance.randrange(13, 19), chance.randbytes(chance.randrange(30)))),
            chunk(p.FORWARD_TSN, 0,
                  struct.pack(">IHH", peer.tsn + chance.randrange(5) & 0xFFFFFFFF, chance.randrange(12), 0)),
            chunk(p.ASCONF, 0, chance.randbytes(40)), chunk(p.COOKIE_ECHO, 0, peer.cookie),
            init(parameters=chance.randbytes(chance.randrange(40))),
            chunk(p.ERROR, 0, parameter(chance.randrange(14), chance.randbytes(chance.randrange(20)))),
            chunk(chance.randrange(256), chance.randrange(256), chance.randbytes(chance.randrange(40))))

    for _ in range(60):
        peer = attacked.peer(extra=EXTENSIONS)
        for _ in range(100):
            octets = bytearray(b"".join(chance.sample(some(peer), chance.randrange(1, 4))))
            for _ in range(chance.randrange(3)):
                octets[chance.randrange(len(octets))] ^= 1 << chance.randrange(8)
            peer.send(bytes(octets))
            peer.tsn = peer.tsn + chance.randrange(2) & 0xFFFFFFFF
        peer.send(chunk(p.ABORT))


@cases.case("hostile/sctp", own=True, limit=120)
def sctp(c):
    """Hostile packets of all these kinds (RFC 9260 sections 3, 5, 6 and 8.4): nobody else is hurt, and no memory is
    kept."""
    attacked = Attacked(c)
    attacked.serves("nothing")
    before = attacked.memory()
    for attack in (lengths, inits, cookies, forged, acknowledgements, gaps, fragments, control, closed_window,
                   mutations):
        attack(attacked)
        attacked.serves(attack.__name__)
        print(f"{attack.__name__}: {attacked.memory() - before} KiB more", flush=True)
    kept = attacked.memory() - before
    c.expect(kept < KEPT, f"{kept} KiB were kept")
