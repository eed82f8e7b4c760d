"""All routers of a mesh are one SIP server: `ringway serve --mesh` in network namespaces, as it is shipped, and phones
on the LANs behind the routers."""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import wave
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "mesh")]

import audio
import network
import server
import sip
import topology
from fleet import Fleet
from story import Story

CLONE_NEWNET = 0x40000000
DOMAIN, PASSWORD = "mesh", "correct-horse"
# Until the routers of a line know each other and keep each other's records.
SETTLED = 40
# The address of the server that is the same on each LAN.
ANYCAST = "fd72:696e:6777:6179::1"
# The router and a host of each LAN with IPv4.
ROUTER4, HOST4 = "10.50.60.1", "10.50.60.20"
TONES = {"alice": 440, "bob": 700, "carol": 900}
RECORDED_BYTES = 3 * 16_000
# baresip's control port, on the loopback of its own namespace.
CONTROL = 4444
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(space):
    """This process is in a namespace for the duration of the block."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/run/netns/{space.name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        if _libc.setns(home, CLONE_NEWNET) != 0:
            os.abort()
        os.close(there)
        os.close(home)


class Router:
    """A server that is a router, with a LAN of its own and one host on it."""

    def __init__(self, c, number, ipv4=False):
        self.c, self.number, self.ipv4 = c, number, ipv4
        self.space, self.lan = network.Space(c, f"r{number}"), network.Space(c, f"h{number}")
        self.folder = c.folder / f"router{number}"
        self.folder.mkdir()
        self.process, self.interfaces = None, []
        self.plug()

    def plug(self, *options):
        """Connects the host."""
        self.space.inside("link", "add", "lan0", "type", "veth", "peer", "name", "phone0", *options, "netns",
                          self.lan.name)
        # Linux takes routes to networks from advertisements only where that is switched on (RFC 4191).
        self.c.run("sysctl", [*self.lan.enter(), "sh", "-c",
                              "echo 64 >/proc/sys/net/ipv6/conf/phone0/accept_ra_rt_info_max_plen"])
        self.lan.inside("link", "set", "phone0", "up")
        self.space.inside("link", "set", "lan0", "up")

    def connect(self, other):
        """A wire to another router."""
        ours, theirs = f"to{other.number}", f"to{self.number}"
        self.space.inside("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", other.space.name)
        for router, device in ((self, ours), (other, theirs)):
            router.space.inside("link", "set", device, "up")
            router.interfaces.append(device)

    def start(self):
        """Starts the server with what an operator would type."""
        named = [word for device in self.interfaces for word in ("--interface", device)]
        self.process = self.space.start(
            f"serve{self.number}", [server.binary(), "serve", "--mesh", *named, "--lan", "lan0",
                                    *(["--lan-ipv4"] if self.ipv4 else []), "--http", "off"],
            env={"XDG_STATE_HOME": str(self.folder)})

    def ready(self):
        """Waits until it serves."""
        self.c.expect(self.process.wait_output("serving", 20), self.process.output())

    def command(self, *words, stdin=None):
        """Runs a command of an operator of this router."""
        argv = [*self.space.enter(), server.binary(), *words]
        status, output = self.c.run(f"command{self.number}", argv, stdin=stdin,
                                    env={"XDG_STATE_HOME": str(self.folder)})
        self.c.expect(status == 0, f"{' '.join(words)}: {output}")
        return output

    def add(self, *users):
        """Adds users here."""
        for user in users:
            self.command("user", "add", user, "--password-stdin", stdin=f"{PASSWORD}\n")

    def settled(self):
        """Whether its place on the ring has not changed for a while."""
        status = json.loads(self.command("mesh", "status", "--json", "--state", str(self.folder / "ringway" / "mesh")))
        return status["settled"]

    def address(self):
        """Its address in the mesh."""
        text = self.command("mesh", "address", "--json", "--state", str(self.folder / "ringway" / "mesh"))
        return json.loads(text)["address"]

    def host4(self):
        """The IPv4 address of the host on the LAN. All LANs have the same addresses."""
        self.lan.inside("address", "replace", f"{HOST4}/24", "dev", "phone0")
        return HOST4

    def take(self, other):
        """Plugs the host of another router's LAN into this one's, instead of a host that is there."""
        _, output = self.c.run("ip", ["ip", "-n", other.lan.name, "-j", "link", "show", "dev", "phone0"])
        other.space.inside("link", "delete", "lan0")
        # It may have none.
        self.c.run("ip", ["ip", "-n", self.space.name, "link", "delete", "lan0"])
        self.lan = other.lan
        self.plug("address", json.loads(output)[0]["address"])

    def host(self):
        """The address in the mesh of the host on the LAN, once it has one by router advertisement."""
        prefix = self.address().removesuffix(":1")

        def found():
            _, output = self.c.run("ip", ["ip", "-n", self.lan.name, "-6", "-o", "address", "show", "dev", "phone0"])
            return next((one for one in re.findall(r"inet6 (fd\S+)/64 (?!.*tentative)", output)
                         if one.startswith(prefix)), None)
        return self.c.until(found, 30, "no address by router advertisement")


class Phone:
    """A contact of a user, and what it hears. Not a user agent: the phones that others wrote are below."""

    def __init__(self, router, user, password=PASSWORD):
        self.c, self.router, self.user, self.password = router.c, router, user, password
        with inside(router.lan):
            self.client = sip.Client(router.address(), 5060, source=router.host())
        router.c.after(self.client.close)
        self.domain = DOMAIN
        self.wanted = server.Wanted(domain=DOMAIN, users={user: password})

    def register(self, expires=300):
        """Registers. Returns the status of the answer."""
        host, port = self.client.local
        contact = f"<sip:{self.user}@[{host}]:{port}>"
        answer = self.client.register(self.user, self.password, DOMAIN, [contact], expires=expires)
        return answer and answer.status

    def registered(self, seconds=SETTLED):
        """Registers until that is acknowledged."""
        self.c.until(lambda: self.register() == 200, seconds, f"{self.user} is not registered")

    def send(self, to, sender=None):
        """Sends a MESSAGE to a user. Returns the status of the answer, or 0."""
        uri = f"sip:{to}@{DOMAIN}"
        fields = {} if sender is None else {"sender": f"sip:{sender}@{DOMAIN}"}
        answer = self.client.ask(self.client.proved(self, self.user, "MESSAGE", uri, **fields))
        return answer.status if answer else 0

    def answer(self, seconds=10):
        """Answers the next request with 200. Returns it, or None."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            request = self.client.receive(max(0.1, deadline - time.monotonic()))
            if request is not None and not request.status:
                kept = [f"{name.title()}: {value}" for name, value in request.headers
                        if name in ("via", "from", "to", "call-id", "cseq")]
                kept = [f"{line};tag=x" if line.startswith("To:") else line for line in kept]
                self.client.send("\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0", "", ""]))
                return request
        return None


