"""`ringway.sweep` without an engine, the folders it writes to, and what it starts by the command line."""

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import fsspec
import ringway
from common import CAMPAIGN, Case
from ringway import lab, sweep
from ringway.sweep import processes
from ringway.sweep.pool import Done, work
from ringway.sweep.processes import Processes


class Sweeps(Case):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.expected = Path(cls.scratch.name, "expected")
        cls.result = lab.sweep(CAMPAIGN, out=cls.expected, workers=1)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def folder(self, name):
        return Path(self.scratch.name, name)

    def spec(self, name):
        """What workers of the campaign get."""
        return ringway._ringway.Engine((str(CAMPAIGN), None, None), None, None, str(self.folder(name))).spec

    def test_the_stopping_rule_ends_cells_at_different_numbers_of_runs(self):
        numbers = {cell["n"] for cell in self.result.data["cells"]}
        self.assertGreater(len(numbers), 2)
        self.assertTrue(all(4 <= n <= 16 for n in numbers))

    def test_any_number_of_processes_writes_the_same_bytes_also_when_one_is_killed(self):
        for workers in (1, 3):
            killed = []

            def observe(_runs, process, killed=killed):
                if not killed:
                    killed.append(process)
                    os.kill(process, signal.SIGKILL)

            out = self.folder(f"processes-{workers}")
            result = sweep.run(CAMPAIGN, on="processes", out=out, workers=workers, observe=observe)
            self.assertEqual(result.data["ran"], self.result.data["ran"])
            self.assertEqual(len(killed), 1)
            self.assert_same_files(self.expected, out)

    def test_a_batch_that_follows_the_death_of_the_last_worker_is_made(self):
        with Processes(self.spec("idle"), 1) as pool:
            pool.submit([(0, 0)])
            (done,) = pool.wait()
            os.kill(done.process, signal.SIGKILL)
            while not pool.pool._broken:
                time.sleep(0.01)
            pool.submit([(0, 1)])
            (done,) = pool.wait()
        self.assertEqual([line[:2] for line in done.lines], [(0, 1)])

    def test_what_a_worker_hands_over_is_written_at_once(self):
        """Otherwise the executor waits for ever for the rest of what a killed worker has begun to write."""
        done = Done([(0, 0, "x" * 1_000_000, True)], 0.1, 1)
        with (mock.patch.object(processes._Worker, "folder", self.scratch.name),
              mock.patch.object(processes, "work", return_value=done)):
            name = processes._work([(0, 0)])
        # The name of a class and a number are beside it.
        self.assertLess(len(pickle.dumps(name)), select.PIPE_BUF / 2)
        self.assertEqual(processes._load(name), done)
        self.assertFalse(Path(name).exists())

    def test_batches_that_fill_the_pipe_to_the_workers_do_not_stop_their_end(self):
        """Each batch is larger than a pipe's buffer, so the executor is writing one when the workers end."""
        with Processes(self.spec("pipe"), 2) as pool:
            for _ in range(4):
                pool.submit([(0, replication) for replication in range(100_000)])
            time.sleep(1)

    def test_ctrl_c_ends_runs_that_take_long(self):
        """SIGINT for the process alone, and for its group, as of a terminal."""
        program = (
            "import signal, sys\n"
            "from ringway import lab, sweep\n"
            "if __name__ == '__main__':\n"
            # A shell has its background jobs ignore it.
            "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "    scenario = lab.document('lossy-bulk')\n"
            "    scenario['scenario'] |= {'events': 2**40, 'at_most': '1000000 s'}\n"
            "    scenario['probe'] = []\n"
            "    campaign = lab.document(sys.argv[1])\n"
            "    campaign['set'][0]['value'] = '1000000 MB'\n"
            "    try:\n"
            "        sweep.run(campaign, scenario=scenario, out=sys.argv[2], workers=2)\n"
            "    except KeyboardInterrupt:\n"
            "        sys.exit(42)\n"
        )
        script = self.folder("long.py")
        script.write_text(program)
        for interrupt in (os.kill, os.killpg):
            words = [sys.executable, str(script), str(CAMPAIGN), str(self.folder(f"long-{interrupt.__name__}"))]
            child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
            try:
                self.until_busy(child, 2)
                interrupt(child.pid, signal.SIGINT)
                # Until the last worker has closed standard error. A hang is a failure; a run takes many minutes.
                _, errors = child.communicate(timeout=60)
                self.assertEqual((child.returncode, errors), (42, ""))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.communicate()

    def until_busy(self, child, workers):
        """Waits until that many other processes of the child's session have computed for a second."""
        ticks = os.sysconf("SC_CLK_TCK")
        busy = 0
        while busy < workers:
            self.assertIsNone(child.poll())
            busy = 0
            for stat in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    # Fields of proc(5) after the name: session is the fourth, utime the twelfth.
                    fields = stat.read_text().rpartition(")")[2].split()
                    busy += int(fields[3]) == child.pid != int(stat.parent.name) and int(fields[11]) > ticks
            time.sleep(0.1)

    def test_an_interrupted_sweep_is_resumed(self):
        class Stop(Exception):
            pass

        made = []

        def stop(runs, _process):
            made.append(runs)
            # The log has runs in their order, so not the first ones to end alone.
            if sum(made) >= self.result.data["ran"] // 2:
                raise Stop

        out = self.folder("resumed")
        with self.assertRaises(Stop):
            sweep.run(CAMPAIGN, out=out, workers=2, observe=stop)
        result = sweep.run(CAMPAIGN, out=out, workers=2)
        self.assertGreater(result.data["reused"], 0)
        # The runs that a cell asks for depend on those that are known, so it may have a few more or fewer.
        total = result.data["reused"] + result.data["ran"]
        self.assertLess(abs(total - self.result.data["ran"]), 16)
        self.assert_same_files(self.expected, out, but={"results.log"})

    def test_a_second_sweep_in_one_folder_is_refused(self):
        out = self.folder("twice")
        refused = []

        def again(_runs, _process):
            for second in (sweep.run, lab.sweep):
                with self.assertRaisesRegex(ringway.Error, "results.log: expected a folder that no other sweep"):
                    second(CAMPAIGN, reps=1, out=out, workers=1)
                refused.append(second)
            raise InterruptedError

        try:
            sweep.run(CAMPAIGN, out=out, workers=1, observe=again)
        except InterruptedError:
            self.assertEqual(len(refused), 2)
            # The first one has ended, though its traceback is still there, as in a notebook.
            sweep.run(CAMPAIGN, out=out, workers=1)
        self.assert_same_files(self.expected, out, but={"results.log"})

    def test_an_object_store_gets_the_files_and_resumes(self):
        url = "memory://bucket/sweeps/one"
        result = sweep.run(CAMPAIGN, out=url, workers=2)
        self.assertEqual(result.data["out"], url)
        self.assertIn(f"written to {url}/report.html", result.text)
        copied = self.folder("copied")
        fsspec.filesystem("memory").get("/bucket/sweeps/one", str(copied), recursive=True)
        self.assert_same_files(self.expected, copied)
        again = sweep.run(CAMPAIGN, out=url, workers=1)
        self.assertEqual((again.data["ran"], again.data["reused"]), (0, self.result.data["ran"]))
        by_file = self.folder("by-file")
        sweep.run(CAMPAIGN, out=by_file.as_uri(), workers=2)
        self.assert_same_files(self.expected, by_file)

    def test_what_is_printed_does_not_depend_on_the_name_of_the_folder(self):
        text = sweep.run(CAMPAIGN, out=self.expected).text
        with contextlib.chdir(self.scratch.name):
            Path("s").symlink_to(self.expected)
            self.assertEqual(sweep.run(CAMPAIGN, out="s/").text, text.replace(str(self.expected), "s"))

    def test_a_run_that_fails_is_a_fault(self):
        document = lab.document("lossy-bulk")
        document["scenario"]["events"] = 1000
        campaign = lab.document(CAMPAIGN)
        result = sweep.run(campaign, scenario=document, out=self.folder("failing"), workers=2)
        self.assertIn("event budget of 1000 used up", result.faults[0])
        local = lab.sweep(campaign, scenario=document)
        self.assertEqual(result.data["cells"], local.data["cells"])

    def test_a_worker_of_another_build_is_refused(self):
        spec = self.spec("spec")
        with self.assertRaisesRegex(ringway.Error, "expected build"):
            work(spec.replace('"build":"', '"build":"0'), [(0, 0)])

    def test_errors_say_what_is_missing(self):
        with self.assertRaisesRegex(ringway.UsageError, "expected processes, ray"):
            sweep.run(CAMPAIGN, on="pbs", out=self.folder("x"))
        with self.assertRaisesRegex(ringway.UsageError, "no-such://"):
            sweep.run(CAMPAIGN, out="no-such://bucket")
        hidden = "import sys; sys.modules['ray'] = None; from ringway.sweep.__main__ import main; sys.exit(main())"
        words = [sys.executable, "-c", hidden, "--on", "ray", "--out", str(self.folder("x")), str(CAMPAIGN)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        install = f"{sys.executable} -m pip install 'bindings/python[ray]'"
        self.assertIn(f"--on ray needs the package ray: in a clone of the project {install}", done.stderr)
        with (
            mock.patch.dict(sys.modules, fsspec=None),
            self.assertRaisesRegex(ringway.UsageError, "^--out s3://b needs the package fsspec"),
        ):
            sweep.run(CAMPAIGN, out="s3://b")
        done = subprocess.run(
            [sys.executable, "-m", "ringway.sweep", "--on", "slurm", "--out", str(self.folder("y")), str(CAMPAIGN)],
            capture_output=True, text=True, check=False, env={**os.environ, "PATH": "/nowhere"},
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--on slurm needs the program sbatch", done.stderr)


if __name__ == "__main__":
    unittest.main()
