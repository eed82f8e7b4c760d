"""Processes of this machine, without any engine: what a cluster is compared with."""

import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from ringway.lab import Error
from ringway.sweep.pool import MAX_LOSSES, Done, Pool, Run, work


class Processes(Pool):
    """A pool of processes, which is begun anew when one of them is killed."""

    def __init__(self, spec: str, workers: int) -> None:
        self.spec = spec
        self.workers = workers or os.cpu_count() or 1
        self.losses = 0
        self.futures: dict[Future[Done], list[Run]] = {}
        self.pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        # Not forked: this process may have threads.
        return ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))

    def submit(self, runs: list[Run]) -> None:
        while True:
            try:
                self.futures[self.pool.submit(work, self.spec, runs)] = runs
                return
            except BrokenProcessPool:
                self._restart()

    def wait(self) -> list[Done]:
        while True:
            ended, _ = wait(self.futures, return_when=FIRST_COMPLETED)
            try:
                results = [future.result() for future in ended]
            except BrokenProcessPool:
                self._restart()
                continue
            for future in ended:
                del self.futures[future]
            return results

    def _restart(self) -> None:
        """Runs again what was not finished."""
        self.losses += 1
        if self.losses > MAX_LOSSES:
            raise Error(f"worker processes were killed {self.losses} times")
        self.pool.shutdown(cancel_futures=True)
        self.pool = self._start()
        lost = list(self.futures.values())
        self.futures.clear()
        for runs in lost:
            self.submit(runs)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
