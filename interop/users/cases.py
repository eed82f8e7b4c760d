"""Users of many servers in one database: Debian's PostgreSQL, with our tables or Kamailio's, and Redis."""

import hashlib
import re
import sys
import time
from pathlib import Path

import agents
from cases import case
from process import PATIENCE
from server import Server
from sip import Client
from sipp import Sipp

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from database import HOST, Redis
from postgres import Postgres

DOMAIN = "ringway.test"
SCHEMA = Path("/usr/share/kamailio/postgres")
DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
# What another program may have written, in a database of any octets.
HOSTILE = r"""
CREATE TABLE subscriber (username text, domain text, password text, ha1 text);
GRANT SELECT ON subscriber TO ringway;
INSERT INTO subscriber SELECT repeat('u', 1000000), 'ringway.test', 'x', '' FROM generate_series(1, 5);
INSERT INTO subscriber SELECT 'big', 'ringway.test', repeat('p', 1000000), '';
INSERT INTO subscriber SELECT 'long', repeat('d', 100000), 'x', '';
INSERT INTO subscriber VALUES
    ('carol', 'ringway.test', 'singer', ''), (E'\xff\xfe', 'ringway.test', 'x', ''),
    ('latin', 'ringway.test', E'\xe4', ''), ('a b', 'ringway.test', 'x', ''), ('a"b', 'ringway.test', 'x', ''),
    ('a@b', 'ringway.test', 'x', ''), (E'a\nb', 'ringway.test', 'x', ''), (NULL, 'ringway.test', 'x', ''),
    ('none', 'ringway.test', NULL, NULL), ('bad', 'ringway.test', NULL, 'not-a-hash'),
    ('half', 'ringway.test', NULL, '0123'), ('control', 'ringway.test', E'a\001b', '');
INSERT INTO subscriber SELECT 'no user ' || i, 'ringway.test', 'x', '' FROM generate_series(1, 3000) AS i;
INSERT INTO subscriber VALUES ('dave', 'ringway.test', 'diver', ''), ('carol', 'RINGWAY.test', 'other', '');
"""


def node(c, source, *, more="", start=True, **wanted):
    """A server with the shipped defaults, its own file, and users in a database."""
    extra = f'[users]\nsource = "{source}"\n{more}' + wanted.pop("extra", "")
    return Server(c, start=start, **{"users": {}, "extra": extra, **wanted})


def ringway(c, server, *words, stdin=None, fails=False):
    """What a command prints that must succeed, or fail."""
    argv = [server.kind.program, *words, "--config", server.kind.config]
    status, output = c.run("ringway", argv, stdin=stdin)
    c.expect((status != 0) == fails, f"ringway {' '.join(words)}: {status}: {output}")
    return output


def metric(server, name):
    """A figure of /metrics."""
    return float(re.search(rf"(?m)^ringway_users_database_{name} (\S+)$", server.kind.metrics()).group(1))


def present(c, *nodes):
    """Waits until the nodes have read the database."""
    for one in nodes:
        c.until(lambda one=one: metric(one, "present") == 1, 10,
                lambda one=one: f"the database is not read: {one.process.output()[-600:]}")


def answer(server, user, password, port=9, algorithm="MD5"):
    """The status of one REGISTER, whose challenge is answered."""
    with Client(server.host, server.port) as client:
        got = client.register(user, password, server.domain, [f"<sip:{user}@127.0.0.1:{port}>"], algorithm=algorithm)
    return got and got.status


def expect(c, server, user, password, status, **more):
    """One REGISTER is answered so."""
    got = answer(server, user, password, **more)
    c.expect(got == status, f"REGISTER of {user}: expected {status}, got {got}: {server.process.output()[-600:]}")


def soon(c, server, user, password, status):
    """A REGISTER is answered so soon; how long it took."""
    began = time.monotonic()
    c.until(lambda: answer(server, user, password) == status, 10,
            lambda: f"REGISTER of {user}: expected {status}: {server.process.output()[-600:]}", every=0.005)
    return time.monotonic() - began


