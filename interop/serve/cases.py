"""The process itself: what survives a kill, a reload and a full disk, and what it says when it cannot start."""

import json
import os
import re
import signal
import socket
import ssl
import threading
import time

from cases import case
from server import Route, Server
from sip import Client, credentials, register
from sipp import Sipp

CRASHES = 3
CLIENTS = 4
ALICE = ("alice", "wonderland")
# Why a server asks nobody for a password: it is about the store, which is filled by users that nobody made.
MANY = "registers thousands of users, each once"
REGISTERING_SECONDS = 1.5
REGISTRATIONS = 40  # that were answered before a crash, at the least


def one_line(c, output, *words):
    """A start that failed is explained by a single line that names what and where."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    c.expect(len(lines) == 1, f"expected one line, got {len(lines)}: {output[-800:]}")
    for word in words:
        c.expect(str(word) in lines[0], f"expected {str(word)!r} in {lines[0]!r}")


def refuses_to_start(c, server, *words, seconds=40):
    """Starts a server that must not come up: non-zero, one clear line."""
    server.refusals = getattr(server, "refusals", 0) + 1
    process = server.kind.start(f"refused{server.refusals}")
    status = process.wait(seconds)
    c.expect(status is not None, f"it started: {process.output()[-400:]}")
    c.expect(status not in (0, -signal.SIGABRT, 101),
             f"expected a plain non-zero exit, got {status}: {process.output()}")
    one_line(c, process.output(), *words)


def durable(c, folder=None, **wanted):
    """A server on the embedded store."""
    path = (folder or c.folder) / "state"
    path.mkdir(exist_ok=True)
    return Server(c, store=f"redb:{path}/ringway.redb", **wanted)


def fetch(client, user, domain, password=""):
    """The contacts the registrar has for a user, as one string."""
    answer = client.register(user, password, domain, [])
    if answer is None or answer.status != 200:
        return f"no answer: {answer and answer.start}"
    return ", ".join(answer.all("contact"))


def register_until_closed(client, server, number, answered, offset):
    """Registers new users one after another; notes those answered 200."""
    count = 0
    while True:
        user = f"u{offset}-{number}-{count}"
        count += 1
        try:
            answer = client.register(user, "", server.domain, [f"<sip:{user}@192.0.2.1:{5060 + number}>"])
        except OSError:
            return
        if answer is not None and answer.status == 200:
            answered.append(user)


@case("serve/kill-9-loses-no-registration", limit=120, own=True)
def kill(c):
    """Every REGISTER that was answered 200 is there after `kill -9` and a restart; counted one by one."""
    server = durable(c, open_because=MANY, users={})
    answered = []
    for crash in range(CRASHES):
        clients = [Client(server.host, server.port) for _ in range(CLIENTS)]
        workers = [threading.Thread(target=register_until_closed, args=(client, server, n, answered, crash))
                   for n, client in enumerate(clients)]
        for worker in workers:
            worker.start()
        time.sleep(REGISTERING_SECONDS)
        expected = REGISTRATIONS * (crash + 1)
        c.until(lambda expected=expected: len(answered) >= expected, 15, "no registrations are answered")
        server.kill()
        for client in clients:
            client.close()
        for worker in workers:
            worker.join()
        server.start()
        with Client(server.host, server.port) as client:
            lost = [user for user in answered if f"sip:{user}@192.0.2.1" not in fetch(client, user, server.domain)]
        c.expect(not lost, f"crash {crash + 1}: {len(lost)} of {len(answered)} registrations lost, such as {lost[:3]}")
    print(f"{len(answered)} registrations answered, none lost in {CRASHES} crashes")


@case("serve/stop-and-start-keeps-registrations", own=True)
def restart(c):
    """A graceful stop loses nothing either, removals included."""
    server = durable(c, users={"stays": "secret", "goes": "secret"})
    with Client(server.host, server.port) as client:
        for user in ("stays", "goes"):
            client.register(user, "secret", server.domain, [f"<sip:{user}@192.0.2.1>"], call_id=user, cseq=1)
        client.register("goes", "secret", server.domain, ["<sip:goes@192.0.2.1>"], expires=0, call_id="goes", cseq=3)
    c.expect(server.stop() == 0, "expected exit 0 after SIGTERM")
    server.start()
    with Client(server.host, server.port) as client:
        c.expect("sip:stays@" in fetch(client, "stays", server.domain, "secret"),
                 "a registration was lost by a restart")
        c.expect("sip:goes@" not in fetch(client, "goes", server.domain, "secret"), "a removed registration came back")


@case("serve/full-disk", limit=120, own=True)
def full_disk(c):
    """No room for the store: refused with a 5xx, what was answered 200 stays, and it goes on when there is room."""
    state = c.folder / "small"
    state.mkdir()
    # A tmpfs in a mount namespace of the server's own: seen from here through /proc/PID/root.
    server = Server(c, start=False, open_because=MANY, users={}, store=f"redb:{state}/ringway.redb")
    wrapped = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c",
               'mount -t tmpfs -o size=16m tmpfs "$0" && head -c 8m /dev/zero >"$0/filler" && exec "$@"', state]
    server.kind.prefix = wrapped
    server.start()
    answered, refused = [], None
    with Client(server.host, server.port) as client:
        padding = "x" * 200
        deadline = time.monotonic() + 60
        while refused is None and time.monotonic() < deadline:
            user = f"u{len(answered)}"
            contacts = [f"<sip:{user}@192.0.2.{n}:5060;pad={padding}>" for n in range(1, 10)]
            answer = client.register(user, "", server.domain, contacts)
            c.expect(answer is not None,
                     f"no answer after {len(answered)} registrations: {server.process.output()[-500:]}")
            if answer.status == 200:
                answered.append(user)
            else:
                refused = answer
        c.expect(refused is not None, f"a store of 4 MB took {len(answered)} registrations of 9 contacts")
        c.expect(500 <= refused.status <= 503, f"expected a 5xx, got {refused.start}")
        lost = [user for user in answered if f"sip:{user}@192.0.2.1" not in fetch(client, user, server.domain)]
        c.expect(not lost, f"{len(lost)} of {len(answered)} answered registrations are gone: {lost[:3]}")
        said = server.process.output().lower()
        c.expect("no space" in said or "full" in said or "disk" in said, f"the log does not say why: {said[-500:]}")
        # Room again.
        os.unlink(f"/proc/{server.process.pid}/root{state}/filler")
        contact = "<sip:later@192.0.2.1>"
        c.until(lambda: (client.register("later", "", server.domain, [contact]) or refused).status == 200, 10,
                "no registration is taken although there is room again")
    server.alive()


@case("serve/no-room-to-start", own=True)
def no_room(c):
    """A store that cannot be created: one line, not a crash."""
    state = c.folder / "small"
    state.mkdir()
    server = Server(c, start=False, users={}, store=f"redb:{state}/ringway.redb")
    server.kind.prefix = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c",
                          ('mount -t tmpfs -o size=64k tmpfs "$0" && ! head -c 1m /dev/zero >"$0/filler" 2>&- && exec '
                           '"$@"'), state]
    refuses_to_start(c, server, "ringway.redb")


@case("serve/port-in-use", own=True)
def port_in_use(c):
    """Somebody has the port already: the line names it."""
    server = Server(c, start=False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((server.host, server.port))
        refuses_to_start(c, server, f"{server.host}:{server.port}")
    with socket.create_server((server.host, server.port)):
        refuses_to_start(c, server, f"{server.host}:{server.port}")


@case("serve/second-server-on-the-same-port", own=True)
def second_server(c):
    """A second server must not silently share the ports of the first (SO_REUSEPORT would let it)."""
    first = Server(c)
    second = Server(c, start=False)
    second.port = first.port
    second.kind.write_config()
    refuses_to_start(c, second, f"{first.host}:{first.port}")
    with Client(first.host, first.port) as client:
        for _ in range(20):
            answer = client.ask(client.request("OPTIONS", f"sip:{first.domain}"))
            c.expect(answer is not None, "the first server no longer gets all of its requests")
    first.alive()


@case("serve/certificate", own=True)
def certificate(c):
    """A certificate that is missing, unreadable, not a certificate, or not the key's: the line names the file."""
    server = Server(c, start=False, tls=True)
    good = server.certificate.read_bytes()
    server.certificate.unlink()
    refuses_to_start(c, server, server.certificate)
    server.certificate.mkdir()  # unreadable even for root
    refuses_to_start(c, server, server.certificate)
    server.certificate.rmdir()
    server.certificate.write_text("not a certificate\n")
    refuses_to_start(c, server, server.certificate)
    server.certificate.write_bytes(good)
    key = server.key.read_bytes()
    server.make_certificate()
    server.certificate.write_bytes(good)
    refuses_to_start(c, server, "key")
    server.key.write_bytes(key)
    server.start()
    server.alive()


