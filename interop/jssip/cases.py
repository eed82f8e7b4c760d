"""JsSIP in headless Chromium: SIP over WebSocket (RFC 7118) with digest, audio by WebRTC."""

import json
from pathlib import Path

from cases import case
from server import Server

HERE = Path(__file__).resolve().parent


def browse(c, scheme):
    """Two pages register and call each other; the browser's own statistics tell whether audio came."""
    server = Server(c, websocket=True, tls=True, extra='[timers]\nt1 = "100ms"\n')
    port = server.wss_port if scheme == "wss" else server.ws_port
    program = c.start("node", ["node", HERE / "call.mjs", c.folder, server.domain,
                               f"{scheme}://127.0.0.1:{port}/", "alice:wonderland", "bob:builder"], cwd=HERE)
    status = program.wait(110)
    c.expect(status is not None, "the browsers did not finish")
    lines = program.output().strip().splitlines()
    result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    c.expect(status == 0, f"JsSIP: {result or program.output()[-600:]}")
    for user in ("alice", "bob"):
        c.expect(result[user]["bytes"] > 0, f"{user} received no audio: {result}")
    c.until(lambda: server.contacts() == 0, 5, lambda: f"{server.contacts()} contacts left after unregistering")
    server.alive()
    server.expect_empty()


@case("jssip/wss", limit=150)
def secure_websocket(c):
    """RFC 7118 over TLS."""
    browse(c, "wss")


@case("jssip/ws", limit=150)
def websocket(c):
    """RFC 7118 without TLS."""
    browse(c, "ws")