def add(c, server, user, password, **more):
    """`ringway user add`."""
    return ringway(c, server, "user", "add", user, "--password-stdin", stdin=password + "\n", **more)


def expect_secret(c, secrets, *servers):
    """What must not be read is in no log, no status and no output of a command."""
    for server in servers:
        texts = [server.process.output(), server.kind.metrics(), str(server.kind.status())]
        for secret in secrets:
            c.expect(not any(secret in text for text in texts), f"{secret} can be read")
    printed = [path.read_text(errors="replace") for path in c.folder.glob("ringway.out")]
    for secret in secrets:
        c.expect(not any(secret in text for text in printed), f"a command prints {secret}")


def ha1(user, password, realm=DOMAIN, name="md5"):
    """H(user:realm:password)."""
    return hashlib.new(name, f"{user}:{realm}:{password}".encode()).hexdigest()


def shared(c, first, second):
    """What is done at one node holds at the other at once."""
    add(c, first, "bob", "builder")
    delay = soon(c, second, "bob", "builder", 200)
    c.expect("exists already" in add(c, second, "bob", "other", fails=True), "a user is added twice")
    ringway(c, second, "user", "passwd", "bob", "--password-stdin", stdin="changed\n")
    changed = soon(c, first, "bob", "changed", 200)
    expect(c, first, "bob", "builder", 401)
    expect(c, second, "bob", "builder", 401)
    c.expect(second.contacts() == 1, f"{second.contacts()} contacts")
    for one in (first, second):
        c.expect(ringway(c, one, "user", "list") == f"bob@{DOMAIN}\n", "the nodes do not list the same users")
    ringway(c, first, "user", "del", "bob")
    began = time.monotonic()
    c.until(lambda: second.contacts() == 0, 10, "the registration of a removed user stays", every=0.005)
    removed = time.monotonic() - began
    for one in (first, second):
        expect(c, one, "bob", "changed", 401)
    c.expect("does not exist" in ringway(c, second, "user", "del", "bob", fails=True), "a user is removed twice")
    print(f"known at the other node after the command: added {delay * 1000:.0f} ms, changed {changed * 1000:.0f} ms, "
          f"removed {removed * 1000:.0f} ms")


@case("users/postgresql", own=True)
def postgresql(c):
    """Two nodes start at once on an empty database and create its tables. A user that is added, changed or removed at
    one is so at the other; plain SQL counts as well; commands without a server write to the database."""
    database = Postgres(c)
    first, second = (node(c, database.uri(), start=False) for _ in range(2))
    # Without a server: the tables are there, and the password is not.
    for one in (first, second):
        one.process = one.kind.start(f"{one.folder.name}")
    for one in (first, second):
        c.until(one.kind.ready, 10, lambda one=one: one.process.output())
    present(c, first, second)
    c.expect(database.sql("SELECT version FROM ringway.schema_version") == "1", "the schema has another version")
    shared(c, first, second)
    add(c, first, "carol", "singer")
    c.expect(database.sql("SELECT username FROM ringway.users") == "carol", "an acknowledged user is not there")
    soon(c, second, "carol", "singer", 200)
    database.sql("DELETE FROM ringway.users")
    delay = soon(c, second, "carol", "singer", 401)
    print(f"removed by SQL: known after {delay * 1000:.0f} ms")
    database.sql(f"INSERT INTO ringway.users (domain, username, ha1_md5) VALUES ('{DOMAIN}', 'dave', "
                 f"'{ha1('dave', 'diver')}')")
    soon(c, first, "dave", "diver", 200)
    c.expect("expected DELETE" in database.sql("TRUNCATE ringway.users", fails=True), "users are truncated")
    output = database.sql("UPDATE ringway.users SET ha1_md5 = 'x'", fails=True)
    c.expect("violates check" in output, "any hash is taken")
    first.stop()
    add(c, first, "erin", "runner")
    soon(c, second, "erin", "runner", 200)
    c.expect(ringway(c, first, "user", "list") == f"dave@{DOMAIN}\nerin@{DOMAIN}\n", "a command lists others")
    ringway(c, first, "user", "del", "erin")
    soon(c, second, "erin", "runner", 401)
    c.expect(metric(second, "outages_total") == 0, second.process.output()[-600:])
    expect_secret(c, [database.password, "singer", "runner", ha1("dave", "diver")], second)


