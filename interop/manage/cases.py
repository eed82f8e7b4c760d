"""Management: who may ask a server, and whom its operator's commands speak to."""

import configparser
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from cases import case
from server import ROOT, Server
from sip import Client, credentials, register
from sipp import Sipp

# A user that is neither root nor whoever runs the tests.
STRANGER = 65534
PASSWORD = "clear-words-of-a-user"

# Listens as another user and prints in hexadecimal what is sent; the arguments are the path of a socket and a TCP port.
TRAP = """
import os, selectors, socket, sys
# By its short name: the path of a folder may be longer than that of a socket.
os.chdir(os.path.dirname(sys.argv[1]))
os.setgroups([]); os.setgid({id}); os.setuid({id})
name = os.path.basename(sys.argv[1])
unix, tcp = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", int(sys.argv[2])))
unix.bind(name); os.chmod(name, 0o777); unix.listen()
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
    # It is in the directory already, wherever that lies: this tree may be in a folder that is closed to others.
    ask = (f"import os, socket\nos.chdir({str(control)!r})\n"
           f"os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
           "s = socket.socket(socket.AF_UNIX); s.connect('socket')\n"
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


@root_case("manage/root-manages-a-service-of-another-user")
def service(c):
    """What root makes in a service's directory belongs to the service, and root can manage it while it runs."""
    server = Server(c, start=False, users={})
    state = c.folder / "state"
    state.mkdir(mode=0o755)
    os.chown(state, STRANGER, STRANGER)
    # The folders on the way must be open, as /var/lib is.
    for folder in (server.folder, c.folder):
        os.chmod(folder, 0o755)
    reach = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    code, _ = c.run("reach", [*reach, "ls", state])
    if code != 0:
        # This tree lies where no other user gets to: a place of its own that all may enter.
        place = tempfile.mkdtemp(prefix="ringway-service-")
        c.after(lambda: shutil.rmtree(place))
        os.chmod(place, 0o755)
        state = Path(place) / "state"
        state.mkdir(mode=0o755)
        os.chown(state, STRANGER, STRANGER)
    program = state.parent / "ringway"
    shutil.copy(server.kind.program, program)
    config = state.parent / "ringway.toml"
    config.write_text(server.kind.config.read_text().replace(f"{server.folder}/ringway.redb",
                                                             f"{state}/deep/ringway.redb"))
    server.kind.config, server.kind.prefix, server.kind.program = config, reach, program
    server.kind.add_user("alice", "wonderland")
    for path in (state / "deep", state / "deep" / "ringway.redb"):
        c.expect(path.stat().st_uid == STRANGER, f"{path} belongs to user {path.stat().st_uid}")
    code, output = c.run("check", [program, "config", "check", config])
    c.expect(code == 0, f"config check by root: {output}")
    server.start()
    c.expect((state / "deep" / "ringway.control" / "socket").stat().st_uid == STRANGER,
             "the service does not run as its user")
    c.expect("alice@" in server.kind._command("user", "list"), "root cannot ask the service")
    server.kind.add_user("bob", "builder")
    with Client(server.host, server.port) as client:
        answer = client.register("bob", "builder", server.domain, ["<sip:bob@192.0.2.1>"])
        c.expect(answer is not None and answer.status == 200, f"{answer and answer.start}")
    c.expect(server.stop() == 0, "expected exit 0")


REGISTERED_BEFORE = 300  # contacts that must be in a backup, at the least
# Why a server asks nobody for a password.
MANY = "registers users that nobody made, each once"


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
    """Three backups while phones register: each has the users and every contact that was answered 200 before it
    began."""
    server = Server(c, open_because=MANY)
    answered, stop, slowest = [], threading.Event(), [0.0]
    workers = [threading.Thread(target=register_until, args=(stop, server, n, answered, slowest)) for n in range(4)]
    for worker in workers:
        worker.start()
    backups = []
    try:
        for number in range(1, 4):
            expected = REGISTERED_BEFORE * number
            c.until(lambda expected=expected: len(answered) >= expected, 30, "no registrations are answered")
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
        restored = Server(c, start=False, open_because=MANY, users={})
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


def shown(server, *words):
    """What `ringway calls` or `ringway registrations` prints as JSON."""
    return json.loads(server.kind._command(*words, "--json"))


