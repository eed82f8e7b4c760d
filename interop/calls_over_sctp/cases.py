"""Calls between two servers over SCTP (RFC 4168): SIPp calls one, which calls on over SCTP, and the other SIPp answers.

The servers stand on two hosts, network namespaces, so that links between them can be cut while calls go on.
"""

import itertools
import json
import re
from pathlib import Path

import kamailio
import sctp
from server import binary

PORT, CALLER, CALLEE = 5060, 5071, 5070
RATE = 50
# Milliseconds that a signalling network allows for (papers on SS7 over IP), and what is aimed at.
SS7_GAP = 800


class Site:
    """A server on a host of its own, which sends on to the other one what it is not asked to serve."""

    def __init__(self, c, space, listen, other, profile="standard", extra=""):
        self.c, self.space, self.callee = c, space, None
        self.config = c.folder / f"{space.name}.toml"
        self.config.write_text(f"""\
listen = {json.dumps([f"udp://127.0.0.1:{PORT}", listen])}
domains = ["{space.name}.test"]
store = "memory"
trusted = ["127.0.0.0/8", "10.0.0.0/8"]
http = "127.0.0.1:8060"

[sctp]
profile = "{profile}"
{extra}
[[route]]
domain = "own"
next_hops = [{{ uri = "sip:127.0.0.1:{CALLEE}" }}]

[[route]]
domain = "foreign"
next_hops = [{{ uri = "{other}" }}]
""")
        self.server = space.start(f"server-{space.name}", [binary(), "serve", "--config", self.config],
                                  env={"XDG_STATE_HOME": str(c.folder / space.name)})
        c.expect(self.server.wait_output("serving", 15), f"no server: {self.server.output()}")

    def answers(self):
        """Starts who answers calls; gives the file of what it is told."""
        messages = self.c.folder / f"{self.space.name}.msg"
        self.callee = self.space.start(f"callee-{self.space.name}", [
            "sipp", "-sn", "uas", "-i", "127.0.0.1", "-p", CALLEE, "-nostdin", *sctp.PATIENT.split(),
            "-trace_msg", "-message_file", messages])
        self.c.until(lambda: self.hears(CALLEE), 5, "sipp does not listen")
        return messages

    def hears(self, port):
        """Whether something on this host listens on a UDP port."""
        _, table = self.c.run("ss", [*self.space.enter(), "ss", "-lnu"])
        return f":{port} " in table

    def calls(self, host, count, hold=300):
        """Starts calls to the other host, so many a second."""
        return self.space.start(f"caller-{self.space.name}", [
            "sipp", "-sn", "uac", "-i", "127.0.0.1", "-p", CALLER, "-nostdin", "-r", RATE, "-m", count, "-d", hold,
            "-s", "bob", "-timeout", "60s", "-timeout_error", "-rsa", f"127.0.0.1:{PORT}", f"{host}:{PORT}"])

    def stop(self):
        """Ends the server, which must end well, and who answers for it."""
        if self.callee:
            self.callee.end()
        self.server.popen.terminate()
        self.c.expect(self.server.wait(20) == 0, f"the server: {self.server.output()[-500:]}")


def done(c, caller, count):
    """Waits for a caller, every call of whom must have gone as it should."""
    status = caller.wait(70)
    told = re.findall(r"Successful call\s*\|[^|]*\|\s*(\d+)", caller.output())
    c.expect(status == 0 and told and int(told[-1]) == count,
             f"{told[-1] if told else 'no'} of {count} calls were completed, status {status}: {caller.output()[-300:]}")


def invites(messages):
    """When each INVITE came, in seconds. One of the same branch was sent again, over UDP, since SIPp took its time."""
    told = re.findall(r"-{5,} \S+ (\d+):(\d+):([\d.]+)\n\w+ message received [^\n]*\n\nINVITE "
                      r".*?\nVia:[^\n]*?branch=([^;\s]+)", messages.read_text(errors="replace"), re.DOTALL)
    first = {}
    for hours, minutes, seconds, branch in told:
        first.setdefault(branch, 3600 * int(hours) + 60 * int(minutes) + float(seconds))
    return list(first.values())


def hosts(c):
    """Two hosts with two links; the first leads by two switches."""
    a, b, switches = (sctp.Space(c, name) for name in ("a", "b", "switches"))
    a.join_by(switches, b, 1)
    a.join(b, 2)
    return a, b, switches


def listener(host, over="sctp"):
    """What a server on a host listens on besides UDP."""
    return f"{over}://10.1.0.{host},10.2.0.{host}:{PORT}"