@case("users/absent-database", own=True, limit=90)
def absent(c):
    """The database does nothing, then it is gone: known users register and call, a user cannot be added and the command
    says so soon; a node that starts meanwhile knows its users; then all is well."""
    database = Postgres(c)
    first, second = (node(c, database.uri()) for _ in range(2))
    present(c, first, second)
    for user, password in (("alice", "wonderland"), ("bob", "builder")):
        add(c, first, user, password)
    soon(c, second, "alice", "wonderland", 200)
    database.pause()
    began = time.monotonic()
    output = add(c, first, "carol", "singer", fails=True)
    took = time.monotonic() - began
    c.expect("database of users" in output and "nothing was changed" in output, output)
    c.expect(took < 6 * PATIENCE, f"the command took {took:.1f} s")
    port = c.ports.take(2)
    expect(c, first, "bob", "builder", 200, port=port)
    callee = Sipp(c, "uas", "uas-answer", port=port, service="bob").listening()
    caller = Sipp(c, "uac", "uac-call", remote=(first.host, first.port), service="bob", login=("alice", "wonderland"))
    for program in (caller, callee):
        program.passed()
    c.until(lambda: metric(first, "present") == 0, 20, "the metrics do not show that the database is absent")
    c.expect("DOES NOT ANSWER" in ringway(c, first, "status"), "the status does not show it")
    database.go_on()
    present(c, first, second)
    expect(c, first, "carol", "singer", 401)
    add(c, first, "carol", "singer")
    database.stop()
    second.kill()
    second.start()
    for user, password in (("alice", "wonderland"), ("bob", "builder")):
        expect(c, second, user, password, 200)
    expect(c, second, "bob", "other", 401)
    c.expect("nothing was changed" in ringway(c, second, "user", "del", "bob", fails=True), "a user is removed")
    c.expect("bob" in ringway(c, second, "user", "list"), "the users are not listed")
    second.stop()
    c.expect("cannot be read" in ringway(c, second, "user", "list", fails=True), "users are listed from nowhere")
    database.start()
    second.start()
    present(c, first, second)
    soon(c, second, "carol", "singer", 200)
    c.expect(metric(first, "outages_total") >= 2, "the outages are not counted")


