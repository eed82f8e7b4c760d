"""Management: who may ask a server, and whom its operator's commands speak to."""

import os
import socket
import sys
import threading
import time

from cases import case
from server import Server
from sip import Client

# A user that is neither root nor whoever runs the tests.
STRANGER = 65534
PASSWORD = "clear-words-of-a-user"

# Listens as another user and prints in hexadecimal what is sent; the arguments are the path of a socket and a TCP port.
TRAP = """
import os, selectors, socket, sys
os.setgroups([]); os.setgid({id}); os.setuid({id})
unix, tcp = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", int(sys.argv[2])))
unix.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); unix.listen()
print("trap is set", flush=True)
ready = selectors.DefaultSelector()
for listener in (unix, tcp):
    ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        peer, _ = key.fileobj.accept()
        peer.settimeout(2)
        try:
            got = peer.recv(65536)
            # As a server of before would have answered.
            peer.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\nconnection: close\\r\\n\\r\\n{{}}')
            got += peer.recv(65536)
        except OSError:
            pass
        print("got", got.hex(), flush=True)
"""


def root_case(name, **options):
    """A case that becomes other users, where it may."""
    return case(name, own=True, **options) if os.geteuid() == 0 else lambda body: body


@root_case("manage/stranger-is-told-no-password")
def trapped(c):
    """Another user listens where a killed server did: by its socket, and by the TCP port of earlier control files."""
    server = Server(c)
    store = server.folder / "ringway.redb"
    control = store.with_suffix(".control")
    server.kill()
    c.expect((control / "socket").exists(), "the killed server has left no socket behind")
    # The folders on the way are open to all, as /tmp is, so that the stranger can take the place.
    for folder in (server.folder, *server.folder.parents):
        if folder.owner() != "root" or folder == c.folder.parent:
            break
        os.chmod(folder, 0o777)
    os.chmod(control, 0o777)
    (control / "socket").unlink()
    port = c.ports.take()
    trap = c.start("trap", [sys.executable, "-c", TRAP.format(id=STRANGER), control / "socket", port])
    c.expect(trap.wait_output("trap is set", 10), f"the trap is not set: {trap.output()}")
    for words in (["user", "add", "carol", "--password-stdin"], ["user", "passwd", "alice", "--password-stdin"],
                  ["user", "list"], ["status"]):
        code, output = c.run("ringway", [server.kind.program, *words, "--config", server.kind.config],
                             stdin=PASSWORD + "\n")
        c.expect(code == 1 and f"user {STRANGER} listens there" in output and "nothing was sent" in output,
                 f"{words}: expected a refusal that names the stranger, got {code}: {output}")
    got = trap.output()
    c.expect(PASSWORD.encode().hex() not in got and "got 47" not in got and "got 50" not in got,
             f"the stranger was sent something: {got}")
    # What earlier versions kept there: an address and a token.
    (control / "socket").unlink()
    control.rmdir()
    control.write_text(f"127.0.0.1:{port} {'0' * 32}\n")
    code, output = c.run("ringway", [server.kind.program, "user", "add", "carol", "--password-stdin", "--config",
                                     server.kind.config], stdin=PASSWORD + "\n")
    c.expect(code == 0, f"user add with an old control file: {code}: {output}")
    c.expect(PASSWORD.encode().hex() not in trap.output(), f"the stranger was sent the password: {trap.output()}")
    # A server starts over all of it.
    server.start()
    c.expect("carol@" in server.kind._command("user", "list"), "the user is not there")


@root_case("manage/stranger-is-not-served")
def not_served(c):
    """Another user that reaches the socket, though its directory and mode forbid it, is closed without an answer."""
    server = Server(c)
    control = server.folder / "ringway.control"
    c.expect(control.stat().st_mode & 0o777 == 0o700, "the control directory is open to others")
    c.expect((control / "socket").stat().st_mode & 0o777 == 0o600, "the control socket is open to others")
    for folder in (server.folder, *server.folder.parents):
        if folder == c.folder.parent:
            break
        os.chmod(folder, 0o755)
    os.chmod(control, 0o755)
    os.chmod(control / "socket", 0o777)
    ask = (f"import os, socket\nos.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
           f"s = socket.socket(socket.AF_UNIX); s.connect({str(control / 'socket')!r})\n"
           "try:\n    s.sendall(b'GET /users HTTP/1.0\\r\\n\\r\\n'); print('answer', s.recv(4096))\n"
           "except OSError as error:\n    print('answer', error)\n")
    code, output = c.run("stranger", [sys.executable, "-c", ask])
    c.expect(code == 0 and "HTTP" not in output, f"a stranger was answered: {code}: {output}")
    c.expect("ringway_management_refused_total 1" in server.kind.metrics(), "the refusal is not counted")
    c.expect("alice@" in server.kind._command("user", "list"), "the server's own user is no longer answered")
    # By TCP nobody can list or change users, whoever they are.
    with socket.create_connection((server.host, server.http_port), timeout=10) as page:
        page.sendall(b"GET /users HTTP/1.0\r\nHost: localhost\r\n\r\n")
        c.expect(b" 404 " in page.recv(4096), "users can be listed by TCP")


REGISTERED_BEFORE = 300  # contacts that must be in a backup, at the least


def register_until(stop, server, number, answered, slowest):
    """Registers new users one after another; notes those answered 200, and how long the slowest took."""
    with Client(server.host, server.port) as client:
        count = 0
        while not stop.is_set():
            user, began = f"u{number}-{count}", time.monotonic()
            count += 1
            answer = client.register(user, "", server.domain, [f"<sip:{user}@192.0.2.1:{5060 + number}>"])
            if answer is not None and answer.status == 200:
                answered.append(user)
                slowest[0] = max(slowest[0], time.monotonic() - began)


@case("manage/backup-under-load", own=True, limit=120)
def backup(c):
    """Three backups while phones register: each has the users and every contact that was answered 200 before it began."""
    server = Server(c, auth=False)
    answered, stop, slowest = [], threading.Event(), [0.0]
    workers = [threading.Thread(target=register_until, args=(stop, server, n, answered, slowest)) for n in range(4)]
    for worker in workers:
        worker.start()
    backups = []
    try:
        for number in range(1, 4):
            c.until(lambda: len(answered) >= REGISTERED_BEFORE * number, 30, "no registrations are answered")
            before = list(answered)
            path = c.folder / f"backup{number}"
            code, output = c.run("backup", [server.kind.program, "backup", path, "--config", server.kind.config])
            c.expect(code == 0, f"backup under load: {code}: {output}")
            backups.append((path, before))
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    users = server.kind._command("user", "list")
    c.expect(server.stop() == 0, "expected exit 0")
    for path, before in backups:
        restored = Server(c, start=False, auth=False, users={})
        code, output = c.run("restore", [server.kind.program, "restore", path, "--config", restored.kind.config])
        c.expect(code == 0, f"restore: {code}: {output}")
        c.expect(restored.kind._command("user", "list") == users, "the restored server has other users")
        restored.start()
        with Client(restored.host, restored.port) as client:
            lost = []
            for user in before:
                answer = client.register(user, "", restored.domain, [])
                if answer is None or f"sip:{user}@192.0.2.1" not in str(answer.get("contact")):
                    lost.append(user)
        c.expect(not lost, f"{len(lost)} of {len(before)} contacts are not in the backup, such as {lost[:3]}")
        c.expect(restored.stop() == 0, "expected exit 0")
    print(f"{[len(before) for _, before in backups]} contacts restored, none lost; the slowest of {len(answered)} "
          f"registrations beside it took {slowest[0] * 1000:.0f} ms")
