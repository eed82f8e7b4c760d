"""What only a bare socket can show: keep-alives, retransmissions, streams cut anywhere, loops, big requests."""

import secrets
import socket
import struct
import time
import zlib

from cases import Failed, case
from server import Server
from sip import Client, Message

STUN_COOKIE = 0x2112A442


class Phone:
    """A UDP (and, if asked, TCP) socket that a contact can be registered for."""

    def __init__(self, c, stream=False):
        self.port = c.ports.take()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        c.after(self.udp.close)
        self.tcp = socket.create_server(("127.0.0.1", self.port)) if stream else None
        if self.tcp:
            c.after(self.tcp.close)

    def receive(self, seconds=20.0):
        """(message, address) of the next datagram, or (None, None)."""
        self.udp.settimeout(seconds)
        try:
            data, address = self.udp.recvfrom(65_535)
        except TimeoutError:
            return None, None
        return Message(data), address

    def answer(self, request, address, start, tag="", lines=()):
        """Answers a request as a callee would."""
        kept = [f"{name.title()}: {value}" for name, value in request.headers
                if name in ("via", "from", "call-id", "cseq", "record-route")]
        to = request.get("to") + (f";tag={tag}" if tag else "")
        text = "\r\n".join([f"SIP/2.0 {start}", *kept, f"To: {to}", *lines, "Content-Length: 0", "", ""])
        self.udp.sendto(text.encode(), address)


def registered(c, server, user, *contacts, client=None):
    """Registers contacts for a user."""
    with Client(server.host, server.port) as own:
        answer = (client or own).register(user, server.wanted.users[user], server.domain, list(contacts))
    c.expect(answer is not None and answer.status == 200, f"REGISTER of {user}: {answer and answer.start}")


@case("sockets/stun-keep-alive", own=True)
def stun(c):
    """RFC 5626 4.4.2: a binding request on the SIP port is told its source address (RFC 8489 section 14.2)."""
    server = Server(c)
    with Client(server.host, server.port) as client:
        transaction = secrets.token_bytes(12)
        client.send(struct.pack(">HHI", 1, 0, STUN_COOKIE) + transaction)
        client.socket.settimeout(20)
        answer = client.socket.recv(1500)
        kind, length, cookie = struct.unpack(">HHI", answer[:8])
        c.expect((kind, cookie, answer[8:20]) == (0x0101, STUN_COOKIE, transaction), f"not the answer: {answer.hex()}")
        c.expect(length == len(answer) - 20 and length % 4 == 0, f"wrong length: {answer.hex()}")
        attributes, rest = {}, answer[20:]
        while rest:
            name, size = struct.unpack(">HH", rest[:4])
            attributes[name] = (rest[4:4 + size], len(answer) - len(rest))
            rest = rest[4 + size + -size % 4:]
        value, _ = attributes[0x0020]
        port = struct.unpack(">H", value[2:4])[0] ^ (STUN_COOKIE >> 16)
        ip = socket.inet_ntoa(struct.pack(">I", struct.unpack(">I", value[4:8])[0] ^ STUN_COOKIE))
        c.expect((ip, port) == client.local, f"expected {client.local}, got {(ip, port)}")
        if 0x8028 in attributes:
            value, at = attributes[0x8028]
            wanted = (zlib.crc32(answer[:at]) ^ 0x5354554E) & 0xFFFFFFFF
            c.expect(struct.unpack(">I", value)[0] == wanted, "wrong FINGERPRINT")
        # And SIP is still spoken on the same socket.
        c.expect(client.ask(client.request("OPTIONS", f"sip:{server.domain}")) is not None, "no answer to OPTIONS")
    server.alive()


@case("sockets/crlf-keep-alive", own=True)
def crlf(c):
    """RFC 5626 4.4.1: a double CRLF on a stream is answered by one, also between messages."""
    server = Server(c)
    with Client(server.host, server.port, "tcp") as client:
        for _ in range(2):
            client.socket.sendall(b"\r\n\r\n")
            client.socket.settimeout(20)
            pong = client.socket.recv(100)
            c.expect(pong == b"\r\n", f"expected one CRLF, got {pong!r}")
            c.expect(client.ask(client.request("OPTIONS", f"sip:{server.domain}")) is not None, "no answer to OPTIONS")
    server.alive()