def line(c, count, ipv4=()):
    """Routers in a line that serve, with a user on each: alice, bob, carol, dave. LANs of those in `ipv4` have IPv4."""
    routers = [Router(c, number, number in ipv4) for number in range(count)]
    for one, other in itertools.pairwise(routers):
        one.connect(other)
    for router in routers:
        router.start()
    for router in routers:
        router.ready()
    for router, user in zip(routers, ("alice", "bob", "carol", "dave"), strict=False):
        router.add(user)
    c.until(lambda: all(router.settled() for router in routers), SETTLED, "the ring does not settle")
    return routers


def delivered(c, sender, receiver, seconds=20):
    """Sends a message from one phone to another until it arrives."""
    def once():
        heard = []
        listener = threading.Thread(target=lambda: heard.append(receiver.answer(5)))
        listener.start()
        status = sender.send(receiver.user)
        listener.join()
        return status == 200 and heard[0] is not None
    c.until(once, seconds, f"no message of {sender.user} reaches {receiver.user}")


@network.case("onesip/four-routers", limit=120)
def four_routers(c):
    """Each user registers at its own router; a message goes from any to any over up to three links. Who does not exist
    is not found, and who has not registered is not available."""
    routers = line(c, 4)
    alice, dave = Phone(routers[0], "alice"), Phone(routers[3], "dave")
    alice.registered()
    dave.registered()
    delivered(c, alice, dave)
    delivered(c, dave, alice)
    c.expect((got := alice.send("nobody")) == 404, f"nobody: expected 404, got {got}")
    c.expect((got := alice.send("carol")) == 480, f"carol: expected 480, got {got}")


