"""What a case is, and what it may ask for while it runs."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import process
import slots
from process import PATIENCE


class Failed(Exception):
    """The server did not do what the case expects."""


@dataclass
class Case:
    """A named check with its time limit in seconds."""

    name: str
    limit: float
    own: bool
    alone: bool
    body: Callable


ALL = []


def case(name, limit=60, own=False, alone=False):
    """Marks a function as a case.

    `own`: it uses Ringway's own commands, so no other server can stand in. `alone`: it measures
    time or loads the machine, so nothing may run beside it.
    """
    def mark(body):
        if any(c.name == name for c in ALL):
            raise ValueError(f"two cases are named {name}")
        ALL.append(Case(name, limit, own, alone, body))
        return body
    return mark


class Context:
    """Handed to a running case: its folder, its ports, its processes."""

    def __init__(self, chosen, folder, slot, server_kind):
        self.case, self.folder, self.server_kind = chosen, folder, server_kind
        self.ports = slots.Ports(slot)
        self._processes, self._after = [], []
        self._capture = None

    def start(self, name, argv, **options):
        """Starts a program that ends with the case."""
        started = process.Process(name, argv, self.folder, **options)
        self._processes.append(started)
        return started

    def run(self, name, argv, seconds=30, stdin=None, env=None):
        """Runs a program to its end: (status, output)."""
        done = subprocess.run(
            [str(a) for a in argv], input=stdin, capture_output=True, timeout=PATIENCE * seconds, check=False,
            cwd=self.folder, text=True, errors="replace", env={**os.environ, **(env or {})},
            **({} if stdin is not None else {"stdin": subprocess.DEVNULL}),
        )
        output = done.stdout + done.stderr
        with open(self.folder / f"{name}.out", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, argv))}\n{output}[{done.returncode}]\n")
        return done.returncode, output

    def after(self, action):
        """Does `action` when the case ends, last one first."""
        self._after.append(action)

    def capture(self):
        """Writes what passes over this case's ports to capture.pcapng, where the user may capture; returns the
        process that does."""
        if self._capture is None and shutil.which("dumpcap"):
            self._capture = self.start("dumpcap", [
                "dumpcap", "-q", "-i", "lo", "-w", self.folder / "capture.pcapng", "-s", "2048",
                "-f", f"portrange {self.ports.first}-{self.ports.last}", "-a", "filesize:40000",
            ])
            self._capture.wait_output("File:", 3)
        return self._capture

    def close(self):
        """Ends all that the case started."""
        for action in reversed(self._after):
            try:
                action()
            except Exception as error:  # noqa: BLE001 the next one must still be cleaned up
                print(f"cleaning up: {error}")
        for started in reversed(self._processes):
            started.end()

    @staticmethod
    def sleep(seconds):
        """Lets time pass: what comes next is to happen in the middle of something."""
        time.sleep(seconds)

    @staticmethod
    def expect(condition, text):
        """Fails the case with `text` unless `condition` holds."""
        if not condition:
            raise Failed(text)

    @staticmethod
    def attempts(action, times=3):
        """Does `action` until it does not fail, so many times at most: for what holds by the clock, which a busy
        machine may spoil once, while a fault spoils it each time."""
        for _ in range(times - 1):
            try:
                return action()
            except Failed as failed:
                print(f"once more: {failed}", flush=True)
        return action()

    @staticmethod
    def until(condition, seconds, text, every=0.1):
        """Waits until `condition()` holds and returns its value; fails with `text` when it never does."""
        deadline = time.monotonic() + PATIENCE * seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise Failed(text() if callable(text) else text)
            time.sleep(every)
