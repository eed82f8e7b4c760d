"""What befalls a network of routers: it starts, routers die, one comes, it is cut in two and joined again. After each
of these, pairs of users are tried that the event leaves a way."""

import asyncio
import itertools
import time

import measure
from callers import Caller
from topology import Graph

# How many calls are under way when something happens.
HELD = 8
# Longest time until all is acknowledged, and until all can call, seconds.
ACKNOWLEDGED, LIMIT = 120, 150
# How often each pair of a sample that has each router on both sides is tried, seconds.
EACH = 2.0
# Of so many routers only one dies.
FEW = 8
# How many users are added at the same time.
AT_ONCE = 4


class Event:
    """One event and what was measured after it."""

    def __init__(self, name):
        self.name, self.fields = name, {}

    def failed(self):
        """What an operator would call a failure, as text."""
        fields, found = self.fields, []
        if fields["seconds"] is None:
            found.append(f"some pairs cannot call after {LIMIT} s")
        if fields["unregistered"]:
            found.append(f"{', '.join(fields['unregistered'])} could not register in {ACKNOWLEDGED} s")
        if fields["lost"]:
            found.append(f"{fields['unreached']} of {fields['sweep']} pairs fail again and again, with calls to "
                         f"{', '.join(fields['lost'])}")
        if fields["held_ended"] < fields["held"]:
            found.append(f"{fields['held'] - fields['held_ended']} of {fields['held']} calls did not go on")
        if fields["crashed"]:
            found.append(f"routers ended: {fields['crashed']}")
        return [f"{self.name}: {text}" for text in found]


def spare(rng, graph, absent, count):
    """Routers whose end one after the other leaves the others connected, before and after those that come later."""
    found = []
    while len(found) < count:
        left = [node for node in graph.nodes if node not in found]
        rng.shuffle(left)
        found.append(next(node for node in left if node not in absent and all(
            connected(graph, set(left) - {node} - later) for later in (set(), absent))))
    return found


def connected(graph, nodes):
    """Whether these nodes are connected without the others."""
    inner = Graph(sorted(nodes), [link for link in graph.links if set(link) <= nodes])
    return len(inner.hops_from(inner.nodes[0])) == len(nodes)


def halves(rng, graph, nodes):
    """Two connected parts of `nodes`, as nearly equal as a walk in depth finds, and the links between them."""
    neighbours, best = graph.neighbours(), (set(), nodes)
    for _ in range(20):
        start = rng.choice(sorted(nodes))
        parents, order, stack = {}, [], [(start, None)]
        while stack:
            node, parent = stack.pop()
            if node in parents:
                continue
            parents[node] = parent
            order.append(node)
            others = [other for other in neighbours[node] if other in nodes]
            rng.shuffle(others)
            stack += [(other, node) for other in others]
        below = {node: {node} for node in order}
        for node in reversed(order[1:]):
            below[parents[node]] |= below[node]
        best = max([best, *((below[node], nodes - below[node]) for node in order)], key=lambda two: min(map(len, two)))
    return best, [link for link in graph.links if len(best[0] & set(link)) == 1 and set(link) <= nodes]