@network.case("onesip/any-router", limit=120)
def any_router(c):
    """A user registers at a router that does not know the password, and is called there, also when the home is gone. A
    wrong password is refused there as at home."""
    routers = line(c, 4)
    guest, caller = Phone(routers[3], "alice"), Phone(routers[1], "bob")
    wrong = Phone(routers[3], "alice", "a guess")
    caller.registered()
    c.expect((got := wrong.register()) == 401, f"a wrong password: expected 401, got {got}")
    guest.registered()
    delivered(c, caller, guest)
    delivered(c, guest, caller)
    routers[0].process.signal(signal.SIGKILL)
    delivered(c, caller, guest, 40)


@network.case("onesip/moves-in-registration", limit=120)
def moves_in_registration(c):
    """A phone is challenged by one router, plugged into the LAN of another, and answers there, at the same address of
    the server: it is challenged anew, registers, and is called where it is. Plugged back, it is called there again."""
    routers = line(c, 3, ipv4=(0, 1, 2))
    caller = Phone(routers[1], "bob")
    caller.registered()
    uri, aor = f"sip:{DOMAIN}", f"sip:alice@{DOMAIN}"

    def door(phone):
        """The server at the address that is the same everywhere."""
        with inside(phone.router.lan):
            client = sip.Client(ANYCAST, 5060, source=phone.client.local[0])
        c.after(client.close)
        return client

    def ask(phone, client, cseq, *proof):
        host, port = phone.client.local
        fields = [f"Contact: <sip:alice@[{host}]:{port}>", "Expires: 300", *proof]
        return client.ask(client.request("REGISTER", uri, to=aor, sender=aor, cseq=cseq, call_id="moves",
                                         headers=fields))

    def proof(refused):
        challenge = refused.get("www-authenticate")
        return "Authorization: " + sip.credentials(challenge, "alice", PASSWORD, "REGISTER", uri)

    first = Phone(routers[0], "alice")
    refused = ask(first, door(first), 1)
    c.expect(refused is not None and refused.status == 401, f"expected a challenge, got {refused and refused.start}")
    routers[2].take(routers[0])
    moved = Phone(routers[2], "alice")
    there = door(moved)
    again = c.until(lambda: ask(moved, there, 2, proof(refused)), 30, "no answer after the phone has moved")
    c.expect(again.status == 401, f"the nonce of another router: expected 401, got {again.start}")
    # Without it a phone would have to take its password for wrong (RFC 7616 section 3.3).
    c.expect("stale=true" in again.get("www-authenticate"), f"not stale: {again.get('www-authenticate')}")
    done = ask(moved, there, 3, proof(again))
    c.expect(done is not None and done.status == 200, f"expected 200, got {done and done.start}")
    delivered(c, caller, moved)
    delivered(c, moved, caller)
    routers[0].take(routers[2])
    back = Phone(routers[0], "alice")
    back.registered()
    delivered(c, caller, back)


