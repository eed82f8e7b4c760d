"""The phonebook as the hosts of a LAN read it, with curl and ldapsearch."""

import json
from xml.etree import ElementTree

# Where a router serves it, and the base of its entries.
BOOK_PORT, LDAP_PORT = 5280, 389
BASE = "dc=mesh"


class Book:
    """The phonebook as a host on the LAN of a router reads it."""

    def __init__(self, router, host):
        self.c, self.router, self.host = router.c, router, host

    def get(self, path, status=200, port=BOOK_PORT, seconds=10):
        """A document by curl."""
        argv = [*self.router.lan.enter(), "curl", "-s", "-m", str(seconds), "-w", "\\n%{http_code}",
                f"http://{self.host}:{port}{path}"]
        _, output = self.c.run("curl", argv)
        body, _, code = output.rpartition("\n")
        self.c.expect(code == str(status), f"{path} of {self.host}: {code} instead of {status}: {body[:200]}")
        return body

    def users(self, query=""):
        """Users with their numbers."""
        return {one["user"]: one.get("number") for one in json.loads(self.get(f"/phonebook.json{query}"))["entries"]}

    def dialled(self, path, entry, field):
        """What a phone of a vendor would dial for each entry."""
        tree = ElementTree.fromstring(self.get(path))
        return [one.findtext(field) for one in tree.iter(entry)]

    def ldap(self, what="(uid=*)"):
        """The same by LDAP: users with their numbers."""
        argv = [*self.router.lan.enter(), "ldapsearch", "-x", "-LLL", "-o", "ldif-wrap=no", "-H",
                f"ldap://{self.host}:{LDAP_PORT}", "-b", BASE, what, "uid", "telephoneNumber"]
        status, output = self.c.run("ldapsearch", argv)
        self.c.expect(status == 0, f"ldapsearch: {status}: {output}")
        entries = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
                   for block in output.split("\n\n") if block.startswith("dn:")]
        return {one["uid"]: one.get("telephoneNumber") for one in entries}