@case("serve/wrong-key-in-the-configuration", own=True)
def wrong_key(c):
    """The line names file, line, the wrong key and the nearest right one; `config check` says the same."""
    server = Server(c, start=False)
    text = server.kind.config.read_text()
    server.kind.config.write_text("lisen = []\n" + text)
    refuses_to_start(c, server, f"{server.kind.config}:1", "lisen", "`listen`")
    code, output = c.run("check", [server.kind.program, "config", "check", server.kind.config])
    c.expect(code == 1, f"config check: expected status 1, got {code}")
    one_line(c, output, f"{server.kind.config}:1", "lisen", "`listen`")
    server.kind.config.write_text(text + "[registrar]\nexpire_max = \"1h\"\n")
    refuses_to_start(c, server, "expire_max", "expires_max")
    server.kind.config.write_text(text)
    code, output = c.run("check", [server.kind.program, "config", "check", server.kind.config])
    c.expect(code == 0, f"config check of a good file: status {code}: {output}")
    code, output = c.run("check", [server.kind.program, "config", "check", c.folder / "absent.toml"])
    c.expect(code == 1 and "absent.toml" in output, f"config check of an absent file: status {code}: {output}")


@case("serve/reload-during-calls", own=True)
def reload(c):
    """SIGHUP during calls loses none; users, routes and certificates are new afterwards."""
    server = Server(c, tls=True)
    uas = Sipp(c, "uas", "uas-answer", service="bob", calls=6, words={"ring": 700}).listening()
    register(server, "bob", uas.port)
    uac = Sipp(c, "uac", "uac-call", remote=(server.host, server.port), calls=6, rate=2,
               words={"hold": 2000}, login=ALICE)
    before = ssl.get_server_certificate((server.host, server.tls_port))
    server.make_certificate()
    server.wanted.routes.append(Route("elsewhere.test", f"sip:127.0.0.1:{uas.port}"))
    server.kind.write_config()
    server.kind.add_user("carol", "new")
    for _ in range(8):
        time.sleep(0.5)
        server.reload()
    uac.passed()
    uas.passed()
    server.alive()
    c.until(lambda: ssl.get_server_certificate((server.host, server.tls_port)) != before, 5,
            "the certificate is still the old one after SIGHUP")
    with Client(server.host, server.port) as client:
        answer = client.register("carol", "new", server.domain, ["<sip:carol@192.0.2.1>"])
        c.expect(answer is not None and answer.status == 200, f"a new user cannot register: {answer and answer.start}")
    uas = Sipp(c, "uas2", "uas-answer", service="dave").listening()
    server.wanted.routes[-1].hop = f"sip:127.0.0.1:{uas.port}"
    server.kind.write_config()
    before = reloads(server)
    server.reload()
    c.until(lambda: reloads(server) > before, 5, "the server does not reload")
    uac = Sipp(c, "uac2", "uac-call", remote=(server.host, server.port), service="dave",
               keys={"target": "elsewhere.test"}, login=ALICE)
    uac.passed()
    uas.passed()


