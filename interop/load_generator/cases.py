"""The load generator of interop/bench over each transport that it claims, against the server."""

import json
import os
from pathlib import Path

from cases import case
from server import ROOT, Server

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
RATE, SECONDS = 50, 2


def calls_over(c, transport):
    """Calls at a rate that any machine bears, every one of which is completed; the generator's peers are trusted,
    since its INVITEs carry no credentials."""
    server = Server(c, tls=transport == "tls", trusted=["127.0.0.1"])
    secure = []
    if transport == "tls":
        # Both ends show the same certificate and trust no other.
        server.kind.config.write_text(server.kind.config.read_text().replace(
            "[tls]", f'[tls]\nroots = "{server.certificate}"'))
        server.stop()
        server.start()
        secure = ["--tls-certificate", server.certificate, "--tls-key", server.key]
    port = server.tls_port if transport == "tls" else server.port
    status, output = c.run("load", [
        TARGET / "quick" / "ringway-load", "calls", "--server", f"127.0.0.1:{port}", "--domain", server.domain,
        "--transport", transport, "--users", "20", "--rate", RATE, "--seconds", SECONDS, "--warm-up", "0.5",
        "--late-ms", "20000", "--timeout-ms", "20000", "--json", c.folder / "report.json", *secure], seconds=60)
    c.expect((c.folder / "report.json").exists(), f"the generator ended with {status}: {output}")
    report = json.loads((c.folder / "report.json").read_text())
    done, begun = report["completed"], report["attempted"]
    c.expect(done == begun >= RATE * SECONDS, f"{done} of {begun} calls: {output[-600:]}")
    server.alive()


for _transport in ("udp", "tcp", "tls"):
    case(f"load-generator/calls-{_transport}", own=True)(lambda c, t=_transport: calls_over(c, t))