@network.case("onesip/stranger", limit=120)
def stranger(c):
    """A host of a LAN gains nothing: not the name of another user, nor by the address of its router."""
    routers = line(c, 3)
    alice, carol = Phone(routers[0], "alice"), Phone(routers[2], "carol")
    alice.registered()
    carol.registered()
    c.expect((got := alice.send("carol", sender="bob")) == 403, f"as another user: expected 403, got {got}")
    # Past the own router, to another one: there it is a phone like any other, and must prove who it is.
    with inside(routers[0].lan):
        direct = sip.Client(routers[2].address(), 5060, source=routers[0].host())
    c.after(direct.close)
    answer = direct.ask(direct.request("MESSAGE", f"sip:carol@{DOMAIN}", sender=f"sip:bob@{DOMAIN}"), 5)
    c.expect(answer is not None and answer.status == 407, f"expected 407, got {answer and answer.start}")
    # With the address of a router: of its own, to another, and of another, to its own. Neither is believed.
    for claimed, target in ((routers[0], routers[2]), (routers[2], routers[0])):
        source = claimed.address()
        routers[0].lan.inside("address", "add", f"{source}/128", "dev", "phone0", "nodad")
        with inside(routers[0].lan):
            forger = sip.Client(target.address(), 5060, source=source)
        c.after(forger.close)
        user = "alice" if claimed is routers[0] else "carol"
        uri = f"sip:forged-{claimed.number}@{DOMAIN}"
        forger.send(forger.request("MESSAGE", uri, sender=f"sip:{user}@{DOMAIN}"))
        c.sleep(2)
        routers[0].lan.inside("address", "del", f"{source}/128", "dev", "phone0")
        c.expect(uri not in target.process.output(), f"{uri} was taken for a request of a router")


class Baresip:
    """baresip on the host of a router's LAN, with IPv6 or IPv4 alone: a tone as microphone, its ear in a file."""

    def __init__(self, router, user, moves=False):
        ipv4 = router.ipv4 and not moves
        host, proxy = (router.host4(), ROUTER4) if ipv4 else (f"[{router.host()}]", f"[{router.address()}]")
        if moves:
            # At whatever address it has.
            host, proxy = "[::]", f"[{ANYCAST}]"
        family = [] if ipv4 else ["net_prefer_ipv6 yes", "net_af ipv6"]
        self.c, self.router, self.user = router.c, router, user
        self.folder = router.c.folder / f"baresip-{user}"
        self.folder.mkdir()
        # baresip hangs up when the file ends.
        audio.write_tone(self.folder / "tone.wav", TONES[user], 200 if moves else 40)
        (self.folder / "contacts").touch()
        (self.folder / "config").write_text("\n".join([
            f"sip_listen {host}:5060", "net_interface phone0", *family,
            f"audio_source aufile,{self.folder}/tone.wav", f"snd_path {self.folder}", "audio_path /usr/share/baresip",
            f"ctrl_tcp_listen 127.0.0.1:{CONTROL}", "module_path /usr/lib/baresip/modules",
            *(f"module {m}.so" for m in ("g711", "aufile", "sndfile", "rtcpsummary", "ctrl_tcp")),
            "module_tmp account.so", "module_app menu.so", ""]))
        (self.folder / "accounts").write_text(
            f"<sip:{user}@{DOMAIN};transport=udp>;auth_user={user};auth_pass={PASSWORD};regint=120"
            f';outbound="sip:{proxy};transport=udp";answermode=auto\n')
        self.process = router.lan.start(f"baresip-{user}", ["baresip", "-f", self.folder, "-s"])

    def registered(self):
        """Waits until it is registered."""
        self.c.until(lambda: " 200 OK (" in self.process.output() and "binding" in self.process.output(), SETTLED,
                     lambda: f"baresip of {self.user} does not register: {self.process.output()[-600:]}")

    def command(self, command, params=""):
        """One command, as a netstring of JSON."""
        text = json.dumps({"command": command, "params": params, "token": command}).encode()
        with inside(self.router.lan), socket.create_connection(("127.0.0.1", CONTROL), timeout=5) as control:
            control.sendall(b"%d:%s," % (len(text), text))
            control.settimeout(2)
            control.recv(4096)

    def call(self, user):
        """Calls a user."""
        self.command("dial", f"sip:{user}@{DOMAIN}")

    def recorded(self):
        """What it has recorded so far."""
        return sum(path.stat().st_size for path in self.folder.glob("dump-*-dec.wav"))

    def heard(self, tone):
        """Seconds of a tone in what it recorded."""
        found = sorted(self.folder.glob("dump-*-dec.wav"))
        try:
            return audio.seconds_of_tone(found[-1], tone) if found else 0.0
        except wave.Error:  # its head is written when the call has ended
            return 0.0


