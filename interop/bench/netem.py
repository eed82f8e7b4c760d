"""netem and `ringway emulate` beside each other: the same frames through a link of each, in a small virtual machine
(machine.py) with a kernel that has netem."""

import statistics
import subprocess
import time
from pathlib import Path

import machine
from subjects import Trouble

RATES = (500, 1_000, 2_000, 5_000, 10_000, 20_000)
SIZE = 200
DELAY_US = 1000
# Seconds of a burst, and of one before that counts for nothing: QEMU translates what has not run before.
BURST, WARM = 0.4, 0.1
# Seconds in which the machine must answer.
PATIENCE = 120
# Packets that netem may hold: more than come in its delay, as ringway's link does.
LIMIT = 100_000
# busybox has an `ip` and a `tc` of its own, which the shell would take.
WIRES = (
    "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6",
    *(f"/bin/ip link add {pair}0 type veth peer name {pair}1" for pair in "we"),
    *(f"/bin/ip link set {pair}{end} up" for pair in "we" for end in (0, 1)),
)
NETEM = (
    "/bin/tc qdisc add dev w1 ingress",
    "/bin/tc filter add dev w1 ingress matchall action mirred egress redirect dev e1",
    f"/bin/tc qdisc add dev e1 root netem delay {DELAY_US}us limit {LIMIT}",
)
NO_NETEM = ("/bin/tc qdisc del dev w1 ingress", "/bin/tc qdisc del dev e1 root")
ASK = "RUNTIME_DIRECTORY=/tmp/run ringway emulate"
EMULATE = (
    (f"taskset -c 1 env {ASK} --between w1 e1 --delay {DELAY_US}us --queue {LIMIT} --json >/tmp/emulate 2>&1 &"
     f" n=0; until {ASK} status >/tmp/status 2>&1; do n=$((n+1)); [ $n -lt 100 ] || {{ cat /tmp/emulate; exit 1; }};"
     " sleep 0.1; done; echo $! >/tmp/pid"),
)
NO_EMULATE = ("kill -INT $(cat /tmp/pid)", "while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.1; done")


def tool(name):
    """A program of this machine, by its path."""
    found = subprocess.run(["which", name], capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        raise Trouble(f"no program {name}")
    return found


class Guest:
    """The machine, with two pairs of interfaces: frames go from w0 to e0, and the link is between w1 and e1."""

    def __init__(self, folder, ringway, frames):
        stripped = Path(folder) / "ringway"
        subprocess.run(["strip", "-o", stripped, ringway], check=True)
        programs = [stripped, frames, tool("ip"), tool("tc")]
        self.machine = machine.Machine(Path(folder) / "machine", programs=programs, modules=machine.MORE)
        self.machine.start([], processors=2)

    def run(self, *lines):
        """Has the machine run lines, each of which must succeed; what the last printed."""
        text = ""
        for line in lines:
            status, text = self.machine.run(line, PATIENCE)
            if status != 0:
                raise Trouble(f"in the machine, {line}: {status} {text}")
        return text

    def burst(self, rate):
        """One burst: the generator's figures."""
        text = self.run(*(f"taskset -c 0 frames w0 e0 {rate} {seconds} {SIZE}" for seconds in (WARM, BURST)))
        return {key: float(value) for key, value in (word.split("=") for word in text.split())}


def summary(bursts):
    """The medians of bursts through a link; its error is what its delay was above that which was asked for."""
    def of(key):
        return statistics.median(burst.get(key, 0) for burst in bursts)
    return {"rate": of("rate"), "lost": int(sum(burst["sent"] - burst["received"] for burst in bursts)),
            **{f"{key}_us": of(key) - DELAY_US for key in ("p50", "p99")}}


def measure(guest, rate, bursts, others):
    """Bursts at a rate, through both links in turn."""
    foreign, found = others(), {"netem": [], "ringway": []}
    for _ in range(bursts):
        for name, begin, end in (("netem", NETEM, NO_NETEM), ("ringway", EMULATE, NO_EMULATE)):
            guest.run(*begin)
            try:
                found[name].append(guest.burst(rate))
            finally:
                guest.run(*end)
    return {"wanted": rate, "others": foreign, **{name: summary(runs) for name, runs in found.items()}}


def show(row):
    """One line of the table."""
    columns = " ".join(f"{row[name]['rate']:>10.0f} {row[name]['lost']:>8} {row[name]['p50_us']:>9.1f} "
                       f"{row[name]['p99_us']:>9.1f}" for name in ("netem", "ringway"))
    disturbed = "  disturbed" if row["others"] > 0.1 else ""
    print(f"{row['wanted']:>10} {columns}{disturbed}", flush=True)


def compare(folder, ringway, frames, bursts, others):
    """Measures all rates, and prints both; `others` returns the share of the processors that others use. Returns what
    was found."""
    began = time.monotonic()
    guest = Guest(folder, ringway, frames)
    try:
        kernel = guest.run(*WIRES, "uname -r").strip()
        print(f"\nnetem beside ringway emulate: Linux {kernel}, two processors of QEMU without hardware virtualisation "
              f"(TCG); ready after {time.monotonic() - began:.0f} s")
        print("QEMU translates each instruction and is many times as slow: the figures compare only with each other.")
        print(f"error of the delay of {DELAY_US} us by the generator, which has the way through two veth pairs in it, "
              f"medians of {bursts} bursts")
        head = f"{'sent/s':>10} {'lost':>8} {'p50, us':>9} {'p99, us':>9}"
        print(f"{'':>10} {'netem':^39} {'ringway emulate':^39}\n{'packets/s':>10} {head} {head}")
        rows = []
        for rate in RATES:
            rows.append(measure(guest, rate, bursts, others))
            show(rows[-1])
    finally:
        guest.machine.stop()
    return {"kernel": kernel, "rows": rows}
