"""Network namespaces, one a router: made, entered, looked at and removed again."""

import contextlib
import ctypes
import ipaddress
import os
import signal
import subprocess
import time
from pathlib import Path

# How the names of namespaces begin; the process that made one follows.
PREFIX = "rw-mesh-"
UPLINK = "uplink"
# How long link-local addresses and programs may take, seconds.
SETTLED, ENDED = 20, 5
CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
# IFA_F_TENTATIVE and IFA_F_DEPRECATED: nobody else should use such an address, or not any more.
UNUSABLE = 0x40 | 0x20
# The kernel's table of neighbours is one for all namespaces, with room for 1024: fewer than a large network has. When
# it is full, packets are dropped. A router alone never comes near that.
TABLE = Path("/proc/sys/net/ipv6/neigh/default")
ROOM = {"gc_thresh3": 65536, "gc_thresh2": 32768, "gc_thresh1": 16384}
FEW = 10
_libc = ctypes.CDLL(None, use_errno=True)


class Trouble(Exception):
    """Why nothing can be measured, in one line."""


def permitted():
    """Whether namespaces and devices can be made here."""
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return False
    script = "ip link add rw-a type veth peer name rw-b && ip link add rw-c type bridge && mount --make-rprivate /"
    return subprocess.run(["unshare", "-n", "-m", "sh", "-c", script], capture_output=True, check=False).returncode == 0


def run(argv, lines=None):
    """Runs a program, which must succeed, with lines for its standard input; returns its output."""
    done = subprocess.run([str(word) for word in argv], input="\n".join(lines or []) + "\n", capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"{' '.join(map(str, argv))}: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def sweep():
    """Deletes the namespaces of processes that were ended before they could."""
    for path in Path("/run/netns").glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).split("-")[0]
        if not Path("/proc", owner).exists():
            run(["ip", "netns", "del", path.name])


class Program:
    """A program in a namespace; its output goes to a file."""

    def __init__(self, argv, log, space):
        self.argv, self.log = [str(word) for word in argv], log

        def enter():
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if space is not None and _libc.setns(space, CLONE_NEWNET) != 0:
                os._exit(127)
        with open(log, "ab") as output:
            self.child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                          preexec_fn=enter)  # noqa: PLW1509 it takes no lock

    def said(self):
        """The end of its output."""
        return self.log.read_text(errors="replace")[-400:].strip()

    def figures(self):
        """Processor seconds and resident kB, now and at most; zeros once it has ended."""
        try:
            # The clock of a process's processor time, as clock_getcpuclockid(3) names it: user and system time, without
            # the ticks of /proc/PID/stat, which miss what lasts a millisecond now and then.
            used = time.clock_gettime(~self.child.pid << 3 | 2)
            status = Path(f"/proc/{self.child.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return 0.0, 0, 0
        memory = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
        resident, peak = (int(memory.get(name, "0").split()[0]) for name in ("VmRSS", "VmHWM"))
        return used, resident, peak


def end(programs):
    """SIGTERM to all, then SIGKILL to those that do not end."""
    for program in programs:
        if program.child.poll() is None:
            program.child.terminate()
    deadline = time.monotonic() + ENDED
    for program in programs:
        try:
            program.child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            program.child.kill()
            program.child.wait()


class Spaces:
    """The namespaces of one network: those of routers, and further ones."""

    def __init__(self, nodes, folder, further=()):
        sweep()
        self.folder, self.nodes = folder, list(nodes)
        self.prefix = f"{PREFIX}{os.getpid()}-"
        self.names = {node: f"{self.prefix}{node}" for node in (*nodes, *further)}
        self.files, self.thresholds = {}, {}
        if len(self.nodes) > FEW:
            self.make_room()
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        run(["ip", "-batch", "-"], [f"netns add {name}" for name in self.names.values()])
        for node, name in self.names.items():
            self.files[node] = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self.write(node, {"net/ipv6/conf/default/router_solicitations": 0})
        self.each("link set lo up")

    def make_room(self):
        """Enlarges the kernel's table of neighbours as long as the namespaces exist."""
        for name, value in ROOM.items():
            before = int((TABLE / name).read_text(encoding="ascii"))
            if before < value:
                self.thresholds[name] = before
                (TABLE / name).write_text(f"{value}\n", encoding="ascii")

    def close(self):
        """Removes them, with all devices inside."""
        for file in self.files.values():
            os.close(file)
        self.files = {}
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        os.close(self.home)
        for name, value in self.thresholds.items():
            (TABLE / name).write_text(f"{value}\n", encoding="ascii")

    @contextlib.contextmanager
    def inside(self, node):
        """This process is in the namespace for the duration of the block."""
        if _libc.setns(self.files[node], CLONE_NEWNET) != 0:
            raise Trouble(f"setns {self.names[node]}: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            if _libc.setns(self.home, CLONE_NEWNET) != 0:
                os.abort()

    def ip(self, node, *lines):
        """Runs commands of `ip` in a namespace."""
        run(["ip", "-n", self.names[node], "-batch", "-"], lines)

    def each(self, *lines):
        """Runs the same commands of `ip` for each router."""
        for node in self.nodes:
            self.ip(node, *lines)

    def write(self, node, settings):
        """Writes settings below /proc/sys in a namespace."""
        with self.inside(node):
            for name, value in settings.items():
                Path("/proc/sys", name).write_text(f"{value}\n", encoding="ascii")

    def start(self, node, argv, name):
        """Starts a program in a namespace, or outside where `node` is None."""
        return Program(argv, self.folder / f"{name}.log", None if node is None else self.files[node])

    def addresses(self, node, device):
        """(address, unusable) of each IPv6 address of a device."""
        found = []
        with self.inside(node), open("/proc/thread-self/net/if_inet6", encoding="ascii") as lines:
            for line in lines:
                digits, _, _, _, flags, name = line.split()
                if name == device:
                    found.append((ipaddress.IPv6Address(int(digits, 16)), bool(int(flags, 16) & UNUSABLE)))
        return found

    def address(self, node, device):
        """The global address of a device as text, or None while there is none."""
        return next((str(address) for address, unusable in self.addresses(node, device)
                     if not address.is_link_local and not unusable), None)

    def settle(self):
        """Waits until each uplink may use its link-local address (duplicate address detection)."""
        deadline, waiting = time.monotonic() + SETTLED, self.nodes
        while waiting:
            waiting = [node for node in waiting
                       if not any(address.is_link_local and not unusable
                                  for address, unusable in self.addresses(node, UPLINK))]
            if time.monotonic() > deadline:
                raise Trouble(f"{len(waiting)} uplinks have no link-local address, such as {self.names[waiting[0]]}")
            if waiting:
                time.sleep(0.1)

    def octets(self, node, device=UPLINK):
        """Octets received and sent by a device, Ethernet headers included."""
        with self.inside(node), open("/proc/thread-self/net/dev", encoding="ascii") as lines:
            for line in lines:
                name, _, rest = line.strip().partition(":")
                if name == device:
                    fields = rest.split()
                    return int(fields[0]), int(fields[8])
        raise Trouble(f"{self.names[node]} has no {device}")
