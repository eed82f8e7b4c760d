"""`ringway with --datagrams` and programs that use UDP, as they are: over SCTP between two hosts with two links, and
with one of them pulled in the middle."""

import re
import shutil
import sys
from pathlib import Path

from network import case

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "with"))
from hosts import FAR, Hosts, expect_over, explained, for_all, parsed

SERVICES = ("--datagrams", "multihoming")
FOLDER = Path(__file__).resolve().parent.parent / "with"
PROGRAM = [sys.executable, "-u", FOLDER / "datagrams.py"]
PORT = 7000


def carrying(port):
    """The port of SCTP, and of SCTP in UDP, for the datagrams of a UDP port."""
    return port ^ 0x4000


def expect_carried(c, output, title="SCTP"):
    """Expects that datagrams were carried so; the lines about it."""
    lines = [line for line in explained(output) if line.startswith("datagrams ")]
    c.expect(lines and all(f" by {title}" in line for line in lines),
             f"expected {title} in each of {lines}: {output[-900:]}")
    return lines


def expect_on_the_wire(c, hosts, port, plain, carried):
    """Ends the captures: at most so many packets of UDP at a port, and at least so many of SCTP for its datagrams."""
    c.sleep(0.5)
    counts = {"plain": 0, "carried": 0}
    for started, file in hosts.captures():
        started.end()
        counts["plain"] += hosts.packets(file, f"udp.port == {port}")
        counts["carried"] += hosts.packets(file, f"udp.port == {carrying(port)} || sctp.port == {carrying(port)}")
    c.expect(counts["plain"] <= plain and counts["carried"] >= carried,
             f"expected at most {plain} packets of UDP and at least {carried} of SCTP: {counts}")


def echo(c, hosts, services=SERVICES, **options):
    """Starts a program that answers; with services, or without if there are none."""
    argv = [*PROGRAM, "echo", PORT]
    server = hosts.serve("echo", argv, services, **options) if services else hosts.far.start("echo", argv, **options)
    c.expect(server.wait_output("ready", 15), server.output())
    return server


def asks(hosts, role="ask", host=FAR, count=30, services=SERVICES):
    """Runs a program that asks, to its end; what it has printed."""
    return hosts.run(role, [*PROGRAM, role, host, PORT, count], services)


@case("datagrams/iperf3")
def iperf3(c):
    """iperf3 with UDP in both directions, with three streams, over IPv6: SCTP carries datagrams and the connection."""
    hosts = Hosts(c)
    server = hosts.serve("server", ["iperf3", "-s"], SERVICES)
    hosts.listens(5201)
    for peer, extra in ((FAR, []), (FAR, ["-R"]), (FAR, ["-P", "3"]), ("fd01::2", [])):
        output = hosts.run("client", ["iperf3", "-u", "-c", peer, "-t", "2", "-b", "10M", "-J", *extra], SERVICES)
        expect_over(c, output)
        expect_carried(c, output)
        total = parsed(output)["end"]["sum"]
        c.expect(total["packets"] > 1_000 and total["lost_percent"] < 5, f"{extra}: {total}")
    expect_carried(c, server.output())
    # The first datagrams, while an association is being opened.
    expect_on_the_wire(c, hosts, 5201, 200, 4_000)


@case("datagrams/messages")
def messages(c):
    """Programs with recvmsg and sendmsg, unconnected and connected: sizes and addresses are those of UDP."""
    hosts = Hosts(c)
    server = echo(c, hosts)
    for role in ("ask", "connected"):
        output = asks(hosts, role)
        lines = expect_carried(c, output)
        c.expect("2 paths" in lines[0], f"expected two paths: {lines}")
        port = int(re.search(r"answers at (\d+)", output)[1])
        seen = re.findall(rf"^\d+ from 10.1.0.1:{port} to {FAR}$", server.output(), re.MULTILINE)
        c.expect(len(seen) == 30, f"expected 30 from {port}, and got {len(seen)}: {server.output()}")
    expect_carried(c, server.output())
    expect_on_the_wire(c, hosts, PORT, 40, 100)


@case("datagrams/together")
def together(c):
    """sendmmsg to two hosts of which one is carried, and a socket that is connected twice and disconnected."""
    hosts = Hosts(c)
    server = echo(c, hosts)
    output = asks(hosts, "together", count=30)
    expect_carried(c, output)
    c.expect("30 answers" in output, output)
    expect_carried(c, server.output())
    # 126 datagrams and as many answers, of which the first ones of each port may go by UDP.
    expect_on_the_wire(c, hosts, PORT, 60, 100)


