"""Phones without sound: each registers, sends messages, calls and answers; hundreds of them in one process.

Not user agents to test others with. They do what RFC 3261 asks of a phone behind a proxy: retransmit (section 17.1),
answer challenges (22), follow the route set of a dialog (12), repeat the answer to an INVITE until it is acknowledged
(13.3.1.4). A phone that has registered does nothing more to stay reachable.
"""

import asyncio
import contextlib
import re
import secrets

import sip
from fleet import DOMAIN, PASSWORD, host_of

# Timers T1 and T2 (section 17.1.1.1).
T1, T2 = 0.5, 4.0
# Longer than any test lasts.
EXPIRES = 7200
SDP = "v=0\r\no=- 1 1 IN IP6 ::1\r\ns=-\r\nc=IN IP6 ::1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n"


class Caller:
    """A user's phone, on the host behind the router `at`; the router `home` knows the password."""

    def __init__(self, fleet, user, home, at):
        self.fleet, self.user, self.home, self.at = fleet, user, home, at
        self.client, self.challenge, self.count = None, None, 0
        # By branch: who waits for the answer. By Call-ID: answers to repeat, and the ACK of an answer.
        self.waiting, self.repeating, self.acks = {}, {}, {}
        self.heard = set()

    def open(self, at=None):
        """Opens its socket on the host behind a router; waits until that has an address."""
        self.at = at or self.at
        about = self.fleet.asked(self.at, "address")
        source = self.fleet.host_address(self.at, about["prefix"])
        with self.fleet.spaces.inside(host_of(self.at)):
            self.client = sip.Client(about["address"], 5060, source=source)
        self.client.socket.setblocking(False)

    async def plug(self, at=None):
        """Takes it to the host behind a router."""
        self.unplug()
        await asyncio.to_thread(self.open, at)
        asyncio.get_running_loop().add_reader(self.client.socket, self.read)

    def unplug(self):
        """Closes its socket."""
        for handle in self.repeating.values():
            handle.cancel()
        self.repeating = {}
        if self.client is not None:
            asyncio.get_running_loop().remove_reader(self.client.socket)
            self.client.close()
        self.client = None

    @property
    def aor(self):
        """Its address of record."""
        return f"sip:{self.user}@{DOMAIN}"

    @property
    def contact(self):
        """Where it is."""
        host, port = self.client.local
        return f"<sip:{self.user}@[{host}]:{port}>"

    def send(self, data):
        """Sends a datagram, unless the network refuses it just now."""
        with contextlib.suppress(OSError):
            self.client.send(data)

    def read(self):
        """Takes what has come."""
        try:
            data = self.client.socket.recv(65_535)
        except OSError:
            return
        message = sip.Message(data)
        if message.status:
            self.answered(message)
        elif message.method == "ACK":
            handle = self.repeating.pop(message.get("call-id"), None)
            if handle:
                handle.cancel()
        else:
            self.answer(message)

    def answered(self, message):
        """An answer to a request of this phone."""
        branch = sip_branch(message)
        if branch in self.waiting:
            provisional, final = self.waiting[branch]
            if message.status < 200:
                provisional.set()
            elif not final.done():
                final.set_result(message)
        elif message.method == "INVITE" and message.status < 300 and message.get("call-id") in self.acks:
            self.send(self.acks[message.get("call-id")])

    def answer(self, request):
        """Answers a request with 200."""
        kept = [f"{name}: {value}" for name, value in request.headers
                if name in ("via", "from", "to", "call-id", "cseq", "record-route")]
        kept = [f"{line};tag={self.user}" if line.startswith("to:") and "tag=" not in line else line for line in kept]
        body = SDP if request.method == "INVITE" else ""
        typed = ["Content-Type: application/sdp"] if body else []
        data = "\r\n".join(["SIP/2.0 200 OK", *kept, f"Contact: {self.contact}", *typed, f"Content-Length: {len(body)}",
                            "", body])
        if request.method == "MESSAGE":
            self.heard.add(request.body)
        if request.method == "INVITE":
            self.repeat(request.get("call-id"), data, T1)
        else:
            self.send(data)

    def repeat(self, call_id, data, pause):
        """Sends the answer to an INVITE until its ACK comes."""
        if call_id in self.repeating:
            self.repeating[call_id].cancel()
        self.send(data)
        if pause < 64 * T1:
            self.repeating[call_id] = asyncio.get_running_loop().call_later(
                pause, self.repeat, call_id, data, min(2 * pause, T2) if pause < T2 else 64 * T1)

    async def ask(self, data, seconds):
        """Sends a request until there is a final answer. Returns it, or None."""
        loop = asyncio.get_running_loop()
        branch, deadline, pause = sip_branch(sip.Message(data)), loop.time() + seconds, T1
        provisional, final = asyncio.Event(), loop.create_future()
        self.waiting[branch] = provisional, final
        try:
            while (left := deadline - loop.time()) > 0:
                if not (provisional.is_set() and data.startswith(b"INVITE ")):
                    self.send(data)
                await asyncio.wait([final], timeout=min(pause, left))
                if final.done():
                    return final.result()
                pause = min(2 * pause, T2)
        finally:
            del self.waiting[branch]
        return None

    async def prove(self, method, uri, seconds, headers=(), **fields):
        """Sends a request with credentials. Returns the final answer, or None, and the last request."""
        deadline = asyncio.get_running_loop().time() + seconds
        call_id, tag = secrets.token_hex(8), secrets.token_hex(4)
        answer, data = None, b""
        for cseq in range(1, 4):
            proof = []
            if self.challenge:
                name, value = self.challenge
                self.count += 1
                proof = [f"{name}: " + sip.credentials(value, self.user, PASSWORD, method, uri, count=self.count)]
            data = self.client.request(method, uri, sender=self.aor, cseq=cseq, call_id=call_id, tag=tag,
                                       headers=[*headers, *proof], **fields)
            answer = await self.ask(data, deadline - asyncio.get_running_loop().time())
            if method == "INVITE" and answer is not None and answer.status >= 300:
                self.send(acknowledged(data, answer))
            if answer is None or answer.status not in (401, 407):
                break
            self.challenge = (("Authorization", answer.get("www-authenticate")) if answer.status == 401 else
                              ("Proxy-Authorization", answer.get("proxy-authenticate")))
            self.count = 0
        return answer, data

    async def register(self, seconds=8):
        """Registers once. Returns the status of the answer, or 0."""
        self.challenge = None
        answer, _ = await self.prove("REGISTER", f"sip:{DOMAIN}", seconds, to=self.aor,
                                     headers=[f"Contact: {self.contact}", f"Expires: {EXPIRES}"])
        self.challenge = None
        return answer.status if answer else 0

    async def message(self, other, seconds):
        """Sends a message. Returns 200 if the other one has answered that and has it, else what was answered, or 0."""
        body = secrets.token_hex(8).encode()
        answer, _ = await self.prove("MESSAGE", other.aor, seconds, body=body)
        if answer is None:
            return 0
        if answer.status == 200 and body not in other.heard:
            return -200
        other.heard.discard(body)
        return answer.status

    async def call(self, other, seconds):
        """Calls. Returns the dialog once that is acknowledged, or None."""
        answer, data = await self.prove("INVITE", other.aor, seconds, headers=[f"Contact: {self.contact}",
                                        "Content-Type: application/sdp"], body=SDP)
        if answer is None or answer.status >= 300:
            return None
        dialog = Dialog(self, other, sip.Message(data), answer)
        dialog.acknowledge()
        return dialog


