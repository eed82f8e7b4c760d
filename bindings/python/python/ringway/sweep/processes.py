"""Processes of this machine, without any engine: what a cluster is compared with."""

import os
import pickle
import signal
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory, mkstemp
from threading import Event, Thread
from typing import Any

from ringway.lab import Error
from ringway.sweep.pool import MAX_LOSSES, Done, Pool, Run, work


class _Worker:
    """What a worker has for all of its batches."""

    spec = ""
    folder = ""


def _begin(spec: str, folder: str) -> None:
    """Begins a worker. Ctrl-C in a terminal reaches it, too; it is for the process that ends it."""
    _Worker.spec, _Worker.folder = spec, folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(runs: list[Run]) -> str:
    return _store(work(_Worker.spec, runs))


def _store(done: Done) -> str:
    """Writes a result to a file, and returns its name. The executor waits for ever for the rest of one that a pipe does
    not take at once, if its worker is killed while it writes it."""
    descriptor, name = mkstemp(dir=_Worker.folder)
    with os.fdopen(descriptor, "wb") as file:
        pickle.dump(done, file)
    return name


def _load(name: str) -> Done:
    file = Path(name)
    done: Done = pickle.loads(file.read_bytes())
    file.unlink()
    return done


class Processes(Pool):
    """A pool of processes, which is begun anew when one of them is killed."""

    def __init__(self, spec: str, workers: int) -> None:
        self.spec = spec
        self.workers = workers or os.cpu_count() or 1
        self.losses = 0
        self.futures: dict[Future[str], list[Run]] = {}
        self.folder = TemporaryDirectory(prefix="ringway-sweep-")
        self.pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        # Not forked: this process may have threads.
        context = get_context("spawn")
        begin = (self.spec, self.folder.name)
        pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_begin, initargs=begin)
        executor: Any = pool
        # A descriptor of our own: the executor closes its one in another thread.
        self.batches = os.dup(executor._call_queue._reader.fileno())
        return pool

    def submit(self, runs: list[Run]) -> None:
        while True:
            try:
                self.futures[self.pool.submit(_work, runs)] = runs
                return
            except BrokenProcessPool:
                self._restart()

    def wait(self) -> list[Done]:
        while True:
            ended, _ = wait(self.futures, return_when=FIRST_COMPLETED)
            try:
                names = [future.result() for future in ended]
            except BrokenProcessPool:
                self._restart()
                continue
            for future in ended:
                del self.futures[future]
            return [_load(name) for name in names]

    def _restart(self) -> None:
        """Runs again what was not finished."""
        self.losses += 1
        if self.losses > MAX_LOSSES:
            raise Error(f"worker processes were killed {self.losses} times")
        self._end()
        self.pool = self._start()
        lost = list(self.futures.values())
        self.futures.clear()
        for runs in lost:
            self.submit(runs)

    def _end(self) -> None:
        """Ends the workers, also within a run, for whose end the executor would wait."""
        ended = Event()
        reader = Thread(target=_drain, args=(self.batches, ended))
        if self.futures:
            # As `kill_workers` of Python 3.14.
            pool: Any = self.pool
            processes = list((pool._processes or {}).values())
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
            reader.start()
        self.pool.shutdown(cancel_futures=True)
        ended.set()
        if self.futures:
            reader.join()
        os.close(self.batches)

    def close(self) -> None:
        self._end()
        self.folder.cleanup()


def _drain(descriptor: int, ended: Event) -> None:
    """Reads what no worker reads any more: before Python 3.12 the executor ends when it has written all batches."""
    while not ended.is_set():
        if select([descriptor], [], [], 0.05)[0] and not os.read(descriptor, 1 << 16):
            return
