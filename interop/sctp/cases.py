"""Ringway's SCTP against usrsctp and pion over UDP, against Linux's own over IP in a small machine, and against itself
while a cable is pulled.

All programs of ours send and check the same pattern (peer.h), so that a message that is missing, doubled, out of order
or not as it was sent shows on either side. Those of others are spoken to in octets, which they return or count.
"""

import functools
import json
import re
import subprocess
from pathlib import Path

import cases
import sctp
from sctp import Relay, built, examine, finish, ringway, words
from server import binary

HOST = "127.0.0.1"
SCTP_PORT = 5000


def ours(c, name, **options):
    """Our peer on loopback."""
    return c.start(name, [ringway(), "peer", *words({"bind": HOST, **options})])


def theirs(c, name, **options):
    """usrsctp on loopback."""
    return c.start(name, [built("usrsctp"), *words({"bind": HOST, **options})])


# Where a SHUTDOWN COMPLETE may be lost, our side stays until its peer has asked three times: after 1, 3 and 7 s, which
# a link that loses one packet in twenty takes all of once in 160,000 times.
LINGER = 7600


def meet(c, server, client, link=None, both=None, server_only=None, client_only=None, rebind=None,
         round_number=0):
    """A server and a client over UDP, with a relay between them if a link is given; their summaries."""
    both = both or {}
    if link and link.get("loss"):
        server_only, client_only = ({**(only or {}), **({"linger": LINGER} if side is ours else {})}
                                    for side, only in ((server, server_only), (client, client_only)))
    server_port, client_port = c.ports.take(), c.ports.take()
    name = f"server-{round_number}"
    listening = server(c, name, listen=True, udp=server_port, port=SCTP_PORT, **{**both, **(server_only or {})})
    c.expect(listening.wait_output("listening", 60), f"no server: {listening.output()}")
    relay = Relay(c, server_port, link, capture=True, rebind=rebind) if link is not None else None
    connecting = client(c, f"client-{round_number}", udp=client_port, port=SCTP_PORT + 1, connect=HOST,
                        to_port=SCTP_PORT, to_udp=relay.near if relay else server_port,
                        **{**both, **(client_only or {})})
    results = finish(c, connecting), finish(c, listening)
    if relay:
        dropped = relay.finish()
        examine(c, relay.file, udp=relay.near)
        kinds = sctp.chunks(c, relay.file, udp=relay.near)
        wanted, other = (sctp.I_DATA, sctp.DATA) if both.get("interleave") else (sctp.DATA, sctp.I_DATA)
        c.expect(wanted in kinds and other not in kinds, f"chunks of types {sorted(kinds)}")
        c.expect(dropped > 0 or not link.get("loss"), "nothing was lost")
        again = sctp.count(c, relay.file, "sctp.retransmission", udp=relay.near)
        lifetimes = any("lifetime" in (only or {}) for only in (both, server_only, client_only))
        if link.get("loss") and not lifetimes:
            c.expect(again > 0, "nothing was sent again")
        elif not link.get("loss") and rebind is None:
            c.expect(again == 0 and dropped == 0, f"{again} packets bear a TSN again, {dropped} were lost")
        c.expect(rebind is None or "rebound" in relay.process.output(), "the port stayed the same")
    return results


def each_way(c, them=theirs, **options):
    """Opened from either side."""
    return [meet(c, server, client, round_number=i, **options)
            for i, (server, client) in enumerate(((them, ours), (ours, them)))]


@cases.case("sctp/flood", own=True, limit=120)
def flood(c):
    """A million INITs from forged sources, as many forged cookies and packets of a stranger: no memory is taken, and
    an association goes on."""
    status, told = c.run("flood", [sctp.ringway(), "flood"], seconds=110)
    print(told)
    c.expect(status == 0, f"flood ended with {status}: {told[-600:]}")


# Sizes from one byte to a megabyte, in even steps, on ten streams, both ways at once.
SIZES = {"count": 60, "expect": 60, "size": 1_000_000, "sizes": 60, "streams": 10}
BAD = {"loss": {"model": "random", "chance": "2 %"}, "duplicate": {"chance": "1 %"}, "delay": "5 ms",
       "jitter": "2 ms", "distribution": "uniform"}


@cases.case("sctp/usrsctp-sizes", own=True)
def sizes(c):
    """RFC 9260 section 6.9: a byte to a megabyte both ways, opened from either side."""
    each_way(c, both=SIZES)


@cases.case("sctp/usrsctp-small", own=True)
def small(c):
    """RFC 9260 section 6.10: thousands of small messages on many streams, bundled by both."""
    each_way(c, both={"count": 20_000, "expect": 20_000, "size": 100, "streams": 200})


@cases.case("sctp/usrsctp-bad-link", own=True, limit=120)
def bad_link(c):
    """The same sizes while the link loses, doubles and reorders; what passes is examined."""
    each_way(c, both={**SIZES, "count": 16, "expect": 16, "sizes": 16, "limit": 50}, link=BAD)


@cases.case("sctp/usrsctp-no-losses", own=True)
def no_losses(c):
    """RFC 9260 section 6.3.3 and 7.2.4: where nothing is lost no TSN goes out twice, from either side. Messages are
    paced, so that the sockets' own buffers lose none either."""
    both = {"count": 400, "expect": 400, "size": 5000, "sizes": 50, "streams": 5, "pace": 3000}
    c.attempts(lambda: each_way(c, both=both, link={"delay": "20 ms"}))


