"""Two independent phones, registered with digest, call each other through the server.

Audio is checked twice at each end: by the phone's own count of RTP packets, and by finding the other
phone's tone in what it recorded.
"""

import time

import audio
from cases import case
from phones import Baresip, Linphone
from server import Server

BARESIP_TONE, LINPHONE_TONE = 440, 700
TALK_SECONDS = 5
PACKETS_A_SECOND = 50


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
    time.sleep(TALK_SECONDS)
    caller.hang_up()
    caller.ended()
    callee.ended()

    least = TALK_SECONDS * PACKETS_A_SECOND * 0.6
    for phone, tone in ((bob, LINPHONE_TONE), (alice, BARESIP_TONE)):
        c.until(phone.packets_received, 5, f"{phone.user}: no RTP statistics")
        got = phone.packets_received()
        c.expect(got >= least, f"{phone.user} received {got} RTP packets, expected at least {least:.0f}")
        heard = audio.seconds_of_tone(phone.recording(), tone)
        c.expect(heard >= TALK_SECONDS * 0.6,
                 f"{phone.user} heard the other's {tone} Hz for {heard} s, expected at least {TALK_SECONDS * 0.6} s")
        other = audio.seconds_of_tone(phone.recording(), LINPHONE_TONE + BARESIP_TONE - tone)
        c.expect(other == 0, f"{phone.user} heard its own tone for {other} s")
    server.alive()


@case("phones/baresip-calls-linphone-udp")
def baresip_calls_linphone(c):
    """RFC 3261 sections 10 and 13 with real phones over UDP."""
    talk(c, "udp", True)


@case("phones/linphone-calls-baresip-udp")
def linphone_calls_baresip(c):
    """The other way round."""
    talk(c, "udp", False)


@case("phones/baresip-calls-linphone-tcp")
def baresip_calls_linphone_tcp(c):
    """Over TCP: requests reach a phone over the connection it registered with."""
    talk(c, "tcp", True)


@case("phones/linphone-calls-baresip-tcp")
def linphone_calls_baresip_tcp(c):
    """The other way round."""
    talk(c, "tcp", False)
