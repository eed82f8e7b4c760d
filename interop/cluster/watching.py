"""Phones that watch, at one node of a cluster, what users do at others: registrations (RFC 3680), calls (RFC 4235) and
presence (RFC 3856)."""

import re
import threading
import time

from cases import case
from database import HOST, Redis
from nodes import LEASE, Phone, documented_rules, metric, node, registers, three, together
from sip import Client

# Until a change is shown: RFC 3680 and RFC 3856 allow one notification in five seconds.
SHOWN = 9
FORMATS = {"reg": "reginfo", "dialog": "dialog-info", "presence": "pidf"}


def attribute(head, name):
    """An attribute of an element."""
    return (re.search(rf'\b{name}="([^"]*)"', head) or ["", ""])[1]


class Watcher:
    """A subscription of a user at a node, to an event package of a user."""

    def __init__(self, c, server, user, of, package):
        self.c, self.package, self.over = c, package, False
        # What the last documents add up to, and each document as it came.
        self.contacts, self.events, self.states, self.history = {}, {}, [], []
        self.client = Client(server.host, server.port)
        headers = [f"Contact: <sip:{user}@127.0.0.1:{self.client.local[1]}>", f"Event: {package}",
                   f"Accept: application/{FORMATS[package]}+xml", "Expires: 600"]
        subscribe = ("SUBSCRIBE", f"sip:{of}@{server.domain}")
        if server.wanted.open_because:
            request = self.client.request(*subscribe, sender=f"sip:{user}@{server.domain}", headers=headers)
        else:
            request = self.client.proved(server, user, *subscribe, headers=headers)
        answer = self.client.ask(request)
        c.expect(answer is not None and answer.status == 200, f"SUBSCRIBE: {answer and answer.start}")
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()
        c.after(self.stop)

    def listen(self):
        """Answers what comes, and reads what it says."""
        while not self.over:
            request = self.client.receive(0.3)
            if request is None or request.status or request.method != "NOTIFY":
                continue
            echoed = [f"{name.title()}: {value}" for name, value in request.headers
                      if name in ("via", "from", "to", "call-id", "cseq")]
            self.client.send("\r\n".join(["SIP/2.0 200 OK", *echoed, "Content-Length: 0", "", ""]))
            body = request.body.decode()
            self.history.append((round(time.monotonic(), 1), body))
            getattr(self, self.package)(body)

    def reg(self, body):
        """Registrations: the ports of contacts, with the event of each."""
        if 'state="full"' in body:
            self.contacts = {}
        for head, uri in re.findall(r"<contact ([^>]*)><uri>([^<]*)</uri>", body):
            port = int(re.search(r":(\d+)", uri)[1])
            self.events.setdefault(port, []).append(attribute(head, "event"))
            if attribute(head, "state") == "active":
                self.contacts[port] = int(attribute(head, "expires"))
            else:
                self.contacts.pop(port, None)

    def dialog(self, body):
        """Calls: direction and state of each."""
        dialogs = re.findall(r"<dialog ([^>]*)><state>(\w+)</state>", body)
        self.states.append([f'{attribute(head, "direction")} {state}'.strip() for head, state in dialogs])

    def presence(self, body):
        """Presence: whether the user is there, and what the user does."""
        shown = re.search(r"<basic>(\w+)</basic>", body)[1]
        self.states.append([shown + (" on-the-phone" if "on-the-phone" in body else "")])

    def stop(self):
        """Ends the thread."""
        self.over = True
        self.thread.join()
        self.client.close()

    def has(self, *ports, seconds=SHOWN):
        """Waits until exactly these contacts are registered."""
        self.c.until(lambda: set(self.contacts) == set(ports), seconds,
                     lambda: f"{self.contacts} are registered, expected {ports}: {self.history[-3:]}")

    def shows(self, *states, seconds=SHOWN):
        """Waits until these states are shown. Returns the seconds that took."""
        begun = time.monotonic()
        self.c.until(lambda: self.states and self.states[-1] == list(states), seconds,
                     lambda: f"{self.states[-1:]} is shown, expected {states}: {self.history[-3:]}")
        return time.monotonic() - begun


def unregister(c, server, user, port):
    """A phone leaves its node."""
    with Client(server.host, server.port) as client:
        contact = f"<sip:{user}@127.0.0.1:{port};transport=udp>"
        answer = client.register(user, server.wanted.users[user], server.domain, [contact], expires=0)
    c.expect(answer is not None and answer.status == 200, f"expected 200, got {answer and answer.start}")


