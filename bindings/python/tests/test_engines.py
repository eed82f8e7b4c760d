"""A campaign on real clusters of this machine: Ray, Dask and Slurm, each with a worker killed in the middle.

The cluster of Slurm is started by who runs this test (interop/python), which sets SLURM_CONF.
"""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from common import CAMPAIGN, Case
from ringway import Error, _ringway, sweep
from ringway.sweep import on_dask
from ringway.sweep.pool import MAX_LOSSES

WORKERS = 2


class Killer:
    """Kills the worker of the batch that ended at a certain number of runs: it has begun its next one."""

    def __init__(self, after=20):
        self.after, self.killed = after, None

    def __call__(self, runs, process):
        self.after -= runs
        if self.after <= 0 and self.killed is None:
            os.kill(process, signal.SIGKILL)
            self.killed = process


class Engines(Case):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.expected = Path(cls.scratch.name, "expected")
        cls.alone = []
        cls.result = sweep.run(CAMPAIGN, on="processes", workers=1, out=cls.expected, report=cls.alone.append)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def spec(self):
        """What workers of the campaign get."""
        return _ringway.Engine((str(CAMPAIGN), None, None), None, None, f"{self.scratch.name}/spec").spec

    def check(self, on, name, kill=True, workers=WORKERS):
        """Runs the campaign twice: in peace, for its efficiency, and with a worker killed."""
        out, reports = Path(self.scratch.name, name), []
        sweep.run(CAMPAIGN, on=on, out=out, workers=workers, report=reports.append)
        self.assert_same_files(self.expected, out)
        alone, report = self.alone[0], reports[0]
        self.assertEqual(report.runs, alone.runs)
        share = alone.seconds / (report.workers * report.seconds)
        print(f"one process: {alone}", file=sys.stderr)
        print(f"{name}: {report}; against one process {share:.0%}", file=sys.stderr)
        if kill:
            out, killer = Path(self.scratch.name, f"{name}-killed"), Killer()
            result = sweep.run(CAMPAIGN, on=on, out=out, workers=workers, observe=killer)
            self.assertIsNotNone(killer.killed)
            self.assertEqual(result.data["ran"], self.result.data["ran"])
            self.assert_same_files(self.expected, out)
            print(f"{name}: the same bytes with worker {killer.killed} killed", file=sys.stderr)


class Ray(Engines):
    def test_a_local_cluster(self):
        import ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
        try:
            self.check("ray", "ray")
        finally:
            ray.shutdown()

    def test_a_cluster_of_its_own(self):
        """Not one that Ray finds by its variable, which here has nothing."""
        out = Path(self.scratch.name, "ray-own")
        with mock.patch.dict(os.environ, RAY_ADDRESS="127.0.0.1:1"):
            sweep.run(CAMPAIGN, on="ray", out=out, workers=2)
        self.assert_same_files(self.expected, out)

    def test_an_address_is_refused_where_ray_is_connected_to_another(self):
        with (
            mock.patch("ray.is_initialized", return_value=True),
            self.assertRaisesRegex(Error, "ray://127.0.0.1:1: expected no connection of this process to Ray, got one"),
        ):
            sweep.run(CAMPAIGN, on="ray://127.0.0.1:1", out=Path(self.scratch.name, "ray-other"))

    def test_what_ray_refuses_is_an_error(self):
        for refusal in (ValueError("no such cluster"), ConnectionError("no such cluster")):
            with (
                mock.patch("ray.init", side_effect=refusal),
                self.assertRaisesRegex(Error, "--on ray://127.0.0.1:1: no such cluster"),
            ):
                sweep.run(CAMPAIGN, on="ray://127.0.0.1:1", out=Path(self.scratch.name, "ray-none"))

    def test_a_client_server_that_dies_is_tried_again(self):
        import ray

        died = ConnectionAbortedError("Initialization failure from server")
        connect = functools.partial(ray.init, num_cpus=WORKERS, include_dashboard=False)
        answers = iter([died, died, None])

        def init(address, **options):
            self.assertEqual(address, "ray://127.0.0.1:1")
            if answer := next(answers):
                raise answer
            connect(**options)

        out = Path(self.scratch.name, "ray-again")
        with mock.patch("ray.init", side_effect=init):
            sweep.run(CAMPAIGN, on="ray://127.0.0.1:1", out=out)
        self.assert_same_files(self.expected, out)
        with (
            mock.patch("ray.init", side_effect=died) as init,
            self.assertRaisesRegex(Error, "--on ray://127.0.0.1:1: Initialization failure from server"),
        ):
            sweep.run(CAMPAIGN, on="ray://127.0.0.1:1", out=Path(self.scratch.name, "ray-dies"))
        self.assertEqual(init.call_count, 3)


class Dask(Engines):
    def test_a_cluster_of_processes(self):
        import distributed

        with distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            self.check(cluster.scheduler_address.replace("tcp://", "dask://"), "dask")

    def test_all_workers_are_killed(self):
        import distributed

        with (
            distributed.LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            workers = set(client.run(os.getpid).values())

            def kill(_runs, _process):
                while workers:
                    os.kill(workers.pop(), signal.SIGKILL)

            out, on = Path(self.scratch.name, "dask-all-killed"), cluster.scheduler_address.replace("tcp://", "dask://")
            sweep.run(CAMPAIGN, on=on, out=out, observe=kill)
            self.assertFalse(workers)
            self.assert_same_files(self.expected, out)

    def test_a_client_of_the_program_is_not_used(self):
        import distributed

        with (
            distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
            distributed.Client(cluster),
            on_dask.Dask(self.spec(), 1, None) as pool,
        ):
            pool.submit([(0, 0)])
            (task,) = pool.tasks
            self.assertEqual(len(pool.wait()), 1)
            self.assertIs(task._state._event._loop, pool.client.loop.asyncio_loop)

    def test_batches_that_are_cancelled_are_an_error(self):
        with on_dask.Dask(self.spec(), 1, None) as pool:
            self.assertEqual(pool.cluster.scheduler.allowed_failures, MAX_LOSSES)
            pool.submit([(0, 0)])
            pool.client.cancel(list(pool.tasks))
            with self.assertRaisesRegex(Error, "Dask cancelled batches"):
                pool.wait()

    def test_a_cluster_of_its_own(self):
        out = Path(self.scratch.name, "own")
        sweep.run(CAMPAIGN, on="dask", out=out, workers=3)
        self.assert_same_files(self.expected, out)


class Slurm(Engines):
    def test_array_jobs_on_one_node(self):
        self.check("slurm", "it's slurm at 50 %", kill=False, workers=0)

    def test_a_task_that_is_killed_runs_again(self):
        out = Path(self.scratch.name, "slurm-killed")
        program = (
            "import sys\n"
            "from ringway import sweep\n"
            "sweep.run(sys.argv[1], on='slurm', out=sys.argv[2], workers=2)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program, str(CAMPAIGN), str(out)]) as child:
            killed = 0
            while child.poll() is None and not killed:
                # Slurm's own processes have other names.
                found = subprocess.run(
                    ["pgrep", "-f", f"ringway.sweep.task {out}/slurm/job-"], capture_output=True, text=True, check=False
                )
                for process in found.stdout.split():
                    os.kill(int(process), signal.SIGKILL)
                    killed = int(process)
            self.assertEqual(child.wait(), 0)
        self.assertGreater(killed, 0)
        self.assert_same_files(self.expected, out)
        print(f"slurm: the same bytes with task {killed} killed", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