@cases.case("sctp/usrsctp-unordered", own=True, limit=90)
def unordered(c):
    """RFC 9260 section 6.6: unordered messages over the bad link, each once."""
    each_way(c, both={"count": 1000, "expect": 1000, "size": 3000, "sizes": 50, "unordered": True, "limit": 40},
             link=BAD)


@cases.case("sctp/usrsctp-partial", own=True, limit=90)
def partial(c):
    """RFC 3758: what is late is given up by the sender, and the other side goes on without it."""
    # Where more is lost, usrsctp doubles its RTO with each FORWARD TSN that is, up to half a minute.
    link = {**BAD, "loss": {"model": "random", "chance": "5 %"}}
    sent = {"count": 2000, "lifetime": 20, "pace": 500, "size": 500, "streams": 4, "limit": 40}
    for i, (server, client) in enumerate(((theirs, ours), (ours, theirs))):
        taken = {"stay": True, "expect": 200, "limit": 40, "streams": 4, ("partial" if server is ours else "lifetime"):
                 True if server is ours else 20}
        client_told, server_told = meet(c, server, client, link=link, client_only=sent, server_only=taken,
                                        round_number=i)
        got = int(server_told["got"])
        c.expect(200 <= got < 2000, f"{got} of 2000 came")
        if client is ours:
            c.expect(int(client_told["failed"]) >= 2000 - got, f"not all of {2000 - got} were told: {client_told}")


@cases.case("sctp/usrsctp-interleave", own=True)
def interleave(c):
    """RFC 8260: large and small messages of ten streams in turns, over a good link and a bad one."""
    both = {**SIZES, "count": 30, "expect": 30, "sizes": 30, "interleave": True, "limit": 50}
    each_way(c, both=both)
    each_way(c, both={**both, "size": 200_000}, link=BAD)


@cases.case("sctp/usrsctp-rebind", own=True)
def rebind(c):
    """RFC 6951 section 5.4: a NAT gives the client another UDP port while both send; the server goes on to that one."""
    flow = {"count": 600, "expect": 600, "size": 500, "sizes": 50, "streams": 5, "pace": 3000}
    for number, (server, client) in enumerate(((theirs, ours), (ours, theirs), (ours, ours))):
        meet(c, server, client, both=flow, link={"delay": "5 ms"}, rebind=900, round_number=number)


# Every stream begins anew once on either side.
RESET = {"count": 600, "expect": 600, "size": 500, "streams": 6, "reset_after": 300}


@cases.case("sctp/usrsctp-reset", own=True)
def reset(c):
    """RFC 6525: both sides reset their streams while messages flow; numbers begin anew, and nothing is lost."""
    for told in each_way(c, both=RESET):
        c.expect(all(int(side["resets"]) >= 1 for side in told), f"no reset was told: {told}")


# An ABORT gives up what is under way, so the side that sends one only receives.
ABORTS, LEFT = {"abort": True, "count": 0}, {"stay": True, "expect": 0}


@cases.case("sctp/usrsctp-end", own=True)
def end(c):
    """RFC 9260 section 9: shut down by either side, aborted by either side."""
    both = {"count": 200, "expect": 200, "size": 2000, "streams": 3}
    number = 0
    for server, client in ((theirs, ours), (ours, theirs)):
        for who in ("server_only", "client_only"):
            for how, told in (("stay", "shutdown"), ("abort", "reset")):
                # The side with "stay" leaves the end to the other.
                other = "client_only" if who == "server_only" else "server_only"
                options = {who: ABORTS if how == "abort" else {}, other: LEFT if how == "abort" else {"stay": True}}
                client_told, server_told = meet(c, server, client, both=both, round_number=number, **options)
                number += 1
                left = client_told if other == "client_only" else server_told
                c.expect(left["ended"] == told, f"the side that stays was told {left['ended']}, not {told}")


def pion(c, name, **options):
    """pion on loopback, which leaves the end to us."""
    return c.start(name, [built("pion"), *words({"bind": HOST, "stay": True, **options})])


def pion_ends(c, name, **options):
    """pion on loopback."""
    return c.start(name, [built("pion"), *words({"bind": HOST, **options})])


@cases.case("sctp/pion", own=True)
def pion_sizes(c):
    """pion, the SCTP of WebRTC in Go: a byte to a megabyte both ways, many small messages, opened from either side."""
    each_way(c, them=pion, both={**SIZES, "count": 30, "expect": 30, "sizes": 30})
    each_way(c, them=pion, both={"count": 5000, "expect": 5000, "size": 100, "streams": 200})


@cases.case("sctp/pion-bad-link", own=True, limit=120)
def pion_bad_link(c):
    """The same, smaller, while the link loses, doubles and reorders; what passes is examined."""
    both = {"count": 40, "expect": 40, "size": 30_000, "sizes": 40, "streams": 10, "limit": 50}
    each_way(c, them=pion, both=both, link=BAD)


@cases.case("sctp/pion-partial", own=True, limit=90)
def pion_partial(c):
    """RFC 3758: what is late is given up by us, whoever opened, and pion goes on without it."""
    flow = {"streams": 4, "limit": 40}
    sent, taken = {"count": 1000, "lifetime": 20, "pace": 500, "size": 500}, {"expect": 100, "partial": True}
    for i, (server, client) in enumerate(((pion, ours), (ours, pion))):
        server_only, client_only = (taken, sent) if server is pion else (sent, taken)
        told = meet(c, server, client, both=flow, link=BAD, server_only=server_only, client_only=client_only,
                    round_number=i)
        mine, its = told if client is ours else reversed(told)
        got = int(its["got"])
        c.expect(got >= 100 and got + int(mine["failed"]) >= 1000, f"{got} of 1000 came; ours: {mine}")


