"""A small machine with Linux's own SCTP, DCCP and netem: QEMU without hardware help, Debian's cloud kernel, busybox.

The kernel is unpacked from Debian's package, never installed. What the machine has beside busybox is
given as a list of programs; the libraries they need go with them. It is told what to do line by line over a
serial port, and its network cards are TAP devices of the network namespace the machine is started in.

    machine = Machine(folder, programs=["/usr/bin/sipp"])
    machine.start(namespace="n1", cards=[("tap0", "10.1.0.2/24"), ("tap1", "10.2.0.2/24")])
    status, text = machine.run("sipp -v")
    machine.stop()

`machine.py` alone boots once and shows what is there; `machine.py --fetch` only fetches the kernel.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# Whose newest kernel it is.
PACKAGE = "linux-image-cloud-amd64"
# SCTP, DCCP, what they need, and the network card (the rest is in the kernel).
MODULES = ("lib/libcrc32c", "net/ipv4/udp_tunnel", "net/ipv6/ip6_udp_tunnel", "net/sctp/sctp",
           "net/dccp/dccp", "net/dccp/dccp_ipv4", "net/dccp/dccp_ipv6",
           "drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
           "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci",
           "net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net")
# Kept as well, for those that ask for them: pairs of interfaces, netem, and what leads frames from one to another.
MORE = ("drivers/net/veth", "net/sched/sch_netem", "net/sched/sch_ingress", "net/sched/cls_matchall",
        "net/sched/act_mirred")
BOOT_SECONDS = 60

INIT = """#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
# An IPv6 address can be bound to at once: who has it is not asked first (RFC 4862 section 5.4), which takes seconds.
for which in all default; do echo 0 >/proc/sys/net/ipv6/conf/$which/accept_dad; done
for module in {modules}; do insmod /modules/$module.ko; done
ip link set lo up
{network}
exec </dev/ttyS1 >/dev/ttyS1 2>/dev/ttyS0
stty raw -echo <&0
echo ready
while read -r number length line; do
    # A busy machine may lose some of what comes over its serial port.
    if [ ${{#line}} != "$length" ]; then
        echo again
        continue
    fi
    ( eval "$line" ) >/tmp/$number 2>&1 </dev/null
    status=$?
    echo "$number $status $(wc -c </tmp/$number)"
    cat /tmp/$number
    rm -f /tmp/$number
done
poweroff -f
"""


class Trouble(Exception):
    """The machine cannot be made or does not answer."""


def modules(unpacked):
    """The folder of an unpacked kernel's modules; None if one that a machine needs is missing."""
    for folder in unpacked.glob("lib/modules/*/kernel"):
        if all((folder / f"{module}.ko").exists() for module in MODULES + MORE):
            return folder
    return None


def kernel():
    """The kernel and the folder of its modules, unpacked once."""
    cache = TARGET / "machine"
    cache.mkdir(parents=True, exist_ok=True)
    unpacked = cache / "kernel"
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if modules(unpacked) is None:
            try:
                unpack(cache, unpacked)
            except (subprocess.CalledProcessError, StopIteration):
                # The lists may be missing, or older than what is offered.
                subprocess.run(["apt-get", "update", "-q"], check=True, stdout=subprocess.DEVNULL)
                unpack(cache, unpacked)
    return next((unpacked / "boot").glob("vmlinuz-*")), modules(unpacked)


def unpack(cache, unpacked):
    """Downloads the kernel's package and keeps of it what a machine needs."""
    download, partial = cache / "download", cache / "kernel.part"
    for folder in (download, partial):
        shutil.rmtree(folder, ignore_errors=True)
    download.mkdir()
    told = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True, check=True).stdout
    name = next(line.split()[-1] for line in told.splitlines() if "Depends: linux-image" in line)
    subprocess.run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", name], cwd=download, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["dpkg", "-x", next(download.glob(f"{name}_*.deb")), partial], check=True)
    folder = next((partial / "lib/modules").iterdir()) / "kernel"
    wanted = {folder / f"{module}.ko" for module in MODULES + MORE}
    for path in folder.rglob("*.ko"):
        if path not in wanted:
            path.unlink()
    # One of before had fewer modules.
    shutil.rmtree(unpacked, ignore_errors=True)
    partial.rename(unpacked)
    shutil.rmtree(download)


def libraries(program):
    """The shared libraries a program is started with, by the paths it looks for them at."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    found = []
    for line in listed.stdout.splitlines():
        words = line.split()
        path = words[2] if "=>" in words else words[0]
        if path.startswith("/"):
            found.append(path)
    return found


class Archive:
    """A cpio archive of the form the kernel unpacks (newc)."""

    def __init__(self):
        self.data, self.number, self.known = bytearray(), 0, set()

    def add(self, path, content, mode):
        """One entry, and the folders above it."""
        parent = str(Path(path).parent)
        if parent != "." and parent not in self.known:
            self.add(parent, b"", stat.S_IFDIR | 0o755)
        if path in self.known:
            return
        self.known.add(path)
        self.entry(path, content, mode)

    def entry(self, path, content, mode):
        """Header, name and content, each padded to four."""
        self.number += 1
        name = path.encode() + b"\0"
        fields = (self.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        self.data += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        self.data += b"\0" * (-len(self.data) % 4) + content
        self.data += b"\0" * (-len(self.data) % 4)

    def file(self, path, source):
        """A file of this machine, under `path`."""
        self.add(path.lstrip("/"), Path(source).read_bytes(), stat.S_IFREG | 0o755)

    def finish(self):
        """The whole archive."""
        self.entry("TRAILER!!!", b"", 0)
        return bytes(self.data)


class Machine:
    """One machine, from its start until it is stopped."""

    def __init__(self, folder, programs=(), files=(), copies=(), modules=MODULES):
        """`files` are contents by their paths; `copies` are files of this machine that keep their paths."""
        self.folder, self.programs, self.files = Path(folder), list(programs), dict(files)
        self.copies, self.modules = list(copies), modules
        self.process, self.socket, self.text, self.number = None, None, b"", 0

    def archive(self, cards, module_folder):
        """What the machine finds in its memory when it starts."""
        made = Archive()
        network = "\n".join(f"ip link set eth{i} up; ip addr add {address} dev eth{i}"
                            for i, (_, *addresses) in enumerate(cards) for address in addresses)
        init = INIT.format(modules=" ".join(Path(m).name for m in self.modules), network=network)
        made.add("init", init.encode(), stat.S_IFREG | 0o755)
        for folder in ("proc", "sys", "dev", "tmp"):
            made.add(folder, b"", stat.S_IFDIR | 0o755)
        made.file("bin/busybox", "/bin/busybox")
        made.add("bin/sh", b"busybox", stat.S_IFLNK | 0o777)
        for module in self.modules:
            made.file(f"modules/{Path(module).name}.ko", module_folder / f"{module}.ko")
        for path, source in [*((f"bin/{Path(one).name}", one) for one in self.programs),
                             *((str(one), one) for one in self.copies)]:
            made.file(path, source)
            for library in libraries(source):
                made.file(library, library)
        for path, content in self.files.items():
            made.add(path.lstrip("/"), content if isinstance(content, bytes) else content.encode(),
                     stat.S_IFREG | 0o755)
        return made.finish()

    def start(self, cards, namespace=None, features="", processors=1):
        """Boots; `cards` are (TAP device, address, address...), `features` what QEMU shall set of each card."""
        image, module_folder = kernel()
        self.folder.mkdir(parents=True, exist_ok=True)
        memory = self.folder / "initramfs"
        memory.write_bytes(self.archive(cards, module_folder))
        (self.folder / "line").unlink(missing_ok=True)
        command = ["ip", "netns", "exec", namespace] if namespace else []
        # Room for a second processor has QEMU translate the kernel's memory barriers as barriers. Without it they are
        # left out, and notices between the kernel and the cards, which QEMU serves in another thread, are lost: a card
        # stops for good.
        command += ["qemu-system-x86_64", "-M", "pc,accel=tcg", "-smp", f"{processors},maxcpus=2", "-m", "256",
                    "-nodefaults", "-no-reboot", "-display", "none", "-kernel", image, "-initrd", memory.name,
                    "-append", "console=ttyS0 quiet panic=-1 tsc=reliable",
                    "-serial", "file:console", "-serial", "unix:line,server=on,wait=off"]
        for i, (tap, *_) in enumerate(cards):
            command += ["-netdev", f"tap,id=n{i},ifname={tap},script=no,downscript=no",
                        "-device", f"virtio-net-pci,netdev=n{i},mac=52:54:00:00:00:{i + 1:02x}{features}"]
        # QEMU reads a comma in a path as its own, and a socket's path is bounded (unix(7)): names in the folder are
        # not.
        with open(self.folder / "qemu", "wb") as errors:
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=errors)
        deadline = time.monotonic() + BOOT_SECONDS
        self.socket = socket.socket(socket.AF_UNIX)
        here = os.open(self.folder, os.O_PATH)
        try:
            while True:
                try:
                    self.socket.connect(f"/proc/self/fd/{here}/line")
                    break
                except OSError:
                    self.check(deadline)
                    time.sleep(0.05)
        finally:
            os.close(here)
        while b"ready" not in self.read_line(deadline):
            pass

    def check(self, deadline):
        """That it still runs and is not late."""
        if self.process.poll() is not None:
            raise Trouble(f"the machine ended: {(self.folder / 'qemu').read_text()}")
        if time.monotonic() > deadline:
            raise Trouble(f"the machine does not answer; see {self.folder / 'console'}")

    def read(self, deadline):
        """More of what it says."""
        self.check(deadline)
        self.socket.settimeout(max(0.01, min(1, deadline - time.monotonic())))
        with contextlib.suppress(TimeoutError):
            self.text += self.socket.recv(65536)

    def read_line(self, deadline):
        """The next line it says."""
        while b"\n" not in self.text:
            self.read(deadline)
        line, self.text = self.text.split(b"\n", 1)
        return line

    def run(self, line, limit=60):
        """Has the shell run a line: its status and what it printed. What goes on behind it (`&`) must
        print elsewhere."""
        self.number += 1
        deadline = time.monotonic() + limit
        told = b"again"
        while told == b"again":
            self.socket.sendall(f"{self.number} {len(line)} {line}\n".encode())
            told = self.read_line(deadline)
        number, status, length = (int(word) for word in told.split())
        if number != self.number:
            raise Trouble(f"answered {number} instead of {self.number}")
        while len(self.text) < length:
            self.read(deadline)
        printed, self.text = self.text[:length], self.text[length:]
        return status, printed.decode(errors="replace")

    def stop(self):
        """Ends it, at once."""
        if self.socket:
            self.socket.close()
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process, self.socket, self.text, self.number = None, None, b"", 0


def look():
    """Boots once and shows what is there: a first look when something is wrong."""
    scratch = TARGET / "machine" / f"look-{os.getpid()}"
    machine = Machine(scratch)
    began = time.monotonic()
    try:
        machine.start([])
        print(f"ready after {time.monotonic() - began:.1f} s")
        print(machine.run("uname -a; cat /proc/net/protocols | grep -E 'SCTP|DCCP'; lsmod")[1])
    finally:
        machine.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fetch"]:
        kernel()
    else:
        look()