@case("users/kamailio-subscriber", own=True)
def subscriber(c):
    """Kamailio's table as Debian's package creates it is read as it is, by a role that may read its columns only:
    phones register, removed users do not, and an empty table removes nobody until an operator says so."""
    database = Postgres(c)
    for name in ("standard-create.sql", "auth_db-create.sql"):
        database.sql((SCHEMA / name).read_text())
    rows = [("carol", DOMAIN, "pass:word", ha1("carol", "pass:word")), ("dave", DOMAIN, "", ha1("dave", "diver")),
            ("erin", "", "runner", ""), ("frank", "elsewhere.test", "x", ""), ("grace", DOMAIN, "", "x"),
            ("heidi", DOMAIN, "plain", ha1("heidi", "other"))]
    for row in rows:
        values = "', '".join(row)
        database.sql(f"INSERT INTO subscriber (username, domain, password, ha1) VALUES ('{values}')")
    reader = rights(c, "reader of a table")
    database.sql(reader.replace("'PASSWORD'", "'only-read'"))
    server = node(c, database.uri("reader", "only-read"), more='table = "subscriber"\nrefresh = "1s"\n')
    present(c, server)
    agent = agents.sipp(c, server, "carol", "pass:word")
    c.expect(agents.settled(server, agent, PATIENCE * 10), f"SIPp does not register: {agent.output()[-600:]}")
    for user, password, status in (("dave", "diver", 200), ("erin", "runner", 200), ("frank", "x", 401),
                                   ("grace", "x", 401), ("heidi", "plain", 401), ("carol", "word", 401)):
        expect(c, server, user, password, status)
    c.expect(metric(server, "unusable") == 2, f"{metric(server, 'unusable')} rows are unusable")
    c.expect("grace" in server.process.output() and "heidi" in server.process.output(), "the log names no row")
    c.expect("change them there" in add(c, server, "ivan", "x", fails=True), "a user is added to Kamailio's table")
    c.expect("carol" in ringway(c, server, "user", "list"), "the users are not listed")
    database.sql("DELETE FROM subscriber WHERE username = 'dave'")
    c.until(lambda: answer(server, "dave", "diver") == 401, 5, "a removed user registers")
    database.sql("UPDATE subscriber SET password = 'new', ha1 = '' WHERE username = 'carol'")
    c.until(lambda: answer(server, "carol", "new") == 200, 5, "a new password is not known")
    database.sql("DELETE FROM subscriber")
    c.until(lambda: metric(server, "withheld") == 2, 5, "an empty table is believed")
    expect(c, server, "carol", "new", 200)
    c.expect("ringway user prune" in server.process.output(), "the log does not say what to do")
    c.expect(ringway(c, server, "user", "prune") == "2 users removed\n", "the users stay")
    expect(c, server, "carol", "new", 401)
    c.expect(metric(server, "withheld") == 0 and server.contacts() == 0, "something stays")
    expect_secret(c, ["only-read", "pass:word", "runner", ha1("dave", "diver")], server)


@case("users/opensips-subscriber", own=True)
def opensips(c):
    """The hashes of OpenSIPS's table are enough, for the algorithms that they are of."""
    database = Postgres(c)
    database.sql("CREATE TABLE subscriber (username text, domain text, password text, email_address text, ha1 text, "
                 "ha1_sha256 text, ha1_sha512t256 text); GRANT SELECT ON subscriber TO ringway;")
    names = {"ha1": "md5", "ha1_sha256": "sha256", "ha1_sha512t256": "sha512_256"}
    hashes = "', '".join(ha1("carol", "singer", name=name) for name in names.values())
    database.sql(f"INSERT INTO subscriber (username, domain, {', '.join(names)}) "
                 f"VALUES ('carol', '{DOMAIN}', '{hashes}')")
    server = node(c, database.uri(), more='table = "public.subscriber"\n',
                  algorithms=("SHA-512-256", "SHA-256", "MD5"))
    present(c, server)
    for algorithm in ("SHA-512-256", "SHA-256", "MD5"):
        expect(c, server, "carol", "singer", 200, algorithm=algorithm)
        expect(c, server, "carol", "other", 401, algorithm=algorithm)


@case("users/hostile-rows", own=True)
def hostile(c):
    """Rows with names that are long, have other encodings or characters, and hashes that are none, concern nobody
    else."""
    database = Postgres(c, encoding="SQL_ASCII")
    database.sql(HOSTILE)
    server = node(c, database.uri(), more='table = "subscriber"\nrefresh = "1s"\n')
    present(c, server)
    expect(c, server, "carol", "singer", 200)
    expect(c, server, "dave", "diver", 200)
    c.expect(metric(server, "unusable") > 3000, f"{metric(server, 'unusable')} rows are unusable")
    c.until(lambda: metric(server, "reads_total") >= 3, 10, "the table is read once only")
    c.expect(metric(server, "applied_total") == 2, "rows of one user take turns")
    expect(c, server, "carol", "singer", 200)
    log = server.process.output()
    c.expect(log.count("the row is not used") == 10, "not ten of the rows are logged, once each")
    c.expect("further rows are no users" in log and len(log) < 20_000, f"the log has {len(log)} characters")
    c.expect("not-a-hash" not in log, "the log has a hash")
    for user in ("none", "bad", "latin", "control", "big"):
        expect(c, server, user, "x", 401)
    server.alive()


