"""Two independent phones, registered with digest, call each other through the server.

Audio is checked twice at each end: by the phone's own count of RTP packets, and by finding the other
phone's tone in what it recorded.
"""

import audio
from cases import case
from phones import Baresip, Linphone
from server import Server

BARESIP_TONE, LINPHONE_TONE = 440, 700
# They talk until both have recorded so much (16 bit, 8 kHz), of which so much must be the tone.
RECORDED_BYTES = 4 * 16_000
TONE_SECONDS = 2.0
# baresip counts what it received only as often as it sends RTCP.
PACKETS = 40


def talk(c, transport, caller_is_baresip):
    """Registers both, calls, listens, hangs up, and looks at what each heard."""
    server = Server(c)
    bob = Baresip(c, "bob", "builder", server.domain, server, tone=BARESIP_TONE, transport=transport)
    alice = Linphone(c, "alice", "wonderland", server.domain, server, tone=LINPHONE_TONE, transport=transport)
    bob.registered()
    alice.registered()
    c.expect(server.contacts() == 2, f"expected 2 contacts, got {server.contacts()}")

    caller, callee = (bob, alice) if caller_is_baresip else (alice, bob)
    caller.call(f"sip:{callee.user}@{server.domain}")
    caller.established()
    callee.established()
    c.until(lambda: all(phone.recorded() >= RECORDED_BYTES for phone in (bob, alice)), 25,
            lambda: f"recorded after 25 s: baresip {bob.recorded()} bytes, linphone {alice.recorded()}")
    caller.hang_up()
    caller.ended()
    callee.ended()

    for phone, tone in ((bob, LINPHONE_TONE), (alice, BARESIP_TONE)):
        c.until(phone.packets_received, 5, f"{phone.user}: no RTP statistics")
        got = phone.packets_received()
        c.expect(got >= PACKETS, f"{phone.user} received {got} RTP packets, expected at least {PACKETS}")
        heard = audio.seconds_of_tone(phone.recording(), tone)
        c.expect(heard >= TONE_SECONDS,
                 f"{phone.user} heard the other's {tone} Hz for {heard} s, expected at least {TONE_SECONDS} s")
        other = audio.seconds_of_tone(phone.recording(), LINPHONE_TONE + BARESIP_TONE - tone)
        c.expect(other == 0, f"{phone.user} heard its own tone for {other} s")
    server.alive()


@case("phones/baresip-calls-linphone-udp", alone=True)
def baresip_calls_linphone(c):
    """RFC 3261 sections 10 and 13 with real phones over UDP."""
    talk(c, "udp", True)


@case("phones/linphone-calls-baresip-udp", alone=True)
def linphone_calls_baresip(c):
    """The other way round."""
    talk(c, "udp", False)


@case("phones/baresip-calls-linphone-tcp", alone=True)
def baresip_calls_linphone_tcp(c):
    """Over TCP: requests reach a phone over the connection it registered with."""
    talk(c, "tcp", True)


@case("phones/linphone-calls-baresip-tcp", alone=True)
def linphone_calls_baresip_tcp(c):
    """The other way round."""
    talk(c, "tcp", False)