def registrations(c, first, second, third, phones):
    """Bob's registrations at three nodes, as he sees them at the first."""
    one, two, other = phones
    one.register(second)
    bob = Watcher(c, first, "bob", "bob", "reg")
    bob.has(one.port)
    c.expect(bob.events[one.port] == ["registered"], f"{bob.events}")
    c.expect(200 < bob.contacts[one.port] <= 300, f"a lifetime of {bob.contacts[one.port]} s, expected 300")
    two.register(third)
    bob.has(one.port, two.port)
    other.register(first)
    bob.has(one.port, two.port, other.port)
    one.register(second)
    c.until(lambda: bob.events[one.port][-1] == "refreshed", SHOWN, lambda: f"no refresh: {bob.events}")
    unregister(c, third, "bob", two.port)
    bob.has(one.port, other.port)
    c.expect(bob.events[two.port] == ["registered", "unregistered"], f"{bob.events}")
    return bob


def is_counted(c, server):
    """The metrics show that users of other nodes are followed."""
    followed = lambda: re.search(r"(?m)^ringway_states_followed [1-9]", server.kind.metrics())  # noqa: E731
    c.until(followed, 2, "no user is followed")


def calls(c, watching, callee, caller):
    """A call by a phone at one node to a phone at another, as it is seen at a third."""
    (bob, second), (alice, third) = callee, caller
    lamp, other, presence = (Watcher(c, watching, "dave", of, package)
                             for of, package in (("bob", "dialog"), ("alice", "dialog"), ("bob", "presence")))
    lamp.shows("terminated")
    presence.shows("closed")
    bob.register(second)
    alice.register(third)
    presence.shows("open")
    going = bob.begin(third, hold=8000)
    on = lamp.shows("recipient confirmed"), other.shows("initiator confirmed")
    presence.shows("open on-the-phone")
    for program in going:
        program.passed()
    off = lamp.shows("terminated"), other.shows("terminated")
    presence.shows("open")
    print(f"lamps: on after {on[0]:.1f} s and {on[1]:.1f} s, off after {off[0]:.1f} s and {off[1]:.1f} s")
    return presence


def without_the_right(c, server):
    """Bob's registrations at another node are not seen, and the log says why, once."""
    watcher = Watcher(c, server, "bob", "bob", "reg")
    c.sleep(3)
    watcher.has(seconds=0)
    # The nodes share the log.
    channel = f"ringway:to:sip:{server.host}:{server.port} ("
    warnings = server.process.output().count(channel)
    c.expect(warnings == 1, f"expected one warning, got {warnings}")
    return watcher


@case("cluster/watch-registrations", limit=90)
def watch_registrations(c):
    """A subscriber at one node sees phones register, refresh and leave at others; those of a node that is killed end;
    what has changed while the database did nothing is seen afterwards."""
    database, first, second, third = three(c)
    phones = one, two, other = [Phone(c, "bob") for _ in range(3)]
    bob = registrations(c, first, second, third, phones)
    second.kill()
    bob.has(other.port, seconds=LEASE + SHOWN)
    c.expect(bob.events[one.port][-1] == "deactivated", f"{bob.events[one.port]}")
    database.pause()
    registers(c, third, "dave", 503)
    c.sleep(4)
    bob.has(other.port, seconds=0)
    database.go_on()
    together(c, first, third)
    two.register(third)
    bob.has(other.port, two.port)
    is_counted(c, first)


@case("cluster/watch-calls", limit=60)
def watch_calls(c):
    """A lamp and a contact list at one node follow a call between phones at two others; who is at a node that is killed
    is shown as gone."""
    _, first, second, third = three(c)
    bob, alice = Phone(c, "bob"), Phone(c, "alice")
    presence = calls(c, first, (bob, second), (alice, third))
    second.kill()
    presence.shows("closed", seconds=LEASE + SHOWN)


@case("cluster/watch-without-the-right", limit=60)
def watch_refused(c):
    """An ACL user of an older line may not use the channels of nodes: they go on without, and say so once."""
    primary = Redis(c, "primary")
    rules = documented_rules().replace("PASSWORD", "let-me-in").replace("&ringway:to:* ", "").split()
    c.expect("OK" in primary.cli("ACL", "SETUSER", "ringway", *rules), "the rules are refused")
    store = f"redis://ringway:let-me-in@{HOST}:{primary.port}"
    first, second = (node(c, store, cluster="replicas = 0\n") for _ in range(2))
    together(c, first, second)
    bob = Phone(c, "bob")
    bob.register(second)
    bob.is_called(first)
    watcher = without_the_right(c, first)
    c.expect(metric(first, "ready") == 1 and metric(first, "gaps_total") == 0, "changes are not reported")
    primary.cli("ACL", "SETUSER", "ringway", "&ringway:to:*")
    watcher.has(bob.port, seconds=25)
