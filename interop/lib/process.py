"""Programs that a case starts: their output goes to a file, and none outlives the case."""

import ctypes
import os
import signal
import subprocess
import time

# In the environment of everything a case starts, so that strays can be told from other processes.
MARK = "RINGWAY_INTEROP_CASE"
PR_SET_PDEATHSIG = 1
# A machine that does much else takes many times as long: what should happen is waited for so many times
# longer than a case says. It costs nothing when all is well.
PATIENCE = 4
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A started program and the file its output goes to."""

    def __init__(self, name, argv, folder, env=None, cwd=None, stdin=False):
        self.name, self.argv = name, [str(a) for a in argv]
        self.log = folder / f"{name}.out"
        with open(self.log, "ab") as out:
            # Another of that name may have printed there before.
            self.begin = out.seek(0, os.SEEK_END)
            self.popen = subprocess.Popen(
                self.argv, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, cwd=cwd or folder,
                env={**os.environ, **(env or {})}, preexec_fn=_die_with_parent,  # noqa: PLW1509 it takes no lock
            )

    @property
    def pid(self):
        """Its process id."""
        return self.popen.pid

    def running(self):
        """Whether it has not ended."""
        return self.popen.poll() is None

    def output(self):
        """What it has printed so far."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[self.begin:].decode(errors="replace")

    def write(self, line):
        """Sends a line to its standard input."""
        self.popen.stdin.write((line + "\n").encode())
        self.popen.stdin.flush()

    def signal(self, number):
        """Sends a signal, if it still runs."""
        if self.running():
            self.popen.send_signal(number)

    def wait(self, seconds):
        """Its exit status, or None when it still runs after `seconds`."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def wait_output(self, text, seconds):
        """Whether `text` is printed within `seconds`; gives up when the program ends."""
        deadline = time.monotonic() + PATIENCE * seconds
        while True:
            running = self.running()
            if text in self.output():
                return True
            if not running or time.monotonic() > deadline:
                return False
            time.sleep(0.05)

    def end(self, seconds=3.0):
        """SIGTERM, then SIGKILL."""
        if self.running():
            self.popen.terminate()
            if self.wait(seconds) is None:
                self.popen.kill()
                self.popen.wait()


def end_marked(mark):
    """Kills every process that carries this case's mark in its environment."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(5):
        found = False
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted not in file.read().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/stat", "rb") as file:
                    if file.read().rsplit(b")", 1)[1].split()[0] == b"Z":
                        continue
                os.kill(int(entry), signal.SIGKILL)
                found = True
            except (OSError, IndexError):
                continue
        if not found:
            return
        time.sleep(0.05)