@cases.case("sctp/pion-end", own=True)
def pion_end(c):
    """RFC 9260 section 9: shut down by pion, by both at once, aborted by either; RFC 6525: its streams end, others
    begin."""
    flow = {"count": 100, "expect": 100, "size": 2000, "streams": 3}
    number = 0
    for server, client in ((pion_ends, ours), (ours, pion_ends)):
        ours_is, pion_is = ("client_only", "server_only") if client is ours else ("server_only", "client_only")
        for mine, its, told in (({"stay": True}, {}, "shutdown"), ({}, {}, "shutdown"), (ABORTS, LEFT, "aborted"),
                                (LEFT, ABORTS, "reset")):
            results = meet(c, server, client, both=flow, round_number=number, **{ours_is: mine, pion_is: its})
            ended = results[client is not ours]["ended"]
            c.expect(ended == told, f"ours was told {ended}, not {told}")
            number += 1
    # pion takes no stream up again that was reset, as WebRTC does not.
    flow = {"count": 400, "expect": 400, "size": 500}
    for i, (server, client) in enumerate(((pion, ours), (ours, pion))):
        mine, its = {"streams": 12}, {"streams": 6, "reset_after": 200}
        server_only, client_only = (its, mine) if server is pion else (mine, its)
        told = meet(c, server, client, both=flow, server_only=server_only, client_only=client_only, round_number=10 + i)
        c.expect(int(told[client is not ours]["resets"]) >= 1, f"no reset was told: {told}")


def with_linux(c, linux, opened_by_us, ours_only=None, theirs_only=None, six=False, number=0, **both):
    """One association over IP between our peer and Linux's; their summaries, ours first."""
    us, them = linux.addresses(1, six), linux.addresses(2, six)
    mine = {"bind": us, **both, **(ours_only or {})}
    its = {"bind": them, **both, **(theirs_only or {})}
    listening, connecting = {"listen": True, "port": SCTP_PORT}, {"port": SCTP_PORT + 1, "to_port": SCTP_PORT}
    argv = [ringway(), "peer"]
    if opened_by_us:
        file = linux.start(**listening, **its)
        peer = linux.space.start(f"ours-{number}", [*argv, *words({**connecting, "connect": them, **mine})])
    else:
        peer = linux.space.start(f"ours-{number}", [*argv, *words({**listening, **mine})])
        c.expect(peer.wait_output("listening", 60), f"ours: {peer.output()}")
        file = linux.start(**connecting, connect=us, **its)
    return peer, file


def both_ways(c, linux, **options):
    """Opened by us, then by Linux, to the end of both; the summaries, ours first."""
    told = []
    for number, opened_by_us in enumerate((True, False)):
        peer, file = with_linux(c, linux, opened_by_us, number=number, **options)
        told.append((finish(c, peer), linux.finish(file)))
        for mine, its in told:
            c.expect(mine["got"] == its["sent"] and its["got"] == mine["sent"], f"ours: {mine}; Linux's: {its}")
    return told


@sctp.case("sctp/linux-associate", limit=240)
def associate(c):
    """Over IPv4 and IPv6, opened from either side: a byte to a megabyte, then many streams; all of it examined."""
    linux = sctp.Linux(c)
    both_ways(c, linux, **{**SIZES, "count": 30, "expect": 30, "sizes": 30, "limit": 60})
    both_ways(c, linux, six=True, limit=60, count=50, expect=50, size=50_000, sizes=50, streams=5)
    both_ways(c, linux, limit=60, count=8000, expect=8000, size=100, streams=4000)
    linux.examine()


# Where Linux's own SCTP in UDP is, and another port than the one it expects.
LINUX_UDP, OTHER_UDP = 9899, 9900


@sctp.case("sctp/linux-udp", limit=120)
def linux_udp(c):
    """RFC 6951: Linux's own SCTP in UDP, over IPv4 and IPv6, opened from either side; our port is learned by Linux."""
    # Linux 6.1 loses whatever it would leave to the card to cut, when that is to go in UDP: no such card, then.
    linux = sctp.Linux(c, features=",csum=off", udp=LINUX_UDP)
    flow = {"count": 100, "expect": 100, "size": 100_000, "sizes": 50, "streams": 5, "limit": 60}
    for number, (opened_by_us, six, mine, known) in enumerate((
            (True, False, LINUX_UDP, LINUX_UDP), (False, False, LINUX_UDP, LINUX_UDP),
            (True, False, OTHER_UDP, 0), (False, True, OTHER_UDP, OTHER_UDP))):
        linux.run(f"cd /proc/sys/net/sctp; echo {LINUX_UDP} >udp_port; echo {known} >encap_port")
        to = {"to_udp": LINUX_UDP} if opened_by_us else {}
        peer, file = with_linux(c, linux, opened_by_us, {"udp": mine, **to}, six=six, number=number, **flow)
        told = finish(c, peer), linux.finish(file)
        c.expect(all(side["got"] == "100" for side in told), f"ours, Linux's: {told}")
    linux.examine()