@case("users/rights-and-mistakes", own=True)
def rights_and_mistakes(c):
    """A wrong password, a schema of a later program, a role that may not create it and one that may only read are said
    plainly, without the password; the rights in docs/users.md are enough."""
    database = Postgres(c, owner="postgres")
    wrong = node(c, database.uri(password="open-sesame"), start=False)
    wrong.process = wrong.kind.start("wrong")
    c.expect(wrong.process.wait(10 * PATIENCE) == 1, "a server starts that knows nobody")
    output = wrong.process.output()
    c.expect("password authentication failed" in output and "no user is known here yet" in output, output)
    c.expect("open-sesame" not in output, "the password is in the log")
    output = ringway(c, wrong, "user", "list", fails=True)
    c.expect("password authentication failed" in output and "open-sesame" not in output, output)
    # A role that may not create the schema.
    output = ringway(c, node(c, database.uri(), start=False), "user", "list", fails=True)
    c.expect("role that may create it" in output and "permission denied" in output, output)
    passwords = {"owner": "may-create", "writer": "may-write", "reader": "may-read"}
    for kind, password in passwords.items():
        for line in rights(c, kind).splitlines():
            # Those of the others are for tables that the owner makes.
            database.sql(line.replace("'PASSWORD'", f"'{password}'"))
        if kind == "owner":
            owner = node(c, database.uri("ringway_owner", password), start=False)
            ringway(c, owner, "user", "list")
    writer, reader = (node(c, database.uri(f"ringway_{kind}", passwords[kind])) for kind in ("writer", "reader"))
    present(c, writer, reader)
    add(c, writer, "carol", "singer")
    soon(c, reader, "carol", "singer", 200)
    c.expect("permission denied" in ringway(c, reader, "user", "del", "carol", fails=True), "a reader removes a user")
    ringway(c, writer, "user", "del", "carol")
    soon(c, reader, "carol", "singer", 401)
    database.sql("UPDATE ringway.schema_version SET version = 99")
    output = ringway(c, owner, "user", "list", fails=True)
    c.expect("got 99: a later program has made it" in output, output)


def rights(c, kind):
    """The statements of docs/users.md for a role."""
    found = re.search(rf"(?ms)^```sql\n-- {kind}\n(.*?)```", (DOCUMENTS / "users.md").read_text())
    c.expect(found, f"docs/users.md has no rights of {kind}")
    return found.group(1)


