"""The servers that are measured side by side, and what the kernel knows about each.

All have one face: `start`, `stop`, `processes`, and the flags the generator needs to talk to them.
Each listens on a port of its own on the loopback address and is bound to the processors given.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "lib"))

import process  # noqa: E402  (the path is set just above)

HOST = "127.0.0.1"
START_SECONDS = 15
# Without this capability no program gets a receive buffer above net.core.rmem_max, and all get the same.
SAME_BUFFERS = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin") if os.geteuid() == 0 else ()


class Trouble(Exception):
    """Why nothing can be measured, in one line."""


class Subject:
    """A server under test."""

    name = ""
    # Its address on this machine.
    host = HOST
    # Of UDP and TCP, and of TLS.
    port, tls_port = 0, 0
    flags = ()
    # Whether it keeps contacts, so that bytes a contact can be asked for.
    keeps_contacts = True

    def __init__(self, settings):
        self.settings = settings
        self.folder = settings.folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = None

    def command(self):
        """Program and arguments."""
        raise NotImplementedError

    def about(self):
        """Version and pool sizes, for the report."""
        raise NotImplementedError

    @property
    def address(self):
        """Where the generator sends to."""
        return f"{self.host}:{self.tls_port if self.settings.transport == 'tls' else self.port}"

    def start(self):
        """Starts it and waits until its port is open."""
        if udp_sockets(self.port):
            raise Trouble(f"{self.name}: UDP port {self.port} is in use by another program")
        command = ["taskset", "-c", self.settings.server_cpus, *SAME_BUFFERS, *self.command()]
        environment = {"XDG_STATE_HOME": str(self.folder)}
        self.process = process.Process(self.name, command, self.folder, env=environment, cwd=ROOT)
        deadline = time.monotonic() + START_SECONDS
        while not udp_sockets(self.port):
            if not self.process.running() or time.monotonic() > deadline:
                said = self.process.output().strip()[-600:] or "nothing"
                self.stop()
                raise Trouble(f"{self.name} did not open UDP port {self.port}; it said: {said}")
            time.sleep(0.05)
        time.sleep(0.5)

    def stop(self):
        """Ends it, and waits until its port is free again."""
        if self.process is None:
            return
        family = self.processes()
        self.process.end(10)
        for pid in family:
            process_gone(pid)
        self.process = None

    def connection_ports(self):
        """The port of each transport over which idle connections are measured."""
        return {}

    def processes(self):
        """Its process and all that descend from it."""
        return family_of(self.process.pid)

    def dropped(self):
        """Datagrams its sockets had no room for."""
        return sum(drops for _, drops in udp_sockets(self.port))

    def receive_buffer(self):
        """Receive buffer of one of its UDP sockets as the kernel counts it, bytes; None if unknown."""
        if shutil.which("ss") is None or self.settings.transport != "udp":
            return None
        text = subprocess.run(["ss", "-uanmH", "sport", "=", f":{self.port}"],
                              capture_output=True, text=True, check=False).stdout
        _, _, rest = text.partition(",rb")
        return int(rest.split(",")[0]) if rest else None


class Floor(Subject):
    """Receives and sends as many datagrams as a proxy must, and does nothing else."""

    name, port, flags, keeps_contacts = "floor", 15061, ("--floor",), False

    def command(self):
        return [self.settings.generator, "floor", "--listen", self.address,
                "--workers", str(self.settings.workers)]

    def about(self):
        return {"workers": self.settings.workers}


class Kamailio(Subject):
    """Debian's Kamailio as a plain stateful proxy with a registrar in memory."""

    name, port, tls_port = "kamailio", 15062, 15072
    SHARED_MIB, PRIVATE_MIB = 2048, 16

    def config(self):
        """The configuration: the one beside this file, over TLS with what that needs."""
        if not self.settings.identity:
            return HERE / "kamailio.cfg"
        certificate, key = self.settings.identity
        module = "\n".join(['loadmodule "tls.so"', f'modparam("tls", "certificate", "{certificate}")',
                            f'modparam("tls", "private_key", "{key}")', f'modparam("tls", "ca_list", "{certificate}")',
                            'modparam("tls", "verify_certificate", 1)', 'modparam("tls", "tls_method", "TLSv1.2+")'])
        text = (HERE / "kamailio.cfg").read_text(encoding="utf-8")
        text = text.replace("# MARK: TLS listens", f"listen=tls:{HOST}:{self.tls_port}\nenable_tls=yes")
        path = self.folder / "kamailio.cfg"
        path.write_text(text.replace("# MARK: TLS module", module), encoding="utf-8")
        return path

    def command(self):
        return ["kamailio", "-DD", "-E", "-f", self.config(), "-A", f"LISTEN={self.host}:{self.port}",
                "-A", f"CHILDREN={self.settings.workers}", "-m", str(self.SHARED_MIB),
                "-M", str(self.PRIVATE_MIB), "-w", self.folder, "-Y", self.folder,
                "-P", self.folder / "pid"]

    def about(self):
        first = subprocess.run(["kamailio", "-v"], capture_output=True, text=True, check=False)
        return {"version": first.stdout.splitlines()[0].removeprefix("version: "),
                "workers": self.settings.workers, "shared_memory_mib": self.SHARED_MIB,
                "private_memory_mib": self.PRIVATE_MIB}


