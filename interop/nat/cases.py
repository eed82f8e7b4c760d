"""Phones behind a NAT: what reaches them, for how long, and what is left to others.

The NAT is a relay between the phone's socket and the server that does to UDP what RFC 4787 describes:
another port for each, whatever the phone writes about its own address, and a mapping that ends when
the phone has sent nothing for a while (REQ-6: what comes in does not keep it).
"""

import secrets
import select
import socket
import threading
import time

from cases import case
from server import Server
from sip import Client

# The phone believes to be there.
PRIVATE = ("10.99.0.5", 5060)
# How long a mapping lives: much shorter than in real life (RFC 4787 REQ-5 asks for two minutes), so that it can be
# seen.
LIFETIME = 2.0
KEEP_ALIVE = 0.5
SDP = (f"v=0\r\no=- 1 1 IN IP4 {PRIVATE[0]}\r\ns=-\r\nc=IN IP4 {PRIVATE[0]}\r\nt=0 0\r\n"
       "m=audio 49170 RTP/AVP 0\r\n")


class Nat(threading.Thread):
    """Relays datagrams of one phone; a mapping at a time."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = (server.host, server.port)
        self.inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind(("127.0.0.1", 0))
        self.port = self.inside.getsockname()[1]
        self.outside, self.sent, self.phone = None, 0.0, None
        self.mappings, self.ended = 0, False
        self.start()

    def run(self):
        while not self.ended:
            if self.outside and time.monotonic() - self.sent > LIFETIME:
                self.outside.close()
                self.outside = None
            ready, _, _ = select.select([self.inside, *([self.outside] if self.outside else [])], [], [], 0.05)
            for one in ready:
                try:
                    data, peer = one.recvfrom(65_535)
                except OSError:
                    continue
                if one is not self.inside:
                    self.inside.sendto(data, self.phone)
                    continue
                if self.outside is None:
                    self.outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    self.outside.connect(self.server)
                    self.mappings += 1
                self.phone, self.sent = peer, time.monotonic()
                self.outside.send(data)

    def end(self):
        """Ends the relay."""
        self.ended = True
        self.join()


def phone(c, nat, server):
    """A phone that has registered as bob through the NAT, with its private address as contact."""
    client = Client("127.0.0.1", nat.port)
    c.after(client.close)
    client.local = PRIVATE
    answer = client.register("bob", "builder", server.domain, [f"<sip:bob@{PRIVATE[0]}:{PRIVATE[1]}>"])
    c.expect(answer is not None and answer.status == 200,
             f"no answer reaches a phone behind a NAT: {answer and answer.start}")
    c.expect("rport=" in answer.text and "received=127.0.0.1" in answer.text,
             f"the Via is not completed: {answer.text}")
    return client


def invite(c, server, client):
    """The INVITE that reaches the phone when bob is called, or None."""
    with Client(server.host, server.port) as caller:
        call = secrets.token_hex(8)
        caller.send(caller.proved(server, "alice", "INVITE", f"sip:bob@{server.domain}", body=SDP, call_id=call,
                                  headers=["Contact: <sip:probe@127.0.0.1>", "Content-Type: application/sdp"]))
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            got = client.receive(0.5)
            if got is not None and got.start.startswith("INVITE") and got.get("call-id") == call:
                c.expect(got.start == f"INVITE sip:bob@{PRIVATE[0]}:{PRIVATE[1]} SIP/2.0",
                         f"the contact was changed: {got.start}")
                c.expect(SDP in got.text, f"the session description was changed: {got.text}")
                return got
    return None


def awake(client, seconds, keep_alive):
    """Lets time pass, sending a keep-alive now and then if there is one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if keep_alive:
            client.send(keep_alive)
        time.sleep(KEEP_ALIVE)
        while client.receive(0.01) is not None:
            pass


@case("nat/phone-is-called-at-its-mapping", own=True, limit=90)
def mapping(c):
    """A phone behind a NAT is called while its mapping lives: kept by CRLF or STUN, lost without; media is not
    touched."""
    server = Server(c)
    nat = Nat(server)
    c.after(nat.end)
    client = phone(c, nat, server)
    c.expect("behind a NAT" in server.kind._command("registrations", "bob"), "the NAT is not shown to the operator")
    c.expect(invite(c, server, client) is not None, "the phone is not called at its mapping")
    stun = bytes.fromhex("000100002112a442") + b"ringway-nat!"  # RFC 5389 binding request
    for name, keep_alive in (("CRLF", b"\r\n\r\n"), ("STUN", stun)):
        awake(client, 2.5 * LIFETIME, keep_alive)
        c.expect(nat.mappings == 1, f"the mapping was lost in spite of {name}")
        c.expect(invite(c, server, client) is not None, f"the phone is not called after {2.5 * LIFETIME} s with {name}")
    awake(client, 2.5 * LIFETIME, None)
    c.expect(invite(c, server, client) is None, "a call came through a mapping that had ended")
    # The next registration makes it reachable again.
    client.register("bob", "builder", server.domain, [f"<sip:bob@{PRIVATE[0]}:{PRIVATE[1]}>"])
    c.expect(invite(c, server, client) is not None, "the phone is not called after it has registered again")
    print(f"mappings {nat.mappings}: kept {5 * LIFETIME:.0f} s by CRLF and STUN, lost after {LIFETIME:.0f} s of "
          f"silence")
