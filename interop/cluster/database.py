"""Debian's redis-server as the database of a cluster: a primary, its replicas, and sentinels that watch them; or as a
Redis Cluster."""

import binascii
import signal
from urllib.parse import quote

HOST = "127.0.0.1"


def by_tls(port, certificate):
    """Options of a server that takes TLS at a port, and uses it for its own connections. Its other port, without TLS,
    is for redis-cli."""
    return ["--tls-port", port, "--tls-replication", "yes", "--tls-auth-clients", "no", "--tls-cert-file",
            certificate.certificate, "--tls-key-file", certificate.key, "--tls-ca-cert-file", certificate.certificate]


class Redis:
    """One server of the database, in memory only; with the certificate of a server nodes, sentinels and replicas use
    TLS."""

    def __init__(self, context, name, *, replica_of=None, options=(), certificate=None):
        self.context, self.name, self.port = context, name, context.ports.take()
        # That for others than redis-cli.
        self.served = context.ports.take() if certificate else self.port
        follow = ["--replicaof", f"{HOST} {replica_of.served}"] if replica_of else []
        options = [*options, *by_tls(self.served, certificate)] if certificate else options
        self.paused, self.argv = False, [
            "redis-server", "--port", self.port, "--bind", HOST, "--save", "", "--appendonly", "no",
            "--repl-diskless-sync-delay", "0", "--dbfilename", f"{name}.rdb", *follow, *options]
        self.start()
        if replica_of:
            self.until(lambda: "master_link_status:up" in self.cli("INFO", "replication"), "does not follow")

    def start(self):
        """Starts it, without what it had."""
        self.process = self.context.start(self.name, self.argv)
        self.until(lambda: self.cli("PING").strip() == "PONG", "does not answer")

    def until(self, condition, what):
        """Waits for a condition."""
        self.context.until(condition, 10, lambda: f"{self.name} {what}: {self.process.output()[-400:]}")

    def cli(self, *words):
        """What redis-cli prints for a command."""
        return self.context.run(f"{self.name}-cli", ["redis-cli", "-h", HOST, "-p", self.port, *words])[1]

    def pause(self):
        """It does nothing more, and its connections stay."""
        self.process.signal(signal.SIGSTOP)
        self.paused = True

    def go_on(self):
        """It goes on."""
        self.process.signal(signal.SIGCONT)
        self.paused = False

    def kill(self):
        """As power loss would."""
        self.process.signal(signal.SIGKILL)
        self.process.wait(5)


