"""Phones on the LAN of a mesh router: clients of DHCP, DNS and router advertisements that others wrote find the SIP
server, keep their addresses when they move, and get answers of nobody else's."""

import re
import socket
import struct
import subprocess

import network
import server

ANYCAST, ROUTER = "fd72:696e:6777:6179::1", "10.50.60.1"
# Every answer comes within milliseconds; a busy machine takes longer.
ANSWER = 10
# What a client learns is written to a file: `bound` is udhcpc's word, the others are dhclient's.
SCRIPT = """#!/bin/sh
ip link set "$interface" up
case "${reason:-$1}" in
deconfig | PREINIT | PREINIT6) ip -4 address flush dev "$interface" scope global ;;
bound | BOUND | REBOOT | RENEW) ip address replace "${ip:-$new_ip_address}/24" dev "$interface" ;;
esac
env | sort >"$OUT.${reason:-$1}"
"""
DHCLIENT = """
timeout 20;
option sip-servers code 120 = array of integer 8;
request subnet-mask, routers, domain-name-servers, domain-name, sip-servers;
"""
MDNS_GROUP, MDNS_PORT = "ff02::fb", 5353


class Router:
    """A mesh router with a LAN of its own; `phone` moves to it by `plug`."""

    def __init__(self, c, name):
        self.c, self.name, self.space = c, name, network.Space(c, name)
        self.state, self.process = c.folder / f"{name}-state", None

    def run(self, *arguments):
        """Starts it; it is ready when it says so."""
        self.process = self.space.start(self.name, [
            server.binary(), "mesh", "run", "--lan", "lan0", "--lan-ipv4", "--state", self.state, *arguments])
        self.c.expect(self.process.wait_output("ready:", 20), self.process.output())
        return self

    def served(self):
        """Waits until the LAN is."""
        self.c.expect(self.process.wait_output("is served", ANSWER), self.process.output())

    def stop(self):
        """Stops it; it must end well."""
        self.process.popen.terminate()
        self.c.expect(self.process.wait(20) == 0, self.process.output())

    def plug(self, phone, mac="02:00:00:00:00:0a"):
        """Connects a phone: its device `phone0`, and `lan0` here."""
        self.space.inside("link", "add", "lan0", "type", "veth", "peer", "name", "phone0", "address", mac, "netns",
                          phone.name)
        phone.inside("link", "set", "phone0", "up")
        self.space.inside("link", "set", "lan0", "up")

    def unplug(self):
        """Removes both ends."""
        self.space.inside("link", "delete", "lan0")


def addressed(c, phone):
    """Waits until a phone has addresses of IPv6 that it may send from: one of the mesh and one of the link, both past
    the detection of duplicates (RFC 4862 section 5.4)."""
    def usable():
        shown = c.run("ip", [*phone.enter(), "ip", "-6", "address", "show", "dev", "phone0"])[1]
        return all(re.search(rf"inet6 {prefix}\S+ (?!.*tentative)", shown) for prefix in ("fd", "fe80"))

    c.until(usable, 20, "no address of IPv6")


def known(c, client, reason):
    """What a client has learnt: the variables of its script."""
    file = c.folder / f"{client}.{reason}"
    text = file.read_text() if file.exists() else ""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def script(c):
    """The script of clients."""
    file = c.folder / "script"
    if not file.exists():
        file.write_text(SCRIPT)
        file.chmod(0o755)
    return file


def udhcpc(c, phone, device="phone0", client="udhcpc"):
    """Gets a lease with busybox."""
    status, output = c.run(client, [
        *phone.enter(), "env", f"OUT={c.folder / client}", "busybox", "udhcpc", "-i", device, "-n", "-q", "-t", "5",
        "-T", "2", "-O", "120", "-s", script(c)], 30)
    c.expect(status == 0, f"no lease: {output}")
    return known(c, client, "bound")


def dhclient(c, phone, *arguments, client="dhclient"):
    """Gets what ISC's client asks for; returns what it printed."""
    config = c.folder / "dhclient.conf"
    config.write_text(DHCLIENT)
    status, output = c.run(client, [
        *phone.enter(), "env", f"OUT={c.folder / client}", "dhclient", "-1", "-v", "-cf", config,
        "-lf", c.folder / f"{client}.leases", "-pf", c.folder / f"{client}.pid", "-sf", script(c),
        "-e", f"OUT={c.folder / client}", *arguments, "phone0"], 40)
    stop = [*phone.enter(), "dhclient", "-x", "-pf", c.folder / f"{client}.pid", "phone0"]
    subprocess.run(list(map(str, stop)), capture_output=True, check=False)
    c.expect(status == 0, f"dhclient: {output}")
    return output


