"""The phonebook against OpenLDAP's client and two parsers of XML and JSON, by the example program of its crate."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

from cases import Failed, case

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTILE = "</Name><b>&amp;\"'"
# User, number, name; who begins with "-" is not registered.
PEOPLE = [
    ("alice", "200", "Alice Abel"),
    ("bob", "201", "Bob Baker"),
    ("carol", "20000", "Émile Zola"),
    ("-dave", "203", "Dave Away"),
    ("eve", "204", HOSTILE),
    ("zoe", "", ""),
]
PHONE_FILTER = "(|(cn={0}*)(sn={0}*)(telephoneNumber={0}*))"


def binary():
    """The program, as `cargo build --profile quick` leaves it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    path = target / "quick" / "examples" / "phonebook"
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-phonebook --example phonebook")
    return path


class Phonebook:
    """The running program, and clients of it."""

    def __init__(self, c, people):
        self.c = c
        self.ldap, self.http = c.ports.take(), c.ports.take()
        program = c.start("phonebook", [binary(), self.ldap, self.http, "mesh"], stdin=True)
        for person in people:
            program.write("\t".join(person))
        program.popen.stdin.close()
        c.expect(program.wait_output("ready", 10), f"not ready: {program.output()}")

    def search(self, *words, base="dc=mesh", status=0):
        """Searches as an anonymous client; the entries as lists of (attribute, value)."""
        argv = ["ldapsearch", "-x", "-LLL", "-o", "ldif-wrap=no", "-H", f"ldap://127.0.0.1:{self.ldap}", "-b", base]
        code, output = self.c.run("ldapsearch", [*argv, *words])
        self.c.expect(code == status, f"{words}: status {code} instead of {status}: {output}")
        blocks = [block for block in output.split("\n\n") if block.startswith("dn:")]
        return [[tuple(line.split(": ", 1)) for line in block.splitlines() if ": " in line] for block in blocks]

    def uids(self, *words, **options):
        """The users that a search finds."""
        return [dict(entry)["uid"] for entry in self.search(*words, "uid", **options)]

    def get(self, path, agent="curl/8", status=200):
        """A document: its type and its text."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", headers={"User-Agent": agent})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                code, kind, body = answer.status, answer.headers["Content-Type"], answer.read()
        except urllib.error.HTTPError as error:
            code, kind, body = error.code, error.headers["Content-Type"], error.read()
        self.c.expect(code == status, f"{path}: status {code} instead of {status}")
        return kind, body.decode()


@case("phonebook/ldap-searches-of-phones", own=True)
def searches(c):
    """What phones search for is found: beginnings of names and numbers, in any case; who is away is not."""
    book = Phonebook(c, PEOPLE)
    for typed, found in (("al", ["alice"]), ("BAK", ["bob"]), ("20", ["alice", "bob", "carol", "eve"]),
                         ("émile", ["carol"]), ("dave", []), ("zo", ["zoe", "carol"]), ("x", [])):
        uids = book.uids(PHONE_FILTER.format(typed))
        c.expect(sorted(uids) == sorted(found), f"{typed}: expected {found}, got {uids}")
    alice = dict(book.search("(uid=alice)")[0])
    expected = {"dn": "uid=alice,dc=mesh", "cn": "Alice Abel", "sn": "Abel", "givenName": "Alice",
                "displayName": "Alice Abel", "telephoneNumber": "200", "labeledURI": "sip:alice@mesh"}
    for name, value in expected.items():
        c.expect(alice.get(name) == value, f"{name}: expected {value}, got {alice.get(name)}")
    c.expect(book.uids("(&(cn=*)(!(telephoneNumber=20*)))") == ["zoe"], "not")
    c.expect(book.uids("(telephoneNumber~=2 0-1)") == ["bob"], "approximately")
    c.expect(book.uids("(!(ipPhone=1))") == [], "what is undefined is found")
    c.expect(book.uids("(uid=alice)", "-s", "one") == ["alice"], "one level")
    c.expect(book.uids("(uid=*)", "-s", "base", base="UID=Bob, DC=Mesh") == ["bob"], "an entry itself")
    c.expect(len(book.search("(uid=*)", base="")) == 5, "a phone without a base finds nothing")


@case("phonebook/ldap-limits-and-refusals", own=True)
def refusals(c):
    """Limits are kept, and what is not offered is refused by the code that the standard names."""
    book = Phonebook(c, PEOPLE + [(f"u{n:04}", str(30_000 + n), f"User {n}") for n in range(3000)])
    c.expect(len(book.search("-z", "2", status=4)) == 2, "the client's size limit")
    c.expect(len(book.search("(uid=*)", status=4)) == 1000, "the server's size limit")
    c.expect(len(book.search("(cn=user 1*)", "1.1", "-E", "pr=100/noprompt", status=4)) == 1000, "pages")
    book.search("(cn=*)", "-E", "!pr=5/noprompt", status=12)
    book.search("(cn=*)", base="dc=other", status=32)
    book.search("(cn=*)", base="nothing", status=34)
    uri = ["-H", f"ldap://127.0.0.1:{book.ldap}"]
    for name, argv, status in (
        ("ldapdelete", ["-x", "uid=alice,dc=mesh"], 53),
        ("ldapcompare", ["-x", "uid=alice,dc=mesh", "cn:Alice Abel"], 53),
        ("ldapwhoami", ["-x"], 1),
        ("ldapwhoami", ["-x", "-ZZ"], 1),
        ("ldapsearch", ["-Y", "PLAIN", "-b", "dc=mesh"], None),
        ("ldapsearch", ["-x", "-D", "cn=any,dc=mesh", "-w", "word", "-b", "dc=mesh", "(uid=alice)"], 0),
    ):
        code, output = c.run(name, [name, *uri, *argv], stdin="")
        good = code != 0 if status is None else code == status
        c.expect(good, f"{name} {argv}: expected {status}, got {code}: {output}")
    # A hundred clients at once.
    clients = [c.start(f"client-{n}", ["ldapsearch", "-x", "-LLL", *uri, "-b", "dc=mesh", "(uid=bob)"])
               for n in range(100)]
    for client in clients:
        c.until(lambda client=client: not client.running(), 20, "a client does not end")
        c.expect("cn: Bob Baker" in client.output(), f"{client.name}: {client.output()}")


@case("phonebook/ldap-root-and-schema", own=True)
def described(c):
    """The root and the schema describe what is there."""
    book = Phonebook(c, PEOPLE)
    root = dict(book.search("-s", "base", "+", base="")[0])
    c.expect(root["namingContexts"] == "dc=mesh" and root["subschemaSubentry"] == "cn=Subschema", f"root: {root}")
    schema = book.search("-s", "base", "attributeTypes", "objectClasses", base=root["subschemaSubentry"])[0]
    known = {word.strip("'").lower() for _, text in schema for word in text.split() if word.startswith("'")}
    for entry in book.search():
        for name, value in entry:
            words = {"dn": [], "objectClass": [name, value]}.get(name, [name.rstrip(":")])
            for word in words:
                c.expect(word.lower() in known, f"{word} is not in the schema")


@case("phonebook/http-documents", own=True)
def documents(c):
    """Each vendor's document is well-formed, also with a name that would end it, and lists who is there."""
    book = Phonebook(c, PEOPLE)
    names = ["Alice Abel", "Bob Baker", "Émile Zola", HOSTILE, "zoe"]
    for path, agent, root, name in (
        ("/phonebook/yealink.xml", "Yealink SIP-T46U 108.86.0.45", "YealinkIPPhoneDirectory", "Name"),
        ("/phonebook/snom.xml", "Mozilla/4.0 (compatible; snomD785-SIP)", "SnomIPPhoneDirectory", "Name"),
        ("/phonebook/cisco.xml", "Cisco/SPA504G", "CiscoIPPhoneDirectory", "Name"),
        ("/phonebook/grandstream/phonebook.xml", "Grandstream Model HW GXP2170", "AddressBook", "LastName"),
    ):
        kind, text = book.get(path, agent)
        c.expect(kind == "text/xml; charset=utf-8", f"{path}: {kind}")
        tree = ElementTree.fromstring(text)
        c.expect(tree.tag == root, f"{path}: {tree.tag}")
        entry = "Contact" if root == "AddressBook" else "DirectoryEntry"
        found = [one.findtext(name) for one in tree.findall(entry)]
        if root == "AddressBook":
            found = [" ".join(filter(None, [one.findtext("FirstName"), one.findtext("LastName")]))
                     for one in tree.findall(entry)]
        expected = names[:-1] if root.startswith("Cisco") else names
        c.expect(sorted(found) == sorted(expected), f"{path}: {found}")
        c.expect(book.get("/phonebook", agent)[1] == text, f"{agent} gets another document")
    kind, text = book.get("/phonebook.json?search=b")
    people = json.loads(text)["entries"]
    c.expect(kind == "application/json" and [one["user"] for one in people] == ["bob"], f"{kind}: {text}")
    c.expect(len(json.loads(book.get("/phonebook.json?all")[1])["entries"]) == 6, "all")
    book.get("/phonebook.json?page=x", status=400)
    book.get("/phonebook/other", status=404)
