"""Who can call whom: pairs of users are tried again and again until each of them succeeds."""

import asyncio
import collections
import random
import statistics

# How long an attempt may take, and for how long after the last failure none may follow, seconds.
ANSWERED, QUIET = 4.0, 10.0
# How long after a failure a pair is tried again, seconds.
AGAIN = (2, 8)
# How many attempts may be under way.
UNDER_WAY = 200


class Result:
    """What became of attempts: of each (pair, seconds since the event at its start, status, seconds it took)."""

    def __init__(self):
        self.attempts = []

    def add(self, pair, at, status, took):
        """One attempt has ended."""
        self.attempts.append((pair, at, status, took))

    def last_failure(self):
        """When the last attempt began that failed, or None."""
        return max((at for _, at, status, _ in self.attempts if status != 200), default=None)

    def all_from(self):
        """The seconds from the event until every pair could call: when the first attempt began after the last failure
        of its pair, of the pair for which that was latest. 0 if none ever failed, None if a pair never could."""
        failed, recovered = {}, {}
        for pair, at, status, _ in sorted(self.attempts, key=lambda attempt: attempt[1]):
            if status != 200:
                failed[pair] = at
                recovered.pop(pair, None)
            else:
                recovered.setdefault(pair, at)
        if any(pair not in recovered for pair in failed):
            return None
        return max((recovered[pair] for pair in failed), default=0.0)

    def failures(self):
        """How many failed, by status."""
        return dict(collections.Counter(status for _, _, status, _ in self.attempts if status != 200))

    def delays(self):
        """Median and 99th percentile of what successful attempts took, milliseconds."""
        took = sorted(1000 * seconds for _, _, status, seconds in self.attempts if status == 200)
        return (statistics.median(took), took[min(len(took) - 1, int(0.99 * len(took)))]) if took else (0.0, 0.0)

    def reached(self):
        """The users that some attempt has reached."""
        return {callee for (_, callee), _, status, _ in self.attempts if status == 200}


class Attempts:
    """Attempts that begin at a constant rate."""

    def __init__(self, begun, rate):
        self.begun, self.rate, self.result, self.tasks = begun, rate, Result(), set()

    async def one(self, caller, callee):
        """One attempt."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        status = await caller.message(callee, ANSWERED)
        self.result.add((caller, callee), start - self.begun, status, loop.time() - start)

    async def run(self, pairs, enough):
        """Tries the pairs in turn until `enough` holds, which is asked before each; returns the result."""
        loop, next_at = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        for pair in pairs:
            if enough():
                break
            next_at = max(next_at + 1 / self.rate, loop.time() - 1)
            await asyncio.sleep(max(0.0, next_at - loop.time()))
            while len(self.tasks) >= UNDER_WAY:
                await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
            task = loop.create_task(self.one(*pair))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        if self.tasks:
            await asyncio.gather(*self.tasks)
        return self.result


def sample(rng, pairs, count, side=lambda caller: caller.user):
    """So many of the pairs, and as many more as it takes to have each `side` (a user, unless told otherwise) calling
    and called."""
    pairs = list(pairs)
    rng.shuffle(pairs)
    callers, callees, first, rest = set(), set(), [], []
    for caller, callee in pairs:
        if side(caller) in callers and side(callee) in callees:
            rest.append((caller, callee))
        else:
            first.append((caller, callee))
            callers.add(side(caller))
            callees.add(side(callee))
    chosen = first + rest[:max(0, count - len(first))]
    rng.shuffle(chosen)
    return chosen


async def until_all(pairs, begun, rate, limit, quiet=QUIET):
    """Tries pairs in turn until none has failed for `quiet` seconds and two rounds, or `limit` seconds after the
    event."""
    loop = asyncio.get_running_loop()
    attempts = Attempts(begun, rate)
    calm = max(quiet, 2 * len(pairs) / rate)
    first = loop.time() - begun

    def enough():
        now = loop.time() - begun
        last = attempts.result.last_failure()
        return now > limit or now - max(first, last if last is not None else 0.0) > calm
    return await attempts.run(round_robin(pairs), enough)


def round_robin(pairs):
    """The pairs, for ever."""
    while True:
        yield from pairs


async def sweep(rng, pairs, begun, rate, count):
    """Tries so many of the pairs, and each user on both sides, once each, and those that fail again. Returns the first
    result, and the pairs that have not succeeded in the end."""
    first = await Attempts(begun, rate).run(sample(rng, pairs, count), lambda: False)
    result = first
    for pause in AGAIN:
        failed = [pair for pair, _, status, _ in result.attempts if status != 200]
        if not failed:
            break
        await asyncio.sleep(pause)
        result = await Attempts(begun, rate).run(failed, lambda: False)
    return first, [pair for pair, _, status, _ in result.attempts if status != 200]


async def hold(rng, pairs, count):
    """Calls that stay up."""
    chosen = rng.sample(pairs, min(count, len(pairs)))
    dialogs = await asyncio.gather(*(caller.call(callee, 2 * ANSWERED) for caller, callee in chosen))
    return [dialog for dialog in dialogs if dialog is not None], len(chosen)


async def hang_up(dialogs):
    """How many of the calls can be ended."""
    return sum(status == 200 for status in await asyncio.gather(*(dialog.hang_up(2 * ANSWERED) for dialog in dialogs)))


def seeded(number):
    """A source of choices."""
    return random.Random(number)
