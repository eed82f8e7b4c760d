"""The Python package: its own tests, its types and documentation, and campaigns on real clusters.

scripts/python-package has installed it from the tree; the tests are in bindings/python/tests.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import case
from server import ROOT
from slurm import Slurm

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
PACKAGE = ROOT / "bindings" / "python"
TESTS = PACKAGE / "tests"
BIN = TARGET / "tools" / "python" / "bin"
PYTHON = BIN / "python"
SITE = TARGET / "python" / "site"
# The program with the laboratory; the one of the other cases is built without it.
RINGWAY = TARGET / "debug" / "ringway"


def environment(c):
    """Of programs that import the package: its place, and no configuration of the user's."""
    return {"PYTHONPATH": f"{SITE}:{TESTS}", "MYPYPATH": str(SITE), "HOME": str(c.folder),
            "RINGWAY_PYTHON": str(PYTHON), "PYTHONDONTWRITEBYTECODE": "1",
            "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{BIN}:{os.environ['PATH']}"}


def python(c, name, *words, seconds=120, env=None):
    """Runs Python to its end, which must be success; what it printed."""
    status, output = c.run(name, [PYTHON, *words], seconds=seconds, env={**environment(c), **(env or {})})
    c.expect(status == 0, f"{name}: status {status}: {output[-3000:]}")
    print(output)
    return output


@case("python/lab", own=True, limit=120)
def lab(c):
    """Results as Arrow, progress, Ctrl-C and errors of the laboratory."""
    python(c, "test_lab", "-m", "unittest", "-v", "test_lab")


@case("python/models", own=True)
def models(c):
    """A link and SCTP alone."""
    python(c, "test_models", "-m", "unittest", "-v", "test_models")


@case("python/sweep", own=True, limit=120)
def sweep(c):
    """A campaign on processes, into folders and object stores."""
    python(c, "test_sweep", "-m", "unittest", "-v", "test_sweep", "test_slurm")


@case("python/documentation", own=True, limit=90)
def documentation(c):
    """The examples in the package, in docs/python.md and in the notebook, and the types."""
    modules = ["ringway", "ringway.lab", "ringway.link", "ringway.sctp"]
    tested = f"""import doctest, importlib, sys
sys.exit(sum(doctest.testmod(importlib.import_module(module)).failed for module in {modules}))"""
    python(c, "doctest", "-c", tested)
    python(c, "guide", "-m", "doctest", ROOT / "docs" / "python.md")
    python(c, "notebook", TESTS / "run_notebook.py", PACKAGE / "notebook.ipynb")
    cache = f"--cache-dir={c.folder}/mypy"
    python(c, "mypy", "-m", "mypy", cache, "--strict", "--ignore-missing-imports", "-p", "ringway")
    python(c, "stubtest", "-m", "mypy.stubtest", "ringway._ringway")


def read(folder, but=("results.log",)):
    """Every file of a folder but those; of the manifest all but the host."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in but:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
            if path.name == "manifest.json":
                manifest = json.loads(path.read_text())
                del manifest["host"]
                found["manifest.json"] = json.dumps(manifest)
    return found


def expect_same(c, one, other):
    """Fails unless both folders have the same bytes."""
    one, other = read(c.folder / one), read(c.folder / other)
    c.expect(one.keys() == other.keys(), f"expected the files {sorted(one)}, got {sorted(other)}")
    differing = [name for name in one if one[name] != other[name]]
    c.expect(len(one) > 5 and not differing, f"these files differ: {differing}")


def ringway(c, *words, env=None, seconds=60):
    """Runs `ringway lab`, which must succeed; what it printed."""
    status, output = c.run("ringway", [RINGWAY, "lab", *words], env={**environment(c), **(env or {})}, seconds=seconds)
    c.expect(status == 0, f"ringway lab {' '.join(map(str, words))}: {output}")
    return output


@case("python/command_line", own=True, limit=90)
def command_line(c):
    """The package writes what `ringway lab` writes, for a scenario, a campaign and a paper, also by `--on`."""
    campaign = TESTS / "campaign.toml"
    ringway(c, "run", "two-cables", "--seed", "5", "--reps", "2", "--out", c.folder / "run")
    ringway(c, "sweep", campaign, "--reps", "2", "--out", c.folder / "sweep")
    ringway(c, "paper", "gangurde", "--out", c.folder / "paper")
    python(c, "same", "-c", "import sys; from ringway import lab; campaign = sys.argv[1]\n"
           "lab.run('two-cables', seed=5, reps=2, out='run-python')\n"
           "lab.sweep(campaign, reps=2, out='sweep-python')\n"
           "lab.paper('gangurde', out='paper-python')", campaign)
    for what in ("run", "sweep", "paper"):
        expect_same(c, what, f"{what}-python")
    # Nothing is imported from the folder in which the command runs.
    (c.folder / "json.py").write_text("raise SystemExit('imported from the current folder')")
    words = ["sweep", campaign, "--reps", "2", "--on", "processes", "--threads", "2", "--out", c.folder / "on"]
    output = ringway(c, *words)
    c.expect("efficiency" in output and "32 runs made" in output, f"--on processes printed {output}")
    expect_same(c, "sweep", "on")
    status, output = c.run("ringway", [RINGWAY, "lab", "sweep", campaign, "--on", "ray://127.0.0.1:1", "--out", "no"],
                           env={**environment(c), "RINGWAY_PYTHON": "/nowhere/python"})
    c.expect(status == 1 and "/nowhere/python" in output, f"without Python: {status}: {output}")


@case("python/ray", own=True, alone=True, limit=180)
def ray(c):
    """A campaign on a cluster of Ray, with a worker killed; and by the command line on one that runs already."""
    # A socket's path is short. A client shows the token of the cluster, which Ray makes in HOME.
    env = {"RAY_TMPDIR": short(c), "RAY_AUTH_MODE": "token"}
    python(c, "test_ray", "-m", "unittest", "-v", "test_engines.Ray", env=env)
    port, client = c.ports.take(), c.ports.take()
    head = c.start("head", [BIN / "ray", "start", "--head", "--block", "--num-cpus=2", f"--port={port}",
                            f"--ray-client-server-port={client}", "--include-dashboard=false"],
                   env={**environment(c), **env})
    c.expect(head.wait_output("Ray runtime started", 30), f"ray start: {head.output()}")
    campaign = TESTS / "campaign.toml"
    ringway(c, "sweep", campaign, "--reps", "2", "--out", c.folder / "sweep")
    words = ["sweep", campaign, "--reps", "2", "--on", f"ray://127.0.0.1:{client}", "--out", c.folder / "on"]
    # Where the server's process for this client dies, Ray says so after 40 s, and the command connects again.
    print(ringway(c, *words, env=env, seconds=100))
    expect_same(c, "sweep", "on")


@case("python/dask", own=True, alone=True, limit=120)
def dask(c):
    """A campaign on a cluster of Dask, with a worker killed."""
    python(c, "test_dask", "-m", "unittest", "-v", "test_engines.Dask")


@case("python/slurm", own=True, alone=True, limit=180)
def slurm(c):
    """A campaign on one node of Slurm, with a task killed."""
    cluster = Slurm(c)
    python(c, "test_slurm", "-m", "unittest", "-v", "test_engines.Slurm", env=cluster.env, seconds=180)


def short(c):
    """A folder with a short path, which is removed in the end."""
    folder = tempfile.mkdtemp(prefix="rw-")
    c.after(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder
