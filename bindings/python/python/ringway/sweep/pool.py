"""What an engine has to do: take batches of runs, and return their results."""

import os
import sys
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import NamedTuple, Self

from ringway.lab import Error, UsageError, run_cell

Run = tuple[int, int]
"""A cell and a replication."""
# How often an engine may lose the worker of one batch before the sweep ends.
MAX_LOSSES = 10


class Done(NamedTuple):
    """The results of a batch."""

    lines: list[tuple[int, int, str, bool]]
    """Cell, replication, and the run's line of results, or why it failed (then the last is False)."""
    seconds: float
    """How long a worker computed."""
    process: int
    """The worker's process id."""


def work(spec: str, runs: list[Run]) -> Done:
    """Makes a batch of runs: what a worker does."""
    began = time.monotonic()
    lines = []
    for cell, replication in runs:
        try:
            lines.append((cell, replication, run_cell(spec, cell, replication), True))
        except UsageError:
            raise
        except Error as error:
            if "expected build" in str(error):
                # Not a fault of the run: this machine has another package.
                raise
            lines.append((cell, replication, str(error), False))
    return Done(lines, time.monotonic() - began, os.getpid())


class Pool(ABC):
    """Workers. `submit` returns at once; `wait` returns at least one result if any batch is missing."""

    workers: int
    """How many batches are worked on at a time."""
    batch_seconds = 0.5
    """How long a batch should take: much longer than it takes to hand it over."""
    first_batch = 1
    """Runs of a batch while nobody knows how long a run takes."""
    ahead = 2
    """Batches for each worker that may wait for it."""

    @abstractmethod
    def submit(self, runs: list[Run]) -> None:
        """Hands a batch over."""

    @abstractmethod
    def wait(self) -> list[Done]:
        """Waits for results."""

    @abstractmethod
    def close(self) -> None:
        """Ends what was started, and disconnects from the rest."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def missing(option: str, package: str, extra: str, error: ImportError) -> UsageError:
    """The error of an option whose package is not installed."""
    return UsageError(
        f"{option} needs the package {package}: in a clone of the project "
        f"{sys.executable} -m pip install 'bindings/python[{extra}]' ({error}; docs/python.md)"
    )