def dig(c, space, *words, at=ROUTER):
    """What dig prints."""
    return c.run("dig", [*space.enter(), "dig", "+tries=3", "+time=3", f"@{at}", *words], 20)[1]


def short(c, space, *words, at=ROUTER):
    """The answers alone, without what dig remarks about an attempt that was not answered: the host's address may be a
    moment old."""
    lines = dig(c, space, "+short", *words, at=at).split("\n")[:-1]
    return [line for line in lines if not line.startswith(";;")]


@network.case("lan/phone-finds-the-server", limit=60)
def finds_the_server(c):
    """A phone with IPv4 gets an address, the SIP server by option 120, and the server's names; who asks for other names
    is refused."""
    router, phone = Router(c, "router"), network.Space(c, "phone")
    router.plug(phone)
    router.run().served()
    lease = udhcpc(c, phone)
    c.expect(lease.get("sipsrv") == ROUTER and lease.get("dns") == ROUTER and lease.get("router") == ROUTER,
             f"not all is leased: {lease}")
    c.expect((lease.get("domain"), lease.get("lease"), lease.get("mask")) == ("mesh", "1800", "24"), f"leased: {lease}")
    addressed(c, phone)
    naptr = ['10 10 "s" "SIP+D2U" "" _sip._udp.mesh.', '10 20 "s" "SIP+D2T" "" _sip._tcp.mesh.']
    for at in (ROUTER, ANYCAST):
        for by in ("+notcp", "+tcp"):
            c.expect(sorted(short(c, phone, by, "mesh", "NAPTR", at=at)) == naptr, f"no NAPTR at {at} with {by}")
    for words, expected in (
            (("_sip._udp.mesh", "SRV"), ["0 0 5060 sip.mesh."]),
            (("_sip._tcp.mesh", "SRV"), ["0 0 5060 sip.mesh."]),
            (("sip.mesh", "AAAA"), [ANYCAST]),
            (("sip.mesh", "A"), [ROUTER]),
            (("_sip._udp.mesh", "PTR"), ["ringway._sip._udp.mesh."]),
            (("lb._dns-sd._udp.mesh", "PTR"), ["mesh."]),
            (("-x", ROUTER), ["sip.mesh."]),
            (("-x", ANYCAST), ["sip.mesh."])):
        found = short(c, phone, *words)
        c.expect(found == expected, f"{words}: {found}")
    for words, expected in ((("example.org", "A"), "REFUSED"), (("nobody.mesh", "A"), "NXDOMAIN"),
                            (("mesh", "MX"), "NOERROR")):
        answer = dig(c, phone, *words)
        c.expect(f"status: {expected}" in answer, f"{words}: {answer}")
    router.stop()


@network.case("lan/host-with-ipv6", limit=60)
def with_ipv6(c):
    """Router advertisements name the resolver and the domain; a kernel alone reaches the server's address; DHCPv6 has
    the rest."""
    router, phone = Router(c, "router"), network.Space(c, "phone")
    router.plug(phone)
    router.run().served()
    addressed(c, phone)
    status, output = c.run("rdisc6", [*phone.enter(), "rdisc6", "-1", "-r", "10", "phone0"])
    c.expect(status == 0, output)
    for line in (rf"Recursive DNS server *: {ANYCAST}", "DNS search list *: mesh", "Stateful other conf. *: *Yes",
                 "Stateful address conf. *: *No", "Router lifetime *: *0 "):
        c.expect(re.search(line, output), f"{line} is not advertised: {output}")
    c.expect(short(c, phone, "sip.mesh", "AAAA", at=ANYCAST) == [ANYCAST], "the server is not reached")
    dhclient(c, phone, "-6", "-S", client="dhclient6")
    learnt = next((known(c, "dhclient6", reason) for reason in ("INFO6", "RENEW6", "BOUND6")
                   if known(c, "dhclient6", reason)), {})
    c.expect(learnt.get("new_dhcp6_name_servers") == ANYCAST and learnt.get("new_dhcp6_domain_search") == "mesh.",
             f"DHCPv6: {learnt}")
    router.stop()


