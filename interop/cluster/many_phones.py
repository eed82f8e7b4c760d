"""Many phones of the soak of a cluster: each registers at one of several nodes, goes to another when that one refuses
or is silent, and answers OPTIONS; and a caller who asks for them by any node.

All of it is one asyncio loop. What was acknowledged is remembered, so that what is lost can be counted.
"""

import asyncio
import collections
import random
import secrets
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from sip import Message, credentials

DOMAIN, PASSWORD, CALLER = "soak.test", "secret", "caller"
EXPIRES = 3600
# Intervals of retransmission, and with the last of them the time after which a node counts as silent, seconds.
RETRANSMIT = (0.5, 1.0, 2.0, 1.0)
# How long a phone waits before it tries all nodes again.
PAUSE = 1.0

# What became of a request: when it began, REGISTER or OPTIONS, the node it went to and the node of the phone, its
# status (0 for silence) and how long it took.
Outcome = collections.namedtuple("Outcome", "at method node home status took")


class Endpoint(asyncio.DatagramProtocol):
    """One socket: requests of its own, and answers to those that come."""

    def __init__(self):
        self.waiting, self.transport, self.address, self.asked = {}, None, None, 0

    def connection_made(self, transport):
        self.transport, self.address = transport, transport.get_extra_info("sockname")

    def datagram_received(self, data, addr):
        message = Message(data)
        if not message.status:
            self.answer(message, addr)
            return
        branch = (message.get("via") or "").partition("branch=")[2].partition(";")[0]
        future = self.waiting.get(branch)
        if future and message.status >= 200 and not future.done():
            future.set_result(message)

    def answer(self, request, addr):
        """200 to all that is asked (RFC 3261 section 8.2.6)."""
        self.asked += 1
        lines = ["SIP/2.0 200 OK"]
        for name in ("via", "from", "to", "call-id", "cseq"):
            tag = ";tag=phone" if name == "to" else ""
            lines += [f"{name}: {value}{tag}" for value in request.all(name)]
        self.transport.sendto("\r\n".join([*lines, "content-length: 0", "", ""]).encode(), addr)

    async def ask(self, node, method, uri, user, to, fields=()):
        """Sends a request to a node until it is answered; the final answer, or None."""
        branch = f"z9hG4bK{secrets.token_hex(8)}"
        host, port = self.address
        lines = [f"{method} {uri} SIP/2.0", f"Via: SIP/2.0/UDP {host}:{port};rport;branch={branch}",
                 "Max-Forwards: 70", f"From: <sip:{user}@{DOMAIN}>;tag={secrets.token_hex(4)}", f"To: <{to}>",
                 f"Call-ID: {secrets.token_hex(8)}", f"CSeq: 1 {method}", *fields, "Content-Length: 0", "", ""]
        data = "\r\n".join(lines).encode()
        future = self.waiting[branch] = asyncio.get_running_loop().create_future()
        try:
            for interval in RETRANSMIT:
                self.transport.sendto(data, node)
                done, _ = await asyncio.wait([future], timeout=interval)
                if done:
                    return future.result()
            return None
        finally:
            del self.waiting[branch]


