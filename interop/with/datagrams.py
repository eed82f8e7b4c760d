"""Programs with sockets of UDP, as they would run without services. Run with a role:

    datagrams.py echo PORT              answers each datagram in capitals, by recvmsg and sendmsg, with its destination
    datagrams.py ask HOST PORT COUNT    sends datagrams of all sizes from an unconnected socket and reads the answers
    datagrams.py connected HOST PORT COUNT    the same from a connected one
    datagrams.py together HOST PORT COUNT     several to two hosts with each sendmmsg, from a socket that is connected
                                              and disconnected in between
    datagrams.py talk HOST PORT SECONDS       numbered datagrams, 100 a second; prints each number that is answered
    datagrams.py reply HOST PORT        answers at all addresses of the family of HOST
    datagrams.py needs PORT OTHER       answers, and binds another port as soon as there was a datagram
"""

import contextlib
import ctypes
import errno
import mmap
import os
import socket
import struct
import sys
import time

PKTINFO = 8  # IP_PKTINFO, which older versions of the module lack


def family(host):
    """The family of an address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def echo(port):
    """Answers, from the address that was asked."""
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.setsockopt(socket.IPPROTO_IP, PKTINFO, 1)
    at.bind(("0.0.0.0", port))
    print("ready", flush=True)
    while True:
        octets, control, _, peer = at.recvmsg(70_000, 1_000)
        to = [struct.unpack("=I4s4s", data[:12])[2] for _, kind, data in control if kind == PKTINFO]
        print(f"{len(octets)} from {peer[0]}:{peer[1]} to {socket.inet_ntoa(to[0])}", flush=True)
        # The source is the address that was asked.
        answer = [(socket.IPPROTO_IP, PKTINFO, struct.pack("=I4s4s", 0, to[0], b"\0" * 4))]
        at.sendmsg([octets[:10].upper(), octets[10:]], answer, 0, peer)


def ask(host, port, count, connected):
    """Asks until all answers have come."""
    to = socket.socket(family(host), socket.SOCK_DGRAM)
    to.settimeout(5)
    if connected:
        to.connect((host, port))
        before = to.getsockname()
    for number in range(count):
        octets = b"question %d " % number + b"x" * (number * 7_919 % 60_000)
        octets = b"" if number % 10 == 5 else octets
        if connected:
            to.send(octets)
            answer = to.recv(70_000)
        else:
            to.sendto(octets, (host, port))
            answer, peer = to.recvfrom(70_000)
            assert peer[:2] == (host, port), peer
        assert answer == octets[:10].upper() + octets[10:], (number, answer[:20])
        # An association stands soon after the first question.
        time.sleep(0.05)
    if connected:
        assert to.getpeername()[:2] == (host, port), to.getpeername()
        assert to.getsockname() == before, (to.getsockname(), before)
    print(f"{count} answers at {to.getsockname()[1]}", flush=True)


class Part(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class Header(ctypes.Structure):
    """struct msghdr."""

    _fields_ = (("name", ctypes.c_char_p), ("name_length", ctypes.c_uint32), ("parts", ctypes.POINTER(Part)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int))


class Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (("header", Header), ("sent", ctypes.c_uint32))


LIBC = ctypes.CDLL(None, use_errno=True)


def named(host, port):
    """struct sockaddr_in."""
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton(host))


def send_together(at, datagrams):
    """Sends (octets, host, port) by sendmmsg, again from where it has stopped."""
    messages = (Message * len(datagrams))()
    for message, (octets, host, port) in zip(messages, datagrams, strict=True):
        name = named(host, port)
        parts = ctypes.pointer(Part(octets, len(octets)))
        message.header = Header(name, len(name), parts, 1)
    sent = 0
    while sent < len(messages):
        rest = ctypes.byref(messages, sent * ctypes.sizeof(Message))
        count = LIBC.sendmmsg(at.fileno(), rest, len(messages) - sent, 0)
        assert count > 0, os.strerror(ctypes.get_errno())
        sent += count
    lengths = [message.sent for message in messages]
    assert lengths == [len(octets) for octets, _, _ in datagrams], lengths


def send_cut_off(at, host, port):
    """Sends with control data that states more octets than there are, at the end of what can be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert LIBC.mprotect(ctypes.c_void_p(start + page), page, 0) == 0, os.strerror(ctypes.get_errno())
    # Of struct cmsghdr and struct in_pktinfo there is the first.
    control = struct.pack("=Qii", 28, socket.IPPROTO_IP, PKTINFO)
    memory[page - len(control):page] = control
    parts, name = ctypes.pointer(Part(b"cut off", 7)), named(host, port)
    header = Header(name, len(name), parts, 1, start + page - len(control), len(control))
    assert LIBC.sendmsg(at.fileno(), ctypes.byref(header), 0) == -1
    assert ctypes.get_errno() == errno.EINVAL, os.strerror(ctypes.get_errno())


