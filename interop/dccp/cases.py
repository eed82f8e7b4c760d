"""Ringway's DCCP against Linux's own in a small machine, and what Wireshark's dissector finds in the packets of both.

Both peers send and check the same messages (peer.c, src/messages.rs), so that one that is altered or comes twice shows
on either side. Linux removed its DCCP in version 6.16; the machine's kernel is of version 6.1.
"""

import functools

from cases import Failed, case
from dccp import TARGET, Linux, examine
from network import case as own_case

# Request to Reset; an exchange within its windows has no Sync.
EVERY_TYPE = {str(number) for number in range(8)}
ABORTED, NO_CONNECTION, BAD_SERVICE = 2, 3, 8
# How Linux reports Resets: EBADRQC, ECONNREFUSED, ECONNRESET.
ITS_BAD_SERVICE, ITS_NO_CONNECTION, ITS_ABORTED = "error:56", "error:111", "error:104"


def program():
    """The program that captures, as `cargo build --profile quick` leaves it."""
    path = TARGET / "quick" / "examples" / "capture"
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-dccp --example capture")
    return path


@case("dccp/capture", own=True)
def capture(c):
    """Handshake, data with losses and close, with CCID 2 and 3: tshark finds nothing malformed and each checksum right.
    Packets in UDP (RFC 6773) are not read by its dissector."""
    file = c.folder / "dccp.pcapng"
    status, told = c.run("capture", [program(), file])
    c.expect(status == 0, f"capture: {told}")
    types = {kind for kind, _ in examine(c, file, 200)}
    c.expect(types >= EVERY_TYPE, f"types {sorted(types)}")


# Both ways, slowly enough for every queue.
FLOW = {"send": 300, "pace": 3000, "size": 400}


def all_come(machine, opened_by_us, mine, its, expected, six=False):
    """One connection in which nothing is lost, with the expected congestion control. Linux drops packets whose
    acknowledgements are more than 32 packets old, which a machine that does much else may make them."""
    def exchange():
        told = machine.meet(opened_by_us, {**FLOW, **mine}, {**FLOW, **its}, six)
        machine.c.expect(all(side["sent"] == side["got"] == "300" for side in told), f"ours, Linux's: {told}")
        machine.c.expect(all(side["tx"] == side["rx"] == expected for side in told), f"ours, Linux's: {told}")

    machine.c.attempts(exchange)


@own_case("dccp/linux", limit=240)
def linux(c):
    """RFC 4340 section 8, over IPv4 and IPv6, with CCID 2 and 3, opened and closed by either side: handshake with a
    service code, messages both ways, and the close."""
    machine = Linux(c)
    for number in range(8):
        opened_by_us, closed_by_us, ccid = number % 2 == 0, number // 2 % 2 == 0, 2 + number // 4
        common = {"service": 0x52494e47, "ccid": ccid}
        ends = {"close": True}, {}
        mine, its = ends if closed_by_us else reversed(ends)
        all_come(machine, opened_by_us, {**common, **mine}, {**common, **its}, str(ccid), six=number % 3 == 0)
    packets = machine.examine(8 * 300)
    types = {kind for kind, _ in packets}
    c.expect(types >= EVERY_TYPE, f"types {sorted(types)}")
    vectors = sum("38" in options or "39" in options for _, options in packets)
    c.expect(vectors > 100, f"only {vectors} packets have Ack Vectors")


@own_case("dccp/linux-refused", limit=120)
def refused(c):
    """RFC 4340 sections 5.6 and 8.1.2: the wrong service code, and a port without a listener, either way."""
    machine = Linux(c)
    mine, its = machine.meet(True, {"service": 7, "end": f"reset:{BAD_SERVICE}"}, {"service": 8, "limit": 3})
    c.expect(its["ended"] == "waiting", f"Linux's listener: {its}")
    mine, its = machine.meet(False, {"service": 7, "limit": 3, "end": "waiting"}, {"service": 8})
    c.expect(its["ended"] == ITS_BAD_SERVICE and mine["got"] == "0", f"Linux's client: {its}")
    mine, its = machine.meet(True, {"connect": "10.1.0.2:9", "end": f"reset:{NO_CONNECTION}"}, {"limit": 2})
    mine, its = machine.meet(False, {"limit": 3, "end": "waiting"}, {"to_port": 9})
    c.expect(its["ended"] == ITS_NO_CONNECTION, f"Linux's client: {its}")
    machine.examine(8)