class Phones:
    """All phones, half of them in each of two places."""

    def __init__(self, nodes, count):
        """`nodes` is the list of (address, place)."""
        self.nodes, self.count = nodes, count
        self.endpoints = ([], [])
        self.homes = {}
        self.outcomes = []
        self.challenge = {}
        self.new = collections.deque()
        self.callers = None

    async def open(self, sockets):
        """Takes sockets, a list for each place; the last of each is a caller's."""
        loop = asyncio.get_running_loop()
        for place, each in enumerate(sockets):
            for one in each:
                _, endpoint = await loop.create_datagram_endpoint(Endpoint, sock=one)
                self.endpoints[place].append(endpoint)
        self.callers = [each.pop() for each in self.endpoints]

    def place(self, user):
        """The place of a phone."""
        return user % 2

    def endpoint(self, user):
        """Its socket."""
        mine = self.endpoints[self.place(user)]
        return mine[user // 2 % len(mine)]

    def preferred(self, user):
        """The nodes in the order in which it tries them: those of its place, its own first, and then others."""
        near = [i for i, (_, place) in enumerate(self.nodes) if place == self.place(user)]
        far = [i for i in range(len(self.nodes)) if i not in near]
        turn = user // 2 % len(near)
        return near[turn:] + near[:turn] + far

    def note(self, began, method, node, home, answer):
        """Remembers an outcome; its status."""
        status = answer.status if answer else 0
        self.outcomes.append(Outcome(began, method, node, home, status, time.monotonic() - began))
        return status

    async def register_at(self, user, node):
        """One REGISTER with its challenge; the status."""
        endpoint, began = self.endpoint(user), time.monotonic()
        name, uri = f"u{user:05d}", f"sip:{DOMAIN}"
        host, port = endpoint.address
        to = f"sip:{name}@{DOMAIN}"
        fields = [f"Contact: <sip:{name}@{host}:{port}>", f"Expires: {EXPIRES}"]
        address = self.nodes[node][0]
        answer = await endpoint.ask(address, "REGISTER", uri, name, to, fields)
        if answer and answer.status == 401:
            proof = credentials(answer.get("www-authenticate"), name, PASSWORD, "REGISTER", uri)
            answer = await endpoint.ask(address, "REGISTER", uri, name, to, [*fields, f"Authorization: {proof}"])
        status = self.note(began, "REGISTER", node, self.homes.get(user), answer)
        if status == 200:
            self.homes[user] = node
        return status

    async def register(self, user):
        """Registers at the first node that takes it."""
        while True:
            for node in self.preferred(user):
                if await self.register_at(user, node) == 200:
                    return
            await asyncio.sleep(PAUSE)

    async def fill(self, share, window=100):
        """Registers a share of them; the others register for the first time while events go on."""
        filled = int(share * self.count)
        users = iter(range(filled))
        self.new.extend(range(filled, self.count))

        async def worker():
            for user in users:
                await self.register(user)

        await asyncio.gather(*(worker() for _ in range(window)))

    async def call(self, user, node):
        """Asks for a phone by a node; the status."""
        caller = self.callers[self.nodes[node][1]]
        began, home = time.monotonic(), self.homes.get(user)
        uri, address = f"sip:u{user:05d}@{DOMAIN}", self.nodes[node][0]
        answer = await caller.ask(address, "OPTIONS", uri, CALLER, uri, self.proof(node, uri))
        if answer and answer.status in (401, 407):
            field = "www-authenticate" if answer.status == 401 else "proxy-authenticate"
            self.challenge[node] = [answer.status, answer.get(field), 0]
            answer = await caller.ask(address, "OPTIONS", uri, CALLER, uri, self.proof(node, uri))
        return self.note(began, "OPTIONS", node, home, answer)

    def proof(self, node, uri):
        """The header field with the caller's credentials, by the last challenge of a node."""
        if node not in self.challenge:
            return []
        known = self.challenge[node]
        known[2] += 1
        name = "Authorization" if known[0] == 401 else "Proxy-Authorization"
        return [f"{name}: {credentials(known[1], CALLER, PASSWORD, 'OPTIONS', uri, count=known[2])}"]

    async def at_rate(self, rate, what):
        """Begins `what()` so often a second, until cancelled."""
        under_way = set()
        try:
            start = time.monotonic()
            for number in range(1 << 40):
                await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
                task = asyncio.create_task(what())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            for task in under_way:
                task.cancel()

    def refresh(self):
        """A new phone, or a refresh of some phone, in turn."""
        if self.new and random.random() < 0.5:
            return self.register(self.new.popleft())
        return self.register(random.choice(list(self.homes)))

    def call_anyone(self):
        """A call for some phone by some node."""
        return self.call(random.choice(list(self.homes)), random.randrange(len(self.nodes)))

    async def check(self, users, window=50):
        """Asks for phones by another node than theirs, up to three times; those that are not found."""
        users, lost = iter(users), []

        async def worker():
            for user in users:
                others = [i for i in range(len(self.nodes)) if i != self.homes[user]]
                for attempt in range(3):
                    if await self.call(user, others[(user + attempt) % len(others)]) == 200:
                        break
                    await asyncio.sleep(PAUSE)
                else:
                    lost.append(user)

        await asyncio.gather(*(worker() for _ in range(window)))
        return lost


def socket_at(address):
    """A socket for `Phones.open`."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    one.bind((address, 0))
    one.setblocking(False)
    return one
