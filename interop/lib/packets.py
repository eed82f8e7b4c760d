"""SCTP by hand, over UDP: packets that no sound peer would send, and just enough of a peer to be taken for one.

Nothing here retransmits or keeps a timer: loopback loses nothing that matters, and a hostile peer keeps no rules.
"""

import contextlib
import os
import socket
import struct
import time

from cases import Failed

DATA, INIT, INIT_ACK, SACK, HEARTBEAT, HEARTBEAT_ACK, ABORT, SHUTDOWN = range(8)
SHUTDOWN_ACK, ERROR, COOKIE_ECHO, COOKIE_ACK = range(8, 12)
I_DATA, ASCONF_ACK, RE_CONFIG, PAD, FORWARD_TSN, ASCONF = 64, 128, 130, 132, 192, 193
END, BEGIN, UNORDERED = 1, 2, 4
STATE_COOKIE, FORWARD_TSN_SUPPORTED, SUPPORTED_EXTENSIONS = 7, 0xC000, 0x8008
POLYNOMIAL = 0x82F63B78


def _table():
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (POLYNOMIAL if n & 1 else 0)
        yield n


TABLE = tuple(_table())


def crc32c(octets):
    """The checksum of RFC 9260 appendix A."""
    crc, table = 0xFFFFFFFF, TABLE
    for octet in octets:
        crc = table[(crc ^ octet) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def chunk(kind, flags=0, value=b"", length=None):
    """A chunk, padded; `length` is what it says of itself if that is not the truth. Parameters are laid out alike."""
    said = 4 + len(value) if length is None else length
    return struct.pack(">BBH", kind, flags, said) + value + b"\0" * (-len(value) % 4)


def parameter(kind, value=b"", length=None):
    """A parameter of an INIT, or a cause of an error."""
    return chunk(kind >> 8, kind & 0xFF, value, length)


def init(tag=0x11223344, window=1 << 17, out=10, into=10, tsn=1000, parameters=b"", kind=INIT):
    """An INIT, with what may be wrong in it."""
    return chunk(kind, 0, struct.pack(">IIHHI", tag, window, out, into, tsn) + parameters)


def data(tsn, stream=0, number=0, body=b"x", flags=BEGIN | END, ppid=0):
    """A DATA chunk."""
    return chunk(DATA, flags, struct.pack(">IHHI", tsn & 0xFFFFFFFF, stream, number & 0xFFFF, ppid) + body)


def sack(tsn, window=1 << 17, gaps=(), duplicates=()):
    """A SACK."""
    value = struct.pack(">IIHH", tsn & 0xFFFFFFFF, window, len(gaps), len(duplicates))
    value += b"".join(struct.pack(">HH", *gap) for gap in gaps)
    return chunk(SACK, 0, value + b"".join(struct.pack(">I", one & 0xFFFFFFFF) for one in duplicates))


def packet(source, destination, tag, *chunks):
    """A whole packet with a right checksum."""
    rest = b"".join(chunks)
    head = struct.pack(">HHI", source, destination, tag)
    return head + struct.pack("<I", crc32c(head + b"\0\0\0\0" + rest)) + rest


def split(octets):
    """The chunks of a packet: (kind, flags, value)."""
    at = 12
    while at + 4 <= len(octets):
        kind, flags, length = struct.unpack_from(">BBH", octets, at)
        if length < 4:
            return
        yield kind, flags, octets[at + 4:at + length]
        at += length + -length % 4


def parameters(value):
    """The parameters in what follows the fixed part of an INIT: their values by kind."""
    found, at = {}, 0
    while at + 4 <= len(value):
        kind, length = struct.unpack_from(">HH", value, at)
        if length < 4:
            break
        found[kind] = value[at + 4:at + length]
        at += length + -length % 4
    return found


class Stranger:
    """A UDP socket from which anything goes to one SCTP port."""

    def __init__(self, to, port=5060, own_port=None, host="127.0.0.1"):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.socket.connect(("127.0.0.1", to))
        self.socket.settimeout(2)
        self.port, self.own_port = port, own_port or 30000 + os.getpid() % 10000
        self.tag, self.sent = 0, 0

    def raw(self, octets):
        """Sends octets as they are."""
        with contextlib.suppress(ConnectionRefusedError):
            self.socket.send(octets)
        self.sent += 1

    def send(self, *chunks, tag=None):
        """Sends a packet of these chunks."""
        self.raw(packet(self.own_port, self.port, self.tag if tag is None else tag, *chunks))

    def receive(self, *kinds, seconds=2.0):
        """The next chunk of one of these kinds: (kind, flags, value), or None."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                octets = self.socket.recv(65536)
            except (TimeoutError, BlockingIOError):
                return None
            except ConnectionRefusedError:
                continue
            for one in split(octets):
                if one[0] in kinds:
                    return one
        return None

    def drain(self):
        """Forgets what has come."""
        self.socket.settimeout(0.0)
        try:
            while True:
                self.socket.recv(65536)
        except OSError:
            pass
        self.socket.settimeout(2)


class Peer(Stranger):
    """One that has an association."""

    def __init__(self, to, window=1 << 17, out=10, into=10, extra=b"", **place):
        super().__init__(to, **place)
        self.my_tag = int.from_bytes(os.urandom(4), "big") | 1
        self.tsn = self.first = int.from_bytes(os.urandom(4), "big")
        self.numbers = {}
        self.send(init(self.my_tag, window, out, into, self.tsn, extra), tag=0)
        answer = self.receive(INIT_ACK)
        if answer is None:
            raise Failed("no INIT ACK")
        self.tag, _, _, accepted, self.theirs = struct.unpack_from(">IIHHI", answer[2])
        self.streams = min(out, accepted)
        self.theirs = (self.theirs - 1) & 0xFFFFFFFF
        self.cookie = parameters(answer[2][16:])[STATE_COOKIE]
        self.send(chunk(COOKIE_ECHO, 0, self.cookie))
        if self.receive(COOKIE_ACK) is None:
            raise Failed("no COOKIE ACK")

    def message(self, body, stream=0):
        """Sends one message that fits a packet, as it should be."""
        number = self.numbers.get(stream, 0)
        self.numbers[stream] = number + 1
        self.send(data(self.tsn, stream, number, body))
        self.tsn = (self.tsn + 1) & 0xFFFFFFFF

    def answer(self, seconds=3.0):
        """The next message, acknowledged."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            one = self.receive(DATA, HEARTBEAT, ABORT, seconds=left)
            if one is None:
                break
            if one[0] == ABORT:
                raise Failed(f"aborted: {one[2].hex()}")
            if one[0] == HEARTBEAT:
                self.send(chunk(HEARTBEAT_ACK, 0, one[2]))
                continue
            tsn = struct.unpack_from(">I", one[2])[0]
            self.send(sack(tsn))
            if tsn != self.theirs:
                self.theirs = tsn
                return one[2][12:]
        return None