class Sentinels:
    """Three sentinels that promote a replica one second after the primary is gone. With the certificate of a server
    they use TLS, and ask for a password."""

    service, password = "ringway", "open/sesame"

    def __init__(self, context, primary, certificate=None):
        self.context, self.tls = context, certificate is not None
        self.ports, self.served = [context.ports.take() for _ in range(3)], []
        for number, port in enumerate(self.ports):
            self.served.append(context.ports.take() if certificate else port)
            lines = [f"port {port}", f"bind {HOST}", f"sentinel monitor {self.service} {HOST} {primary.served} 2",
                     f"sentinel down-after-milliseconds {self.service} 1000",
                     f"sentinel failover-timeout {self.service} 5000"]
            if certificate:
                words = iter(by_tls(self.served[-1], certificate))
                lines += [f"{option[2:]} {value}" for option, value in zip(words, words, strict=True)]
                lines += [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
            config = context.folder / f"sentinel{number}.conf"
            config.write_text("\n".join([*lines, ""]))
            context.start(f"sentinel{number}", ["redis-server", config, "--sentinel"])
        context.until(lambda: self.ask("CKQUORUM").startswith("OK 3") and len(self.replicas()) == 2, 20,
                      "the sentinels do not find each other and the replicas")

    def ask(self, *words):
        """What the first sentinel says of the service."""
        proof = ["--no-auth-warning", "-a", self.password] if self.tls else []
        client = ["redis-cli", "-h", HOST, "-p", self.ports[0], *proof]
        return self.context.run("sentinel-cli", [*client, "SENTINEL", *words, self.service])[1]

    def replicas(self):
        """The replicas that the first sentinel knows."""
        return [line for line in self.ask("REPLICAS").splitlines() if line.startswith(f"{HOST}:")]

    def primary(self):
        """The port of the primary."""
        return int(self.ask("GET-MASTER-ADDR-BY-NAME").split()[1])

    def uri(self):
        """The store of nodes."""
        hosts = ",".join(f"{HOST}:{port}" for port in self.served)
        scheme, query = ("rediss", f"?sentinel=:{quote(self.password, safe='')}") if self.tls else ("redis", "")
        return f"{scheme}+sentinel://{hosts}/{self.service}{query}"


def slot_of(user):
    """The slot of a user at `ringway.test` (CRC-16/XMODEM of the hash tag)."""
    return binascii.crc_hqx(f"sip:{user}@ringway.test".encode(), 0) % 16_384


# That of `ringway:nodes`, which has no hash tag.
LEASE_SLOT = binascii.crc_hqx(b"ringway:nodes", 0) % 16_384


class RedisCluster:
    """A Redis Cluster: three primaries, each with a replica, in which each server has an ACL user with these rules.
    With the certificate of a server, nodes and the servers among themselves use TLS; the ports for redis-cli do not."""

    password = "let-me-in"

    def __init__(self, context, rules, certificate=None):
        self.context, self.servers = context, []
        # The ports for nodes, if they are others.
        self.tls_ports = [context.ports.take() for _ in range(6)] if certificate else []
        for number in range(6):
            name = f"redis{number}"
            tls = [*by_tls(self.tls_ports[number], certificate), "--tls-cluster", "yes"] if certificate else []
            self.servers.append(Redis(context, name, options=[
                "--cluster-enabled", "yes", "--cluster-config-file", f"{name}.conf", "--cluster-node-timeout", 1000,
                "--cluster-require-full-coverage", "no", "--cluster-port", context.ports.take(), *tls,
                "--user", "ringway", *rules.replace("PASSWORD", self.password).split()]))
        status, output = context.run("create", [
            "redis-cli", "--cluster", "create", *(f"{HOST}:{one.port}" for one in self.servers),
            "--cluster-replicas", 1, "--cluster-yes"], seconds=30)
        context.expect(status == 0, f"no cluster: {output[-600:]}")
        context.until(self.is_whole, 20, "the cluster does not find itself")

    def is_whole(self):
        """Whether all servers know three primaries, and each of these has a replica that follows it."""
        return all("cluster_state:ok" in one.cli("CLUSTER", "INFO") for one in self.alive()) and \
            len(self.primaries()) == 3 and \
            all("state=online" in one.cli("INFO", "replication") for one in self.primaries())

    def alive(self):
        """The servers that run."""
        return [one for one in self.servers if one.process.running() and not one.paused]

    def nodes(self):
        """What a server knows of all: port, id, flags, slots as pairs."""
        for line in self.alive()[0].cli("CLUSTER", "NODES").splitlines():
            name, address, flags, *rest = line.split()
            slots = [part.split("-") for part in rest[5:] if not part.startswith("[")]
            port = int(address.split("@")[0].rsplit(":", 1)[1])
            yield port, name, flags.split(","), [(int(pair[0]), int(pair[-1])) for pair in slots]

    def primaries(self):
        """The primaries that run, and their slots."""
        slots = {port: slots for port, _, flags, slots in self.nodes() if "master" in flags and slots}
        return {one: slots[one.port] for one in self.alive() if one.port in slots}

    def name(self, server):
        """The id of a server."""
        return next(name for port, name, _, _ in self.nodes() if port == server.port)

    def primary_of(self, slot):
        """The primary of a slot that runs; None without."""
        has = (one for one, slots in self.primaries().items() if any(a <= slot <= b for a, b in slots))
        return next(has, None)

    def replica_of(self, primary):
        """A replica of a primary."""
        line = primary.cli("CLUSTER", "REPLICAS", self.name(primary)).split()
        port = int(line[1].split("@")[0].rsplit(":", 1)[1])
        return next(one for one in self.servers if one.port == port)

    def users(self, count):
        """Users by the primary that has them, so many for each."""
        ranges = self.primaries()
        users = {one: [] for one in ranges}
        for number in range(100 * count):
            slot = slot_of(f"u{number}")
            of = next(one for one, slots in ranges.items() if any(a <= slot <= b for a, b in slots))
            users[of].append(f"u{number}")
        return {one: names[:count] for one, names in users.items()}

    def keys(self):
        """The keys of all primaries."""
        return {key for one in self.primaries() for key in one.cli("KEYS", "ringway:at:*").splitlines()}

    def uri(self):
        """The store of nodes: the first host is down."""
        ports = self.tls_ports or [one.port for one in self.servers]
        hosts = ",".join(f"{HOST}:{port}" for port in (self.context.ports.take(), ports[1], ports[4]))
        return f"{'rediss' if self.tls_ports else 'redis'}+cluster://ringway:{self.password}@{hosts}"