@sctp.case("calls-over-sctp/cable", limit=150)
def cable(c):
    """The primary link is cut during fifty calls a second: between two switches, where no host sees it, and at a
    host. Every call is completed, none is heard twice; with the profile for signalling networks the calls that
    come in have no gap of 800 ms."""
    a, b, switches = hosts(c)
    count = 8 * RATE

    def pull(profile, over, space, device, where):
        sites = [Site(c, host, listener(n, over), f"sip:10.1.0.{3 - n};transport=sctp", profile)
                 for n, host in ((1, a), (2, b))]
        messages = sites[1].answers()
        caller = sites[0].calls("10.1.0.2", count)
        c.sleep(3)
        space.inside("link", "set", device, "down")
        done(c, caller, count)
        space.inside("link", "set", device, "up")
        times = invites(messages)
        c.expect(len(times) == count, f"{len(times)} INVITEs came for {count} calls")
        gap = 1000 * max(later - earlier for earlier, later in itertools.pairwise(times))
        print(f"calls, cable pulled {where}, {over}, profile {profile}: {count} of {count} completed, "
              f"longest gap {gap:.0f} ms", flush=True)
        for site in sites:
            site.stop()
        c.expect(gap < SS7_GAP or profile != "ss7", f"no call came in for {gap:.0f} ms")

    pull("standard", "sctp", switches, "trunk1", "between switches")
    c.attempts(lambda: pull("ss7", "sctp+udp", switches, "trunk1", "between switches"))
    c.attempts(lambda: pull("ss7", "sctp", a, "e1", "at a host"))


@sctp.case("calls-over-sctp/one-association")
def one_association(c):
    """RFC 4168 section 5: calls both ways between two servers share one association, and spread over its streams;
    tshark finds no fault with what passes."""
    a, b, _ = hosts(c)
    capture, file = a.capture("e1")
    sites = [Site(c, host, listener(n), f"sip:10.1.0.{3 - n};transport=sctp") for n, host in ((1, a), (2, b))]
    for site in sites:
        site.answers()
    count = 4 * RATE
    first = sites[0].calls("10.1.0.2", count)
    # Both at once would both send an INIT, for what becomes one association (RFC 9260 section 5.2.1).
    c.sleep(1)
    second = sites[1].calls("10.1.0.1", count)
    for caller in (first, second):
        done(c, caller, count)
    capture()
    sctp.examine(c, file)

    # One that is not answered at once is sent again, with the same tag.
    tags = {tag for tag, in sctp.fields(c, file, "sctp.chunk_type == 1", "sctp.init_initiate_tag")}
    c.expect(len(tags) == 1, f"expected one association, INITs bear the tags {tags}")
    streams = {stream for row, in sctp.fields(c, file, "sctp.chunk_type == 0", "sctp.data_sid")
               for stream in row.split(",")}
    # Of 400 calls among 1024 streams each way about 320 are used.
    c.expect(len(streams) > 200, f"400 calls used {len(streams)} streams")


TLS = """
[tls]
certificate = "{folder}/{name}.pem"
key = "{folder}/{name}.key"
roots = "{folder}/ca.pem"
"""