LINPHONE = """[sip]
sip_port=5060
sip_tcp_port=-1
sip_tls_port=-1
register_only_when_network_is_up=0
use_ipv6={ipv6}
[video]
enabled=0
[auth_info_0]
username={user}
passwd={password}
realm={domain}
domain={domain}
[proxy_0]
reg_proxy=<sip:{proxy};transport=udp>
reg_identity=sip:{user}@{domain}
reg_route=<sip:{proxy};transport=udp;lr>
reg_expires=120
reg_sendregister=1
publish=0
"""


class Linphone:
    """linphone's console program on the host of a router's LAN, with IPv6 or IPv4 alone: a tone as microphone, its ear
    in a file."""

    def __init__(self, router, user):
        self.c, self.router, self.user = router.c, router, user
        self.folder = router.c.folder / f"linphone-{user}"
        for name in (".local/share/linphone", ".config/linphone"):
            (self.folder / name).mkdir(parents=True)
        if router.ipv4:
            proxy = ROUTER4
            router.host4()
            # As a lease says. Linphone asks the kernel from which address it would reach the Internet.
            router.lan.inside("route", "replace", "default", "via", ROUTER4)
        else:
            proxy = f"[{router.address()}]"
            router.host()
        audio.write_tone(self.folder / "tone.wav", TONES[user])
        (self.folder / "rc").write_text(LINPHONE.format(user=user, password=PASSWORD, domain=DOMAIN, proxy=proxy,
                                                        ipv6=0 if router.ipv4 else 1))
        self.debug = self.folder / "debug.log"
        self.process = router.lan.start(
            f"linphone-{user}", ["linphonec", "-a", "-c", self.folder / "rc", "-d", "6", "-l", self.debug],
            env={"HOME": str(self.folder), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}, stdin=True)
        for line in ("soundcard use files", f"play {self.folder}/tone.wav", f"record {self.folder}/heard.wav"):
            self.process.write(line)

    def registered(self):
        """Waits until it is registered."""
        self.c.until(
            lambda: self.debug.exists() and "to [LinphoneRegistrationOk]" in self.debug.read_text(errors="replace"),
            SETTLED, lambda: f"linphone of {self.user} does not register: {self.process.output()[-600:]}")

    def call(self, user):
        """Calls a user."""
        self.process.write(f"call sip:{user}@{DOMAIN}")

    def command(self, command):
        """One command in baresip's words."""
        self.process.write({"hangup": "terminate"}[command])

    def recorded(self):
        """What it has recorded so far."""
        found = self.folder / "heard.wav"
        return found.stat().st_size if found.exists() else 0

    def heard(self, tone):
        """Seconds of a tone in what it recorded."""
        try:
            return audio.seconds_of_tone(self.folder / "heard.wav", tone)
        except (wave.Error, FileNotFoundError):  # its head is written when the call has ended
            return 0.0


def talk(c, caller, callee):
    """Two phones register, call, hear each other's tone, and hang up."""
    for phone in (caller, callee):
        phone.registered()
    caller.call(callee.user)
    phones = (caller, callee)
    c.until(lambda: all(phone.recorded() >= RECORDED_BYTES for phone in phones), 30,
            lambda: f"nothing is heard: {[phone.process.output()[-500:] for phone in phones]}")
    caller.command("hangup")
    for phone, other in ((caller, callee), (callee, caller)):
        c.until(lambda phone=phone, other=other: phone.heard(TONES[other.user]) >= 2.0, 10,
                f"{phone.user} does not hear {other.user}")


