"""Hosts of a check's own: network namespaces, the links between them, and whether they can be made here."""

import os
import subprocess
import sys
from pathlib import Path

import cases

# How the names of namespaces begin; the process that made one follows.
SPACES = "rw-host-"


def permitted():
    """Whether namespaces and devices can be made here."""
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return False
    script = "ip link add rw-a type veth peer name rw-b && ip tuntap add dev rw-c mode tap && mount --make-rprivate /"
    tried = subprocess.run(["unshare", "-n", "-m", "sh", "-c", script], capture_output=True, check=False)
    return tried.returncode == 0


PERMITTED = permitted()
if not PERMITTED and "--one" not in sys.argv:
    print("interop: tcp and some of sctp and dccp are left out, for want of the right to make namespaces and devices",
          file=sys.stderr)


def case(name, **options):
    """A case that needs namespaces, where they can be made."""
    return cases.case(name, own=True, **options) if PERMITTED else lambda body: body


def words(options):
    """Command line words for a mapping; True stands alone, lists are joined."""
    for name, value in options.items():
        yield f"--{name.replace('_', '-')}"
        if value is not True:
            yield ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class Space:
    """A network namespace that ends with the case."""

    def __init__(self, c, name):
        self.c, self.name = c, f"{SPACES}{os.getpid()}-{name}"
        self.sweep()
        self.ip("netns", "add", self.name)
        c.after(lambda: self.ip("netns", "del", self.name))
        self.inside("link", "set", "lo", "up")

    def sweep(self):
        """Deletes the namespaces of cases that were ended before they could."""
        for line in self.c.run("ip", ["ip", "netns", "list"])[1].splitlines():
            name = line.split()[0] if line else ""
            owner = name.removeprefix(SPACES).split("-")[0]
            if name.startswith(SPACES) and not Path("/proc", owner).exists():
                self.c.run("ip", ["ip", "netns", "del", name])

    def ip(self, *arguments):
        """Runs `ip`, which must succeed."""
        status, output = self.c.run("ip", ["ip", *arguments])
        self.c.expect(status == 0, f"ip {' '.join(map(str, arguments))}: {output}")

    def inside(self, *arguments):
        """Runs `ip` in the namespace."""
        self.ip("-n", self.name, *arguments)

    def join(self, other, number):
        """A link to another namespace, `e<number>` on both sides, with addresses 10.<number>.0.1 and .2."""
        self.inside("link", "add", f"e{number}", "type", "veth", "peer", "name", f"e{number}", "netns", other.name)
        for space, host in ((self, 1), (other, 2)):
            space.address(f"e{number}", f"10.{number}.0.{host}/24", f"fd0{number}::{host}/64")

    def join_by(self, switches, other, number):
        """The same by two switches in a third namespace, with `trunk<number>` between them."""
        trunks = (f"trunk{number}", f"trunk{number}b")
        switches.inside("link", "add", trunks[0], "type", "veth", "peer", "name", trunks[1])
        for host, (space, trunk) in enumerate(zip((self, other), trunks, strict=True), 1):
            switch, port = f"switch{number}{host}", f"port{number}{host}"
            space.inside("link", "add", f"e{number}", "type", "veth", "peer", "name", port, "netns", switches.name)
            switches.inside("link", "add", switch, "type", "bridge")
            for device in (port, trunk):
                switches.inside("link", "set", device, "master", switch, "up")
            switches.inside("link", "set", switch, "up")
            space.address(f"e{number}", f"10.{number}.0.{host}/24", f"fd0{number}::{host}/64")

    def tap(self, number):
        """A device for a machine's network card, with address 10.<number>.0.1."""
        self.inside("tuntap", "add", "dev", f"tap{number}", "mode", "tap")
        self.address(f"tap{number}", f"10.{number}.0.1/24", f"fd0{number}::1/64")

    def address(self, device, *addresses):
        """Gives a device its addresses and sets it up."""
        for address in addresses:
            self.inside("address", "add", address, "dev", device, *(["nodad"] if ":" in address else []))
        self.inside("link", "set", device, "up")

    def enter(self):
        """Words before a command that is to run inside."""
        return ["ip", "netns", "exec", self.name]

    def start(self, name, argv, **options):
        """Starts a program inside."""
        return self.c.start(name, [*self.enter(), *argv], **options)

    def capture(self, device, udp=None, wanted="sctp"):
        """Captures what passes a device, over IP or in UDP; returns how to end that, and its file."""
        file = self.c.folder / f"{device}.pcapng"
        started = self.start(f"dumpcap-{device}", ["dumpcap", "-q", "-i", device, "-w", file, "-f",
                                                   f"udp port {udp}" if udp else wanted])

        def end():
            # What has just passed is not written yet.
            self.c.sleep(0.5)
            started.end()
        self.c.after(end)
        self.c.expect(started.wait_output("File:", 10), f"no capture: {started.output()}")
        return end, file
