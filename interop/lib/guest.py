"""A small machine (machine.py) in which peers that use Linux's own protocols are started, each printing to a file."""

from machine import Machine
from network import words


class Guest:
    """A machine whose program `peer` prints `listening` when it does, and how it ended (`ended=`) in its last line."""

    def __init__(self, c, programs, **contents):
        self.c, self.count = c, 0
        self.machine = Machine(c.folder / "machine", programs=programs, **contents)
        c.after(self.close)

    def close(self):
        """Keeps the output of the machine's peers for the case of a failure, and ends it."""
        try:
            for number in range(1, self.count + 1):
                text = self.machine.run(f"cat /tmp/peer-{number}", 5)[1]
                (self.c.folder / f"linux-{number}.out").write_text(text)
        finally:
            self.machine.stop()

    def run(self, line, limit=30):
        """Has the machine run a line, which must succeed; what it prints."""
        status, text = self.machine.run(line, limit)
        self.c.expect(status == 0, f"in the machine, {line}: {status} {text}")
        return text

    def start(self, **options):
        """Starts the machine's peer; returns the file it prints to."""
        self.count += 1
        file = f"/tmp/peer-{self.count}"
        line = f"peer {' '.join(words(options))} >{file} 2>&1 &"
        if "listen" in options:
            line += (f" peer=$!; while ! grep -q listening {file}; do"
                     f" kill -0 $peer || {{ cat {file}; exit 1; }}; sleep 0.05; done")
        self.run(line, 60)
        return file

    def printed(self, file, seconds=60):
        """What the peer that prints there has printed when it has ended."""
        return self.run(f"n=0; while ! grep -q ended= {file} && [ $n -lt {10 * seconds} ]; do sleep 0.1; n=$((n+1)); "
                        f"done; cat {file}", seconds + 20)