def certificates(c, names):
    """An authority, and certificates of these names and addresses."""
    def openssl(*words):
        status, output = c.run("openssl", ["openssl", *words])
        c.expect(status == 0, f"openssl: {output}")

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    f = c.folder
    openssl("req", "-x509", *key, "-keyout", f / "ca.key", "-out", f / "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name, address in names.items():
        (f / f"{name}.ext").write_text(f"subjectAltName=IP:{address}\n")
        openssl("req", *key, "-keyout", f / f"{name}.key", "-out", f / f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f / f"{name}.csr", "-CA", f / "ca.pem", "-CAkey", f / "ca.key",
                "-CAcreateserial", "-days", "2", "-extfile", f / f"{name}.ext", "-out", f / f"{name}.pem")


@sctp.case("calls-over-sctp/tls")
def tls(c):
    """RFC 3436: `sips` between the servers is TLS over SCTP; a server whose certificate is another's is not called."""
    a, b, _ = hosts(c)
    names = {a.name: "10.1.0.1", b.name: "10.1.0.2"}
    certificates(c, names)
    capture, file = a.capture("e1")
    sites = [Site(c, host, f"tls-sctp://10.1.0.{n},10.2.0.{n}:5061", f"sips:10.1.0.{3 - n};transport=sctp",
                  extra=TLS.format(folder=c.folder, name=host.name)) for n, host in ((1, a), (2, b))]
    sites[1].answers()
    done(c, sites[0].calls("10.1.0.2", 2 * RATE), 2 * RATE)
    capture()
    _, told = c.run("tshark", ["tshark", "-n", "-r", file, "-Y", "frame contains \"INVITE \""], seconds=60)
    c.expect("INVITE" not in told, f"a call was readable on the wire: {told[:300]}")
    # The other's certificate names another address.
    (c.folder / f"{b.name}.pem").write_text((c.folder / f"{a.name}.pem").read_text())
    (c.folder / f"{b.name}.key").write_text((c.folder / f"{a.name}.key").read_text())
    for site in sites:
        site.stop()
    sites = [Site(c, host, f"tls-sctp://10.1.0.{n},10.2.0.{n}:5061", f"sips:10.1.0.{3 - n};transport=sctp",
                  extra=TLS.format(folder=c.folder, name=host.name)) for n, host in ((1, a), (2, b))]
    sites[1].answers()
    caller = sites[0].calls("10.1.0.2", 1)
    c.expect(caller.wait(30) not in (0, None), "a call was taken by a server with another's certificate")


INSIDE, OUTSIDE = "inside.test", "host.test"
# The folder of Kamailio in the machine.
IN_MACHINE = "/kamailio"
PHONES = """
listen = ["udp://127.0.0.1:5060", "sctp://10.1.0.1:5060"]
domains = ["host.test"]
trusted = ["127.0.0.0/8", "10.0.0.0/8"]
http = "127.0.0.1:8060"
"""
REGISTER = """<?xml version="1.0" encoding="UTF-8"?>
<scenario name="register">
  <send retrans="500"><![CDATA[

REGISTER sip:host.test SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:[service]@host.test>;tag=[pid]r[call_number]
To: <sip:[service]@host.test>
Call-ID: [call_id]
CSeq: 1 REGISTER
Contact: <sip:[service]@127.0.0.1:5070>;expires=600
Supported: path
Max-Forwards: 70
Content-Length: 0

  ]]></send>
  <recv response="200"/>
</scenario>
"""


class Kamailio:
    """A host with a server of ours, and a small machine with Kamailio; phones on both, over UDP within each."""

    def __init__(self, c):
        self.c, self.number = c, 0
        folder = c.folder / "kamailio"
        folder.mkdir()
        config = kamailio.write_config(folder, "127.0.0.1", PORT, domain=INSIDE, sctp="10.1.0.2",
                                       routes=[(OUTSIDE, "sip:10.1.0.1:5060;transport=sctp")],
                                       registrar="sip:10.1.0.1:5060;transport=sctp")
        # In the machine it has a folder of its own, wherever this one is.
        inside = config.read_text().replace(str(folder), IN_MACHINE)
        modules = sorted(set(re.findall(r'loadmodule "(.*)"', config.read_text())))
        path = re.search(r'mpath="(.*)"', config.read_text()).group(1)
        scenarios = {f"/{name}": (sctp.SOURCES / name).read_text() for name in ("uac.xml", "uas.xml")}
        scenarios["/register.xml"] = REGISTER
        for name, text in scenarios.items():
            (c.folder / name[1:]).write_text(text)
        self.linux = sctp.Linux(
            c, programs=["/usr/bin/sipp", "/usr/sbin/kamailio"],
            files={**scenarios, f"{IN_MACHINE}/kamailio.cfg": inside, sctp.TERMINAL: Path(sctp.TERMINAL).read_bytes()},
            copies=[f"{path}{name}" for name in modules])
        self.space = self.linux.space
        c.after(self.keep_logs)
        self.start_kamailio()
        self.server = None
        self.start_server()

    def keep_logs(self):
        """Keeps what was said in the machine, for whoever looks into a failure."""
        text = self.linux.machine.run("tail -n 1000 /tmp/kamailio /tmp/sipp-*.err", 10)[1]
        (self.c.folder / "machine.out").write_text(text)

    def start_kamailio(self):
        """Starts it, and waits until it listens."""
        self.linux.run(f"kamailio -DD -E -f {IN_MACHINE}/kamailio.cfg -m 32 -M 4 -w /tmp -Y {IN_MACHINE} "
                       f">>/tmp/kamailio 2>&1 &")
        self.linux.run("n=0; while ! grep -q 5060 /proc/net/sctp/eps; do sleep 0.1; n=$((n+1)); "
                       "[ $n -lt 200 ] || { cat /tmp/kamailio; exit 1; }; done", 40)

    def start_server(self):
        """Starts ours."""
        config = self.c.folder / "ringway.toml"
        config.write_text(f'store = "redb:{self.c.folder}/ringway.redb"\n{PHONES}')
        self.number += 1
        self.server = self.space.start(f"ringway-{self.number}", [binary(), "serve", "--config", config],
                                       env={"XDG_STATE_HOME": str(self.c.folder / "state")})
        self.c.expect(self.server.wait_output("serving", 15), f"no server: {self.server.output()}")

    def inside(self, scenario, port, *words):
        """Starts SIPp in the machine; gives the file its end will be told in."""
        self.number += 1
        name = f"/tmp/sipp-{self.number}"
        patient = sctp.PATIENT if scenario == "uas" else ""
        self.linux.run(f"cd /tmp; (TERM=linux sipp -sf /{scenario}.xml -i 127.0.0.1 -p {port} -t u1 -nostdin {patient} "
                       f"-timeout 60s -timeout_error -trace_err -error_file {name}.err "
                       f"{' '.join(map(str, words))} >{name} 2>&1; echo $? >{name}.end) >/dev/null 2>&1 &")
        return name

    def ended(self, name, seconds=60):
        """Waits for one of those, which must end well."""
        text = self.linux.run(f"n=0; while ! [ -s {name}.end ] && [ $n -lt {10 * seconds} ]; do sleep 0.1; n=$((n+1)); "
                              f"done; cat {name}.end {name}.err 2>/dev/null; true", seconds + 20)
        self.c.expect(text.split()[:1] == ["0"], f"sipp in the machine: {text[:1500]}")

    def outside(self, scenario, port, *words):
        """Starts SIPp on the host."""
        self.number += 1
        return self.space.start(f"sipp-{scenario}-{self.number}", [
            "sipp", "-sf", self.c.folder / f"{scenario}.xml", "-i", "127.0.0.1", "-p", port, "-t", "u1", "-nostdin",
            *(sctp.PATIENT.split() if scenario == "uas" else []), "-timeout", "60s", "-timeout_error", "-trace_err",
            "-error_file", self.c.folder / f"sipp-{scenario}-{self.number}.err", *words])

    def done(self, process, seconds=70):
        """Waits for one of those, which must end well."""
        status = process.wait(seconds)
        error = self.c.folder / f"{process.name}.err"
        said = error.read_text(errors="replace") if error.exists() else process.output()[-1500:]
        self.c.expect(status == 0, f"{process.name} ended with {status}: {said[:1500]}")

    def calls(self, count, ways=("inside", "outside")):
        """So many calls from each of these sides at once, each of which must go as it should."""
        ends = []
        if "inside" in ways:
            ends += [(self.done, self.outside("uas", CALLEE, "-m", count)), (self.ended, self.inside(
                "uac", CALLER, "-m", count, "-r 10 -s bob -key target host.test 127.0.0.1:5060"))]
        if "outside" in ways:
            ends += [(self.ended, self.inside("uas", CALLEE, "-m", count)), (self.done, self.outside(
                "uac", CALLER, "-m", count, "-r", 10, "-s", "alice", "-key", "target", OUTSIDE, "127.0.0.1:5060"))]
        for wait, what in reversed(ends):
            wait(what)


@sctp.case("calls-over-sctp/kamailio", limit=150)
def with_kamailio(c):
    """RFC 4168 with Kamailio over Linux's SCTP: a phone registers through it (RFC 3327), and calls go both ways on one
    association; after Kamailio was cut off and started anew, and after our server was, they do again."""
    both = Kamailio(c)
    both.ended(both.inside("register", 5072, "-m 1 -s alice 127.0.0.1:5060"))
    both.done(both.outside("register", 5072, "-m", 1, "-s", "bob", "127.0.0.1:5060"))
    both.calls(20)
    # The machine is gone without a word, and is back as one that restarts (RFC 9260 section 5.2.2).
    both.linux.machine.stop()
    both.linux.boot()
    both.start_kamailio()
    both.calls(1, ["inside"])
    both.calls(10)
    # An acknowledgement that came late would be out of the blue to a server that knows of nothing.
    c.sleep(0.5)
    both.server.popen.kill()
    both.server.popen.wait()
    both.start_server()
    both.calls(1, ["outside"])
    both.calls(10)
    kinds = both.linux.examine()
    c.expect(sctp.ERROR_CHUNK not in kinds, f"chunks of types {sorted(kinds)}")
    # While it starts, the machine may abort what it no longer knows (RFC 9260 section 8.4), each packet that waited for
    # it, but no other after those; and we never.
    seen = sctp.fields(c, both.linux.captures[0][1], "sctp", "ip.src", "sctp.chunk_type")
    aborts = [at for at, (_, types) in enumerate(seen) if types.split(",")[0] == str(sctp.ABORT)]
    c.expect(all(seen[at][0] == "10.1.0.2" for at in aborts), "we sent an ABORT")
    c.expect(not aborts or aborts[-1] - aborts[0] < len(aborts),
             f"expected no ABORT or some at a time, they are at {aborts}")
    tags = {tag for tag, in sctp.fields(c, both.linux.captures[0][1], "sctp.chunk_type == 1", "sctp.init_initiate_tag")}
    c.expect(len(tags) == 3, f"expected to be opened at the beginning and once for each that came back, tags: {tags}")
