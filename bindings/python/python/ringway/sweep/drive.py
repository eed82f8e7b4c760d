"""The loop of a sweep: which runs are missing, in which batches they are handed over, when a cell is done."""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ringway import _ringway
from ringway.lab import Progress
from ringway.sweep.folder import Folder
from ringway.sweep.pool import Done, Pool, Run

# Seconds between two writes of the results to stable storage, and of the file of results to an object store.
SYNC = 5.0
# Runs of a batch.
MAX_BATCH = 1000


class Report(NamedTuple):
    """How long a sweep took."""

    runs: int
    workers: int
    seconds: float
    """From the first batch to the last result."""
    busy: float
    """Seconds that workers computed, in all."""

    @property
    def efficiency(self) -> float:
        """The share of the workers' time in which they computed."""
        return self.busy / (self.seconds * self.workers) if self.seconds > 0 else 1.0

    def __str__(self) -> str:
        return (
            f"{self.runs} runs on {self.workers} workers in {self.seconds:.1f} s, of which each computed "
            f"{self.busy / self.workers:.1f} s: efficiency {self.efficiency:.0%}"
        )


class _Sweep:
    """The state of a sweep. A cell asks for more when all that it asked for last has come."""

    def __init__(self, engine: _ringway.Engine, pool: Pool) -> None:
        self.engine, self.pool = engine, pool
        self.queue: deque[Run] = deque()
        self.outstanding = [0] * len(engine)
        self.batches = 0
        self.runs, self.expected, self.busy = 0, 0, 0.0
        for cell in range(len(engine)):
            self.ask(cell)

    def ask(self, cell: int) -> None:
        first, end = self.engine.next(cell)
        self.outstanding[cell] = end - first
        self.expected += end - first
        self.queue.extend((cell, replication) for replication in range(first, end))

    def submit(self) -> None:
        """Hands over as much as the workers may have waiting."""
        mean = self.busy / self.runs if self.runs else None
        size = self.pool.first_batch
        if mean is not None:
            size = round(self.pool.batch_seconds / max(mean, 1e-6))
        size = min(size, MAX_BATCH)
        # Near the end each worker gets a share.
        size = max(1, min(size, -(-len(self.queue) // self.pool.workers)))
        while self.queue and self.batches < self.pool.workers * self.pool.ahead:
            batch = [self.queue.popleft() for _ in range(min(size, len(self.queue)))]
            self.pool.submit(batch)
            self.batches += 1

    def take(self, done: Done) -> None:
        self.batches -= 1
        self.busy += done.seconds
        for cell, replication, line, made in done.lines:
            self.runs += 1
            self.outstanding[cell] -= 1
            if made:
                self.engine.add(cell, replication, line)
            else:
                self.engine.fail(cell, line)
            if self.outstanding[cell] == 0:
                self.ask(cell)


def drive(
    engine: _ringway.Engine,
    pool: Pool,
    folder: Folder,
    progress: Progress | None,
    observe: Callable[[int, int], object] | None,
) -> tuple[int, float]:
    """Makes all runs that are missing; returns their number and the seconds that workers computed."""
    sweep = _Sweep(engine, pool)
    synced = time.monotonic()
    try:
        while sweep.queue or sweep.batches:
            sweep.submit()
            for done in pool.wait():
                sweep.take(done)
                if observe is not None:
                    observe(len(done.lines), done.process)
            if progress is not None:
                progress(sweep.runs / max(sweep.expected, 1), f"{sweep.runs} of {sweep.expected} runs")
            if time.monotonic() - synced >= SYNC:
                engine.sync()
                folder.checkpoint()
                synced = time.monotonic()
    finally:
        engine.sync()
        folder.checkpoint()
    return sweep.runs, sweep.busy