class Ringway(Subject):
    """`ringway serve`, or whatever RINGWAY_SERVE says."""

    name, port, tls_port = "ringway", 15060, 15070
    WS_PORT = 15080

    def connection_ports(self):
        return {"tcp": self.port, "tls": self.tls_port, "ws": self.WS_PORT} if not self.settings.ringway else {}

    def command(self):
        words = {"workers": self.settings.workers, "port": self.port}
        if self.settings.ringway:
            return shlex.split(self.settings.ringway.format(**words))
        return [self.settings.program, "serve", "--config", self.config(), "--workers", str(self.settings.workers)]

    def config(self):
        """The configuration: the one beside this file, with TLS and WebSocket where they are measured."""
        if not self.settings.identity:
            return HERE / "ringway.toml"
        certificate, key = self.settings.identity
        text = (HERE / "ringway.toml").read_text(encoding="utf-8").replace(
            "listen = [", f'listen = ["tls://{HOST}:{self.tls_port}", "ws://{HOST}:{self.WS_PORT}", ', 1)
        path = self.folder / "ringway.toml"
        path.write_text(f'{text}\n[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nroots = "{certificate}"\n',
                        encoding="utf-8")
        return path

    def available(self):
        """Whether the program exists and knows the command."""
        words = self.command()
        if shutil.which(words[0]) is None:
            return False
        asked = subprocess.run([words[0], "config", "check", str(self.config())],
                               capture_output=True, cwd=ROOT, check=False)
        return asked.returncode == 0 and bool(asked.stdout + asked.stderr)

    def about(self):
        program = self.command()[0]
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        return {"version": said.stdout.strip(), "workers": self.settings.workers,
                "command": shlex.join(str(word) for word in self.command())}


def udp_sockets(port):
    """(port, drops) of every UDP socket bound to `port`."""
    found = []
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        if not os.path.exists(table):
            continue
        with open(table, encoding="ascii") as lines:
            next(lines)
            for line in lines:
                fields = line.split()
                if int(fields[1].rsplit(":", 1)[1], 16) == port:
                    found.append((port, int(fields[-1])))
    return found


def family_of(root):
    """`root` and its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    family, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        family.append(pid)
        waiting += children.get(pid, [])
    return family


def process_gone(pid, seconds=5):
    """Waits until a process of ours has ended; kills it when it does not."""
    deadline = time.monotonic() + seconds
    while os.path.exists(f"/proc/{pid}"):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            if time.monotonic() > deadline:
                os.kill(pid, 9)
        except (OSError, IndexError):
            return
        time.sleep(0.02)


def memory_of(pids):
    """Resident memory, shared pages divided among those that share them, bytes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total
