"""Links by our own switch (`ether.c`), with a true delay on each."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from spaces import Trouble, end

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target")).resolve()
DELAY_MS, RATE_MBIT = 1.0, 100.0
READY = 20


def built():
    """The switch, compiled unless it is newer than its source."""
    program, source = TARGET / "interop-c" / "ether", HERE / "ether.c"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", partial, source], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"cc: {done.stderr}")
    partial.rename(program)
    return program


class Ether:
    """The switch of one network."""

    further = ()

    def __init__(self, spaces, graph, delay_ms=DELAY_MS, rate_mbit=RATE_MBIT, loss=0.0):
        self.settings = {"delay_ms": delay_ms, "rate_mbit": rate_mbit, "loss": loss}
        self.file = spaces.folder / "links.json"
        self.change(graph)
        self.program = spaces.start(None, [built(), self.file, spaces.prefix], "ether")
        deadline = time.monotonic() + READY
        while "ready" not in self.program.said():
            if self.program.child.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"ether: {self.program.said()}")
            time.sleep(0.02)

    def change(self, graph):
        """Makes the links those of `graph`; the switch sees the new file."""
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps({
            "nodes": [{"id": node} for node in graph.nodes],
            "links": [{"source": a, "target": b, **self.settings} for a, b in sorted(graph.links)],
        }), encoding="utf-8")
        partial.rename(self.file)

    def counts(self):
        """Octets and frames per node as the switch counts them, and what it dropped."""
        before = self.program.log.read_text(encoding="utf-8").count("\n")
        self.program.child.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + READY
        while time.monotonic() < deadline:
            lines = self.program.log.read_text(encoding="utf-8").splitlines(keepends=True)
            if len(lines) > before and lines[-1].endswith("\n"):
                return json.loads(lines[-1])
            time.sleep(0.02)
        raise Trouble("ether does not report")

    def close(self):
        """Ends it; its devices vanish."""
        end([self.program])
