"""Workers of Slurm: array jobs whose tasks write their results into the sweep's folder.

Everything is in `OUT/slurm`, which all nodes must see: the campaign (`spec.json`), and for each job a script for
sbatch, the batches of its tasks, and their results. Options for sbatch, such as a partition, are read by sbatch itself
from its variables (SBATCH_PARTITION and so on).
"""

import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ringway.lab import Error, UsageError
from ringway.sweep.pool import MAX_LOSSES, Done, Pool, Run

# Seconds between two looks for results.
POLL = 0.5
# Tasks of a job; Slurm's default MaxArraySize is 1001.
MAX_TASKS = 1000
# Seconds after the end of a job in which its results may still appear on a shared file system.
PATIENCE = 10.0

SCRIPT = """#!/bin/sh
#SBATCH --job-name=ringway
#SBATCH --array=0-{last}{limit}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
exec {python} -P -m ringway.sweep.task {folder} "$SLURM_ARRAY_TASK_ID"
"""


def _processors() -> int:
    """The processors of the cluster, at most as many as a job may have tasks."""
    done = subprocess.run(["sinfo", "--noheader", "--format=%C"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Error(f"sinfo: {done.stderr.strip()}")
    # Allocated, idle, other, total: of each kind of node a line.
    total = sum(int(line.split("/")[3]) for line in done.stdout.split())
    return max(1, min(total, MAX_TASKS))


class _Job:
    """An array job: its folder, its number, and the batches whose results are missing."""

    def __init__(self, folder: Path, number: str, batches: dict[int, list[Run]]) -> None:
        self.folder, self.number, self.batches = folder, number, batches
        self.ended: float | None = None


class Slurm(Pool):
    """Array jobs. The batches of tasks that end without a result are submitted again."""

    batch_seconds = 20.0
    first_batch = MAX_TASKS
    ahead = 1

    def __init__(self, spec: str, workers: int, out: Path) -> None:
        for program in ("sbatch", "squeue", "scancel", "sinfo"):
            if shutil.which(program) is None:
                raise UsageError(f"--on slurm needs the program {program}, which is not in PATH (Debian: slurm-client)")
        self.limit = f"%{workers}" if workers else ""
        self.workers = min(workers or MAX_TASKS, _processors())
        self.folder = (out / "slurm").resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "spec.json").write_text(spec, "utf-8")
        self.waiting: list[list[Run]] = []
        self.jobs: list[_Job] = []
        self.begun = 0
        self.losses: dict[tuple[Run, ...], int] = {}

    def submit(self, runs: list[Run]) -> None:
        self.waiting.append(runs)

    def _start(self) -> None:
        """Submits what waits, as one job."""
        batches, self.waiting = self.waiting[:MAX_TASKS], self.waiting[MAX_TASKS:]
        folder = self.folder / f"job-{self.begun:04}"
        self.begun += 1
        folder.mkdir()
        (folder / "batches.json").write_text(json.dumps(batches), "utf-8")
        script = folder / "array.sh"
        script.write_text(
            SCRIPT.format(
                last=len(batches) - 1,
                limit=self.limit,
                python=shlex.quote(sys.executable),
                folder=shlex.quote(str(folder)),
            ),
            "utf-8",
        )
        log = f"{folder}/".replace("%", "%%") + "task-%a.log"
        words = ["sbatch", "--parsable", f"--output={log}", str(script)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Error(f"sbatch {script}: {done.stderr.strip()}")
        number = done.stdout.strip().split(";")[0]
        self.jobs.append(_Job(folder, number, dict(enumerate(batches))))

    def wait(self) -> list[Done]:
        while True:
            while self.waiting:
                self._start()
            results = [result for job in self.jobs for result in self._collect(job)]
            self.jobs = [job for job in self.jobs if job.batches]
            if results:
                return results
            for job in list(self.jobs):
                self._look(job)
            time.sleep(POLL)

    def _collect(self, job: _Job) -> list[Done]:
        """Takes the results that have appeared."""
        results = []
        for index in list(job.batches):
            path = job.folder / f"result-{index}.json"
            if not path.exists():
                continue
            found = json.loads(path.read_text("utf-8"))
            if "error" in found:
                raise Error(f"a task of Slurm failed: {found['error']}")
            lines = [(cell, replication, line, made) for cell, replication, line, made in found["lines"]]
            results.append(Done(lines, found["seconds"], found["process"]))
            del job.batches[index]
        return results

    def _look(self, job: _Job) -> None:
        """Submits the batches of tasks that ended without a result again."""
        shown = subprocess.run(
            ["squeue", "--noheader", "--jobs", job.number, "--states=all", "--format=%T"],
            capture_output=True, text=True, check=False,
        )
        if shown.returncode != 0 and "Invalid job id" not in shown.stderr:
            # The controller does not answer, and nothing is known of the job.
            job.ended = None
            return
        # A job that Slurm does not know any more has ended.
        running = {"PENDING", "RUNNING", "REQUEUED", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD"}
        if shown.returncode == 0 and running & set(shown.stdout.split()):
            job.ended = None
            return
        job.ended = job.ended or time.monotonic()
        if time.monotonic() - job.ended < PATIENCE:
            return
        self._cancel(job)
        for runs in job.batches.values():
            key = tuple(runs)
            self.losses[key] = self.losses.get(key, 0) + 1
            if self.losses[key] > MAX_LOSSES:
                raise Error(f"a task of Slurm ended without a result {MAX_LOSSES} times; see {job.folder}")
            self.waiting.append(runs)
        job.batches = {}
        self.jobs.remove(job)

    def _cancel(self, job: _Job) -> None:
        subprocess.run(["scancel", job.number], capture_output=True, check=False)

    def close(self) -> None:
        for job in self.jobs:
            self._cancel(job)
        if not self.jobs:
            shutil.rmtree(self.folder, ignore_errors=True)