@own_case("dccp/linux-reset", limit=120)
def reset(c):
    """RFC 4340 section 8.3.1: either side aborts in the middle of the other's messages."""
    machine = Linux(c)
    busy, brief = {"send": 100_000, "pace": 1000}, {"send": 50, "pace": 5000, "idle": 0}
    for opened_by_us in (True, False):
        mine, its = machine.meet(opened_by_us, {**brief, "abort": True}, busy)
        c.expect(its["ended"] == ITS_ABORTED, f"Linux's: {its}")
        # What comes before its Reset leaves, Linux answers as if there had been no connection.
        end = [f"reset:{ABORTED}", f"reset:{NO_CONNECTION}"]
        mine, its = machine.meet(opened_by_us, {**busy, "end": end}, {**brief, "reset": True})
        c.expect(int(mine["sent"]) < 100_000, f"ours: {mine}")
    machine.examine()


@own_case("dccp/linux-features", limit=240)
def features(c):
    """RFC 4340 section 6: what both prefer, offer and require is agreed, or the handshake ends as it must."""
    machine = Linux(c)
    meet = functools.partial(agree, machine)
    # The server's preference decides (6.3.1).
    meet(True, {"ccid": 2}, {"ccid": 3, "other": 2}, "3")
    meet(True, {"ccid": 3}, {"ccid": 2, "other": 3}, "2")
    meet(False, {"ccid": 3}, {"ccid": 2, "other": 3}, "3")
    meet(False, {"ccid": 2}, {"ccid": 3, "other": 2}, "2")
    # A client that has but one, and one that insists (6.6.9).
    meet(True, {"ccid": 3, "ccid_mandatory": True}, {"ccid": 2, "other": 3}, "3")
    meet(False, {"ccid": 2}, {"ccid": 3}, "3")
    # Everything else, of which Linux has but a part: what it refuses is left out. As a client it agrees to short
    # sequence numbers, and then takes them for long ones.
    everything = {"ndp": True, "data_checksum": True, "loss_event_rate": True, "window": 500}
    for opened_by_us in (True, False):
        for ccid in ("2", "3"):
            short = {"short": True} if opened_by_us else {}
            meet(opened_by_us, {"ccid": ccid, **everything, **short}, {"ccid": ccid}, ccid)
        meet(opened_by_us, {"coverage": 2}, {"coverage": 2}, "2")
        meet(opened_by_us, {"no_ecn": True}, {}, "2")
    machine.examine()


def agree(machine, opened_by_us, mine, its, expected):
    """Messages pass both ways with the expected congestion control, and we close."""
    all_come(machine, opened_by_us, {**mine, "close": True}, its, expected)


@own_case("dccp/linux-cookie", limit=90)
def cookie(c):
    """RFC 4340 section 8.1.4: Linux's client does not echo an Init Cookie, as it must, and is reset."""
    machine = Linux(c)
    _, its = machine.meet(False, {"half_open": 0, "limit": 5, "end": "waiting"}, {})
    c.expect(its["ended"] == ITS_NO_CONNECTION, f"Linux's client: {its}")
    machine.examine(3)


# A few MB each way, over a link that loses and reorders.
BULK = {"send": 3000, "size": 1300, "idle": 3000, "limit": 120}
LINK = ["--rate", "20mbit", "--delay", "10ms", "--jitter", "3ms", "--loss", "1%"]


@own_case("dccp/linux-bulk", limit=400)
def bulk(c):
    """RFC 4341 and RFC 4342: four megabytes each way at once, while the link loses one packet in a hundred and
    reorders: nearly all of it comes, once, and unaltered."""
    machine = Linux(c, *LINK)
    for number, ccid in enumerate((2, 3)):
        told = machine.meet(number == 0, {**BULK, "ccid": ccid, "close": True}, {**BULK, "ccid": ccid})
        got = [int(side["got"]) for side in told]
        c.expect(all(2850 <= one < 3000 for one in got), f"CCID {ccid}: {told}")
    packets = machine.examine(10_000)
    c.expect(sum("38" in options for _, options in packets) > 500, "hardly any Ack Vectors")