@case("users/tls", own=True)
def tls(c):
    """By TLS the certificate must be of the trusted authority and have the host's name; a server without TLS is
    refused."""
    folder = c.folder
    for name, subject, more in (("ca", "/CN=ca", []), ("right", "/CN=right", ["-addext", f"subjectAltName=IP:{HOST}"]),
                                ("wrong", "/CN=wrong", ["-addext", "subjectAltName=DNS:elsewhere.test"])):
        issuer = [] if name == "ca" else ["-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-addext",
                                          "basicConstraints=critical,CA:FALSE"]
        status, output = c.run("openssl", [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-subj", subject, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem", *more, *issuer])
        c.expect(status == 0, output)
    database = Postgres(c)
    trust = f'roots = "{folder}/ca.pem"\n'
    secure = node(c, database.uri(options="?sslmode=verify-full"), more=trust, start=False)

    def refused(server, why):
        output = ringway(c, server, "user", "list", fails=True)
        c.expect(why in output and database.password not in output, output)

    refused(secure, "server does not support TLS")
    for name in ("wrong", "right"):
        for kind in ("key", "pem"):
            data = (folder / f"{name}.{kind}").read_bytes()
            database.run(["sh", "-c", f"umask 077; cat > {database.data}/server.{kind}"], stdin=data.decode())
        for setting in ("ssl_cert_file = 'server.pem'", "ssl_key_file = 'server.key'", "ssl = on"):
            database.sql(f"ALTER SYSTEM SET {setting}")
        database.stop()
        database.start()
        if name == "wrong":
            refused(secure, "certificate not valid for name")
    refused(node(c, database.uri(options="?sslmode=verify-full"), start=False), "UnknownIssuer")
    secure.start()
    present(c, secure)
    add(c, secure, "carol", "singer")
    c.expect(database.sql("SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                          "WHERE application_name = 'ringway'") == "t", "the connection is not by TLS")
    expect_secret(c, [database.password], secure)


@case("users/redis", own=True)
def redis(c):
    """The Redis of the store has the users, too, for an ACL user with the rights of docs: what is done at one node
    holds at the other at once, and a phone that registers at one is called by the other."""
    database = Redis(c, "primary")
    rules = []
    for name in ("cluster.md", "users.md"):
        rules += re.search(r"(?m)^ACL SETUSER ringway (.*)$", (DOCUMENTS / name).read_text()).group(1).split()
    rules = [rule.replace("PASSWORD", "let-me-in") for rule in rules]
    c.expect("OK" in database.cli("ACL", "SETUSER", "ringway", *rules), "the rules are refused")
    store = f"redis://ringway:let-me-in@{HOST}:{database.port}"

    def clustered():
        number = c.ports.take()
        extra = f'[cluster]\nfile = "{c.folder}/node-{number}.redb"\nreplicas = 0\n'
        return node(c, "store", store=store, extra=extra)

    first, second = clustered(), clustered()
    present(c, first, second)
    shared(c, first, second)
    for user, password in (("alice", "wonderland"), ("bob", "builder")):
        add(c, first, user, password)
    port = c.ports.take(2)
    expect(c, second, "bob", "builder", 200, port=port)
    words = {"too_many_vias": "Via:.*Via:.*Via:.*Via:", "max_forwards": 68}
    callee = Sipp(c, "uas", "uas-answer", port=port, service="bob", words=words).listening()
    caller = Sipp(c, "uac", "uac-call", remote=(first.host, first.port), service="bob", login=("alice", "wonderland"))
    for program in (caller, callee):
        program.passed()
    # Another program writes there.
    for field, value in (("x" * 100_000, "1 x"), ("carol@" + DOMAIN, "y" * 100_000), ("", ""), ("dave", "1 - - - 1")):
        database.cli("HSET", "ringway:{users}:all", field, value)
        database.cli("ZADD", "ringway:{users}:changes", database.cli("INCR", "ringway:{users}:number").strip(), field)
    database.cli("PUBLISH", "ringway:users", "")
    add(c, first, "erin", "runner")
    soon(c, second, "erin", "runner", 200)
    database.pause()
    c.expect("nothing was changed" in add(c, first, "frank", "x", fails=True), "a user is added nowhere")
    c.until(lambda: metric(second, "present") == 0, 20, "the metrics do not show that the database is absent")
    database.go_on()
    present(c, first, second)
    c.expect(metric(second, "unusable") == 4, f"{metric(second, 'unusable')} entries are unusable")
    # The users alone are lost, then everything: users stay, and so does what is known of them.
    database.cli("DEL", "ringway:{users}:all")
    database.cli("CLIENT", "KILL", "TYPE", "normal")
    c.until(lambda: metric(second, "withheld") == 3, 10, "an absent key is believed")
    reads = metric(second, "reads_total")
    database.cli("FLUSHALL")
    database.cli("CLIENT", "KILL", "TYPE", "normal")
    c.until(lambda: metric(second, "reads_total") > reads, 10, "the empty database is not read")
    c.expect(metric(second, "withheld") == 3, "an empty database is believed")
    expect_secret(c, ["let-me-in", "builder", "runner"], first, second)
