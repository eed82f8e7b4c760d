"""The server under test: described once, started as Ringway or as a stand-in.

A case says what it needs (`context` -> `Server(context, domain=..., users=...)`) and talks to
`server.port` (UDP and TCP), `server.tls_port`, `server.ws_port`, `server.wss_port`. Everything else a
check needs from the server (status, reload, stop, kill) is a method here, so that no case knows how
the server is started.
"""

import json
import os
import signal
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import kamailio
from cases import Failed

ROOT = Path(__file__).resolve().parent.parent.parent

# Of a machine with one processor.
FEWEST_WORKERS = 2
# Tables that must be empty when nothing is under way.
UNDER_WAY = ("server_transactions", "client_transactions", "contexts", "pending_commits", "resolving")


def binary():
    """The ringway program, as `cargo build --profile quick` leaves it."""
    named = os.environ.get("RINGWAY")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    path = Path(named) if named else target / "quick" / "ringway"
    if not path.exists():
        raise Failed(f"no server at {path}: run cargo build --profile quick -p ringway")
    return path


@dataclass
class Route:
    """Calls for `domain` go to `hop`, a SIP URI."""

    domain: str
    hop: str


@dataclass
class Wanted:
    """What a case asks of its server."""

    domain: str = "ringway.test"
    users: dict = field(default_factory=lambda: {"alice": "wonderland", "bob": "builder"})
    open_because: str = ""  # why nobody is asked for a password in this case; empty: the default, digest
    redirect: bool = False
    routes: list = field(default_factory=list)
    trusted: list = field(default_factory=list)
    tls: bool = False
    websocket: bool = False
    store: str = ""  # the embedded one, in the case's folder
    workers: int = 0  # the default, but never one alone
    also_ipv6: bool = False
    algorithms: tuple = ()  # the default
    extra: str = ""


class Server:
    """A server that has been started and answers."""

    host = "127.0.0.1"

    def __init__(self, context, start=True, **wanted):
        self.context = context
        self.wanted = Wanted(**wanted)
        self.folder = context.folder / f"server-{context.ports.take()}"
        self.folder.mkdir()
        self.port = context.ports.take()
        self.tls_port, self.ws_port = context.ports.take(), context.ports.take()
        self.wss_port, self.http_port = context.ports.take(), context.ports.take()
        self.certificate = self.folder / "cert.pem"
        self.key = self.folder / "key.pem"
        self.process = None
        self._starts = 0
        if self.wanted.tls or self.wanted.websocket:
            self.make_certificate()
        context.capture()
        self.kind = kamailio.StandIn(self) if context.server_kind == "kamailio" else Ringway(self)
        if start:
            self.start()

    @property
    def domain(self):
        """The domain it serves."""
        return self.wanted.domain

    def make_certificate(self):
        """A self-signed certificate for the domain and the loopback address."""
        status, output = self.context.run("openssl", [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={self.domain}", "-keyout", self.key, "-out", self.certificate,
            "-addext", f"subjectAltName=DNS:{self.domain},IP:127.0.0.1",
            "-addext", "basicConstraints=critical,CA:FALSE",
        ])
        self.context.expect(status == 0, f"openssl could not make a certificate: {output}")

    def start(self, seconds=15):
        """Starts it and waits until it answers."""
        self._starts += 1
        self.process = self.kind.start(f"{self.folder.name}-start{self._starts}")
        self.context.until(
            lambda: not self.process.running() or self.kind.ready(), seconds,
            lambda: f"the server is not ready after {seconds} s: {self.process.output()[-600:]}")
        if not self.process.running():
            raise Failed(f"the server ended with status {self.process.popen.returncode}: "
                         f"{self.process.output()[-600:]}")

    def alive(self):
        """Fails unless it still runs and answers."""
        if not self.process.running():
            raise Failed(f"the server ended with status {self.process.popen.returncode}: "
                         f"{self.process.output()[-600:]}")
        self.context.until(self.kind.ready, 5, "the server no longer answers")

    def stop(self, seconds=20):
        """SIGTERM; its exit status."""
        self.process.signal(signal.SIGTERM)
        status = self.process.wait(seconds)
        if status is None:
            raise Failed(f"the server still runs {seconds} s after SIGTERM")
        return status

    def kill(self):
        """SIGKILL, as power loss would."""
        self.process.signal(signal.SIGKILL)
        self.process.wait(5)

    def reload(self):
        """SIGHUP."""
        self.process.signal(signal.SIGHUP)

    def expect_empty(self, seconds=45):
        """Waits until no transaction is left (RFC 3261 timers end after 64 times T1)."""
        self.context.until(lambda: self.kind.transactions() == 0, seconds, lambda:
                           f"{self.kind.transactions()} transactions left after {seconds} s: {self.kind.tables()}",
                           every=0.3)

    def contacts(self):
        """How many contacts are registered."""
        return self.kind.contacts()


