"""Debian's redis-server as the database of a cluster: a primary, its replicas, and sentinels that watch them."""

import signal

HOST = "127.0.0.1"


class Redis:
    """One server of the database, in memory only."""

    def __init__(self, context, name, *, replica_of=None, options=()):
        self.context, self.name, self.port = context, name, context.ports.take()
        follow = ["--replicaof", f"{HOST} {replica_of.port}"] if replica_of else []
        self.process = context.start(name, [
            "redis-server", "--port", self.port, "--bind", HOST, "--save", "", "--appendonly", "no",
            "--repl-diskless-sync-delay", "0", "--dbfilename", f"{name}.rdb", *follow, *options])
        self.until(lambda: self.cli("PING").strip() == "PONG", "does not answer")
        if replica_of:
            self.until(lambda: "master_link_status:up" in self.cli("INFO", "replication"), "does not follow")

    def until(self, condition, what):
        """Waits for a condition."""
        self.context.until(condition, 10, lambda: f"{self.name} {what}: {self.process.output()[-400:]}")

    def cli(self, *words):
        """What redis-cli prints for a command."""
        return self.context.run(f"{self.name}-cli", ["redis-cli", "-h", HOST, "-p", self.port, *words])[1]

    def pause(self):
        """It does nothing more, and its connections stay."""
        self.process.signal(signal.SIGSTOP)

    def go_on(self):
        """It goes on."""
        self.process.signal(signal.SIGCONT)

    def kill(self):
        """As power loss would."""
        self.process.signal(signal.SIGKILL)
        self.process.wait(5)


class Sentinels:
    """Three sentinels that promote a replica one second after the primary is gone."""

    service = "ringway"

    def __init__(self, context, primary):
        self.ports = []
        for number in range(3):
            port = context.ports.take()
            config = context.folder / f"sentinel{number}.conf"
            config.write_text("\n".join([
                f"port {port}", f"bind {HOST}", f"sentinel monitor {self.service} {HOST} {primary.port} 2",
                f"sentinel down-after-milliseconds {self.service} 1000",
                f"sentinel failover-timeout {self.service} 5000", ""]))
            context.start(f"sentinel{number}", ["redis-server", config, "--sentinel"])
            self.ports.append(port)

        def agree():
            ask = ["redis-cli", "-h", HOST, "-p", self.ports[0], "SENTINEL", "CKQUORUM", self.service]
            known = context.run("sentinel-cli", ask)[1].startswith("OK 3")
            return known and len(self.replicas(context)) == 2

        context.until(agree, 20, "the sentinels do not find each other and the replicas")

    def replicas(self, context):
        """The replicas that the first sentinel knows."""
        ask = ["redis-cli", "-h", HOST, "-p", self.ports[0], "SENTINEL", "REPLICAS", self.service]
        return [line for line in context.run("sentinel-cli", ask)[1].splitlines() if line.startswith(f"{HOST}:")]

    def primary(self, context):
        """The port of the primary."""
        ask = ["redis-cli", "-h", HOST, "-p", self.ports[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service]
        return int(context.run("sentinel-cli", ask)[1].split()[1])

    def uri(self):
        """The store of nodes."""
        return f"redis+sentinel://{','.join(f'{HOST}:{port}' for port in self.ports)}/{self.service}"