def reloads(server):
    """How often the server has read its file anew."""
    return int(re.search(r"(?m)^ringway_reloads_total (\d+)$", server.kind.metrics()).group(1))


@case("serve/reload-of-a-broken-file", own=True)
def broken_reload(c):
    """A reload that cannot be read leaves everything as it was, and says so."""
    server = Server(c)
    server.kind.config.write_text("lisen = 3\n")
    server.reload()
    c.expect(server.process.wait_output("lisen", 20),
             f"nothing was said about the broken file: {server.process.output()[-300:]}")
    server.alive()
    with Client(server.host, server.port) as client:
        answer = client.register("alice", "wonderland", server.domain, ["<sip:alice@192.0.2.1>"])
        c.expect(answer is not None and answer.status == 200, f"after a refused reload: {answer and answer.start}")


@case("serve/drain", own=True, limit=90)
def drain(c):
    """SIGTERM while a call is being set up: it is, new ones get 503, then exit 0."""
    server = Server(c, extra='[timers]\nt1 = "100ms"\n')
    uas = Sipp(c, "uas", "uas-answer", service="bob", words={"ring": 6000}).listening()
    register(server, "bob", uas.port)
    uac = Sipp(c, "uac", "uac-call", remote=(server.host, server.port), words={"hold": 0}, login=ALICE)
    c.until(lambda: (c.folder / "uac.msg").exists() and "180 Ringing" in (c.folder / "uac.msg").read_text(), 5,
            "the call does not ring")
    server.process.signal(signal.SIGTERM)
    c.until(lambda: server.kind.status()["phase"] != "serving", 5, "the server goes on as before")
    with Client(server.host, server.port) as client:
        answer = client.ask(client.request("INVITE", f"sip:bob@{server.domain}"))
        c.expect(answer is not None and answer.status == 503,
                 f"a new call while stopping: expected 503, got {answer and answer.start}")
        c.expect(answer.get("retry-after"), f"no Retry-After in {answer.text}")
    uac.passed()
    uas.passed()
    status = server.process.wait(40)
    c.expect(status == 0, f"expected exit 0 after the last transaction, got {status}")


