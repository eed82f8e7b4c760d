"""`ringway with` and programs of Debian, as they are: over SCTP between two hosts with two links, and with one of them
pulled in mid-transfer."""

import hashlib
import os
import pwd
import shutil
import sys
from pathlib import Path

from network import case

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hosts import FAR, Hosts, expect_over, explained, for_all, parsed

POSTGRES = Path("/usr/lib/postgresql/15/bin")
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 2;
events {{ worker_connections 100; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    tcp_nopush on;
    server {{
        listen 80 backlog=64;
        listen [::]:80;
        root {folder}/www;
        location /peer {{ return 200 "$remote_addr $server_addr $server_port\\n"; }}
        location /proxied/ {{ proxy_pass http://127.0.0.1:80/; }}
    }}
}}
"""
SSHD = """
Port 2222
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/client.pub
StrictModes no
UsePAM no
"""

HOLDER = "import socket, time; s = socket.socket(type=2); s.bind(('', 80)); print('held'); time.sleep(60)"


def content(path, octets):
    """Fills a file; returns its digest."""
    data = hashlib.shake_128(path.name.encode()).digest(1 << 20) * (octets >> 20)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def digest(path):
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def nginx(c, hosts, octets=5 << 20):
    """Starts nginx with a file; returns it and the file's digest."""
    folder = for_all(c)
    (folder / "www").mkdir()
    wanted = content(folder / "www" / "file", octets)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    server = hosts.serve("nginx", ["nginx", "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    hosts.listens(80)
    return server, wanted


def redis_server(c, hosts, *options):
    """Starts redis-server."""
    server = hosts.serve("redis", ["redis-server", "--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no",
                                   "--save", "", "--dir", c.folder, *options])
    hosts.listens(6379)
    return server


def sshd(c, hosts):
    """Starts sshd; returns it, its folder, and the words of a client."""
    folder = for_all(c)
    for name in ("host", "client"):
        status, output = c.run("ssh-keygen", ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name])
        c.expect(status == 0, output)
    (folder / "sshd_config").write_text(SSHD.format(folder=folder))
    Path("/run/sshd").mkdir(exist_ok=True)
    server = hosts.serve("sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"])
    hosts.listens(2222)
    return server, folder, ["ssh", "-F", "none", "-p", "2222", "-i", folder / "client", "-o",
                            "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder}/known", f"root@{FAR}"]


def postgres(c, hosts):
    """Starts PostgreSQL as its user, whom the command runs as, too; returns it, and the words of a client."""
    folder = for_all(c)
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    as_user = ["runuser", "-u", "postgres", "--"]
    status, output = c.run("initdb", [*as_user, POSTGRES / "initdb", "-D", folder / "data", "-A", "trust"], seconds=60)
    c.expect(status == 0, output)
    with open(folder / "data" / "pg_hba.conf", "a", encoding="utf-8") as file:
        file.write("host all all 10.0.0.0/8 trust\n")
    command = [POSTGRES / "postgres", "-D", folder / "data", "-h", "*", "-k", "", "-p", "5433"]
    argv = hosts.words(["multihoming"], command, program=folder / "ringway")
    server = hosts.far.start("postgres", [*as_user, "env", f"XDG_STATE_HOME={folder}/state", *argv], cwd=folder)
    c.expect(server.wait_output("ready to accept connections", 30), server.output())
    return server, ["psql", "-h", FAR, "-p", "5433", "-U", "postgres", "-X", "-q", "-A", "-t"]


@case("with/iperf3")
def iperf3(c):
    """iperf3 in both directions and with four connections: SCTP carries all of it."""
    hosts = Hosts(c)
    server = hosts.serve("server", ["iperf3", "-s"])
    hosts.listens(5201)
    for extra in ([], ["-R"], ["-P", "4"]):
        output = hosts.run("client", ["iperf3", "-c", FAR, "-t", "2", "-b", "100M", "-J", *extra])
        expect_over(c, output)
        received = parsed(output)["end"]["sum_received"]
        c.expect(received["bytes"] > 1_000_000, f"{extra}: {received}")
    expect_over(c, server.output())
    hosts.expect_sctp()


@case("with/curl-nginx")
def curl_nginx(c):
    """curl and nginx, whose workers have dropped their rights: addresses, a file by sendfile, and a proxy, for which a
    worker opens a connection itself."""
    hosts = Hosts(c)
    server, wanted = nginx(c, hosts)
    for peer, seen in ((FAR, f"10.1.0.1 {FAR} 80"), ("[fd01::2]", "fd01::1 fd01::2 80")):
        output = hosts.run("curl", ["curl", "-sS", f"http://{peer}/peer"])
        expect_over(c, output)
        c.expect(seen in output, f"expected {seen!r}: {output}")
    for path in ("file", "proxied/file"):
        got = c.folder / "got"
        hosts.run("curl", ["curl", "-sS", "-o", got, f"http://{FAR}/{path}"])
        c.expect(digest(got) == wanted, f"{path}: the file differs, {got.stat().st_size} octets")
    output = hosts.run("curl", ["curl", "-sSI", f"http://{FAR}/none", f"http://{FAR}/file"])
    c.expect("404 Not Found" in output and "200 OK" in output, output)
    expect_over(c, server.output())
    hosts.expect_sctp()


@case("with/shared")
def shared(c):
    """Six programs download at once from one server by one association: one reads slowly and stops no other, and what
    the others close leaves it alone."""
    hosts = Hosts(c)
    server, wanted = nginx(c, hosts, 8 << 20)
    url, slow = f"http://{FAR}/file", c.folder / "slow"
    # All begin before one of them ends, so that each has a stream of its own.
    fast = " ".join(f"curl -sS --limit-rate 4M -o {c.folder}/fast{number} {url} &" for number in range(5))
    output = hosts.run("sh", ["sh", "-c", f"curl -sS --limit-rate 1M -o {slow} {url} & sleep 1; {fast} wait"])
    for number in range(5):
        c.expect(digest(c.folder / f"fast{number}") == wanted, f"file {number} differs")
    c.expect(digest(slow) == wanted, f"the slow file differs: {slow.stat().st_size} octets")
    lines = [line for line in expect_over(c, output) if "has ended" not in line]
    streams = sorted(line.partition(", stream ")[2][:1] for line in lines)
    c.expect(streams == ["", "1", "2", "3", "4", "5"], f"expected six streams of one association: {lines}")
    ended = [line for line in expect_over(c, output) if "has ended" in line]
    c.expect(", stream" not in ended[-1], f"the slow one did not end last: {ended}")
    expect_over(c, server.output())
    hosts.expect_sctp()


@case("with/redis")
def redis(c):
    """redis-cli and redis-server: values, a blocked client, many connections with a pipeline."""
    hosts = Hosts(c)
    server = redis_server(c, hosts)
    cli = ["redis-cli", "-h", FAR]
    c.expect("OK" in hosts.run("cli", [*cli, "SET", "name", "x" * 100_000]), "SET failed")
    output = hosts.run("cli", [*cli, "STRLEN", "name"])
    expect_over(c, output)
    c.expect("100000" in output, output)
    blocked = hosts.start("blocked", [*cli, "BLPOP", "list", "20"])
    c.until(lambda: "blocked_clients:1" in hosts.run("cli", [*cli, "INFO", "clients"]), 10, "no client is blocked")
    hosts.run("cli", [*cli, "RPUSH", "list", "woken"])
    c.expect(blocked.wait(20) == 0 and "woken" in blocked.output(), f"{blocked.output()}")
    output = hosts.run("benchmark", ["redis-benchmark", "-h", FAR, "-t", "set,get", "-n", "20000", "-c", "20",
                                     "-P", "8", "-q"])
    c.expect(len(expect_over(c, output)) >= 20, "fewer than 20 connections")
    expect_over(c, server.output())
    hosts.expect_sctp()


@case("with/ssh")
def ssh(c):
    """ssh and sshd, which executes itself anew for each connection and divides into processes without rights."""
    hosts = Hosts(c)
    server, folder, words = sshd(c, hosts)
    output = hosts.run("ssh", [*words, "echo $SSH_CONNECTION"])
    expect_over(c, output)
    c.expect("10.1.0.1 " in output and f" {FAR} 2222" in output, f"the addresses are missing: {output}")
    wanted = content(folder / "file", 8 << 20)
    output = hosts.run("ssh", [*words, f"cat {folder}/file | sha256sum"], seconds=60)
    c.expect(wanted in output, output)
    # Data in both directions, with the end of one before that of the other.
    text = "".join(f"line {number}\n" for number in range(100_000))
    output = hosts.run("ssh", [*words, "sort -r | wc -c"], stdin=text)
    c.expect(str(len(text)) in output, output)
    expect_over(c, server.output())
    hosts.expect_sctp()


@case("with/psql", limit=90)
def psql(c):
    """psql and PostgreSQL, which runs as a user without rights: SCTP travels in UDP there."""
    hosts = Hosts(c)
    server, words = postgres(c, hosts)
    output = hosts.run("psql", [*words, "-c", "SELECT inet_client_addr(), inet_server_addr(), inet_server_port()"])
    c.expect("10.1.0.1|10.1.0.2|5433" in output, output)
    expect_over(c, output, "SCTP in UDP")
    rows = "".join(f"{number}\ttext {number}\n" for number in range(100_000))
    script = f"CREATE TABLE t (n int, s text);\nCOPY t FROM STDIN;\n{rows}\\.\nSELECT count(*), sum(n) FROM t;\n"
    output = hosts.run("psql", words, stdin=script, seconds=60)
    c.expect(f"100000|{sum(range(100_000))}" in output, output[-500:])
    output = hosts.run("psql", [*words, "-c", "SELECT * FROM t ORDER BY n"])
    c.expect("99999|text 99999" in output, output[-500:])
    expect_over(c, server.output())
    hosts.expect_sctp()


@case("with/one-link-pulled", limit=120)
def pulled(c):
    """One of two links is pulled in mid-transfer: iperf3 and curl go on by the other, where TCP would stand still."""
    hosts = Hosts(c)
    server, wanted = nginx(c, hosts, 64 << 20)
    hosts.serve("server", ["iperf3", "-s"])
    hosts.listens(5201)
    got = c.folder / "got"
    curl = hosts.start("curl", ["curl", "-sS", "--limit-rate", "12M", "-o", got, f"http://{FAR}/file"])
    client = hosts.start("client", ["iperf3", "-c", FAR, "-t", "6", "-J", "--bitrate", "20M"])
    c.until(lambda: got.exists() and got.stat().st_size > 8 << 20, 20, "no transfer")
    hosts.pull()
    before = got.stat().st_size
    c.expect(before < 60 << 20, "the file was there before the link was pulled")
    c.expect(curl.wait(60) == 0, f"curl ended with {curl.wait(0)}: {curl.output()}")
    c.expect(digest(got) == wanted, f"the file differs: {got.stat().st_size} octets")
    c.expect(client.wait(60) == 0, f"iperf3 ended with {client.wait(0)}: {client.output()}")
    expect_over(c, curl.output())
    expect_over(c, client.output())
    late = parsed(client.output())["intervals"][-1]["sum"]
    c.expect(late["bytes"] > 0, f"nothing was sent at the end: {late}")
    c.expect(server.running(), server.output())
    data = hosts.expect_sctp()
    c.expect(data[1]["sctp"] + data[1]["udp"] > 1000, f"the second link carried nothing: {data}")


@case("with/one-link-pulled-in-sessions", limit=120)
def pulled_in_sessions(c):
    """The same for sessions of ssh, redis-cli and psql, over IP and in UDP: none is lost, no answer is missing."""
    hosts = Hosts(c)
    redis_server(c, hosts)
    _, _, ssh_words = sshd(c, hosts)
    _, psql_words = postgres(c, hosts)
    loop = "for n in $(seq 60); do echo line $n; sleep 0.1; done"
    query = "COPY (SELECT n, pg_sleep(0.1) FROM generate_series(1, 60) n) TO STDOUT"
    sessions = {
        "ssh": hosts.start("ssh", [*ssh_words, loop]),
        "redis": hosts.start("redis-cli", ["redis-cli", "-h", FAR, "-r", "60", "-i", "0.1", "INCR", "n"]),
        "psql": hosts.start("psql", [*psql_words, "-c", query]),
    }
    c.until(lambda: "line 10\n" in sessions["ssh"].output() and "\n10\n" in sessions["redis"].output(), 20,
            lambda: f"no session: {[session.output() for session in sessions.values()]}")
    hosts.pull()
    for name, session in sessions.items():
        c.expect(session.wait(60) == 0, f"{name} ended with {session.wait(0)}: {session.output()}")
        expect_over(c, session.output())
    c.expect("line 60\n" in sessions["ssh"].output(), sessions["ssh"].output())
    c.expect("\n60\n" in sessions["redis"].output(), sessions["redis"].output())
    c.expect("60\t" in sessions["psql"].output(), sessions["psql"].output())
    hosts.expect_sctp()


@case("with/in-udp")
def in_udp(c):
    """Without the right to raw sockets SCTP travels in UDP, between servers that have and clients that lack it."""
    hosts = Hosts(c)
    folder = for_all(c)
    nginx(c, hosts)
    folder.chmod(0o777)
    words = hosts.words(["require:multihoming"], ["curl", "-sS", f"http://{FAR}/peer"], program=folder / "ringway")
    status, output = c.run("curl", [*hosts.near.enter(), "runuser", "-u", "nobody", "--", "env",
                                    f"XDG_STATE_HOME={folder}/state", *words])
    c.expect(status == 0 and f"10.1.0.1 {FAR} 80" in output, output)
    expect_over(c, output, "SCTP in UDP")
    c.expect((folder / "state").exists(), "nothing is remembered")


@case("with/over-ip")
def over_ip(c):
    """Another program has the server's UDP port: SCTP travels right above IP."""
    hosts = Hosts(c)
    holder = hosts.far.start("holder", [sys.executable, "-uc", HOLDER])
    c.expect(holder.wait_output("held", 10), holder.output())
    server, wanted = nginx(c, hosts, 8 << 20)
    got = c.folder / "got"
    output = hosts.run("curl", ["curl", "-sS", "-o", got, f"http://{FAR}/file"])
    expect_over(c, output, "SCTP over IP")
    c.expect(digest(got) == wanted, f"the file differs: {got.stat().st_size} octets")
    c.expect("without SCTP in UDP" in server.output(), server.output())
    hosts.expect_sctp()


@case("with/fallback")
def fallback(c):
    """A server without services is reached over TCP, and the next client tries nothing else. A client without services
    reaches a server that has them."""
    hosts = Hosts(c)
    plain = hosts.far.start("plain", [sys.executable, "-m", "http.server", "8000", "--bind", "0.0.0.0"],
                            cwd=Path(__file__).resolve().parent)
    hosts.listens(8000)
    url = f"http://{FAR}:8000/hosts.py"
    output = hosts.run("curl", ["curl", "-sS", "-o", "/dev/null", url])
    expect_over(c, output, "TCP")
    output = hosts.run("curl", ["curl", "-sS", "-o", "/dev/null", url])
    lines = expect_over(c, output, "TCP")
    c.expect(any("failed recently" in line for line in lines), f"it was not remembered: {lines}")
    status, output = c.run("curl", [*hosts.near.enter(), *hosts.words(["require:multihoming"], ["curl", "-sS", url])],
                           env={"XDG_STATE_HOME": str(c.folder / "other")})
    c.expect(status == 7 and "refused" in output, f"{status}: {output}")
    c.expect(plain.running(), plain.output())
    server, _ = nginx(c, hosts)
    status, output = c.run("curl", [*hosts.near.enter(), "curl", "-sS", f"http://{FAR}/peer"])
    c.expect(status == 0 and f"10.1.0.1 {FAR} 80" in output, f"{status}: {output}")
    c.expect(any("by TCP" in line for line in explained(server.output())), server.output())


@case("with/static")
def static(c):
    """A statically linked program gets a clear message."""
    busybox = shutil.which("busybox") or "/bin/busybox"
    status, output = c.run("with", Hosts.words(["multihoming"], [busybox, "wget", "-O", "-", "http://127.0.0.1/"]))
    c.expect(status == 126 and "statically linked" in output, f"{status}: {output}")


@case("with/background")
def background(c):
    """A server that goes into the background is served until it ends, and the command ends with it."""
    hosts = Hosts(c)
    server = redis_server(c, hosts, "--daemonize", "yes")
    c.expect(server.wait_output("are served until they end", 15), server.output())
    output = hosts.run("cli", ["redis-cli", "-h", FAR, "PING"])
    expect_over(c, output)
    c.run("cli", [*hosts.near.enter(), "redis-cli", "-h", FAR, "SHUTDOWN", "NOSAVE"])
    c.expect(server.wait(20) == 0, f"it still runs: {server.output()}")
