"""What packaging/ promises, as far as it shows without a booted systemd: `make package-test` has the rest."""

import re
import shutil
import socket
import tempfile

from cases import Failed, case
from process import PATIENCE
from server import ROOT, Server, binary
from sip import Client

UNITS = ROOT / "packaging" / "systemd"
# What systemd-analyze security of Debian 12 says of each unit; more is worse.
MAX_EXPOSURE = {"ringway.service": 1.5, "ringway-mesh.service": 2.0}
WATCHDOG_SECONDS = 0.6


@case("packaging/unit", own=True)
def unit(c):
    """systemd finds no fault with the units, and rates what they leave exposed."""
    for name, most in MAX_EXPOSURE.items():
        # The program need not be installed.
        here = c.folder / name
        text = (UNITS / name).read_text().replace("/usr/bin/ringway", str(binary()).replace(" ", "\\x20"))
        here.write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))
        status, output = c.run(f"verify-{name}", ["systemd-analyze", "verify", here])
        c.expect(status == 0 and "ringway" not in output, f"systemd-analyze verify: {output}")
        status, output = c.run(f"security-{name}", ["systemd-analyze", "security", "--offline=yes", "--no-pager",
                                                    UNITS / name])
        found = re.search(rf"exposure level for {re.escape(name)}: ([\d.]+)", output)
        c.expect(found and float(found.group(1)) <= most, f"expected at most {most}: {output[-300:]}")


class Manager:
    """A service manager's end of sd_notify(3)."""

    def __init__(self, c):
        # The case's own folder may have too long a name for a socket (unix(7)).
        folder = tempfile.mkdtemp(prefix="ringway-")
        c.after(lambda: shutil.rmtree(folder))
        self.address = f"{folder}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        c.after(self.socket.close)
        self.c = c

    @property
    def environment(self):
        """What a service is started with."""
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}

    def next(self, seconds=20):
        """The next notification's variables; empty when none comes."""
        self.socket.settimeout(PATIENCE * seconds)
        try:
            return self.socket.recv(4096).decode().split()
        except TimeoutError:
            return []

    def until(self, wanted):
        """Waits for a variable; returns how often the watchdog was fed before it."""
        fed = 0
        for _ in range(1000):
            got = self.next()
            self.c.expect(got, f"no {wanted}")
            if wanted in got:
                return fed
            fed += "WATCHDOG=1" in got
        raise Failed(f"no {wanted} among 1000 notifications")


@case("packaging/notify", own=True)
def notify(c):
    """sd_notify(3): READY once it listens, the watchdog fed while it runs, RELOADING and READY around a reload,
    STOPPING at its end."""
    manager = Manager(c)
    server = Server(c, start=False)
    server.kind.environment = manager.environment
    server.process = server.kind.start("server")
    manager.until("READY=1")
    # Whoever waited for READY finds it listening.
    with Client(server.host, server.port) as client:
        answer = client.ask(client.request("OPTIONS", f"sip:{server.domain}"), 2)
        c.expect(answer is not None, "no answer right after READY=1")
    for _ in range(3):
        manager.until("WATCHDOG=1")
    server.reload()
    manager.until("RELOADING=1")
    manager.until("READY=1")
    server.process.popen.terminate()
    manager.until("STOPPING=1")
    c.expect(server.process.wait(20) == 0, "expected exit 0 after SIGTERM")
