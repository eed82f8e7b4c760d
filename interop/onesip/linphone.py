"""linphone on the LAN of a router."""

import wave

import audio
from fleet import DOMAIN, PASSWORD

# Until it is registered, seconds.
REGISTERED = 40
# The router on each LAN with IPv4.
ROUTER4 = "10.50.60.1"
TONES = {"alice": 440, "bob": 700}

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
publish={publish}
"""

FRIEND = """[friend_{number}]
url={user} <sip:{user}@{domain}>
pol=accept
subscribe=1
"""


class Linphone:
    """linphone's console program on the host of a router's LAN, with IPv6 or IPv4 alone: a tone as microphone, its ear
    in a file."""

    def __init__(self, router, user, friends=()):
        """With `friends`, users whose presence it watches, it publishes its own."""
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
                                                        ipv6=0 if router.ipv4 else 1, publish=1 if friends else 0)
                                        + "".join(FRIEND.format(number=number, user=friend, domain=DOMAIN)
                                                  for number, friend in enumerate(friends)))
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
            REGISTERED, lambda: f"linphone of {self.user} does not register: {self.process.output()[-600:]}")

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