# What a host may have set, and what ours may be asked for; each alone, and most of it at once.
HABITS = (
    ({"pf_enable": 0, "prsctp_enable": 0, "sack_timeout": 1, "max_burst": 1}, {}),
    ({"ecn_enable": 1, "sack_timeout": 500, "max_burst": 0}, {"with": ["ecn", "rack", "cubic"]}),
    ({"auth_enable": 1, "addip_enable": 0, "plpmtud_probe_interval": 5000},
     {"dynamic": True, "with": ["pmtu", "final-acks"]}),
    ({"rto_min": 1, "rto_initial": 50, "rto_max": 100, "rcvbuf_policy": 1}, {"ss7": True, "buffer": 20_000}),
    ({"auth_enable": 1, "addip_enable": 1, "reconf_enable": 1, "intl_enable": 1, "ecn_enable": 1},
     {"dynamic": True, "with": ["ecn", "rack", "cubic", "pmtu", "final-acks"]}),
)


@sctp.case("sctp/linux-habits", limit=120)
def linux_habits(c):
    """Linux with other settings than its own, and ours with what is off unless asked for: nothing is lost."""
    linux = sctp.Linux(c)
    flow = {"count": 100, "expect": 100, "size": 50_000, "sizes": 50, "streams": 5, "limit": 60}
    for number, (habits, ours_only) in enumerate(HABITS):
        linux.run(" && ".join(f"echo {value} >/proc/sys/net/sctp/{name}" for name, value in habits.items()))
        peer, file = with_linux(c, linux, number % 2 == 0, ours_only, number=number, **flow)
        told = finish(c, peer), linux.finish(file)
        c.expect(all(side["got"] == "100" for side in told), f"{habits}, ours, Linux's: {told}")
    linux.examine()


@sctp.case("sctp/linux-api", limit=150)
def linux_api(c):
    """Linux's own SCTP behind the API of our own: both are held to the same promises, within the machine."""
    program = sctp.ringway()
    linux = sctp.Linux(c, programs=[program])
    status, told = linux.machine.run(f"{program.name} kernel", 130)
    c.expect(status == 0 and "ok: the kernel's" in told, f"kernel ended with {status}: {told[-600:]}")


def slim(c):
    """Our program without what debuggers need of it, for which the machine has no room."""
    path = c.folder / binary().name
    subprocess.run(["strip", "-o", path, binary()], check=True)
    return path


@sctp.case("sctp/linux-perf", limit=150)
def linux_perf(c):
    """`ringway perf` over the kernel's SCTP: a server in the machine, a client there and one with our own."""
    linux = sctp.Linux(c, programs=[slim(c)])
    name, to = binary().name, f"{linux.addresses(2)[0]}:7109"
    linux.run(f"{name} perf server --transport sctp+kernel --listen {to} >/tmp/perf 2>&1 & "
              f"while ! grep -q 7109 /tmp/perf; do kill -0 $! || {{ cat /tmp/perf; exit 1; }}; sleep 0.05; done", 60)
    flow = ["perf", "client", "--size", "1000", "--time", "1", "--json", "--to", to]
    inside = linux.run(f"{name} {' '.join(flow)} --transport sctp+kernel", 60)
    outside = linux.space.start("client", [binary(), *flow, "--transport", "sctp"])
    c.expect(outside.wait(60) == 0, f"our client: {outside.output()}")
    for told in (inside, outside.output()):
        measured = json.loads(told[told.index("{"):])["sizes"][0]["throughput"]
        c.expect(measured["messages"] == measured["sent_messages"] > 0, f"not all arrived: {measured}")


@sctp.case("sctp/linux-multihome", limit=120)
def multihome(c):
    """Two networks, of which the first is pulled while both sides send: nothing is lost or doubled."""
    linux = sctp.Linux(c, networks=(1, 2))
    options = {"count": 3000, "expect": 3000, "size": 300, "streams": 8, "pace": 1500, "limit": 40}
    for number, opened_by_us in enumerate((True, False)):
        peer, file = with_linux(c, linux, opened_by_us, number=number, **options)
        c.sleep(1.5)
        linux.space.inside("link", "set", "tap1", "down")
        mine, its = finish(c, peer), linux.finish(file)
        linux.space.inside("link", "set", "tap1", "up")
        c.expect(mine["got"] == "3000" and its["got"] == "3000", f"ours: {mine}; Linux's: {its}")
        c.expect(int(mine["paths"]) > 0, f"no path was told to have failed: {mine}")
        print(f"opened by {'us' if opened_by_us else 'Linux'}: longest gap in what Linux sent {mine['gap_ms']} ms")
    linux.examine()


@sctp.case("sctp/linux-partial", limit=90)
def linux_partial(c):
    """RFC 3758, either way: what the sender gives up while its path is away does not hold up what comes after."""
    linux = sctp.Linux(c)
    for number, ours_sends in enumerate((True, False)):
        sends = {"count": 2000, "lifetime": 50, "pace": 1000, "size": 300}
        taken = {"expect": 500, "stay": True}
        mine, its = (sends, {"lifetime": 50, **taken}) if ours_sends else ({"partial": True, **taken}, sends)
        peer, file = with_linux(c, linux, True, ours_only={**mine, "streams": 4, "limit": 30},
                                theirs_only={**its, "streams": 4, "limit": 30}, number=number)
        c.sleep(1)
        linux.space.inside("link", "set", "tap1", "down")
        c.sleep(0.5)
        linux.space.inside("link", "set", "tap1", "up")
        told, linux_told = finish(c, peer), linux.finish(file)
        got = int((linux_told if ours_sends else told)["got"])
        c.expect(500 <= got < 2000, f"{got} of 2000 came")
    c.expect(sctp.FORWARD_TSN in linux.examine(), "nothing was skipped")


