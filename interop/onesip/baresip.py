"""baresip on the LAN of a router."""

import json
import socket
import wave

import audio
from routers import DOMAIN, PASSWORD, SETTLED, inside

# The router of each LAN with IPv4.
ROUTER4 = "10.50.60.1"
# What is the same at every router on its LAN.
ANYCAST = "fd72:696e:6777:6179::1"
TONES = {"alice": 440, "bob": 700, "carol": 900, "dave": 1100}
RECORDED_SECOND = 16_000
RECORDED_BYTES = 3 * RECORDED_SECOND
# baresip's control port, on the loopback of its own namespace.
CONTROL = 4444


class Baresip:
    """baresip on the host of a router's LAN, with IPv6 or IPv4 alone: a tone as microphone, its ear in a file."""

    def __init__(self, router, user, moves=False, contacts=()):
        """With `contacts`, users whose presence it watches, it publishes its own."""
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
        (self.folder / "contacts").write_text(
            "".join(f'"{contact}" <sip:{contact}@{DOMAIN}>;presence=p2p\n' for contact in contacts))
        publishes = ";pubint=60" if contacts else ""
        (self.folder / "config").write_text("\n".join([
            f"sip_listen {host}:5060", "net_interface phone0", *family,
            f"audio_source aufile,{self.folder}/tone.wav", f"snd_path {self.folder}", "audio_path /usr/share/baresip",
            f"ctrl_tcp_listen 127.0.0.1:{CONTROL}", "module_path /usr/lib/baresip/modules",
            *(f"module {m}.so" for m in ("g711", "aufile", "sndfile", "rtcpsummary", "ctrl_tcp")),
            "module_tmp account.so", "module_app menu.so",
            *(f"module_app {m}.so" for m in ("contact", "presence") if contacts), ""]))
        (self.folder / "accounts").write_text(
            f"<sip:{user}@{DOMAIN};transport=udp>;auth_user={user};auth_pass={PASSWORD};regint=120"
            f';outbound="sip:{proxy};transport=udp";answermode=auto{publishes}\n')
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
