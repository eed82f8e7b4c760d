"""`ringway.sweep.on_slurm` with programs in the place of Slurm's, which answer what the test wants."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ringway.sweep import on_slurm

PROGRAMS = {
    "sinfo": "echo 0/2/0/2",
    "sbatch": 'printf "%s\\0" "$@" >> "$0.words"; echo 17',
    "squeue": 'cat "$0.errors" >&2; cat "$0.states"; exit "$(cat "$0.status")"',
    "scancel": 'echo "$1" >> "$0.words"',
}


class Slurm(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        for name, text in PROGRAMS.items():
            path = self.scratch / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
            Path(f"{path}.words").touch()
        for patch in (
            mock.patch.dict(os.environ, PATH=f"{self.scratch}:{os.environ['PATH']}"),
            mock.patch.object(on_slurm, "PATIENCE", 0.0),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def words(self, program):
        """What a program was called with."""
        return (self.scratch / f"{program}.words").read_text()

    def squeue(self, status, states="", errors=""):
        for what, text in (("status", str(status)), ("states", states), ("errors", errors)):
            (self.scratch / f"squeue.{what}").write_text(text)

    def begun(self):
        """A pool with one job."""
        pool = on_slurm.Slurm("{}", 0, self.scratch / "out")
        pool.submit([(0, 0)])
        pool._start()
        return pool

    def test_a_job_has_not_ended_because_the_controller_does_not_answer(self):
        pool = self.begun()
        self.squeue(1, errors="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
        pool._look(pool.jobs[0])
        self.assertEqual((len(pool.jobs), pool.waiting), (1, []))

    def test_a_job_that_has_ended_is_cancelled_before_it_is_submitted_again(self):
        for answer in (
            {"status": 1, "errors": "slurm_load_jobs error: Invalid job id specified"},
            {"status": 0, "states": "FAILED\n"},
        ):
            pool = self.begun()
            self.squeue(**answer)
            pool._look(pool.jobs[0])
            self.assertEqual((pool.jobs, pool.waiting), ([], [[(0, 0)]]))
            self.assertEqual(self.words("scancel").split()[-1], "17")

    def test_each_job_is_looked_at_when_several_have_ended(self):
        pool = self.begun()
        pool.submit([(0, 1)])
        pool._start()
        self.squeue(0, states="FAILED\n")
        with mock.patch.object(on_slurm.time, "sleep", side_effect=InterruptedError):
            self.assertRaises(InterruptedError, pool.wait)
        self.assertEqual(pool.waiting, [[(0, 0)], [(0, 1)]])

    def test_a_folder_may_have_any_name(self):
        out = self.scratch / "it's 50 %\n#SBATCH --wait"
        pool = on_slurm.Slurm("{}", 0, out)
        pool.submit([(0, 0)])
        pool._start()
        *options, script = self.words("sbatch").split("\0")[:-1]
        folder = f"{out}/slurm/job-0000"
        self.assertEqual(options, ["--parsable", f"--output={folder.replace('%', '%%')}/task-%a.log"])
        text = Path(script).read_text()
        shown = text.replace("exec ", 'printf "%s\\0" ')
        done = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True,
                              env={"SLURM_ARRAY_TASK_ID": "3"})
        # -P: nothing is imported from the folder in which the job runs.
        self.assertEqual(done.stdout.split("\0")[1:], ["-P", "-m", "ringway.sweep.task", folder, "3", ""])


if __name__ == "__main__":
    unittest.main()