class Story:
    """The users of a fleet, and what befalls it."""

    def __init__(self, fleet, seed=1, quiet=measure.QUIET, sweep=300, pace=0.25, say=print):
        """`sweep`: other pairs that are tried after each event; `pace`: attempts of each router's users in a second
        then. The first call between two users costs their routers several look-ups, and these have a budget in octets
        and links (docs/ssr.md, The budget)."""
        self.fleet, self.rng, self.quiet, self.say = fleet, measure.seeded(seed), quiet, say
        self.sweep, self.pace = sweep, pace
        self.callers, self.dying, self.events = [], [], []
        # Of each router the number of its part; who is registered where and has been acknowledged.
        self.parts, self.prefixes = [], {}

    # Users.

    def populate(self, per_router, kills):
        """Decides who dies, and which users the others have: every other one is registered at another router."""
        self.dying = spare(self.rng, self.fleet.whole, self.fleet.absent, kills)
        hosts = [node for node in self.fleet.running if node not in self.dying]
        away = hosts[:]
        self.rng.shuffle(away)
        return [Caller(self.fleet, f"u{number}-{index}", node, other if index % 2 else node)
                for number, (node, other) in enumerate(zip(hosts, away, strict=True)) for index in range(per_router)]

    async def join_in(self, callers):
        """Adds users and registers their phones until that is acknowledged. Returns how many seconds passed until all
        were and how long one registration took at most, and the answers that were not 200, by status."""
        begun, refused, took, late, few = time.monotonic(), {}, [0.0], [], asyncio.Semaphore(AT_ONCE)

        async def one(caller):
            async with few:
                await asyncio.to_thread(self.fleet.add_user, caller.home, caller.user)
                await caller.plug()
            asked = time.monotonic()
            while (status := await caller.register()) != 200:
                refused[status] = refused.get(status, 0) + 1
                if time.monotonic() - begun > ACKNOWLEDGED:
                    late.append(caller.user)
                    caller.unplug()
                    return
                await asyncio.sleep(0.5)
            took.append(time.monotonic() - asked)
            self.callers.append(caller)
        await asyncio.gather(*map(one, callers))
        return {"joined": time.monotonic() - begun, "register_seconds": max(took), "register_refused": refused,
                "unregistered": late}

    def part_of(self, node):
        """The number of the part of the network that a router is in, None if it does not run."""
        if node not in self.fleet.running:
            return None
        return next((number for number, part in enumerate(self.parts) if node in part), -1)

    def pairs(self):
        """Who should be able to call whom. A guest cannot prove who it is while its home is out of reach."""
        parts = {caller: (self.part_of(caller.at), self.part_of(caller.home)) for caller in self.callers}
        return [(one, other) for one, other in itertools.permutations(self.callers, 2)
                if parts[one][0] is not None and parts[one][0] == parts[one][1] == parts[other][0]]

    # Events.

    async def happen(self, name, act, new=(), during=lambda _: True, **more):
        """Calls are under way between routers that `during` accepts; `act` happens; `new` users register while pairs
        are tried until all of them can call."""
        event, fleet = Event(name), self.fleet
        before = [pair for pair in self.pairs() if during({caller.at for caller in pair})]
        held, wanted = await measure.hold(self.rng, before, HELD) if before else ([], 0)
        cpu, _ = fleet.load()
        begun, started = asyncio.get_running_loop().time(), time.monotonic()
        act()
        joining = asyncio.ensure_future(self.join_in(new))
        if not before:
            await joining
        pairs = self.pairs()
        chosen = measure.sample(self.rng, pairs, 0, lambda caller: caller.at)
        limit = asyncio.get_running_loop().time() - begun + LIMIT
        result = await measure.until_all(chosen, begun, len(chosen) / EACH, limit, self.quiet)
        joined = await joining
        pairs = self.pairs()
        rate = self.pace * len({caller.at for caller, _ in pairs})
        swept, unreached = await measure.sweep(self.rng, pairs, begun, rate, self.sweep)
        kept = [dialog for dialog in held
                if self.part_of(dialog.caller.at) == self.part_of(dialog.callee.at) is not None]
        ended = await measure.hang_up(kept)
        used, resident = fleet.load()
        used, took = sum(used[node] - cpu.get(node, 0.0) for node in used), time.monotonic() - started
        lost = sorted({callee.user for _, callee in unreached})
        median, p99 = swept.delays()
        event.fields = {
            "routers": len(fleet.running), "users": len(self.callers), "pairs": len(pairs), "sample": len(chosen),
            "attempts": len(result.attempts), "failed": sum(result.failures().values()),
            "failures": result.failures(), "seconds": result.all_from(), "sweep": len(swept.attempts),
            "sweep_failures": swept.failures(), "sweep_failed": sum(swept.failures().values()),
            "unreached": len(unreached), "median_ms": median,
            "p99_ms": p99, "lost": lost, "held": len(kept), "held_ended": ended, "not_called": wanted - len(held),
            "resident_mb": resident[len(resident) // 2], "largest_mb": resident[-1],
            "cpu_percent": 100 * used / took / len(resident), "crashed": fleet.crashed(), **more, **joined}
        self.events.append(event)
        self.say(describe(event))
        return event

    async def begin(self, per_router, kills):
        """The routers that are not absent start, and their users register."""
        fleet = self.fleet
        began = time.monotonic()
        fleet.start([node for node in fleet.whole.nodes if node not in fleet.absent])
        new = self.populate(per_router, kills)
        return await self.happen("start", lambda: None, new, served=time.monotonic() - began)

    async def kill(self, nodes):
        """Routers die at the same moment; no user is at any of them."""
        return await self.happen(f"kill {len(nodes)}", lambda: [self.fleet.kill(node) for node in nodes], which=nodes)

    async def come(self, node, users):
        """A router that was not there before starts, with users of its own."""
        new = [Caller(self.fleet, f"new-{index}", node, node) for index in range(users)]
        return await self.happen("add", lambda: self.fleet.add(node), new)

    async def part(self):
        """The network falls into two halves; in each of them a user is added and registers away from home."""
        two, links = halves(self.rng, self.fleet.graph(), set(self.fleet.running))
        new = [Caller(self.fleet, f"half-{number}", *self.rng.sample(sorted(half), 2))
               for number, half in enumerate(two)]

        def act():
            self.fleet.cut(links)
            self.parts = list(two)
        return await self.happen("cut", act, new, lambda at: any(at <= half for half in two),
                                 halves=sorted(map(len, two)))

    async def join(self):
        """The halves are one again."""
        def act():
            self.fleet.cut(())
            self.parts = []
        return await self.happen("join", act)

    async def all(self, per_router, absent):
        """Everything, in order."""
        await self.begin(per_router, 3 if len(self.fleet.whole.nodes) > FEW else 1)
        await self.kill(self.dying[:1])
        if self.dying[1:]:
            await self.kill(self.dying[1:])
        for node in absent:
            await self.come(node, per_router)
        await self.part()
        await self.join()

    def close(self):
        """Closes the phones."""
        for caller in self.callers:
            caller.unplug()


def describe(event):
    """A line about an event."""
    fields = event.fields
    seconds = "never" if fields["seconds"] is None else f"{fields['seconds']:.1f} s"
    more = {name: fields[name] for name in ("served", "joined", "register_seconds", "register_refused", "unregistered",
                                            "halves", "which", "failures", "sweep_failures", "lost", "crashed")
            if fields.get(name)}
    more = {name: round(value, 1) if isinstance(value, float) else value for name, value in more.items()}
    return (f"{event.name}: {fields['routers']} routers, {fields['pairs']} pairs; all of {fields['sample']} can call "
            f"after {seconds} ({fields['failed']} of {fields['attempts']} attempts failed); then {fields['sweep']} "
            f"other pairs, {fields['sweep_failed']} failed once, {fields['unreached']} thrice, "
            f"{fields['median_ms']:.0f} ms median {fields['p99_ms']:.0f} ms p99; calls "
            f"{fields['held_ended']}/{fields['held']}; {fields['resident_mb']:.1f} MB, {fields['cpu_percent']:.1f} % "
            "CPU" + (f"; {more}" if more else ""))
