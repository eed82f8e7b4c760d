"""`ringway.lab`: results, Arrow, progress, Ctrl-C, errors."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest
from pathlib import Path

import pandas
import polars
import pyarrow
import pyarrow.parquet
import ringway
from common import CAMPAIGN, Case
from ringway import lab


class Results(Case):
    def test_the_same_seed_gives_the_same_tables_and_the_files_of_out(self):
        with tempfile.TemporaryDirectory() as folder:
            result = lab.run("lossy-bulk", seed=7, reps=2, out=folder)
            again = lab.run("lossy-bulk", seed=7, reps=2)
            self.assertEqual(result.seed, 7)
            for name in ("measures", "series"):
                written = pyarrow.parquet.read_table(Path(folder, f"{name}.parquet"))
                self.assertTrue(pyarrow.table(result[name]).equals(written.cast(pyarrow.table(result[name]).schema)))
                self.assertTrue(pyarrow.table(again[name]).equals(pyarrow.table(result[name])))
        other = lab.run("lossy-bulk", seed=8, reps=2)
        self.assertFalse(pyarrow.table(other["measures"]).equals(pyarrow.table(result["measures"])))
        self.assertEqual(set(result), {"measures", "summary", "links", "series"})
        self.assertEqual(len(result.sha256), 64)

    def test_a_scenario_is_a_name_a_path_or_a_dict(self):
        expected = pyarrow.table(lab.run("lossy-bulk")["measures"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "line.toml")
            path.write_text(lab.text("lossy-bulk"))
            self.assertTrue(pyarrow.table(lab.run(path)["measures"]).equals(expected))
        self.assertTrue(pyarrow.table(lab.run(lab.document("lossy-bulk"))["measures"]).equals(expected))

    def test_a_built_in_name_goes_before_a_file_of_that_name(self):
        expected = lab.run("lossy-bulk")
        other = lab.text("lossy-bulk").replace("5 MB", "50 kB")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path("lossy-bulk").write_text(other)
            Path("calls").mkdir()
            self.assertNotEqual(other, lab.text("lossy-bulk"))
            self.assertEqual(lab.run("lossy-bulk").sha256, expected.sha256)
            self.assertEqual(lab.document("lossy-bulk"), tomllib.loads(lab.text("lossy-bulk")))
            self.assertEqual(lab.run("./lossy-bulk").sha256, hashlib.sha256(other.encode()).hexdigest())
            self.assertEqual(lab.document("calls"), tomllib.loads(lab.text("calls")))
        self.assertEqual(expected.sha256, hashlib.sha256(lab.text("lossy-bulk").encode()).hexdigest())

    def test_the_hash_of_a_campaign_is_that_of_its_scenario_too(self):
        scenario = lab.document("lossy-bulk")
        by_name = lab.sweep(CAMPAIGN, reps=1)
        one = lab.sweep(CAMPAIGN, scenario=scenario, reps=1)
        scenario["flow"][0]["start"] = "1 s"
        other = lab.sweep(CAMPAIGN, scenario=scenario, reps=1)
        self.assertEqual(len({by_name.sha256, one.sha256, other.sha256}), 3)

    def test_a_scenario_of_the_mesh_has_tables(self):
        small = {"scenario": {"title": "small"}, "mesh": {"topologies": ["line"], "sizes": [4], "disturbed": "0 s"}}
        result = lab.run(small, reps=1)
        self.assertEqual(set(result), {"cells", "summary"})
        self.assertGreater(len(result["cells"]), 3)

    def test_packets_are_a_table_where_a_probe_asks_for_them(self):
        document = lab.document("lossy-bulk")
        document["flow"][0]["size"] = "20 kB"
        document["probe"] = [{"what": "packets"}]
        packets = pyarrow.table(lab.run(document)["packets"])
        self.assertIn("enqueue", packets["step"].to_pylist())

    def test_a_sweep_has_the_tables_that_its_folder_has(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = lab.sweep(CAMPAIGN, reps=2, out=folder, workers=2)
            written = pyarrow.parquet.read_table(Path(folder, "results.parquet"))
            self.assertTrue(pyarrow.table(kept["results"]).equals(written.cast(pyarrow.table(kept["results"]).schema)))
            self.assertEqual((kept.data["ran"], kept.data["reused"]), (32, 0))
            resumed = lab.sweep(CAMPAIGN, reps=2, out=folder)
            self.assertEqual((resumed.data["ran"], resumed.data["reused"]), (0, 32))
        document = lab.document(CAMPAIGN)
        self.assertTrue(pyarrow.table(lab.sweep(document, reps=2)["results"]).equals(pyarrow.table(kept["results"])))

    def test_a_paper_has_its_figures(self):
        result = lab.paper("gangurde")
        self.assertEqual(result.faults, [])
        self.assertGreater(len(result["figures"]), 10)

    def test_errors_say_what_was_expected(self):
        with self.assertRaisesRegex(ringway.UsageError, "did you mean lossy-bulk"):
            lab.run("lossy-bulg")
        wrong = lab.document("lossy-bulk")
        wrong["flow"][0]["size"] = "5"
        with self.assertRaisesRegex(ringway.Error, 'flow.file.size: expected a size.*got "5"'):
            lab.run(wrong)
        with self.assertRaisesRegex(ringway.UsageError, "expected 1 to"):
            lab.run("lossy-bulk", reps=0)
        with self.assertRaisesRegex(ringway.UsageError, "tables, lists, texts and numbers"):
            lab.run({"scenario": object()})
        with self.assertRaisesRegex(ringway.UsageError, "expected a paper"):
            lab.paper("no-such")
        with self.assertRaises(OverflowError):
            lab.run("lossy-bulk", seed=-1)


class Arrow(Case):
    def setUp(self):
        self.table = lab.run("lossy-bulk")["measures"]

    def addresses(self, array):
        return [buffer.address for buffer in array.buffers() if buffer is not None]

    def test_every_reader_shares_the_memory(self):
        first, second = (pyarrow.table(self.table).column("value").chunk(0) for _ in range(2))
        self.assertEqual(self.addresses(first), self.addresses(second))
        shared = self.addresses(first)[-1]
        frame = polars.DataFrame(self.table)
        self.assertEqual(self.addresses(frame["value"].to_arrow())[-1], shared)
        self.assertEqual(frame["value"].to_list(), first.to_pylist())
        seen = pandas.DataFrame.from_arrow(self.table)
        self.assertEqual(seen["value"].tolist(), first.to_pylist())
        seen = pyarrow.table(self.table).to_pandas(types_mapper=pandas.ArrowDtype)
        self.assertEqual(self.addresses(pyarrow.array(seen["value"].array))[-1], shared)

    def test_the_memory_lives_as_long_as_a_reader(self):
        table = pyarrow.table(lab.run("lossy-bulk")["measures"])
        expected = pyarrow.table(self.table)
        self.table = None
        self.assertTrue(table.equals(expected))

    def test_a_missing_number_is_null(self):
        # One run has no interval.
        summary = pyarrow.table(lab.run("lossy-bulk")["summary"])
        self.assertEqual(summary.schema.field("low").type, pyarrow.float64())
        self.assertEqual(summary["low"].null_count, len(summary))
        self.assertEqual(summary["mean"].null_count, 0)


class Running(Case):
    def test_progress_grows_to_one(self):
        seen = []
        lab.run("calls", reps=6, progress=lambda share, text: seen.append((share, text)))
        shares = [share for share, _ in seen]
        self.assertEqual(shares, sorted(shares))
        self.assertEqual(shares[-1], 1.0)

    def test_an_exception_of_progress_ends_the_run(self):
        def stop(_share, _text):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            lab.run("calls", reps=1000, progress=stop)

    def test_other_threads_run_meanwhile(self):
        counted = []
        done = threading.Event()

        def count():
            while not done.is_set():
                counted.append(None)
                time.sleep(0.001)

        def stop(_share, _text):
            if len(counted) > 20:
                raise Stop

        class Stop(Exception):
            pass

        thread = threading.Thread(target=count)
        thread.start()
        with self.assertRaises(Stop):
            lab.run("calls", reps=100_000, progress=stop)
        done.set()
        thread.join()

    def test_runs_of_several_threads_do_not_disturb_each_other(self):
        expected = pyarrow.table(lab.run("lossy-bulk", seed=3)["measures"])
        got = []
        threads = [
            threading.Thread(target=lambda: got.append(lab.run("lossy-bulk", seed=3, threads=1))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(pyarrow.table(result["measures"]).equals(expected) for result in got))
        self.assertEqual(len(got), 4)

    def interrupted(self, call):
        """Sends SIGINT in the middle of a call; returns the seconds until it has ended."""
        program = (
            "import sys, threading\n"
            "from ringway import lab\n"
            "print('ready', flush=True)\n"
            "try:\n"
            f"    {call}\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', flush=True)\n"
            "    lab.run('lossy-bulk')\n"
            "    sys.exit(42)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
            self.assertEqual(child.stdout.readline(), "ready\n")
            time.sleep(1)
            self.assertIsNone(child.poll())
            began = time.monotonic()
            os.kill(child.pid, signal.SIGINT)
            self.assertEqual(child.stdout.readline(), "interrupted\n")
            took = time.monotonic() - began
            self.assertEqual(child.wait(), 42)
        return took

    def test_ctrl_c_ends_a_run_a_sweep_a_paper_and_a_mesh(self):
        for call in (
            "lab.run('calls', reps=100000)",
            "lab.sweep('loss-and-tcp', reps=1000)",
            "lab.paper('darakji')",
            "lab.run('mesh-scale')",
            "lab.run('users-scale')",
        ):
            took = self.interrupted(call)
            print(f"{call}: ended {took * 1000:.0f} ms after SIGINT", file=sys.stderr)
            # A fraction of a second on an idle machine; this one may be busy.
            self.assertLess(took, 10)


if __name__ == "__main__":
    unittest.main()
