"""SIPp against the running server over UDP and TCP.

Each case ends with the server's own tables: no transaction may be left. Contacts are registered by
`lib/sip.py`; calls, registrations that are looked at closely, and floods are SIPp's.
"""

import secrets
from pathlib import Path

from cases import case
from server import Server
from sip import Client, register
from sipp import Sipp

HERE = Path(__file__).resolve().parent
TRANSPORTS = ("udp", "tcp")
# RFC 3261 T1 shortened, so that the tables of a case are empty after 64 times 100 ms.
QUICK_TIMERS = '[timers]\nt1 = "100ms"\n'


def over_both(name, **options):
    """Marks a check that is made once over UDP and once over TCP."""
    def mark(body):
        for transport in TRANSPORTS:
            case(f"sipp/{name}-{transport}", **options)(lambda c, t=transport: body(c, t))
        return body
    return mark


def callee(c, server, name, template, transport, parameters="", user="bob", **options):
    """A SIPp that waits for a call, registered."""
    waiting = Sipp(c, name, template, transport=transport, service=user, **options).listening()
    register(server, user, waiting.port, transport, parameters)
    return waiting


def caller(c, server, name, template, transport, **options):
    """A SIPp that calls through the server, as a user who can prove it."""
    options.setdefault("login", ("alice", server.wanted.users["alice"]))
    return Sipp(c, name, template, remote=(server.host, server.port), transport=transport, **options)


def call(c, server, transport, name="uac", **options):
    """A caller whose call is answered."""
    return caller(c, server, name, "uac-call", transport, **options)


def finish(server, *programs):
    """Every SIPp passed, the server lives and its tables are empty."""
    for program in programs:
        program.passed()
    server.alive()
    server.expect_empty()


def quick(c, **wanted):
    """A server with short timers."""
    return Server(c, extra=QUICK_TIMERS, **wanted)


@over_both("call")
def answered_call(c, transport):
    """RFC 3261 16 and 22.3: five calls one after another, each after a 407, message contents checked at both ends."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-answer", transport, calls=5)
    uac = call(c, server, transport, calls=5, rate=2)
    finish(server, uac, uas)


@over_both("callee-hangs-up")
def callee_hangs_up(c, transport):
    """A BYE from the callee takes the recorded route backwards (RFC 3261 12.1.1 and 16.12)."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-answer", transport, parts=("hangs_up",))
    uac = call(c, server, transport, parts=("waits",))
    finish(server, uac, uas)


def across(who_hangs_up):
    """A caller and a callee on different transports; the server is in both their routes (RFC 3261 16.6 step 4)."""
    parts = (("hangs_up",), ("waits",)) if who_hangs_up == "caller" else (("waits",), ("hangs_up",))
    for one, other in (TRANSPORTS, TRANSPORTS[::-1]):
        def body(c, one=one, other=other):
            server = quick(c)
            uas = callee(c, server, "uas", "uas-answer", other, parts=parts[1])
            uac = call(c, server, one, parts=parts[0])
            finish(server, uac, uas)
        case(f"sipp/{one}-calls-{other}-{who_hangs_up}-hangs-up")(body)


across("caller")
across("callee")


@over_both("call-wrong-password")
def refused_call(c, transport):
    """RFC 3261 22.3: wrong credentials never reach the callee."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-answer", transport)
    uac = call(c, server, transport, login=("alice", "wrong"), seconds=8)
    status = uac.process.wait(20)
    c.expect(status not in (0, None), "a call with a wrong password went through")
    c.expect(not (c.folder / "uas.msg").exists() or "INVITE" not in (c.folder / "uas.msg").read_text(),
             "the callee was called by someone with a wrong password")
    uas.process.end()
    server.alive()


@over_both("busy")
def busy(c, transport):
    """486 comes back as it is, header fields unknown to the server included (RFC 3261 16.7)."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-final", transport, words={"final": "486"})
    uac = caller(c, server, "uac", "uac-final", transport,
                 words={"final": "486", "expected": "X-Reason: at the dentist"})
    finish(server, uac, uas)


@over_both("no-answer")
def no_answer(c, transport):
    """The callee rings for three seconds, the caller gives up: 487 (RFC 3261 section 9)."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-cancelled", transport)
    uac = caller(c, server, "uac", "uac-cancel", transport, parts=("ringing",), words={"wait": 3000})
    finish(server, uac, uas)


@over_both("cancel-before-ringing")
def cancel_before_ringing(c, transport):
    """The caller cancels on the server's 100; the server waits for the callee's first answer (RFC 3261 9.1)."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-cancelled", transport, words={"delay": 2000})
    uac = caller(c, server, "uac", "uac-cancel", transport, parts=("trying",), words={"wait": 50})
    finish(server, uac, uas)


@over_both("fork")
def fork_to_three(c, transport):
    """Three contacts ring, one answers, the other two are cancelled (RFC 3261 16.7 step 10)."""
    server = quick(c)
    uases = [callee(c, server, f"uas-cancelled-{n}", "uas-cancelled", transport) for n in (1, 2)]
    uases.append(callee(c, server, "uas-answers", "uas-answer", transport, words={"ring": 800}))
    uac = call(c, server, transport)
    finish(server, uac, *uases)


@over_both("fork-serial")
def fork_by_q(c, transport):
    """Contacts are tried in the order of q: the first is busy, the second answers (RFC 3261 16.6)."""
    server = quick(c)
    last = callee(c, server, "uas-second", "uas-answer", transport, parameters=";q=0.3")
    first = callee(c, server, "uas-first", "uas-final", transport, parameters=";q=0.9", words={"final": "486"})
    uac = call(c, server, transport)
    finish(server, uac, first, last)


