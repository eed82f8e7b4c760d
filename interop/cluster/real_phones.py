"""Programs of others among the phones of the soak of a cluster: baresip and linphone at each node, a baresip with flows
to two nodes (RFC 5626), and SIPp, which registers users of its own again and again, answers for them, and calls all.

Each baresip and linphone is called all the time by a SIPp of its own, by a node that it is not registered at. What it
was answered is read from what it logs.
"""

import asyncio
import collections
import re
import time
from pathlib import Path

from many_phones import CALLER, DOMAIN, PASSWORD, Outcome
from phones import Baresip, Linphone

HERE = Path(__file__).resolve().parent
# For how long a baresip and a linphone register, seconds, as their configurations say; a user of SIPp has an hour.
LIFETIME = 120
# An answer is read from a log that much later at most, seconds.
MARGIN = 1
READ_INTERVAL = 0.25
# A phone that lost its connection or its registration registers again by its own timers, so in this time, seconds.
PATIENCE = 2 * LIFETIME
# Calls a second for each baresip and linphone; refreshes and calls a second for the users of SIPp at each node.
PHONE_CALLS, REFRESHES, CALLS, CHECKS = 0.5, 20, 5, 50
# Attempts to find a phone that must be found.
ATTEMPTS = 3
# A request without an end after so many seconds has got an answer that its scenario does not know.
UNKNOWN_AFTER = 40
FINAL = (400, 403, 404, 408, 410, 420, 423, 430, 480, 481, 482, 483, 486, 487, 488, 500, 501, 502, 503, 504, 600, 603)

Server = collections.namedtuple("Server", "host port")