@sctp.case("sctp/linux-end", limit=90)
def linux_end(c):
    """RFC 9260 section 9: shut down by either side, aborted by either side."""
    linux = sctp.Linux(c)
    number = 0
    for opened_by_us in (True, False):
        for ours_ends in (True, False):
            for how, told in (("stay", "shutdown"), ("abort", "reset")):
                ends, stays = (ABORTS, LEFT) if how == "abort" else ({}, {"stay": True})
                mine, its = (ends, stays) if ours_ends else (stays, ends)
                peer, file = with_linux(c, linux, opened_by_us, ours_only=mine, theirs_only=its, number=number,
                                        count=100, expect=100, size=2000, streams=3)
                number += 1
                left = (linux.finish(file), finish(c, peer))[not ours_ends]
                c.expect(left["ended"] == told, f"the side that stays was told {left['ended']}, not {told}")
                if ours_ends:
                    finish(c, peer)
    linux.examine()


@sctp.case("sctp/linux-reset", limit=90)
def linux_reset(c):
    """RFC 6525: both sides reset their streams while messages flow; numbers begin anew, and nothing is lost."""
    linux = sctp.Linux(c)
    linux.allow("reconf_enable")
    for told in both_ways(c, linux, **RESET):
        c.expect(all(int(side["resets"]) >= 1 for side in told), f"no reset was told: {told}")
    c.expect(sctp.RE_CONFIG in linux.examine(), "no RE-CONFIG")


@sctp.case("sctp/linux-interleave", limit=90)
def linux_interleave(c):
    """RFC 8260: messages in I-DATA chunks both ways. Whole ones only: Linux gives the second fragment of a message the
    number 0, and expects it so, where section 2.1 has it be 1, for the first is 0 without saying so."""
    linux = sctp.Linux(c)
    linux.allow("intl_enable")
    both_ways(c, linux, interleave=True, count=2000, expect=2000, size=1300, sizes=100, streams=10)
    kinds = linux.examine()
    c.expect(sctp.I_DATA in kinds and sctp.DATA not in kinds, f"chunks of types {kinds}")


@sctp.case("sctp/linux-addresses", limit=120)
def linux_addresses(c):
    """RFC 5061, authenticated (RFC 4895), asked for by us and by Linux: an address on another network is added, made
    the one to send to, the first one removed and its cable pulled, while messages flow both ways."""
    linux = sctp.Linux(c, networks=(1, 2))
    linux.allow("addip_enable", "auth_enable")
    flow = {"count": 3000, "expect": 3000, "size": 300, "streams": 4, "pace": 1000, "limit": 40}
    for number, ours_changes in enumerate((True, False)):
        host = 1 if ours_changes else 2
        changes = {"bind": f"10.1.0.{host}", "add": f"10.2.0.{host}", "peer_primary": f"10.2.0.{host}",
                   "remove": f"10.1.0.{host}", "change_after": 500}
        mine, its = (changes, {}) if ours_changes else ({}, changes)
        peer, file = with_linux(c, linux, ours_changes, number=number, ours_only={"dynamic": True, **mine},
                                theirs_only=its, **flow)
        c.sleep(1.5)
        linux.space.inside("link", "set", "tap1", "down")
        told = finish(c, peer), linux.finish(file)
        linux.space.inside("link", "set", "tap1", "up")
        c.expect(all(side["got"] == "3000" for side in told), f"ours, Linux's: {told}")
        wanted = "AddressDeleted" if ours_changes else "PeerAddressDeleted"
        c.expect(wanted in peer.output(), f"no {wanted}: {peer.output()}")
    kinds = linux.examine()
    c.expect({sctp.ASCONF, sctp.AUTH} <= kinds, f"chunks of types {sorted(kinds)}")


SERVER = """
listen = ["sctp://10.1.0.1:5060"]
domains = ["host.test"]
store = "memory"
trusted = ["10.0.0.0/8"]
http = "127.0.0.1:8060"
[[route]]
domain = "inside.test"
next_hops = [{ uri = "sip:10.1.0.2:5070;transport=sctp" }]
"""
CALLS = 40


PROGRAMS = [f"/usr/bin/{name}" for name in ("sctp_test", "sctp_darn", "ncat", "socat")]