def printed_by(server, word):
    """What the server has printed, once the word is in it: it serves a moment before it says so."""
    deadline = time.monotonic() + 20
    while word not in server.process.output() and time.monotonic() < deadline:
        time.sleep(0.05)
    return server.process.output()


@case("serve/first-start-prints-what-to-type", own=True)
def first_start(c):
    """On an empty store and without a file two users are made, and what to type is written to a private file, since
    standard output is none; the next start keeps them."""
    server = Server(c, start=False, users={})
    server.wanted.domain = server.host
    server.kind.flags = ["--listen", f"udp://{server.host}:{server.port}",
                         "--http", f"{server.host}:{server.http_port}",
                         "--store", f"redb:{c.folder}/first.redb"]
    server.start()
    path = c.folder / "first-users.txt"
    said = printed_by(server, str(path))
    c.expect(str(path) in said and "password" not in said, f"expected the name of {path} and no password, got: {said}")
    c.expect(path.stat().st_mode & 0o777 == 0o600, f"{path} can be read by others")
    printed = path.read_text()
    # Side by side, or one below the other where that is too wide.
    rows = {name: " ".join(re.findall(rf"(?m)^ *{name}((?: +\S+)+) *$", printed)).split()
            for name in ("server", "user", "password", "transport")}
    c.expect(all(len(values) == 2 for values in rows.values()),
             f"expected what to type into two phones, got: {printed}")
    c.expect(rows["server"][0] == f"{server.host}:{server.port}", f"expected the server's address, got {rows}")
    accounts = list(zip(rows["user"], rows["password"], strict=True))
    with Client(server.host, server.port) as client:
        for user, password in accounts:
            answer = client.register(user, password, server.host, [f"<sip:{user}@192.0.2.1>"])
            c.expect(answer is not None and answer.status == 200, f"{user} cannot register: {answer and answer.start}")
    c.expect(server.stop() == 0, "expected exit 0")
    server.start()
    printed = printed_by(server, "kept")
    c.expect("kept" in printed and not any(password in printed for _, password in accounts),
             f"the second start must say that the users are kept, without their passwords: {printed}")
    with Client(server.host, server.port) as client:
        for user, password in accounts:
            answer = client.register(user, password, server.host, [])
            c.expect(answer is not None and f"sip:{user}@192.0.2.1" in str(answer.get("contact")),
                     f"{user} or its contact is gone after a restart: {answer and answer.text}")