@case("sockets/stream-cut-anywhere")
def cut(c):
    """A message in single bytes, and two in one segment, are each answered (RFC 3261 18.3)."""
    server = Server(c)
    with Client(server.host, server.port, "tcp") as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in client.request("OPTIONS", f"sip:{server.domain}", body="x" * 20):
            client.send(bytes([byte]))
            time.sleep(0.0005)
        c.expect(client.receive(20) is not None, "no answer to a message in single bytes")
        pair = [client.request("OPTIONS", f"sip:{server.domain}", call_id=f"{n}", body="y" * n) for n in (1, 2)]
        client.send(b"".join(pair))
        seen = {(client.receive(20) or Message(b"")).get("call-id") for _ in pair}
        c.expect(seen == {"1", "2"}, f"expected two answers, got those of {seen}")
    server.alive()


@case("sockets/retransmissions")
def retransmissions(c):
    """A repeated INVITE reaches the callee once (RFC 3261 17.2.1), a lost 200 is sent again by the callee."""
    # The server's own first retransmission comes after any answer of the callee.
    server = Server(c, extra='[timers]\nt1 = "3s"\n')
    bob = Phone(c)
    registered(c, server, "bob", f"<sip:bob@127.0.0.1:{bob.port}>")
    with Client(server.host, server.port) as alice:
        invite = alice.proved(server, "alice", "INVITE", f"sip:bob@{server.domain}",
                              headers=["Contact: <sip:alice@127.0.0.1>"])
        for _ in range(3):
            alice.send(invite)
        request, address = bob.receive()
        c.expect(request is not None and request.method == "INVITE", "the INVITE does not arrive")
        bob.answer(request, address, "180 Ringing", tag="b")
        again, _ = bob.receive(0.3)
        c.expect(again is None, f"the callee got a second {again and again.start}")
        contact = [f"Contact: <sip:bob@127.0.0.1:{bob.port}>"]
        for _ in range(3):
            bob.answer(request, address, "200 OK", tag="b", lines=contact)
        seen = []
        # One more than there should be is not waited for as long as those.
        while (answer := alice.receive(20 if seen.count(200) < 3 else 0.5)) is not None:
            seen.append(answer.status)
        c.expect(seen.count(200) == 3, f"every 200 of the callee is for the caller (RFC 6026): got {seen}")
        c.expect(180 in seen, f"no 180: {seen}")
    server.alive()


@case("sockets/two-callees-answer")
def two_answers(c):
    """Two branches answer 200 at once: the caller gets both (RFC 3261 16.7 step 5)."""
    server = Server(c)
    phones = [Phone(c), Phone(c)]
    registered(c, server, "bob", *(f"<sip:bob@127.0.0.1:{p.port}>" for p in phones))
    with Client(server.host, server.port) as alice:
        alice.send(alice.proved(server, "alice", "INVITE", f"sip:bob@{server.domain}",
                                headers=["Contact: <sip:alice@127.0.0.1>"]))
        requests = [phone.receive() for phone in phones]
        c.expect(all(r is not None for r, _ in requests), "the INVITE does not reach both")
        branches = {r.get("via").split("branch=")[1].split(";")[0] for r, _ in requests}
        c.expect(len(branches) == 2, f"two branches share a branch parameter: {branches}")
        for number, (phone, (request, address)) in enumerate(zip(phones, requests, strict=True)):
            phone.answer(request, address, "200 OK", tag=f"b{number}",
                         lines=[f"Contact: <sip:bob@127.0.0.1:{phone.port}>"])
        tags = set()
        while len(tags) < 2 and (answer := alice.receive(20)) is not None:
            if answer.status == 200:
                tags.add(answer.get("to").split("tag=")[1])
        c.expect(tags == {"b0", "b1"}, f"expected the 200 of both, got {tags}")
    server.alive()