@sctp.case("sctp/linux-programs", limit=150)
def linux_programs(c):
    """What lksctp-tools, nmap and socat bring, in the machine: sctp_test sends us all its sizes, in order and not, on
    one stream and ten; we send to it and to sctp_darn; what we send to ncat and socat, which run cat, comes back, and
    so does what these two send to us."""
    linux = sctp.Linux(c, programs=PROGRAMS)

    def talk(name, **options):
        return linux.space.start(name, [ringway(), "talk", *words({"bind": "10.1.0.1", "limit": 40, **options})])

    def listening(name, **options):
        started = talk(name, port=SCTP_PORT, listen=True, stay=True, **options)
        c.expect(started.wait_output("listening", 30), f"ours: {started.output()}")
        return started

    def hears(port):
        linux.run(f"n=0; until grep -q ' {port} ' /proc/net/sctp/eps || [ $n -gt 200 ]; do sleep 0.1; n=$((n+1)); done",
                  40)

    repeats, at_once = 30, 10
    for number, (kind, order, streams) in enumerate(((0, 1, 0), (2, 0, 9), (3, 1, 9), (4, 2, 9), (6, 1, 0))):
        sink = listening(f"sink-{number}", streams=10)
        linux.run(f"sctp_test -H 10.1.0.2 -P {6000 + number} -h 10.1.0.1 -p {SCTP_PORT} -s -c {kind} -x {repeats} "
                  f"-o {order} -M {streams} -d 0", 40)
        told = finish(c, sink)
        c.expect(told["got"] == str(repeats * at_once) and told["ended"] == "shutdown", f"sctp_test -c {kind}: {told}")
    for number, client in enumerate((f"ncat --sctp 10.1.0.1 {SCTP_PORT}", f"socat - SCTP:10.1.0.1:{SCTP_PORT}")):
        echo = listening(f"echo-{number}", echo=True)
        count = linux.run("rm -f /tmp/n; (head -c 100000 /dev/zero; until [ -s /tmp/n ]; do sleep 0.1; done) | "
                          f"{client} 2>/dev/null | head -c 100000 | wc -c >/tmp/n; cat /tmp/n", 40).strip()
        c.expect(count == "100000" and finish(c, echo)["ended"] == "shutdown",
                 f"{client}: {count} octets of 100000 came back")
    linux.run("sctp_test -H 10.1.0.2 -P 7000 -l -d 1 >/tmp/test 2>&1 &")
    linux.run("sctp_darn -H 10.1.0.2 -P 7001 -l >/tmp/darn 2>&1 &")
    linux.run("ncat --sctp -l -k 10.1.0.2 7002 --exec /bin/cat >/dev/null 2>&1 &")
    linux.run("socat SCTP-LISTEN:7003,bind=10.1.0.2,fork EXEC:cat >/dev/null 2>&1 &")
    for port in range(7000, 7004):
        hears(port)
        for number, flow in enumerate(({"count": 1, "size": 1}, {"count": 100, "size": 8000, "sizes": 30})):
            echoed = {"echoed": True} if port >= 7002 else {"streams": 8}
            told = finish(c, talk(f"to-{port}-{number}", connect="10.1.0.2", to_port=port, **flow, **echoed))
            c.expect(told["ended"] == "shutdown", f"port {port}: {told}")
            sent = int(told["sent_bytes"])
    # It tells how much it was given at a time, which need not be a message.
    took = linux.run("awk '{ for (i = 1; i < NF; i++) if ($i == \"Data\") n += $(i + 1) } END { print n }' "
                     "/tmp/test").strip()
    c.expect(int(took) == 1 + sent, f"sctp_test took {took} octets of {1 + sent}")
    linux.examine()


@sctp.case("sctp/nmap", limit=60)
def nmap(c):
    """nmap's two scans while an association is at work: who listens is found by its INIT ACK, who holds a port and
    does not by its ABORT, ports of nobody not at all; a forged cookie gets nothing; the association does not notice."""
    a, b = sctp.Space(c, "a"), sctp.Space(c, "b")
    a.join(b, 1)
    end_capture, file = b.capture("e1")
    flow = {"count": 4000, "expect": 4000, "size": 200, "streams": 8, "pace": 1000, "limit": 40}
    peer = [ringway(), "peer"]
    server = b.start("server", [*peer, *words({"bind": "10.1.0.2", "port": SCTP_PORT, "listen": True, **flow})])
    c.expect(server.wait_output("listening", 30), f"no server: {server.output()}")
    # The one takes a single association, and listens no more; the other goes on.
    listening = b.start("listening",
                        [ringway(), "idle", *words({"bind": "10.1.0.2", "port": SCTP_PORT + 1, "count": 1})])
    c.expect(listening.wait_output("ready", 30), f"nobody listens: {listening.output()}")
    client = a.start("client",
                     [*peer, *words({"bind": "10.1.0.1", "connect": "10.1.0.2", "to_port": SCTP_PORT, **flow})])
    for scan in ("-sY", "-sZ"):
        status, told = c.run("nmap", [*a.enter(), "nmap", "-n", "-Pn", scan, "-p", f"{SCTP_PORT - 2}-{SCTP_PORT + 3}",
                                      "--reason", "10.1.0.2"], seconds=40)
        found = dict(re.findall(r"(\d+)/sctp (open|closed) ", told))
        # The one listens until the association stands.
        wanted = {str(SCTP_PORT): found.get(str(SCTP_PORT)), str(SCTP_PORT + 1): "open"} if scan == "-sY" else {}
        c.expect(status == 0 and found == wanted, f"nmap {scan}: {told}")
    told = finish(c, client), finish(c, server)
    c.expect(all(side["got"] == "4000" for side in told), f"{told}")
    end_capture()
    examine(c, file)