def together(host, port, count):
    """Asks; of each call one datagram is for this host itself, which is not carried."""
    own, to = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    own.bind(("127.0.0.1", 0))
    for at in (own, to):
        at.settimeout(5)
    there, here = (host, port), own.getsockname()
    send_cut_off(to, host, port)
    for number in range(count):
        names = [b"%d %d " % (number, part) for part in range(4)]
        send_together(to, [(name, *at) for name, at in zip(names, (here, there, there, here), strict=True)])
        assert [own.recv(100) for _ in range(2)] == [names[0], names[3]]
        assert sorted(to.recvfrom(100) for _ in range(2)) == [(names[1], there), (names[2], there)]
        if number % 10 == 4:
            for _ in range(2):
                # The second time it is connected already.
                to.connect(there)
            to.send(b"connected")
            assert to.recv(100) == b"CONNECTED"
        if number % 10 == 8:
            # A port that the kernel has chosen is another one then.
            nothing = struct.pack("=H", socket.AF_UNSPEC) + bytes(14)
            assert LIBC.connect(to.fileno(), nothing, len(nothing)) == 0, os.strerror(ctypes.get_errno())
        time.sleep(0.05)
    print(f"{count} answers", flush=True)


def talk(host, port, seconds):
    """Asks, and waits for no answer."""
    to = socket.socket(family(host), socket.SOCK_DGRAM)
    to.setblocking(False)
    for number in range(100 * seconds + 50):
        # The last answers take a while.
        if number < 100 * seconds:
            # As by UDP, there may be no way for a moment.
            with contextlib.suppress(OSError):
                to.sendto(b"%d" % number, (host, port))
        time.sleep(0.01)
        with contextlib.suppress(BlockingIOError):
            while True:
                octets, peer = to.recvfrom(100)
                assert peer[:2] == (host, port), peer
                print(f"answered {int(octets)}.", flush=True)
    print(f"{100 * seconds} sent", flush=True)


def reply(host, port):
    """Answers."""
    at = socket.socket(family(host), socket.SOCK_DGRAM)
    at.bind(("", port))
    print("ready", flush=True)
    while True:
        octets, peer = at.recvfrom(100)
        at.sendto(octets, peer)


def needs(port, other):
    """Answers, and has two ports."""
    at, beside = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    at.bind(("0.0.0.0", port))
    print("ready", flush=True)
    for number in range(10_000):
        octets, peer = at.recvfrom(100)
        at.sendto(octets, peer)
        # Messages carry them by then.
        if number == 100:
            beside.bind(("0.0.0.0", other))
            print(f"has {beside.getsockname()[1]}, too", flush=True)


def main():
    """Runs a role."""
    role, *rest = sys.argv[1:]
    if role == "echo":
        echo(int(rest[0]))
    elif role == "needs":
        needs(int(rest[0]), int(rest[1]))
    elif role == "reply":
        reply(rest[0], int(rest[1]))
    elif role == "talk":
        talk(rest[0], int(rest[1]), int(rest[2]))
    elif role == "together":
        together(rest[0], int(rest[1]), int(rest[2]))
    else:
        ask(rest[0], int(rest[1]), int(rest[2]), role == "connected")


if __name__ == "__main__":
    main()
