"""Ranges of loopback ports, so that cases that run side by side never meet.

Slot k owns ports 20000 + 1000 k to 20999 + 1000 k, below the ephemeral range, and a lock file that
keeps other runs on the same machine out of it.
"""

import fcntl
import os
import socket
import tempfile

FIRST_PORT = 20_000
PORTS_EACH = 1_000
SLOTS = 12


class Slot:
    """One range, locked while this object lives."""

    def __init__(self, number, lock):
        self.number = number
        self._lock = lock


def take(count):
    """Up to `count` free slots; at least one, or an error."""
    taken = []
    for number in range(SLOTS):
        path = os.path.join(tempfile.gettempdir(), f"ringway-interop-{os.getuid()}-{number}.lock")
        lock = open(path, "w", encoding="ascii")  # noqa: SIM115 open for as long as the slot is held
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        taken.append(Slot(number, lock))
        if len(taken) == count:
            break
    if not taken:
        raise SystemExit(f"interop: all {SLOTS} port ranges are in use by other runs")
    return taken


class Ports:
    """Hands out the ports of one slot, each free for UDP and TCP when handed out."""

    def __init__(self, number):
        self.first = FIRST_PORT + number * PORTS_EACH
        self.last = self.first + PORTS_EACH - 1
        self._next = self.first

    def take(self, count=1):
        """`count` neighbouring free ports, the first of them even; returns the first."""
        while self._next + count <= self.last:
            first = self._next + self._next % 2
            self._next = first + count
            if all(_is_free(port) for port in range(first, first + count)):
                return first
        raise RuntimeError(f"no free port left between {self.first} and {self.last}")


def _is_free(port):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                return False
    return True