@sctp.case("sctp/linux-calls", limit=120)
def linux_calls(c):
    """RFC 4168: SIPp in the machine calls itself through our server, over Linux's SCTP and ours; what passes is
    examined."""
    files = {name: (sctp.SOURCES / name).read_text() for name in ("uac.xml", "uas.xml")}
    linux = sctp.Linux(c, programs=["/usr/bin/sipp"], files={**files, sctp.TERMINAL: Path(sctp.TERMINAL).read_bytes()})
    config = c.folder / "ringway.toml"
    config.write_text(SERVER)
    server = linux.space.start("ringway", [binary(), "serve", "--config", config],
                               env={"XDG_STATE_HOME": str(c.folder)})
    c.until(lambda: "serving" in server.output() or not server.running(), 10, lambda: f"no server: {server.output()}")
    common = f"-t s1 -i 10.1.0.2 -m {CALLS} -nostdin -timeout 60s -timeout_error -trace_err"
    linux.run(f"cd /tmp; TERM=linux sipp -sf /uas.xml -p 5070 {sctp.PATIENT} {common} -error_file /tmp/uas.err "
              f">/tmp/uas 2>&1 && echo well >/tmp/uas.end || echo badly >/tmp/uas.end &")
    linux.run("while ! grep -q : /proc/net/sctp/eps && ! grep -q 5070 /proc/net/sctp/eps; do sleep 0.1; done", 20)
    status, text = linux.machine.run(f"cd /tmp; TERM=linux sipp -sf /uac.xml -p 5080 -r 10 -s bob -key target "
                                     f"inside.test {common} -error_file /tmp/uac.err 10.1.0.1:5060 >/tmp/uac 2>&1", 90)
    told = linux.run("sleep 1; cat /tmp/uac.err /tmp/uas.err /tmp/uas.end 2>/dev/null; true")
    c.expect(status == 0, f"the caller ended with {status}: {text} {told[:800]}; server: {server.output()[-400:]}")
    c.expect(told.strip().endswith("well"), f"the callee did not end well: {told[:800]}")
    linux.examine()


# What a signalling network allows for, and what is aimed at, milliseconds.
SS7_GAP, SS7_GOAL = 800, 300
CABLE = {"count": 4000, "expect": 4000, "size": 500, "streams": 8, "pace": 1000, "limit": 60}


@sctp.case("sctp/cable", limit=120)
def cable(c):
    """Two hosts with two links; the primary one is pulled, at a host and then between two switches where no host
    sees it, while both send a thousand messages a second. Nothing is lost or doubled, and with the profile for
    signalling networks the gap is below 800 ms."""
    a, b, switches = (sctp.Space(c, name) for name in ("a", "b", "switches"))
    a.join(b, 2)
    a.join_by(switches, b, 1)
    captures = [a.capture(f"e{number}") for number in (1, 2)]

    def pull(profile, where, space, device):
        server = b.start("server", [ringway(), "peer", *words(
            {"bind": ["10.1.0.2", "10.2.0.2"], "port": SCTP_PORT, "listen": True, **profile, **CABLE})])
        c.expect(server.wait_output("listening", 60), f"no server: {server.output()}")
        client = a.start("client", [ringway(), "peer", *words(
            {"bind": ["10.1.0.1", "10.2.0.1"], "port": SCTP_PORT, "connect": ["10.1.0.2", "10.2.0.2"],
             "to_port": SCTP_PORT, **profile, **CABLE})])
        c.sleep(2)
        space.inside("link", "set", device, "down")
        told = finish(c, client), finish(c, server)
        space.inside("link", "set", device, "up")
        gap = max(float(side["gap_ms"]) for side in told)
        print(f"cable pulled {where}, profile {'ss7' if profile else 'default'}: gap {gap:.0f} ms", flush=True)
        c.expect(gap < SS7_GAP or not profile, f"the gap was {gap:.0f} ms")

    for profile in ({}, {"ss7": True}):
        for where, space, device in (("at a host", a, "e1"), ("between switches", switches, "trunk1")):
            c.attempts(functools.partial(pull, profile, where, space, device))
    for end, file in captures:
        end()
        examine(c, file)


@sctp.case("sctp/cable-addresses", limit=60)
def cable_addresses(c):
    """RFC 5061 between two Ringways: a second address is added on both sides, the first removed and its cable pulled,
    while both send a thousand messages a second."""
    a, b = sctp.Space(c, "a"), sctp.Space(c, "b")
    for number in (1, 2):
        a.join(b, number)

    def changes(host, after):
        return {"bind": f"10.1.0.{host}", "add": f"10.2.0.{host}", "remove": f"10.1.0.{host}", "change_after": after,
                "dynamic": True, "port": SCTP_PORT, **CABLE, "count": 3000, "expect": 3000}

    server = b.start("server", [ringway(), "peer", *words({**changes(2, 500), "listen": True})])
    c.expect(server.wait_output("listening", 60), f"no server: {server.output()}")
    client = a.start("client", [ringway(), "peer", *words(
        {**changes(1, 1000), "connect": "10.1.0.2", "to_port": SCTP_PORT})])
    c.sleep(2)
    a.inside("link", "set", "e1", "down")
    told = finish(c, client), finish(c, server)
    print(f"addresses changed and cable pulled: gap {max(float(side['gap_ms']) for side in told):.0f} ms")
    for process in (client, server):
        for wanted in ("AddressAdded", "AddressDeleted", "PeerAddressAdded", "PeerAddressDeleted"):
            c.expect(wanted in process.output(), f"no {wanted}: {process.output()}")