@over_both("late-2xx")
def late_answer(c, transport):
    """A 2xx that crosses the CANCEL reaches the caller (RFC 3261 16.7 step 5, RFC 6026)."""
    server = quick(c)
    uas = callee(c, server, "uas", "uas-late-answer", transport)
    uac = caller(c, server, "uac", "uac-late-answer", transport)
    finish(server, uac, uas)


@over_both("redirect")
def redirect(c, transport):
    """A domain in redirect mode: 302 with the contacts and their q (RFC 3261 section 8.3)."""
    server = quick(c, redirect=True)
    register(server, "bob", 9001, transport, ";q=0.3")
    register(server, "bob", 9002, transport, ";q=0.9")
    contacts = "Contact:.*9002.*q=0.9.*9001.*q=0.3|Contact:.*9001.*q=0.3.*9002.*q=0.9"
    uac = caller(c, server, "uac", "uac-final", transport, words={"final": "302", "expected": contacts})
    finish(server, uac)


@over_both("unknown-user")
def unknown_user(c, transport):
    """Nobody is there: 404, or 480 for a user without a contact (RFC 3261 16.5)."""
    server = quick(c)
    with Client(server.host, server.port, transport) as client:
        for method in ("INVITE", "OPTIONS", "MESSAGE"):
            answer = client.ask(client.proved(server, "alice", method, f"sip:nobody@{server.domain}"))
            c.expect(answer is not None and answer.status in (404, 480),
                     f"{method} for nobody: expected 404 or 480, got {answer and answer.start}")
            c.expect("tag=" in answer.get("to"), f"no To tag in {answer.text}")
    finish(server)


class Registrations:
    """A series of REGISTER requests of one client: same Call-ID, rising CSeq (RFC 3261 10.2)."""

    def __init__(self, c, server, transport):
        self.c, self.server, self.transport = c, server, transport
        self.series, self.count = secrets.token_hex(8), 0

    def send(self, contacts, expected=(), unexpected=(), answer="200", password="builder"):
        """One REGISTER with digest; regular expressions that the answer must and must not match."""
        checks = [(f"e{n}", text, "check_it") for n, text in enumerate(expected)]
        checks += [(f"u{n}", text, "check_it_inverse") for n, text in enumerate(unexpected)]
        actions = "\n".join(f'<ereg regexp="{text}" search_in="msg" {how}="true" assign_to="{name}"/>'
                            for name, text, how in checks)
        self.count += 1
        program = caller(
            self.c, self.server, f"register{self.count}", "register", self.transport, login=("bob", password),
            words={"contact": "\n      ".join(contacts), "answer": answer, "expected": actions},
            arguments=("-cid_str", self.series),
            keys={"first": str(2 * self.count - 1), "second": str(2 * self.count)})
        program.passed()


@over_both("register")
def registering(c, transport):
    """Register, fetch, change, remove one, remove all, each answered with what is left (RFC 3261 10.3)."""
    server = quick(c)
    phone = Registrations(c, server, transport)
    phone.send(["Contact: <sip:bob@127.0.0.1:9001>;expires=600;q=0.8"],
               [r"Contact:.*9001..*;expires=(600|59[0-9])"])
    c.expect(server.contacts() == 1, f"expected 1 contact, got {server.contacts()}")
    phone.send(["Contact: <sip:bob@127.0.0.1:9002>;q=0.3", "Expires: 300"],
               ["Contact:.*9001.", r"Contact:.*9002..*;expires=(300|29[0-9])", "9001.[^,\r]*q=0.8",
                "9002.[^,\r]*q=0.3"])
    phone.send([], ["Contact:.*9001.", "9002."])
    phone.send(["Contact: <sip:bob@127.0.0.1:9001>;expires=0"], ["Contact:.*9002."], ["9001."])
    phone.send(["Contact: *", "Expires: 0"], ["CSeq:.*REGISTER"], ["900[12]"])
    phone.send([], ["CSeq:.*REGISTER"], ["900[12]"])
    c.until(lambda: server.contacts() == 0, 5, lambda: f"expected no contact, got {server.contacts()}")
    finish(server)


@over_both("register-wrong-password")
def wrong_password(c, transport):
    """Wrong credentials register nothing (RFC 3261 22.4)."""
    server = quick(c)
    phone = Registrations(c, server, transport)
    phone.send(["Contact: <sip:bob@127.0.0.1:9001>"], answer="401", password="wrong")
    c.expect(server.contacts() == 0, f"expected no contact, got {server.contacts()}")
    finish(server)


FLOODS = sorted(path.stem for path in (HERE / "floods").glob("*.sip"))
FLOOD_SECONDS = 4
FLOOD_RATE = {"udp": 2_000, "tcp": 200}


def flood(kind, transport):
    """Malformed messages at a high rate from one address, calls from another: they must all pass."""
    def body(c):
        server = quick(c)
        uas = callee(c, server, "uas", "uas-answer", "udp", calls=4)
        rate = FLOOD_RATE[transport]
        message = (HERE / "floods" / f"{kind}.sip").read_text()
        # A socket a call over TCP: the server may close a stream it cannot make sense of.
        attack = Sipp(c, "flood", "flood", remote=(server.host, server.port), source="127.0.0.2",
                      transport=transport, words={"message": message}, calls=rate * FLOOD_SECONDS, rate=rate,
                      quiet=True, sockets="each" if transport == "tcp" else "one")
        uac = call(c, server, "udp", calls=4, rate=1)
        finish(server, attack, uac, uas)
    body.__doc__ = flood.__doc__
    case(f"sipp/flood-{kind}-{transport}")(body)


for _kind in FLOODS:
    for _transport in TRANSPORTS:
        flood(_kind, _transport)