class Dialog:
    """A call under way, at the caller's (RFC 3261 section 12.1.2)."""

    def __init__(self, caller, callee, request, answer):
        self.caller, self.callee, self.to = caller, callee, answer.get("to")
        self.call_id, self.tag = answer.get("call-id"), request.get("from").rpartition("tag=")[2]
        self.target = answer.get("contact").strip("<>")
        self.routes = [f"Route: {value}" for line in reversed(answer.all("record-route"))
                       for value in reversed(line.split(","))]
        self.cseq = int(request.get("cseq").split()[0])

    def request(self, method, cseq):
        """A request inside the dialog."""
        return self.caller.client.request(method, self.target, sender=self.caller.aor, to_field=self.to, tag=self.tag,
                                          call_id=self.call_id, cseq=cseq, headers=self.routes)

    def acknowledge(self):
        """Sends the ACK, again whenever the answer comes again."""
        self.caller.acks[self.call_id] = self.request("ACK", self.cseq)
        self.caller.send(self.caller.acks[self.call_id])

    async def hang_up(self, seconds):
        """Ends the call. Returns the status of the answer, or 0."""
        self.cseq += 1
        answer = await self.caller.ask(self.request("BYE", self.cseq), seconds)
        self.caller.acks.pop(self.call_id, None)
        return answer.status if answer else 0


def sip_branch(message):
    """The branch of the topmost Via (section 17.1.3)."""
    return re.search(r"branch=([^;,\s]+)", message.get("via")).group(1)


def acknowledged(request, answer):
    """The ACK of an answer that refuses an INVITE (section 17.1.1.3)."""
    lines = request.decode().partition("\r\n\r\n")[0].split("\r\n")
    kept = [line for line in lines[1:] if line.split(":")[0] in ("Via", "Max-Forwards", "From", "Call-ID")]
    number = next(line.split()[1] for line in lines if line.startswith("CSeq:"))
    return "\r\n".join([lines[0].replace("INVITE ", "ACK ", 1), *kept, f"To: {answer.get('to')}", f"CSeq: {number} ACK",
                        "Content-Length: 0", "", ""])