@sctp.case("sctp/black-hole", limit=90)
def black_hole(c):
    """RFC 8899: switches between the hosts swallow what is larger than 1280 bytes and tell nobody, from the beginning
    or from some time on; both send all the same, and nothing is lost."""
    a, b, switches = (sctp.Space(c, name) for name in ("a", "b", "switches"))
    a.join_by(switches, b, 1)

    def narrow(mtu):
        for trunk in ("trunk1", "trunk1b"):
            switches.inside("link", "set", trunk, "mtu", mtu)

    flow = {"count": 300, "expect": 300, "size": 5000, "sizes": 50, "streams": 5, "pace": 5000, "limit": 60,
            "with": "pmtu"}
    for number, (udp, later) in enumerate((({}, True), ({"udp": 9899}, False))):
        narrow(1500 if later else 1280)
        server = b.start(f"server-{number}", [ringway(), "peer", *words(
            {"bind": "10.1.0.2", "port": SCTP_PORT, "listen": True, **udp, **flow})])
        c.expect(server.wait_output("listening", 60), f"no server: {server.output()}")
        client = a.start(f"client-{number}", [ringway(), "peer", *words(
            {"bind": "10.1.0.1", "port": SCTP_PORT, "connect": "10.1.0.2", "to_port": SCTP_PORT, **udp, **flow,
             **({"to_udp": 9899} if udp else {})})])
        if later:
            c.sleep(0.7)
            narrow(1280)
        told = finish(c, client, 70), finish(c, server, 70)
        print(f"narrow {'later' if later else 'from the beginning'}: gap "
              f"{max(float(side['gap_ms']) for side in told):.0f} ms", flush=True)
        c.expect(any(int(side["again"]) > 0 for side in told), f"nothing was swallowed: {told}")


@sctp.case("sctp/narrow-path", limit=200)
def narrow_path(c):
    """RFC 9260 section 6.9: in the middle of a transfer the way stops to carry what is larger than 1280 bytes. What was
    cut before is fragmented by IP and all arrives; over IP and over UDP, over IPv4 and IPv6, where nobody tells (two
    switches) and where a router does."""
    a, b, switches, router = (sctp.Space(c, name) for name in ("a", "b", "switches", "router"))
    a.join_by(switches, b, 1)
    a.join(router, 2)
    router.join(b, 3)
    for space, to, by in ((a, "10.3.0.0/24", "10.2.0.2"), (a, "fd03::/64", "fd02::2"),
                          (b, "10.2.0.0/24", "10.3.0.1"), (b, "fd02::/64", "fd03::1")):
        space.inside("route", "add", to, "via", by)
    for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        status, output = c.run("forward", ["ip", "netns", "exec", router.name, "sysctl", "-w", f"{name}=1"])
        c.expect(status == 0, output)

    def narrow(mtu):
        for space, device in ((switches, "trunk1"), (switches, "trunk1b"), (router, "e3"), (b, "e3")):
            space.inside("link", "set", device, "mtu", mtu)

    ways = {"nobody tells": (("10.1.0.1", "10.1.0.2"), ("fd01::1", "fd01::2")),
            "a router tells": (("10.2.0.1", "10.3.0.2"), ("fd02::1", "fd03::2"))}
    # The association gives up after some minutes; a sender that is stuck is found out before.
    flow = {"count": 300, "size": 5000, "sizes": 50, "streams": 5, "pace": 5000, "limit": 20}
    for what, pairs in ways.items():
        for (near, far), udp in ((pair, udp) for pair in pairs for udp in ({}, {"udp": 9899})):
            narrow(1500)
            for space in (a, b):
                for family in ("-4", "-6"):
                    space.inside(family, "route", "flush", "cache")
            over = f"{'UDP' if udp else 'IP'} from {near}"
            tag = re.sub("[^a-z0-9]+", "-", f"{what} {over}".lower())
            server = b.start(f"server-{tag}", [ringway(), "peer", *words(
                {"bind": far, "port": SCTP_PORT, "listen": True, "expect": 300, **udp, **flow, "count": 0})])
            c.expect(server.wait_output("listening", 60), f"no server: {server.output()}")
            client = a.start(f"client-{tag}", [ringway(), "peer", *words(
                {"bind": near, "port": SCTP_PORT, "connect": far, "to_port": SCTP_PORT, **udp, **flow,
                 **({"to_udp": 9899} if udp else {})})])
            c.sleep(0.7)
            narrow(1280)
            told = finish(c, client, 30), finish(c, server, 30)
            gap = float(told[1]["gap_ms"])
            print(f"{what}, {over}: all arrived after {told[1]['seconds']} s, gap {gap:.0f} ms", flush=True)
            # Two timeouts show a black hole, of one second and of two; a router's word is heard at once.
            c.expect(gap > 900 or what != "nobody tells", f"{what}, {over}: nothing was too large: {told}")
            c.expect(gap < 900 or what != "a router tells", f"{what}, {over}: the router was not heard: {told}")


@sctp.case("sctp/perf", limit=60)
def perf(c):
    """`ringway perf` over IP between two hosts with two links, and over UDP: what was sent arrives, and is timed."""
    a, b = sctp.Space(c, "a"), sctp.Space(c, "b")
    for number in (1, 2):
        a.join(b, number)
    for transport, encap in (("sctp", ""), ("sctp+udp", "?encap=9899")):
        place = f"10.1.0.2,10.2.0.2:7109{encap}"
        argv = [binary(), "perf"]
        server = b.start(f"server-{transport}", [*argv, "server", "--transport", transport, "--listen", place])
        c.expect(server.wait_output("waiting for", 10), f"no server: {server.output()}")
        status, text = c.run("client",
                             [*a.enter(), *argv, "client", "--transport", transport, "--to", place, "--streams", 8,
                                        "--size", "100,5000", "--time", 1.5, "--json"])
        c.expect(status == 0, f"perf ended with {status}: {text}")
        for row in json.loads(text)["sizes"]:
            through, latency = row["throughput"], row["latency"]
            c.expect(through["messages"] == through["sent_messages"] > 0 and latency["count"] > 0, f"{row}")
