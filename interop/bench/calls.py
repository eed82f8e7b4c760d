"""Calls across four routers in a line: phones behind the outer ones, a SIP server on each router."""

import itertools
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

from laboratory import path_of
from settings import ROOT
from spaces import Spaces, run
from subjects import HERE, Trouble, family_of

sys.path.insert(0, str(HERE.parent / "lib"))

import sip

ROUTERS = ("r0", "r1", "r2", "r3")
CALLER, CALLEE = "caller", "callee"
NEXT, BACK, LAN, PHONE = "next", "back", "lan0", "phone0"
CALLEE_PORT, SERVER_PORT, DOMAIN = 5062, 5060, "mesh"
# How long the servers may take until a call goes through, seconds.
READY = 60
SCHEMA = Path("/usr/share/kamailio/db_sqlite")


def used(program):
    """Processor seconds of a program and its descendants."""
    total = 0.0
    for pid in family_of(program.child.pid):
        try:
            total += time.clock_gettime(~pid << 3 | 2)
        except OSError:
            continue
    return total


class Line:
    """Four routers, a phone behind the first and one behind the last. Made with the block, removed after it."""

    def __init__(self, folder):
        self.folder, self.programs = folder, []

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.spaces = Spaces(ROUTERS, self.folder, (CALLER, CALLEE))
        names = self.spaces.names
        for one, other in itertools.pairwise(ROUTERS):
            self.spaces.ip(one, f"link add {NEXT} type veth peer name {BACK} netns {names[other]}",
                           f"link set {NEXT} up")
            self.spaces.ip(other, f"link set {BACK} up")
        for router, host in ((ROUTERS[0], CALLER), (ROUTERS[-1], CALLEE)):
            self.spaces.ip(router, f"link add {LAN} type veth peer name {PHONE} netns {names[host]}",
                           f"link set {LAN} up")
            self.spaces.write(host, {"net/ipv6/conf/default/accept_ra": 1, "net/ipv6/conf/all/accept_ra": 1,
                                     f"net/ipv6/conf/{PHONE}/accept_ra_rt_info_max_plen": 64,
                                     f"net/ipv6/conf/{PHONE}/router_solicitations": 3})
            self.spaces.ip(host, "link set lo up", f"link set {PHONE} up")
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.child.terminate()
        for program in self.programs:
            try:
                program.child.wait(5)
            except subprocess.TimeoutExpired:
                program.child.kill()
                program.child.wait()
        self.spaces.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, node, argv, name):
        """A program in a namespace."""
        self.programs.append(self.spaces.start(node, argv, f"{name}-{node}"))
        return self.programs[-1]

    def static_routes(self):
        """Addresses and routes by hand, for servers that find no way themselves."""
        for i, router in enumerate(ROUTERS):
            self.spaces.write(router, {"net/ipv6/conf/all/forwarding": 1})
            if i + 1 < len(ROUTERS):
                self.spaces.ip(router, f"address add fd01:{i}::1/64 dev {NEXT} nodad")
                self.spaces.ip(ROUTERS[i + 1], f"address add fd01:{i}::2/64 dev {BACK} nodad")
        for router, host, net in ((ROUTERS[0], CALLER, "a"), (ROUTERS[-1], CALLEE, "b")):
            self.spaces.ip(router, f"address add fd01:{net}::1/64 dev {LAN} nodad")
            self.spaces.ip(host, f"address add fd01:{net}::2/64 dev {PHONE} nodad",
                           f"route add default via fd01:{net}::1")
        for i, router in enumerate(ROUTERS):
            if i + 1 < len(ROUTERS):
                self.spaces.ip(router, f"route add fd01:b::/64 via fd01:{i}::2",
                               *(f"route add fd01:{j}::/64 via fd01:{i}::2" for j in range(i + 1, len(ROUTERS) - 1)))
            if i > 0:
                self.spaces.ip(router, f"route add fd01:a::/64 via fd01:{i - 1}::1",
                               *(f"route add fd01:{j}::/64 via fd01:{i - 1}::1" for j in range(i - 1)))


class Direct:
    """No server: the caller's datagrams go to the callee, forwarded by the kernel."""

    name = "direct"

    def missing(self):
        """What it needs and is not there, as text; empty if nothing."""
        return ""

    def start(self, line):
        """Starts it. Returns the programs, and the addresses of caller and callee and of their servers."""
        line.static_routes()
        return [], ("fd01:a::2", "fd01:b::2"), (None, None)