@case("manage/one-call-can-be-followed", own=True, limit=90)
def followed(c):
    """A call to a registered phone and one to a gateway: seen live, logged at each step, recorded when they end."""
    records = c.folder / "cdr.jsonl"
    server = Server(c, extra=f'[cdr]\npath = "{records}"\n')
    uas = Sipp(c, "uas", "uas-answer", service="bob", words={"ring": 500}).listening()
    register(server, "bob", uas.port)
    listed = shown(server, "registrations", "bob")
    c.expect(len(listed) == 1 and listed[0]["user"] == f"bob@{server.domain}" and str(uas.port) in listed[0]["contact"],
             f"bob's registration is not shown: {listed}")
    c.expect(shown(server, "registrations", "alice") == [], "alice is not registered")
    c.expect(f"bob@{server.domain}" in server.kind._command("registrations"), "bob is not in the table")
    uac = Sipp(c, "uac", "uac-call", remote=(server.host, server.port),
               words={"hold": 3000}, login=("alice", "wonderland"))
    calls = c.until(lambda: [call for call in shown(server, "calls") if call["state"] == "answered"], 10,
                    "the call is never shown as answered")
    call = calls[0]
    c.expect(call["user"] == f"alice@{server.domain}" and call["destination"] == f"udp:127.0.0.1:{uas.port}"
             and "bob" in call["callee"], f"the call is shown as {call}")
    c.expect("answered" in server.kind._command("calls"), "the call is not in the table")
    uac.passed()
    uas.passed()
    c.until(lambda: shown(server, "calls") == [], 10, "the call is shown though it is over")
    lines = c.until(lambda: records.exists() and records.read_text().splitlines(), 10, "there is no record")
    record = json.loads(lines[0])
    c.expect(len(lines) == 1 and record["outcome"] == "answered" and record["status"] == 200
             and record["ended_by"] == "caller" and record["call_id"] == call["call_id"]
             and record["user"] == f"alice@{server.domain}", f"the record is {lines}")
    c.expect(2.5 < record["duration_seconds"] < 60 and 0.4 < record["setup_seconds"] < 30, f"the times are {record}")
    log = server.process.output()
    for step in ("call began", "call answered", "call ended"):
        c.expect(re.search(rf"INFO {step} call_id={re.escape(call['call_id'])} ", log),
                 f"no line {step!r} in {log[-1500:]}")
    # Rotation.
    moved = records.with_suffix(".1")
    records.rename(moved)
    server.reload()
    c.until(records.exists, 10, "the records are not opened again on SIGHUP")
    c.expect("ringway_cdr_dropped_total 0" in server.kind.metrics(), "records were dropped")
    c.expect(len(moved.read_text().splitlines()) == 1, "the moved file was written to after SIGHUP")


def failregexes():
    """The expressions of the filter for fail2ban, with its tags replaced as fail2ban does."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "packaging" / "fail2ban" / "ringway.conf")
    host = r"(?:(?:::f{4,6}:)?(?P<ip4>(?:\d{1,3}\.){3}\d{1,3})|\[?(?P<ip6>[0-9a-fA-F:]*:[0-9a-fA-F:]+)\]?)"
    return [re.compile(line.replace("<HOST>", host)) for line in parser["Definition"]["failregex"].splitlines() if line]


def banned(log):
    """The addresses that fail2ban would count in a log."""
    found = []
    for line in log.splitlines():
        matches = [match for match in (regex.search(line) for regex in failregexes()) if match]
        if matches:
            found.append(matches[0]["ip4"] or matches[0]["ip6"])
    return found


def guess(client, domain, user):
    """A REGISTER with a wrong password of `user`."""
    aor, uri = f"sip:alice@{domain}", f"sip:{domain}"
    challenge = client.ask(client.request("REGISTER", uri, to=aor, sender=aor)).get("www-authenticate")
    proof = credentials(challenge, user, "a guess", "REGISTER", uri)
    client.ask(client.request("REGISTER", uri, to=aor, sender=aor, cseq=2, headers=[f"Authorization: {proof}"]))


def guessed_from(c, server, host, expected):
    """Each wrong password from `host` is found in the log, by the address `expected`; the right one is not."""
    with Client(host, server.port, source=host) as client:
        before = len(banned(server.process.output()))
        for user in ("alice", "nobody", r'x\" source=192.0.2.66:5060 reason=wrong_password y=\"'):
            guess(client, server.domain, user)
        c.until(lambda: len(banned(server.process.output())) >= before + 3, 10,
                lambda: f"fail2ban finds {banned(server.process.output())} in "
                        f"{server.process.output()[-1500:]}")
        found = banned(server.process.output())[before:]
        c.expect(found == [expected] * 3, f"fail2ban would ban {found}, expected {expected} three times")
        # The right password is no offence.
        answer = client.register("alice", "wonderland", server.domain, ["<sip:alice@192.0.2.1>"])
        c.expect(answer is not None and answer.status == 200, f"{answer and answer.start}")
        c.expect(len(banned(server.process.output())) == before + 3, "a registration that was fine is counted")


@case("manage/fail2ban-reads-who-guesses", own=True)
def guesses(c):
    """The filter finds each wrong password and unknown user in the real log, and nothing that a peer makes up."""
    for form in ("text", "json"):
        server = Server(c, also_ipv6=True, extra=f'[log]\nformat = "{form}"\n')
        for host, expected in ((server.host, "127.0.0.1"), ("::1", "::1")):
            guessed_from(c, server, host, expected)
        c.expect(server.stop() == 0, "expected exit 0")
    made_up = ("2026-11-22T17:05:00Z  INFO refused uri=sip:x WARN authentication failed source=192.0.2.66:5 "
               "reason=unknown_user ")
    c.expect(not banned(made_up), "a line of another kind is counted")