@network.case("onesip/baresip", limit=150, alone=True)
def baresip(c):
    """Two baresips, four routers between, one of them a guest at the far end: they hear each other's tone."""
    routers = line(c, 4)
    talk(c, Baresip(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/baresip-ipv4", limit=150, alone=True)
def baresip_ipv4(c):
    """The same of phones that know only IPv4 and have the same address, each on its LAN: the routers relay."""
    routers = line(c, 4, ipv4=(0, 3))
    talk(c, Baresip(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/baresip-ipv4-ipv6", limit=150, alone=True)
def baresip_both(c):
    """A phone that knows only IPv4 calls one that knows only IPv6."""
    routers = line(c, 4, ipv4=(0,))
    talk(c, Baresip(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/linphone", limit=150, alone=True)
def linphone(c):
    """linphone calls baresip over four routers, with IPv6."""
    routers = line(c, 4)
    talk(c, Linphone(routers[0], "alice"), Baresip(routers[3], "bob"))


@network.case("onesip/linphone-ipv4", limit=150, alone=True)
def linphone_ipv4(c):
    """baresip calls linphone over four routers, where both know only IPv4 and have the same address."""
    routers = line(c, 4, ipv4=(0, 3))
    talk(c, Baresip(routers[0], "alice"), Linphone(routers[3], "bob"))


@network.case("onesip/ring-of-six", limit=90)
def ring_of_six(c):
    """Users of six routers call each other, guests among them; a router dies, and the ring is cut in two and joined
    again: each registration that was acknowledged is still found, each half goes on calling, and calls under way go on.
    What `interop/onesip/run` does with up to sixty."""
    async def tell(fleet):
        story = Story(fleet, quiet=2.0, sweep=20, pace=2.0)
        try:
            await story.begin(2, 1)
            await story.kill(story.dying)
            await story.part()
            await story.join()
        finally:
            story.close()
        return story.events
    with Fleet(topology.ring(6), "onesip-case") as fleet:
        events = asyncio.run(tell(fleet))
    faults = [fault for event in events for fault in event.failed()]
    c.expect(not faults, "\n".join(faults))
    c.expect(all(event.fields["held"] for event in events[1:]), "no calls were under way")


@network.case("onesip/moves-in-call", limit=180)
def moves_in_call(c):
    """A baresip is plugged into the LAN of another router in the middle of a call. Within a minute it notices its new
    address, registers, and sends a re-INVITE by the new router to the old one: both hear each other again."""
    routers = line(c, 3, ipv4=(0, 1, 2))
    moving, staying = Baresip(routers[2], "carol", moves=True), Baresip(routers[0], "alice", moves=True)
    for phone in (moving, staying):
        phone.registered()
    moving.call("alice")
    phones = (moving, staying)
    c.until(lambda: all(phone.recorded() >= RECORDED_BYTES for phone in phones), 30, "nothing is heard")
    routers[1].take(routers[2])
    c.until(lambda: "address changed" in moving.process.output(), 70, "baresip does not notice that it has moved")
    before = [phone.recorded() for phone in phones]
    c.until(lambda: all(phone.recorded() >= was + RECORDED_BYTES
                        for phone, was in zip(phones, before, strict=True)), 15,
            lambda: f"they do not hear each other again: {moving.process.output()[-800:]}")
    moving.router = routers[1]
    moving.command("hangup")
    for phone, other in ((moving, staying), (staying, moving)):
        c.until(lambda phone=phone, other=other: phone.heard(TONES[other.user]) >= 2.0, 40,
                f"{phone.user} does not hear {other.user}")
