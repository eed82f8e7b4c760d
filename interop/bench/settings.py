"""What a measurement is made with: programs, processors, sizes; and the machine it is made on."""

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from subjects import ROOT, Trouble

GENERATOR_SECONDS = 400


@dataclass
class Settings:
    """Shared by every part of a run."""

    folder: Path
    generator: Path
    program: Path
    ringway: str
    server_cpus: str
    generator_cpus: str
    workers: int
    users: int
    ports: int
    transport: str
    # Certificate and key of everybody, for TLS.
    identity: tuple


def add_arguments(parser):
    """The options `run` and `drain` have in common."""
    parser.add_argument("--profile", default="release", help="cargo profile to build [release]")
    parser.add_argument("--ringway", metavar="COMMAND", default=os.environ.get("RINGWAY_SERVE"),
                        help="command that starts the server on 127.0.0.1:15060; {workers} and {port} are "
                             "filled in [RINGWAY_SERVE, else the ringway just built]")
    parser.add_argument("--server-cpus", metavar="LIST", help="processors of the server [the first]")
    parser.add_argument("--generator-cpus", metavar="LIST", help="processors of the generator [the last]")
    parser.add_argument("--workers", type=int, default=1, help="workers of each server [1]")
    parser.add_argument("--users", type=int, default=1000, help="registered users [1000]")
    parser.add_argument("--ports", type=int, default=4, help="generator ports at each end [4]")
    parser.add_argument("--transport", choices=("udp", "tcp", "tls"), default="udp",
                        help="transport of both ends of a call [udp]; the floor is of datagrams")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where the results go")


def prepare(arguments):
    """Builds what is measured and says with what it is."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    packages = ["-p", "ringway-load"] + ([] if arguments.ringway else ["-p", "ringway"])
    built = subprocess.run(["cargo", "build", "--locked", "--quiet", "--profile", arguments.profile, *packages],
                           cwd=ROOT, check=False)
    if built.returncode != 0:
        raise Trouble("the build failed")
    programs = target / ("debug" if arguments.profile == "dev" else arguments.profile)
    folder = target / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    cpus = sorted(os.sched_getaffinity(0))
    return Settings(
        folder=folder,
        generator=programs / "ringway-load",
        program=programs / "ringway",
        ringway=arguments.ringway,
        server_cpus=arguments.server_cpus or str(cpus[0]),
        generator_cpus=arguments.generator_cpus or str(cpus[-1]),
        workers=arguments.workers,
        users=arguments.users,
        ports=arguments.ports,
        transport=arguments.transport,
        identity=identity(folder) if arguments.transport == "tls" or needs_identity(arguments) else (),
    )


def needs_identity(arguments):
    """Whether idle connections over TLS are measured."""
    return hasattr(arguments, "only") and "idle" in (arguments.only or ["idle"])


def identity(folder):
    """A certificate for the loopback address that all trust, and its key: servers and generator verify each other."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", certificate, "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "basicConstraints=critical,CA:FALSE"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Trouble(f"openssl made no certificate: {made.stderr.strip()}")
    return certificate, key


def generate(settings, subject, command, *flags, users=None):
    """Runs the generator against a subject; its report, with the drops at the subject's sockets."""
    report = settings.folder / "report.json"
    report.unlink(missing_ok=True)
    pids = ",".join(str(pid) for pid in subject.processes())
    before = subject.dropped()
    secure = []
    if settings.transport == "tls":
        secure = ["--tls-certificate", settings.identity[0], "--tls-key", settings.identity[1]]
    ran = subprocess.run(
        ["taskset", "-c", settings.generator_cpus, settings.generator, command,
         "--server", subject.address, "--users", str(users or settings.users), "--ports", str(settings.ports),
         "--transport", settings.transport, *secure, "--watch", pids, "--json", report, *subject.flags,
         *(str(flag) for flag in flags)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        timeout=GENERATOR_SECONDS)
    if not report.exists():
        raise Trouble(f"{subject.name}: {ran.stderr.strip() or 'the generator gave no report'}")
    result = json.loads(report.read_text(encoding="utf-8"))
    result["server_drops"] = subject.dropped() - before
    return result


def machine():
    """The machine, for the report."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as lines:
        memory = int(next(lines).split()[1]) // 1024
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False)
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "memory_mib": memory,
        "kernel": platform.release(),
        "rustc": rustc.stdout.strip(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def main_of(body, description):
    """Runs a program's body with common error handling; returns the exit status."""
    parser = argparse.ArgumentParser(description=description)
    try:
        return body(parser)
    except Trouble as trouble:
        print(f"bench: {trouble}", file=sys.stderr)
    except subprocess.TimeoutExpired as late:
        print(f"bench: {late.cmd[3]} still ran after {late.timeout:.0f} s", file=sys.stderr)
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
    return 1
