"""Users of other servers: their own tools write the files, `ringway import` reads them, and phones register."""

import hashlib
import json
import shutil
from pathlib import Path

import agents
from cases import case
from process import PATIENCE
from server import Server
from sip import Client

# Kamailio's tables of db_text, as its package has them.
TABLES = Path("/usr/share/kamailio/dbtext/kamailio")
# kamctl hashes a password up to its first space only.
PHONES = {"carol": "pass:word", "dave": "back\\slash"}


def subscriber(c, domain):
    """The table `subscriber` with PHONES, as kamctl writes it."""
    tables = c.folder / "db"
    tables.mkdir()
    for name in ("subscriber", "version"):
        shutil.copy(TABLES / name, tables)
    (c.folder / ".kamctlrc").write_text(f"DBENGINE=DBTEXT\nDB_PATH={tables}\nSIP_DOMAIN={domain}\n")
    for user, password in PHONES.items():
        status, output = c.run("kamctl", ["kamctl", "add", user, password], env={"HOME": str(c.folder)})
        c.expect(status == 0 and "ERROR" not in output, f"kamctl add {user}: {status}: {output}")
    table = tables / "subscriber"
    c.expect(len(table.read_text().splitlines()) == 1 + len(PHONES), f"kamctl wrote {table.read_text()}")
    return table


def imported(c, server, kind, file, *options):
    """Imports a file; what the command reports."""
    words = [server.kind.program, "import", kind, file, "--config", server.kind.config, "--json", *options]
    status, output = c.run("import", words)
    c.expect(status == 0, f"ringway import {kind}: {status}: {output}")
    for password in PHONES.values():
        c.expect(password not in output, f"the password {password} is printed: {output}")
    return json.loads(output)


def expect_register(c, server, user, password, status):
    """One REGISTER, with a password that is accepted or not."""
    with Client(server.host, server.port) as client:
        answer = client.register(user, password, server.domain, [f"<sip:{user}@127.0.0.1:{c.ports.take()}>"])
    c.expect(answer is not None and answer.status == status,
             f"REGISTER of {user}: expected {status}, got {answer and answer.start}")


def without_passwords(table):
    """Empties the column `password`, so that the hashes alone are left."""
    header, *rows = table.read_text().splitlines()
    c = header.split().index("password(string)")
    out = [header]
    for row in rows:
        # A colon of a value is escaped.
        values = row.replace("\\\\", "\0").replace("\\:", "\1").split(":")
        values[c] = ""
        out.append(":".join(values).replace("\1", "\\:").replace("\0", "\\\\"))
    table.write_text("\n".join(out) + "\n")


@case("import/kamctl-passwords", own=True)
def passwords(c):
    """The table that kamctl fills is imported into a running server: a phone registers with its password."""
    server = Server(c)
    report = imported(c, server, "kamailio", subscriber(c, server.domain))
    c.expect([user["user"] for user in report["imported"]] == list(PHONES) and not report["refused"],
             f"expected {list(PHONES)}, got {report}")
    for user, password in PHONES.items():
        expect_register(c, server, user, password, 200)
    expect_register(c, server, "carol", "another", 401)
    server.alive()


@case("import/kamctl-hashes", own=True, limit=90)
def hashes(c):
    """RFC 7616 section 3.4.2: Kamailio's HA1 is enough for the default challenge, also after a restart."""
    server = Server(c, start=False)
    table = subscriber(c, server.domain)
    without_passwords(table)
    report = imported(c, server, "kamailio", table)
    expected = [{"user": user, "realm": server.domain, "replaced": False, "without": []} for user in PHONES]
    c.expect(report["imported"] == expected, f"expected {expected}, got {report}")
    server.start()
    agent = agents.sipp(c, server, "carol", PHONES["carol"])
    c.expect(agents.settled(server, agent, PATIENCE * 10), f"SIPp does not register: {agent.output()[-600:]}")
    expect_register(c, server, "dave", PHONES["dave"], 200)
    expect_register(c, server, "dave", "another", 401)
    # Those that exist are kept, those of before too.
    report = imported(c, server, "kamailio", table)
    c.expect(len(report["kept"]) == len(PHONES) and not report["imported"], f"expected to keep all, got {report}")
    expect_register(c, server, "alice", server.wanted.users["alice"], 200)
    server.alive()


@case("import/asterisk-hashes", own=True)
def asterisk(c):
    """A `md5_cred` of pjsip.conf whose realm is the domain is enough for the default challenge."""
    server = Server(c)
    cred = hashlib.md5(f"carol:{server.domain}:{PHONES['carol']}".encode()).hexdigest()
    (c.folder / "auths.conf").write_text(
        f"[carol](hashed)\nusername=carol\nmd5_cred={cred}\n"
        "[dave](hashed)\nrealm=asterisk\nusername=dave\nmd5_cred=" + cred + "\n")
    (c.folder / "pjsip.conf").write_text(
        f"[global]\ntype=global\ndefault_realm={server.domain}\n"
        "[phone](!)\ntype=endpoint\n[hashed](!)\ntype=auth\nauth_type=md5\n"
        "[carol](phone)\nauth=carol\naors=carol\n[dave](phone)\nauth=dave\n#include auths.conf\n")
    report = imported(c, server, "asterisk", c.folder / "pjsip.conf")
    c.expect([user["user"] for user in report["imported"]] == ["carol"], f"expected carol, got {report}")
    refused = report["refused"]
    c.expect(len(refused) == 1 and "realm \"asterisk\"" in refused[0]["reason"] and refused[0]["line"] == 4,
             f"expected a refusal of dave in line 4, got {refused}")
    expect_register(c, server, "carol", PHONES["carol"], 200)
    server.alive()