class Kamailio(Direct):
    """Debian's Kamailio on each router, with one database of locations for all: the file is on one disk, so that
    nothing is spent on a database server or on the way there."""

    name = "kamailio"

    def missing(self):
        if shutil.which("kamailio") is None or not SCHEMA.is_dir():
            return "kamailio or kamailio-sqlite-modules is not installed"
        return ""

    def start(self, line):
        line.static_routes()
        database = line.folder / "locations.db"
        with sqlite3.connect(database) as open_database:
            for table in ("standard", "usrloc"):
                open_database.executescript((SCHEMA / f"{table}-create.sql").read_text(encoding="utf-8"))
            open_database.execute("PRAGMA journal_mode=WAL")
        text = (HERE / "kamailio.cfg").read_text(encoding="utf-8")
        text = text.replace('modparam("usrloc", "db_mode", 0)', "\n".join([
            'modparam("usrloc", "db_mode", 3)', f'modparam("usrloc", "db_url", "sqlite:///{database}")']))
        text = text.replace('loadmodule "usrloc.so"', 'loadmodule "db_sqlite.so"\nloadmodule "usrloc.so"')
        text = text.replace("auto_aliases=no", f'auto_aliases=no\nalias="{DOMAIN}"')
        config = line.folder / "kamailio.cfg"
        config.write_text(text, encoding="utf-8")
        programs = []
        for i, router in enumerate(ROUTERS):
            address = {0: "fd01:a::1", len(ROUTERS) - 1: "fd01:b::1"}.get(i, f"fd01:{i}::1")
            folder = line.folder / router
            folder.mkdir()
            programs.append(line.start(router, [
                path_of("kamailio"), "-DD", "-E", "-f", config, "-A", f"LISTEN=udp:[{address}]:{SERVER_PORT}", "-A",
                "CHILDREN=2", "-m", "256", "-M", "16", "-w", folder, "-Y", folder, "-P", folder / "pid"], "kamailio"))
        return programs, ("fd01:a::2", "fd01:b::2"), ("fd01:a::1", "fd01:b::1")


class Ringway(Direct):
    """`ringway serve --mesh` on each router. Like the other it asks for no password; all else is as shipped."""

    name = "ringway"

    def __init__(self, program=None):
        self.program = program or ROOT / "target" / "release" / "ringway"

    def start(self, line):
        config = line.folder / "ringway.toml"
        config.write_text('http = "off"\n[auth]\nmode = "off"\n[limits]\nrequests_per_source = 0\nrequests = 0\n'
                          '[log]\nlevel = "error"\n[mesh]\n', encoding="utf-8")
        programs = []
        for router in ROUTERS:
            folder = line.folder / router
            folder.mkdir()
            devices = [device for device, has in ((BACK, router != ROUTERS[0]), (NEXT, router != ROUTERS[-1])) if has]
            lan = ["--lan", LAN] if router in (ROUTERS[0], ROUTERS[-1]) else []
            programs.append(line.start(router, [
                "env", f"XDG_STATE_HOME={folder}", self.program, "serve", "--config", config, "--mesh",
                *(word for device in devices for word in ("--interface", device)), *lan], "ringway"))
        for router in (ROUTERS[0], ROUTERS[-1]):
            self.command(line, router, "user", "add", f"user-{router}", "--password-stdin")
        hosts = [wait_for(lambda host=host: line.spaces.address(host, PHONE), f"{host} has no address")
                 for host in (CALLER, CALLEE)]
        servers = [line.spaces.address(router, "mesh0") for router in (ROUTERS[0], ROUTERS[-1])]
        return programs, hosts, servers

    def command(self, line, router, *words):
        """A command of the operator of a router."""
        def once():
            done = subprocess.run(["ip", "netns", "exec", line.spaces.names[router], "env",
                                   f"XDG_STATE_HOME={line.folder / router}", str(self.program), *words, "--config",
                                   str(line.folder / "ringway.toml")],
                                  input="a-password\n", capture_output=True, text=True, check=False)
            return done.returncode == 0
        wait_for(once, f"{' '.join(words)} fails")