@case("datagrams/needs")
def needs(c):
    """A program that is carried binds the port by which it is: it gets it, and goes on by UDP."""
    hosts = Hosts(c)
    server = hosts.serve("needs", [*PROGRAM, "needs", PORT, carrying(PORT)], SERVICES)
    c.expect(server.wait_output("ready", 15), server.output())
    client = hosts.start("talk", [*PROGRAM, "talk", FAR, PORT, 4], SERVICES)
    c.expect(server.wait_output(f"has {carrying(PORT)}, too", 15), server.output())
    c.expect(client.wait_output("400 sent", 20), client.output())
    expect_carried(c, client.output(), "SCTP in UDP")
    answered = {int(number) for number in re.findall(r"answered (\d+)\.", client.output())}
    c.expect(len(answered) >= 300 and max(answered) >= 390, f"{len(answered)} of 400, the last one {max(answered)}")


@case("datagrams/dns")
def dns(c):
    """dig and dnsmasq, which drops its rights, and whose sockets reply and open nothing: many queries share an
    association."""
    hosts = Hosts(c)
    argv = ["dnsmasq", "-k", "-p", "53", "-R", "-h", "-C", "/dev/null", "-u", "nobody", "--pid-file=",
            "--address=/server.example/192.0.2.7"]
    server = hosts.serve("dnsmasq", argv, SERVICES)
    hosts.listens(53)
    dig = f"dig +short +tries=1 +time=5 @{FAR} server.example; "
    output = hosts.run("dig", ["sh", "-c", f"{dig} sleep 0.3; {dig * 9}"], SERVICES)
    c.expect(output.count("192.0.2.7") == 10, output)
    lines = expect_carried(c, output)
    opened = [line for line in lines if "ended" not in line]
    c.expect(len(opened) == 1, f"expected one association: {lines}")
    expect_carried(c, server.output())
    c.expect("datagrams to" not in server.output(), server.output())
    # The first query and its answer.
    expect_on_the_wire(c, hosts, 53, 6, 20)


@case("datagrams/dtls")
def dtls(c):
    """OpenSSL's DTLS, whose server connects its socket to its client."""
    hosts = Hosts(c)
    key, certificate = c.folder / "key", c.folder / "certificate"
    status, output = c.run("req", ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
                                   certificate, "-subj", "/CN=server.example", "-days", "2"])
    c.expect(status == 0, output)
    # It ends with its input.
    serve = f"sleep 30 | openssl s_server -dtls -listen -accept 4433 -key {key} -cert {certificate}"
    server = hosts.serve("dtls", ["sh", "-c", serve], SERVICES)
    c.expect(server.wait_output("ACCEPT", 15), server.output())
    talk = "(sleep 1; for word in one two three four; do echo $word; sleep 0.3; done)"
    connect = f"openssl s_client -dtls -connect {FAR}:4433 -CAfile {certificate} -quiet -no_ign_eof"
    output = hosts.run("client", ["sh", "-c", f"{talk} | {connect}"], SERVICES)
    c.expect(all(word in server.output() for word in ("one", "two", "three", "four")), server.output())
    expect_carried(c, output)
    expect_carried(c, server.output())


@case("datagrams/sipp")
def sipp(c):
    """SIPp calls SIPp from a port that it has bound, with media beside."""
    hosts = Hosts(c)
    answers = hosts.serve("uas", ["sipp", "-sn", "uas", "-i", FAR, "-p", "5060", "-nostdin"], SERVICES)
    c.sleep(1)
    output = hosts.run("uac", ["sipp", "-sn", "uac", "-i", "10.1.0.1", "-p", "5060", "-r", "20", "-m", "40",
                               "-d", "100", "-nostdin", f"{FAR}:5060"], SERVICES)
    expect_carried(c, output)
    c.expect(re.search(r"Successful call\D+\d+\D+40\b", output), output[-3000:])
    expect_carried(c, answers.output())
    expect_on_the_wire(c, hosts, 5060, 40, 100)


@case("datagrams/pulled")
def pulled(c):
    """A link is pulled in the middle of a talk, and both ends lose their addresses there: it goes on over the other."""
    lose(c, Hosts(c), FAR, "24")


@case("datagrams/pulled-ipv6")
def pulled_ipv6(c):
    """The same by IPv6, where a default route leads to the addresses that are gone: the kernel reports no error."""
    hosts = Hosts(c)
    for space, gateway in ((hosts.near, "fd02::2"), (hosts.far, "fd02::1")):
        space.inside("-6", "route", "add", "default", "via", gateway, "dev", "e2")
    lose(c, hosts, "fd01::2", "64")


def lose(c, hosts, far, prefix):
    """Talks to an address, which goes away with its link, and so does that of the other end."""
    server = hosts.serve("reply", [*PROGRAM, "reply", far, PORT], SERVICES)
    c.expect(server.wait_output("ready", 15), server.output())
    client = hosts.start("talk", [*PROGRAM, "talk", far, PORT, 8], SERVICES)
    c.expect(client.wait_output("answered 300.", 15), client.output())
    for space, address in ((hosts.near, f"{far[:-1]}1"), (hosts.far, far)):
        space.inside("address", "del", f"{address}/{prefix}", "dev", "e1")
    hosts.pull()
    c.expect(client.wait_output("800 sent", 20), client.output())
    answered = {int(number) for number in re.findall(r"answered (\d+)\.", client.output())}
    c.expect(len(answered) >= 500 and max(answered) >= 750,
             f"{len(answered)} of 800 were answered, and none after {max(answered)}: {client.output()[-300:]}")
    expect_carried(c, client.output())