@case("sockets/users-that-lead-to-each-other", own=True)
def loop(c):
    """Contacts that lead back here end by loop detection, not by melting (RFC 5393, RFC 3261 16.3)."""
    names = ("one", "two", "three")
    # What comes back carries no fresh credentials: without trust it would end at the first challenge.
    server = Server(c, users=dict.fromkeys(names, "secret"), trusted=["127.0.0.1"])
    for name in names:
        others = [f"<sip:{other}@{server.host}:{server.port}>" for other in names if other != name]
        registered(c, server, name, *others)
    with Client(server.host, server.port) as alice:
        started = time.monotonic()
        answer = alice.ask(alice.request("INVITE", f"sip:one@{server.domain}",
                                         headers=["Contact: <sip:alice@127.0.0.1>"]), 30)
        c.expect(answer is not None and answer.status in (404, 440, 480, 482, 483),
                 f"expected a loop to be refused, got {answer and answer.start}")
        c.expect(time.monotonic() - started < 10, "the loop was refused only after 10 s")
        c.expect(alice.ask(alice.request("OPTIONS", f"sip:{server.domain}")) is not None, "no answer to OPTIONS")
    server.alive()


@case("sockets/cancel-and-ack-out-of-the-blue")
def strays(c):
    """A CANCEL for nothing is 481 (RFC 3261 9.2 and 16.10), a stray ACK and a stray response are dropped."""
    server = Server(c)
    with Client(server.host, server.port) as client:
        client.send(client.request("ACK", f"sip:nobody@{server.domain}"))
        client.send(b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bKx\r\nFrom: <sip:a@b>;tag=1\r\n"
                    b"To: <sip:a@b>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n")
        c.expect(client.receive(0.5) is None, "a stray ACK or response was answered")
        if c.server_kind == "ringway":
            answer = client.ask(client.request("CANCEL", f"sip:nobody@{server.domain}"))
            c.expect(answer is not None and answer.status == 481,
                     f"CANCEL: expected 481, got {answer and answer.start}")
    server.alive()


@case("sockets/large-request-goes-over-tcp", own=True)
def large(c):
    """RFC 3261 18.1.1: a request over 1300 bytes goes to a UDP contact over TCP, or over UDP where nothing listens."""
    server = Server(c, users=dict.fromkeys(("alice", "bob", "deaf"), "secret"))
    bob, deaf = Phone(c, stream=True), Phone(c)
    registered(c, server, "bob", f"<sip:bob@127.0.0.1:{bob.port}>")
    registered(c, server, "deaf", f"<sip:deaf@127.0.0.1:{deaf.port}>")
    with Client(server.host, server.port, "tcp") as alice:
        alice.send(alice.proved(server, "alice", "MESSAGE", f"sip:bob@{server.domain}", body="x" * 1500,
                                headers=["Content-Type: text/plain"]))
        bob.tcp.settimeout(20)
        stream, _ = bob.tcp.accept()
        stream.settimeout(20)
        data = b""
        while len(data.partition(b"\r\n\r\n")[2]) < 1500:
            part = stream.recv(65_535)
            c.expect(part, "the connection closed before the message was there")
            data += part
        c.expect("SIP/2.0/TCP" in Message(data).get("via"), f"the Via is not TCP: {Message(data).get('via')}")
        stream.close()
        alice.send(alice.proved(server, "alice", "MESSAGE", f"sip:deaf@{server.domain}", body="x" * 1500,
                                headers=["Content-Type: text/plain"]))
        request, address = deaf.receive()
        c.expect(request is not None, "nothing came over UDP where TCP is refused")
        c.expect("SIP/2.0/UDP" in request.get("via"), f"the Via is not UDP: {request.get('via')}")
        deaf.answer(request, address, "200 OK", tag="d")
        status = None
        while status != 200 and (answer := alice.receive(20)) is not None:
            status = answer.status
        c.expect(status == 200, f"expected the 200 of the second, got {status}")
    server.alive()