class Ringway:
    """How Ringway itself is configured, started and asked."""

    def __init__(self, server):
        self.server = server
        self.program = binary()
        self.prefix = []  # what the program is started under
        self.flags = None  # instead of the configuration file
        self.environment = {}  # further variables
        self.config = server.folder / "ringway.toml"
        self.write_config()
        for user, password in server.wanted.users.items():
            self.add_user(user, password)

    def write_config(self):
        """Writes the configuration the case described."""
        server, wanted = self.server, self.server.wanted
        listen = [f"udp://{server.host}:{server.port}", f"tcp://{server.host}:{server.port}"]
        if wanted.also_ipv6:
            listen += [f"udp://[::1]:{server.port}", f"tcp://[::1]:{server.port}"]
        if wanted.tls:
            listen.append(f"tls://{server.host}:{server.tls_port}")
        if wanted.websocket:
            listen += [f"ws://{server.host}:{server.ws_port}", f"wss://{server.host}:{server.wss_port}"]
        # One worker alone never meets what another worker holds.
        workers = wanted.workers or (0 if (os.cpu_count() or 1) > 1 else FEWEST_WORKERS)
        lines = [
            f"listen = {json.dumps(listen)}",
            f"domains = {json.dumps([wanted.domain])}",
            f'http = "{server.host}:{server.http_port}"',
            f'store = "{wanted.store or f"redb:{server.folder}/ringway.redb"}"',
            f'mode = "{"redirect" if wanted.redirect else "proxy"}"',
            f"trusted = {json.dumps(wanted.trusted)}",
            *([f"workers = {workers}"] if workers else []),
            "[auth]",
            *(['mode = "off"'] if wanted.open_because else []),
        ]
        if wanted.algorithms:
            lines.append(f"algorithms = {json.dumps(wanted.algorithms)}")
        if wanted.tls or wanted.websocket:
            lines += ["[tls]", f'certificate = "{server.certificate}"', f'key = "{server.key}"']
        for route in wanted.routes:
            lines += ["[[route]]", f'domain = "{route.domain}"', f'next_hops = [{{ uri = "{route.hop}" }}]']
        self.config.write_text("\n".join(lines) + "\n" + wanted.extra)

    def add_user(self, user, password):
        """`ringway user add`, with the password on standard input."""
        self._command("user", "add", user, "--password-stdin", stdin=password + "\n")

    def start(self, name):
        """Starts the server."""
        flags = self.flags or ["--config", self.config]
        return self.server.context.start(name, [*self.prefix, self.program, "serve", *flags],
                                         env={"XDG_STATE_HOME": str(self.server.folder), **self.environment})

    def status(self):
        """`ringway status --json`, as a dictionary."""
        return json.loads(self._command("status", "--json"))

    def tables(self):
        """The sizes of its tables."""
        return self.status()["tables"]

    def transactions(self):
        """What is under way."""
        tables = self.tables()
        return sum(tables[name] for name in UNDER_WAY)

    def contacts(self):
        """Registered contacts."""
        return self.status()["contacts"]

    def _command(self, *words, stdin=None):
        """Runs one of Ringway's other commands on the same configuration; what it printed."""
        code, output = self.server.context.run("ringway", [self.program, *words, "--config", self.config], stdin=stdin)
        if code != 0:
            raise Failed(f"ringway {' '.join(words)} ended with {code}: {output}")
        return output

    def _get(self, path):
        with urllib.request.urlopen(f"http://{self.server.host}:{self.server.http_port}{path}", timeout=2) as got:
            return got.read().decode()

    def ready(self):
        """Whether /healthz says so."""
        try:
            self._get("/healthz")
            return True
        except OSError:
            return False

    def metrics(self):
        """The text of /metrics."""
        return self._get("/metrics")