def wait_for(condition, text, seconds=READY):
    """Waits until a condition holds; returns its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Trouble(text)
        time.sleep(0.2)
    return value


def register(line, subject, hosts, servers):
    """Has the callee registered at its server."""
    if servers[1] is None:
        return
    with line.spaces.inside(CALLEE):
        client = sip.Client(servers[1], SERVER_PORT, source=hosts[1])

    def once():
        request = client.request("REGISTER", f"sip:{DOMAIN}", to=f"sip:user-r3@{DOMAIN}",
                                 sender=f"sip:user-r3@{DOMAIN}", headers=[
                                     f"Contact: <sip:user-r3@[{hosts[1]}]:{CALLEE_PORT}>", "Expires: 3600"])
        try:
            answer = client.ask(request, 3)
        except OSError:  # it does not listen yet
            return False
        return answer is not None and answer.status == 200
    wait_for(once, f"{subject.name}: the callee is not registered")
    client.close()


def sipp(line, node, name, *words):
    """SIPp in a namespace, in a folder of its own."""
    folder = line.folder / name
    folder.mkdir(exist_ok=True)
    argv = ["sh", "-c", 'cd "$0" && exec "$@"', folder, path_of("sipp"), *words, "-nostdin"]
    return line.start(node, argv, name)


def call(line, hosts, target, rate, calls, name):
    """Places calls; returns the milliseconds of each from INVITE to 180, as they pass the caller's device, and how many
    were not answered."""
    capture = line.folder / f"{name}.pcap"
    tap = line.start(CALLER, [path_of("dumpcap"), "-q", "-i", PHONE, "-f", "udp", "-B", "64", "-w", capture],
                     f"tap-{name}")
    wait_for(capture.exists, "dumpcap does not start")
    time.sleep(0.5)
    uac = sipp(line, CALLER, name, target, "-sf", HERE / "uac.xml", "-s", "user-r3", "-i", hosts[0], "-p", "5061", "-r",
               rate, "-m", calls, "-l", "2000", "-recv_timeout", "5000")
    try:
        uac.child.wait(calls / rate + 30)
    except subprocess.TimeoutExpired as late:
        raise Trouble(f"{name}: SIPp does not end: {uac.said()}") from late
    time.sleep(0.5)
    tap.child.terminate()
    tap.child.wait()
    fields = ("frame.time_epoch", "sip.Call-ID", "sip.Method", "sip.Status-Code")
    lines = run([path_of("tshark"), "-r", capture, "-d", "udp.port==5061,sip", "-T", "fields", "-E", "separator=;",
                 *(word for field in fields for word in ("-e", field))]).splitlines()
    begun, rang, answered = {}, {}, set()
    for at, call_id, method, status in (row for row in (text.split(";") for text in lines) if len(row) == 4):
        if method == "INVITE":
            begun.setdefault(call_id, float(at))
        elif status == "180":
            rang.setdefault(call_id, float(at))
        elif status == "200":
            answered.add(call_id)
    delays = [1000 * (at - begun[call_id]) for call_id, at in rang.items() if call_id in begun and call_id in answered]
    return delays, calls - len(delays)


def measure(subject, folder, rate, calls):
    """One run: starts the servers, warms up, places calls. Returns its figures."""
    with Line(folder) as line:
        programs, hosts, servers = subject.start(line)
        register(line, subject, hosts, servers)
        sipp(line, CALLEE, "uas", "-sf", HERE / "uas.xml", "-i", hosts[1], "-p", CALLEE_PORT)
        target = f"[{servers[0]}]:{SERVER_PORT}" if servers[0] else f"[{hosts[1]}]:{CALLEE_PORT}"
        wait_for(lambda: not call(line, hosts, target, 10, 10, f"first-{time.monotonic()}")[1],
                 f"{subject.name}: no call goes through")
        before = [used(program) for program in programs]
        delays, failed = call(line, hosts, target, rate, calls, "measured")
        time.sleep(1)
        each = [used(program) - then for program, then in zip(programs, before, strict=True)]
        gone = [program.said() for program in programs if program.child.poll() is not None]
        if gone or not delays:
            raise Trouble(f"{subject.name}: {gone or 'no call'}")
    delays.sort()
    return {"failed": failed, "calls": calls, "cpu_us": 1e6 * sum(each) / calls,
            "each_us": [1e6 * one / calls for one in each], "median_ms": statistics.median(delays),
            "p99_ms": delays[len(delays) * 99 // 100]}