def browse(c, phone, name, port=0):
    """Asks for PTR records by multicast DNS from a socket in the phone's namespace; returns the answer's octets."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = struct.pack("!6H", 7, 0, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 12, 1)
    program = ("import socket,sys;s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM);"
               f"s.bind(('::',{port}));i=socket.if_nametoindex('phone0');s.settimeout(2);\n"
               "for _ in range(5):\n"
               f" s.sendto(bytes.fromhex('{query.hex()}'),('{MDNS_GROUP}',{MDNS_PORT},0,i))\n"
               " try: print(s.recv(1500).hex()); break\n"
               " except TimeoutError: pass")
    return bytes.fromhex(c.run("browse", [*phone.enter(), "python3", "-c", program])[1].strip())


@network.case("lan/softphone-browses", limit=40)
def browses(c):
    """A program that browses by multicast DNS finds the service, its port and its host; tshark finds no fault in the
    probes, announcements and answers."""
    router, phone = Router(c, "router"), network.Space(c, "phone")
    router.plug(phone)
    capture = phone.start("dumpcap", ["dumpcap", "-q", "-i", "phone0", "-f", "udp port 5353", "-w",
                                      c.folder / "mdns.pcapng"])
    c.expect(capture.wait_output("File:", 10), "no capture")
    router.run().served()
    addressed(c, phone)
    answer = c.until(lambda: browse(c, phone, "_sip._udp.local"), 20, "no answer")
    identity = c.run("address", [server.binary(), "mesh", "address", "--state", router.state])[1].split()[1]
    for part in (b"Ringway " + identity.encode(), b"ringway-" + identity.encode(), b"domain=mesh",
                 socket.inet_pton(socket.AF_INET6, ANYCAST), socket.inet_aton(ROUTER), struct.pack("!H", 5060)):
        c.expect(part in answer, f"{part} is not in {answer}")
    router.stop()
    c.sleep(0.5)
    capture.end()
    shown = c.run("tshark", ["tshark", "-r", c.folder / "mdns.pcapng", "-T", "fields", "-e", "dns.flags.response",
                             "-e", "dns.count.answers", "-e", "dns.resp.ttl", "-e", "_ws.malformed"])[1]
    lines = [line.split("\t") for line in shown.splitlines() if "\t" in line]
    c.expect(lines and not any(fields[3] for fields in lines), f"malformed: {shown}")
    probes = [fields for fields in lines if fields[0] in ("0", "False") and fields[1] == "0"]
    c.expect(len(probes) >= 3, f"not probed for: {shown}")
    c.expect(any(set(fields[2].split(",")) == {"0"} for fields in lines), f"no farewell: {shown}")


@network.case("lan/phone-moves", limit=90)
def moves(c):
    """A phone that is connected to another router keeps its address, its server and its names, at once; where another
    phone has the address, it gets another one."""
    routers = [Router(c, "one"), Router(c, "two")]
    phone, other = network.Space(c, "phone"), network.Space(c, "other")
    for router in routers:
        router.run()
    routers[0].plug(phone)
    routers[0].served()
    output = dhclient(c, phone, "-4")
    first = known(c, "dhclient", "BOUND").get("new_ip_address")
    c.expect(first and "DHCPDISCOVER" in output, f"no lease: {output}")
    c.expect(known(c, "dhclient", "BOUND").get("new_sip_servers", "").startswith("1"), "no SIP server")
    routers[0].unplug()
    routers[1].plug(phone)
    routers[1].served()
    output = dhclient(c, phone, "-4")
    second = known(c, "dhclient", "REBOOT").get("new_ip_address")
    c.expect(second == first and "DHCPNAK" not in output and "DHCPDISCOVER" not in output,
             f"{first} became {second}: {output}")
    c.expect(short(c, phone, "_sip._udp.mesh", "SRV") == ["0 0 5060 sip.mesh."], "the server is not found")
    # At the first router another phone gets the address meanwhile: it asks for it as if it came from elsewhere.
    routers[1].unplug()
    routers[0].plug(other, mac="02:00:00:00:00:0b")
    routers[0].process.wait_output("is not served any more", ANSWER)
    c.sleep(1)
    leases = routers[0].state / "leases"
    routers[0].stop()
    lines = [line.split() for line in leases.read_text().splitlines()]
    c.expect([line[0] for line in lines] == [first], f"the leases: {lines}")
    leases.write_text(f"{first} {lines[0][1]} {'0' * 31}1 {'0' * 15}1\n")
    routers[0].unplug()
    routers[0].plug(phone)
    routers[0].run().served()
    output = dhclient(c, phone, "-4")
    third = known(c, "dhclient", "BOUND").get("new_ip_address")
    c.expect("DHCPNAK" in output and third not in (None, first), f"{first} became {third}: {output}")
    for router in routers:
        router.stop()


@network.case("lan/restart-keeps-leases", limit=60)
def restart(c):
    """A router that is restarted, or whose interface comes back, offers everything again, and gives nobody an address
    that another has."""
    router, phone = Router(c, "router"), network.Space(c, "phone")
    router.plug(phone)
    router.run().served()
    first = udhcpc(c, phone)["ip"]
    c.until(lambda: first in ((router.state / "leases").read_text() if (router.state / "leases").exists() else ""), 10,
            "the lease is not written")
    router.process.popen.kill()
    router.process.wait(10)
    router.run().served()
    c.expect(udhcpc(c, phone)["ip"] == first, "another address after a restart")
    router.unplug()
    c.expect(router.process.wait_output("is not served any more", ANSWER), router.process.output())
    router.plug(phone)
    c.until(lambda: router.process.output().count("is served") == 2, ANSWER, router.process.output)
    c.expect(udhcpc(c, phone)["ip"] == first, "another address after the interface was gone")
    c.expect(short(c, phone, "sip.mesh", "A") == [ROUTER], "no DNS after the interface was gone")
    c.expect("not offered" not in router.process.output(), router.process.output())
    router.stop()


@network.case("lan/only-the-lan-is-served", limit=60)
def only_the_lan(c):
    """Hosts of the router's other interfaces get no answer, and a service whose port another program has is a line,
    until it can be offered."""
    router, phone, outside = Router(c, "router"), network.Space(c, "phone"), network.Space(c, "outside")
    router.plug(phone)
    router.space.join(outside, 7)
    blocker = router.space.start("blocker", ["python3", "-c", (
        "import socket,time;s=socket.socket(socket.AF_INET,socket.SOCK_STREAM);s.bind(('0.0.0.0',53));s.listen();"
        "print('bound',flush=True);time.sleep(600)")])
    c.expect(blocker.wait_output("bound", 10), "the port is not taken")
    router.run().served()
    c.expect(router.process.wait_output("DNS on tcp 10.50.60.1:53 is not offered", ANSWER),
             router.process.output())
    udhcpc(c, phone)
    c.expect(short(c, phone, "sip.mesh", "A") == [ROUTER], "no DNS by UDP")
    blocker.end()
    outside.inside("route", "add", f"{ROUTER}/32", "via", "10.7.0.1")
    outside.inside("-6", "route", "add", f"{ANYCAST}/128", "via", "fd07::1")
    c.expect("10.7.0.1" in c.run("ping", [*outside.enter(), "ping", "-c", "1", "-W", "10", "10.7.0.1"])[1], "no link")
    for at in (ROUTER, ANYCAST, "10.7.0.1"):
        output = c.run("dig", [*outside.enter(), "dig", "+tries=1", "+time=1", "+short", f"@{at}", "sip.mesh", "A"])[1]
        c.expect(ROUTER not in output.replace(f"#53({ROUTER})", "").replace(f"{ROUTER}#53", ""),
                 f"answered to another interface: {output}")
    status, output = c.run("udhcpc", [*outside.enter(), "busybox", "udhcpc", "-i", "e7", "-n", "-q", "-t", "2",
                                      "-T", "1", "-s", "/bin/true"])
    c.expect(status != 0, f"a lease on another interface: {output}")
    c.expect(router.process.wait_output("DNS on tcp 10.50.60.1:53 is offered", 40), router.process.output())
    c.expect(short(c, phone, "+tcp", "sip.mesh", "A") == [ROUTER], "no DNS by TCP")
    router.stop()