@case("datagrams/fallback")
def fallback(c):
    """A peer without services is sent UDP, at once and unchanged, and what it has not is remembered. A client without
    services is answered by UDP."""
    hosts = Hosts(c)
    server = echo(c, hosts, services=None)
    expect_carried(c, asks(hosts, count=12), "UDP:")
    output = asks(hosts, "connected", count=12)
    c.expect("datagrams" not in "".join(explained(output)), f"it was not remembered: {output}")
    received = re.findall(r"^\d+ from", server.output(), re.MULTILINE)
    c.expect(len(received) == 24, f"the program received something else: {server.output()}")
    server.end()
    server = echo(c, hosts)
    status, output = c.run("ask", [*hosts.near.enter(), *PROGRAM, "ask", FAR, PORT, "12"])
    c.expect(status == 0, output)
    c.expect("datagrams from" not in server.output(), server.output())


@case("datagrams/gone")
def gone(c):
    """A server that is started anew without services is reached by UDP, and one with services by SCTP again."""
    hosts = Hosts(c)
    server = echo(c, hosts)
    script = f"{sys.executable} {FOLDER}/datagrams.py ask {FAR} {PORT} 6"
    again = c.folder / "again"
    both = f"{script}; until test -e {again}; do sleep 0.1; done; {script}"
    client = hosts.start("client", ["sh", "-c", both], SERVICES)
    c.expect(client.wait_output("6 answers", 20), client.output())
    server.end()
    plain = echo(c, hosts, services=None)
    again.touch()
    c.until(lambda: client.output().count("6 answers") == 2, 20, f"no answers: {client.output()}")
    c.expect(len(re.findall(r"^\d+ from", plain.output(), re.MULTILINE)) == 6, plain.output())
    expect_carried(c, client.output().partition("6 answers")[0])


@case("datagrams/strangers")
def strangers(c):
    """Rubbish at the port of SCTP reaches nobody, and neither does what other processes send to a proxy."""
    hosts = Hosts(c)
    server = echo(c, hosts)
    client = hosts.start("client", [*PROGRAM, "ask", FAR, PORT, 100], SERVICES)
    c.expect(server.wait_output("2 paths", 15), server.output())
    proxies = re.findall(r"127\.82\.0\.1:(\d+)", c.run("ss", [*hosts.far.enter(), "ss", "-ulnH"])[1])
    c.expect(proxies, "there is no proxy")
    rubbish = "import os, socket; s = socket.socket(type=2); [s.sendto(os.urandom(n), (%r, %d)) for n in range(1, 300)]"
    targets = [(hosts.near, (FAR, carrying(PORT))), *((hosts.far, ("127.82.0.1", int(port))) for port in proxies)]
    for space, to in targets:
        status, output = c.run("rubbish", [*space.enter(), sys.executable, "-c", rubbish % to])
        c.expect(status == 0, output)
    c.until(lambda: "100 answers" in client.output(), 20, f"it does not go on: {client.output()}")
    expect_carried(c, client.output())
    peers = set(re.findall(r"from ([\d.]+):\d+ to", server.output()))
    c.expect(peers == {"10.1.0.1"}, f"the program received from {peers}")
    c.expect(len(re.findall(r"^\d+ from", server.output(), re.MULTILINE)) == 100, server.output())


@case("datagrams/user")
def user(c):
    """Neither end runs as root: connected sockets are moved all the same, over SCTP in UDP."""
    hosts = Hosts(c)
    folder = for_all(c)
    shutil.copy2(FOLDER / "datagrams.py", folder)
    (folder / "state").mkdir(mode=0o777)
    (folder / "state").chmod(0o777)
    as_user = ["runuser", "-u", "nobody", "--", "env", f"XDG_STATE_HOME={folder}/state"]

    def words(*role):
        argv = [sys.executable, "-u", folder / "datagrams.py", *role]
        return [*as_user, *hosts.words(SERVICES, argv, program=folder / "ringway")]
    server = hosts.far.start("echo", words("echo", PORT), cwd=folder)
    c.expect(server.wait_output("ready", 15), server.output())
    status, output = c.run("ask", [*hosts.near.enter(), *words("connected", FAR, PORT, "30")])
    c.expect(status == 0, output)
    expect_carried(c, output, "SCTP in UDP")
    expect_carried(c, server.output(), "SCTP in UDP")
    expect_on_the_wire(c, hosts, PORT, 20, 100)


@case("datagrams/required")
def required(c):
    """Services that UDP has not are refused, because datagrams fall back to it."""
    status, output = c.run("with", Hosts.words(["--datagrams", "require:multihoming"], ["true"]))
    c.expect(status == 2 and "expected services that UDP has too" in output, f"{status}: {output}")