@case("serve/closed-by-default", own=True)
def closed(c):
    """Nobody registers, relays or manages without leave."""
    server = Server(c)
    with Client(server.host, server.port) as client:
        answer = client.ask(client.request("REGISTER", f"sip:{server.domain}", to=f"sip:alice@{server.domain}",
                                           sender=f"sip:alice@{server.domain}", headers=["Contact: <sip:x@192.0.2.1>"]))
        c.expect(answer is not None and answer.status == 401, f"REGISTER: expected 401, got {answer and answer.start}")
        answer = client.ask(client.request("INVITE", "sip:eve@elsewhere.test", sender="sip:mallory@elsewhere.test"))
        c.expect(answer is not None and answer.status in (403, 407),
                 f"relay: expected 403 or 407, got {answer and answer.start}")
        # One user may not register for another.
        sender = f"sip:bob@{server.domain}"
        answer = client.register("alice", "wonderland", server.domain, ["<sip:alice@192.0.2.1>"])
        c.expect(answer.status == 200, f"REGISTER: {answer.start}")
        challenge = client.ask(client.request("REGISTER", f"sip:{server.domain}", to=sender, sender=sender,
                                              headers=["Contact: <sip:x@192.0.2.1>"]))
        proof = credentials(challenge.get("www-authenticate"), "alice", "wonderland", "REGISTER",
                            f"sip:{server.domain}")
        answer = client.ask(client.request("REGISTER", f"sip:{server.domain}", to=sender, sender=sender, cseq=2,
                                           headers=["Contact: <sip:x@192.0.2.1>", f"Authorization: {proof}"]))
        c.expect(answer is not None and answer.status == 403,
                 f"alice registers bob: expected 403, got {answer and answer.start}")
        # A nonce is not good twice for the same count (RFC 7616 section 3.4).
        challenge = client.ask(client.request("REGISTER", f"sip:{server.domain}", to=f"sip:alice@{server.domain}"))
        proof = credentials(challenge.get("www-authenticate"), "alice", "wonderland", "REGISTER",
                            f"sip:{server.domain}")
        statuses = [client.ask(client.request("REGISTER", f"sip:{server.domain}", to=f"sip:alice@{server.domain}",
                                              sender=f"sip:alice@{server.domain}", cseq=n,
                                              headers=[f"Authorization: {proof}"])).status for n in (11, 12)]
        c.expect(statuses == [200, 401], f"the same credentials twice: expected 200 and 401, got {statuses}")
    listening = c.run("ss", ["ss", "-ltnH", f"( sport = :{server.http_port} )"])[1]
    c.expect(f"127.0.0.1:{server.http_port}" in listening and "0.0.0.0" not in listening.split()[3],
             f"management listens beyond loopback: {listening}")


@case("serve/digest-algorithms", own=True)
def algorithms(c):
    """RFC 8760: every configured algorithm is offered in its order and accepted, with auth and auth-int."""
    names = ("SHA-512-256", "SHA-256", "MD5")
    server = Server(c, algorithms=names)
    with Client(server.host, server.port) as client:
        answer = client.ask(client.request("REGISTER", f"sip:{server.domain}", to=f"sip:alice@{server.domain}"))
        offered = [re.search(r"algorithm=([\w-]+)", line).group(1) for line in answer.all("www-authenticate")]
        c.expect(offered == list(names), f"expected {names}, got {offered}")
        for name in names:
            for qop in ("auth", "auth-int"):
                answer = client.register("alice", "wonderland", server.domain, ["<sip:alice@192.0.2.1>"],
                                         algorithm=name, qop=qop)
                c.expect(answer is not None and answer.status == 200, f"{name} {qop}: {answer and answer.text}")
                answer = client.register("alice", "wrong", server.domain, ["<sip:alice@192.0.2.1>"],
                                         algorithm=name, qop=qop)
                c.expect(answer is not None and answer.status == 401, f"wrong {name} {qop}: {answer and answer.start}")


@case("serve/metrics", own=True)
def metrics(c):
    """/metrics counts a call and a registration under the names of RFC 6076."""
    server = Server(c)
    uas = Sipp(c, "uas", "uas-answer", service="bob").listening()
    register(server, "bob", uas.port)
    Sipp(c, "uac", "uac-call", remote=(server.host, server.port), login=ALICE).passed()
    uas.passed()
    text = server.kind.metrics()
    for name in ("registration_request_delay", "session_request_delay", "session_establishment_ratio"):
        c.expect(name in text, f"no {name} in /metrics: {text[:400]}")
    c.expect(re.search(r"session_request_delay\w*_count\S* 1\b", text), "the call is not in session_request_delay")
    c.expect(json.dumps(server.kind.status()), "status is not JSON")