@case("sockets/ipv6", own=True)
def ipv6(c):
    """RFC 5118: registering and calling over IPv6, and from IPv6 to a callee on IPv4."""
    server = Server(c, also_ipv6=True, users=dict.fromkeys(("alice", "bob", "six-udp", "six-tcp"), "secret"))
    bob = Phone(c)
    registered(c, server, "bob", f"<sip:bob@127.0.0.1:{bob.port}>")
    for transport in ("udp", "tcp"):
        with Client("::1", server.port, transport, source="::1") as client:
            registered(c, server, f"six-{transport}", f"<sip:six@[::1]:9;transport={transport}>", client=client)
            invite = client.proved(server, "alice", "INVITE", f"sip:bob@{server.domain}",
                                   headers=[f"Contact: <sip:a@[::1]:{client.local[1]}>"])
            client.send(invite)
            request, address = bob.receive()
            c.expect(request is not None and request.method == "INVITE", f"no INVITE from IPv6 over {transport}")
            routes = ", ".join(request.all("record-route"))
            c.expect("[::1]" in routes and "127.0.0.1" in routes,
                     f"expected both addresses in Record-Route, got {routes}")
            c.expect("received=::1" in "".join(request.all("via")) or "received=[::1]" in "".join(request.all("via")),
                     f"no received: {request.all('via')}")
            bob.answer(request, address, "486 Busy Here", tag="b")
            status = 0
            while status < 200 and (answer := client.receive(20)) is not None:
                status = answer.status
            c.expect(status == 486, f"expected 486 back on IPv6 over {transport}, got {status}")
            ack, _ = bob.receive()
            c.expect(ack is not None and ack.method == "ACK", "the server does not acknowledge the 486")
    server.alive()


@case("sockets/registration-event-package", own=True)
def reg_event(c):
    """RFC 3680: a subscriber is told the registration at once, when it changes, and when the subscription ends."""
    server = Server(c)
    aor = f"sip:bob@{server.domain}"
    registered(c, server, "bob", "<sip:bob@192.0.2.1>")
    with Client(server.host, server.port) as watcher:
        call_id, tag = secrets.token_hex(8), secrets.token_hex(4)
        contact = f"Contact: <sip:bob@{watcher.local[0]}:{watcher.local[1]}>"

        def subscribe(cseq, expires, to_field=None):
            return watcher.proved(server, "bob", "SUBSCRIBE", aor, to_field=to_field, call_id=call_id, tag=tag,
                                  cseq=cseq,
                                  headers=["Event: reg", "Accept: application/reginfo+xml", f"Expires: {expires}",
                                           contact])

        def notified(*words):
            """The next NOTIFY, answered; its body and state hold these words. Changes are told five
            seconds apart at the least (RFC 3680 section 4.10)."""
            deadline = time.monotonic() + 40
            while time.monotonic() < deadline:
                request = watcher.receive(deadline - time.monotonic())
                if request is None or request.method != "NOTIFY" or request.status:
                    continue
                kept = [f"{n.title()}: {v}" for n, v in request.headers
                        if n in ("via", "from", "to", "call-id", "cseq")]
                watcher.send("\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0", "", ""]))
                body = request.body.decode()
                for word in words:
                    c.expect(word in body or word in request.get("subscription-state"),
                             f"no {word!r} in {request.text}")
                return request
            raise Failed(f"no NOTIFY with {words} in 40 s")

        watcher.send(subscribe(1, 600))
        answer = watcher.receive(20)
        c.expect(answer is not None and answer.status == 200, f"SUBSCRIBE: expected 200, got {answer and answer.text}")
        c.expect(answer.get("expires"), "no Expires in the 200")
        first = notified("sip:bob@192.0.2.1", 'state="full"', "active")
        c.expect(first.get("content-type") == "application/reginfo+xml", f"Content-Type {first.get('content-type')}")
        with Client(server.host, server.port) as phone:
            registered(c, server, "bob", "<sip:bob@192.0.2.2>", client=phone)
            notified("sip:bob@192.0.2.2")
        watcher.send(subscribe(3, 0, to_field=answer.get("to")))
        notified("terminated")
    server.alive()
