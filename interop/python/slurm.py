"""Slurm on one node: munged, slurmctld and slurmd of Debian, with their own configuration and ports."""

import os
import shutil
import socket
import subprocess
import time

from cases import Failed

CONFIG = """
ClusterName=ringway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
KillWait=1
MinJobAge=60
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """A cluster of one node in the folder of a case."""

    def __init__(self, c, processors=3):
        self.c = c
        # The path of a socket is short.
        self.folder = c.folder / "s"
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        os.chmod(self.folder, 0o755)
        self.config = self.folder / "slurm.conf"
        self.config.write_text(CONFIG.format(
            host=socket.gethostname(), controller=c.ports.take(), node=c.ports.take(), folder=self.folder,
            processors=processors))
        self.env = {"SLURM_CONF": str(self.config)}
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.start("munged", ["munged", "--foreground", "--force", f"--key-file={key}",
                              f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                              f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed"])
        self.until((self.folder / "munge.socket").exists, "munged has no socket")
        self.start("slurmctld", ["slurmctld", "-D", "-i", "-f", self.config])
        self.start("slurmd", ["slurmd", "-D", "-f", self.config, "-N", socket.gethostname()])
        self.until(self.is_idle, "the node is not idle")

    def start(self, name, words):
        program = shutil.which(words[0]) or f"/usr/sbin/{words[0]}"
        return self.c.start(name, [program, *words[1:]], env={**os.environ, **self.env})

    def is_idle(self):
        """Whether the node waits for jobs."""
        done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False,
                              env={**os.environ, **self.env})
        return done.stdout.strip() == "idle"

    def until(self, holds, why, seconds=20):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise Failed(f"Slurm: {why}; logs in {self.folder}")
            time.sleep(0.1)