class Tail:
    """The lines that a program appends to a file."""

    def __init__(self, path):
        self.path, self.offset = path, 0

    def lines(self):
        """Those that are complete and were not returned before."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[:data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.decode(errors="replace").splitlines()


def monotonic(epoch):
    """A time of day on the monotonic clock."""
    return epoch - time.time() + time.monotonic()


class Context:
    """Starts the programs of one place, which have a network namespace of their own there."""

    def __init__(self, world, place):
        self.world, self.place, self.folder, self.ports = world, place, world.folder, self
        # The first is that of baresip and linphone, the second that of SIPp.
        self.addresses, self.gateway = [f"10.78.{place}.{host}" for host in (2, 3)], f"10.78.{place}.1"
        self.next = 20_000

    def take(self, count=1):
        """Neighbouring ports, the first of them even; nothing else has any."""
        first = self.next
        self.next += count + count % 2
        return first

    def start(self, name, argv, **options):
        """Starts a program."""
        return self.world.run_program(name, self.place, argv, **options)


class Sipp:
    """A running SIPp, and what became of its requests."""

    def __init__(self, context, name, scenario, *, users=(), node=None, method="", rate=1.0, words=()):
        self.context, self.node, self.method, self.port = context, node, method, context.take()
        self.under_way, self.tail = {}, Tail(context.folder / f"{name}.log")
        path = context.folder / f"{name}.xml"
        path.write_text(with_refusals((HERE / f"{scenario}.xml").read_text()))
        argv = ["sipp", "-sf", path, "-i", context.addresses[1], "-p", self.port, "-t", "u1", "-mp", context.take(4),
                "-nostdin", "-trace_logs", "-log_file", self.tail.path, "-trace_err", "-error_file",
                context.folder / f"{name}.err", "-key", "domain", DOMAIN, "-key", "caller", CALLER, *words]
        if users:
            file = context.folder / f"{name}.csv"
            file.write_text("SEQUENTIAL\n" + "".join(
                f"{user};[authentication username={user if method == 'REGISTER' else CALLER} password={PASSWORD}]\n"
                for user in users))
            argv += ["-inf", file, "-r", 1, "-rp", round(1000 / rate)]
        self.process = context.start(name, [*argv, f"{node.host}:{node.port}" if node else context.addresses[1]])

    def ended(self):
        """The requests that have ended since the last call: the user, when it began, how long it took, its status (0
        for silence)."""
        ended = []
        for line in self.tail.lines():
            what, number, value, *_, epoch = line.split()
            at = monotonic(float(epoch))
            if what == "began":
                self.under_way[number] = (value, at)
            else:
                user, began = self.under_way.pop(number)
                status = {"silence": 0}.get(value, int(value) if value.isdigit() else value)
                ended.append((user, began, at - began, status))
        late = [n for n, (_, began) in self.under_way.items() if began + UNKNOWN_AFTER < time.monotonic()]
        for number in late:
            user, began = self.under_way.pop(number)
            ended.append((user, began, UNKNOWN_AFTER, "unexpected"))
        return ended


def with_refusals(text):
    """A scenario in which `%refusals MILLISECONDS SILENCE NEXT [PREFIX]%` is each final status that refuses the
    request, which is logged with the prefix."""
    def refusals(match):
        timeout, silence, then, *prefix = match.group(1).split()
        return "\n".join(
            f'  <recv response="{status}" optional="true" timeout="{timeout}" ontimeout="{silence}" next="{then}">\n'
            f'    <action><log message="ended [call_number] {"".join(prefix)}{status} [timestamp]"/></action>\n'
            "  </recv>" for status in FINAL)
    return re.sub(r"(?m)^ *%refusals (.*)%$", refusals, text)


class Phone:
    """A baresip or a linphone: at which nodes it registers, by which node it is called, and what became of both."""

    def __init__(self, context, kind, transport, homes, via):
        self.context, self.kind, self.transport, self.homes, self.via = context, kind, transport, homes, via
        self.user = f"{kind.__name__.lower()}{''.join(map(str, homes))}"
        # When which node has answered its REGISTER with what, and the calls for it.
        self.answers, self.calls = [], []
        self.program, self.log, self.caller, self.source, self.status = None, None, None, "", 0

    def __str__(self):
        return f"{self.kind.__name__.lower()} by {self.transport} at {' and '.join(f'node {n}' for n in self.homes)}"

    def start(self, nodes):
        """Starts it, and its caller."""
        servers = [nodes[n] for n in self.homes]
        options = {"tone": 440, "transport": self.transport}
        if self.kind is Baresip:
            options |= {"address": self.context.addresses[0], "second": servers[1] if len(servers) > 1 else None}
        self.program = self.kind(self.context, self.user, PASSWORD, DOMAIN, servers[0], **options)
        self.log = Tail(self.program.process.log if self.kind is Baresip else self.program.debug)

    def called(self, context, nodes):
        """Starts to call it."""
        self.caller = Sipp(context, f"call-{self.user}", "call", users=[self.user], node=nodes[self.via],
                           rate=PHONE_CALLS, words=["-l", 1, "-d", 300])

    def read(self, nodes):
        """Reads what has happened."""
        now = time.monotonic()
        for line in self.log.lines():
            self.line(line, now, nodes)
        if self.caller:
            self.calls += [Outcome(began, "INVITE", self.via, self.homes, status, took)
                           for _, began, took, status in self.caller.ended()]

    def line(self, line, now, nodes):
        """One line of its log: both log their messages, baresip with the source before each."""
        if found := re.match(r"(?:UDP|TCP) (\S+):\d+ -> ", line):
            self.source = found.group(1)
        elif found := re.match(r"SIP/2\.0 (\d+)|([A-Z]+) sip:", line):
            self.status = int(found.group(1) or 0)
        elif re.match(r"CSeq: \d+ REGISTER", line) and self.status not in (0, 401):
            home = next((n for n in self.homes if nodes[n].host == self.source), self.homes[0])
            self.answers.append((now, home, self.status))

    def is_registered(self):
        """Whether all of its nodes have answered it 200."""
        return {node for _, node, status in self.answers if status == 200} == set(self.homes)

    def valid(self, at, world):
        """Whether it must be found: a node has answered it 200, that has not ended, and by TCP nor has the node.

        A linphone on TCP closes its connection when it is answered 503, and registers again a minute later.
        """
        since = 0.0
        if self.kind is Linphone and self.transport == "tcp":
            since = max((then for then, _, status in self.answers if status == 503 and then <= at), default=0.0)
        return any(status == 200 and since <= then <= at < then + LIFETIME - MARGIN and
                   not (self.transport == "tcp" and world.was_away(home, then, at))
                   for then, home, status in self.answers)


class RealPhones:
    """All of them."""

    def __init__(self, world, nodes, port, users):
        self.world, self.places = world, [place for _, place in nodes]
        self.nodes = [Server(host, port) for host, _ in nodes]
        self.contexts = [Context(world, place) for place in (0, 1)]
        at = lambda node: self.contexts[self.places[node]]  # noqa: E731
        # Nobody is called by node 1, which an event kills.
        self.phones = [Phone(at(node), kind, transport, [node], 0 if node == 2 else 2)
                       for kind, transports in ((Baresip, ("udp", "tcp", "udp")), (Linphone, ("tcp", "udp", "tcp")))
                       for node, transport in enumerate(transports)]
        self.phones.append(Phone(at(1), Baresip, "tcp", [1, 2], 0))
        self.users = [[f"sipp{node}-{user:04d}" for user in range(users)] for node in range(len(nodes))]
        self.homes = {user: node for node, users in enumerate(self.users) for user in users}
        self.acknowledged, self.outcomes, self.running = set(), [], []
        # When it was to read, and how much later it has, seconds.
        self.late = []

    def names(self):
        """All users."""
        return [*self.homes, *(phone.user for phone in self.phones)]

    def context(self, node):
        """What starts programs beside a node."""
        return self.contexts[self.places[node]]

    async def start(self):
        """Starts everything, and waits until all are registered."""
        for phone in self.phones:
            phone.start(self.nodes)
        for number, node in enumerate(self.nodes):
            answers = Sipp(self.context(number), f"answer{number}", "answer")
            self.running.append(Sipp(self.context(number), f"refresh{number}", "refresh", users=self.users[number],
                                     node=node, method="REGISTER", rate=REFRESHES,
                                     words=["-key", "answers", answers.port, "-l", 1000]))
        deadline = time.monotonic() + 60 + len(self.homes) / REFRESHES
        while missing := [*(str(phone) for phone in self.phones if not phone.is_registered()),
                          *sorted(self.homes.keys() - self.acknowledged)]:
            if time.monotonic() > deadline:
                raise SystemExit(f"soak: {len(missing)} programs' users do not register: {missing[:9]}")
            await asyncio.sleep(0.5)
            self.read()
        for number, node in enumerate(self.nodes):
            others = [user for user, home in self.homes.items() if home != number]
            self.running.append(Sipp(self.context(number), f"call{number}", "call", users=others, node=node,
                                     method="INVITE", rate=CALLS, words=["-l", 1000, "-d", 200]))
        for phone in self.phones:
            phone.called(self.context(phone.via), self.nodes)

    def read(self):
        """Reads what has happened."""
        for phone in self.phones:
            phone.read(self.nodes)
        for sipp in self.running:
            for user, began, took, status in sipp.ended():
                node, home = self.nodes.index(sipp.node), self.homes[user]
                self.outcomes.append(Outcome(began, sipp.method, node, [home], status, took))
                if sipp.method == "REGISTER" and status == 200:
                    self.acknowledged.add(user)

    async def follow(self):
        """Reads all the time, and measures how late it is: so are servers, where other programs have the processors."""
        while True:
            self.read()
            due = time.monotonic() + READ_INTERVAL
            await asyncio.sleep(READ_INTERVAL)
            self.late.append((due, time.monotonic() - due))

    def checks(self):
        """What calls all users of SIPp, and what waits for a call to each phone. The first returns the users who are
        not found, each other one the name of a phone that must be found and is not."""
        since = time.monotonic()
        return self.check_users(), *(self.check_phone(phone, since) for phone in self.phones)

    async def check_users(self):
        """Has SIPp call its acknowledged users by another node than theirs; those who are not found."""
        missing = sorted(self.acknowledged)
        for attempt in range(ATTEMPTS):
            calls = []
            for home in range(len(self.nodes)):
                mine = [user for user in missing if self.homes[user] == home]
                via = (home + 1 + attempt % (len(self.nodes) - 1)) % len(self.nodes)
                if mine:
                    name = f"check{home}-{time.monotonic_ns()}"
                    calls.append(Sipp(self.context(via), name, "call", users=mine, node=self.nodes[via], rate=CHECKS,
                                      words=["-m", len(mine), "-l", 1000, "-d", 1]))
            while any(one.process.running() for one in calls):
                await asyncio.sleep(0.2)
            found = {user for one in calls for user, _, _, status in one.ended() if status == 200}
            missing = [user for user in missing if user not in found]
            if not missing:
                break
            await asyncio.sleep(1)
        return missing

    async def check_phone(self, phone, since):
        """Waits until a phone has answered a call; its name if it must have and has not."""
        while True:
            calls = [call for call in phone.calls if call.at >= since]
            if any(call.status == 200 for call in calls):
                return None
            due = [call for call in calls if phone.valid(call.at, self.world)]
            if len(due) >= ATTEMPTS or time.monotonic() > since + PATIENCE:
                return str(phone)
            await asyncio.sleep(0.5)
