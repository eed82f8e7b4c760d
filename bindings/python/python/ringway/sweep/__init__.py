"""A campaign on a cluster: an engine schedules, and Ringway makes the runs.

`run` decides which replications each cell needs, hands them to the workers of Ray, Dask or Slurm (or to processes
of this machine), and keeps their results. What it writes is, byte for byte, what `ringway.lab.sweep` writes: it does
not depend on the number of workers, on the order in which runs end, or on workers that are killed.

    from ringway import sweep
    result = sweep.run("loss-and-tcp", on="ray", out="results")

The command line does the same: `ringway lab sweep loss-and-tcp --on ray --out results`.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from ringway import _ringway
from ringway.lab import Progress, Result, UsageError, _campaign, _result, _swept
from ringway.sweep.drive import Report, drive
from ringway.sweep.folder import Folder
from ringway.sweep.pool import Pool

__all__ = ["Report", "run"]


def run(
    campaign: str | os.PathLike[str] | Mapping[str, Any],
    *,
    on: str = "processes",
    out: str | os.PathLike[str],
    scenario: Mapping[str, Any] | None = None,
    seed: int | None = None,
    reps: int | None = None,
    workers: int = 0,
    progress: Progress | None = None,
    report: Callable[[Report], object] | None = None,
    observe: Callable[[int, int], object] | None = None,
) -> Result:
    """Runs a campaign on a cluster, or resumes it.

    `on` is `processes`, `ray` or `dask` (of this machine), `ray://HOST:PORT`, `dask://HOST:PORT`, or `slurm`; `workers`
    is the number of processes to start on this machine (0: one per core), or the number of a Slurm array's tasks that
    run at a time. `out` is a folder, or a URL of fsspec such as `s3://bucket/folder`. `report` is called at the end
    with the time that it took; `observe` with the number of runs and the process id of the worker for each batch of
    results.
    """
    native = _campaign(campaign, scenario)
    with Folder(os.fspath(out)) as folder:
        engine = _ringway.Engine(native, seed, reps, str(folder.local))
        with closing(engine):
            with open_pool(on, engine.spec, workers, folder) as pool:
                began = time.monotonic()
                runs, busy = drive(engine, pool, folder, progress, observe)
                took = time.monotonic() - began
            parts = engine.finish()
        sha256 = _swept(folder.local)
        folder.upload()
    if report is not None:
        report(Report(runs=runs, workers=pool.workers, seconds=took, busy=busy))
    text, data, tables, faults = parts
    if folder.is_url:
        text = text.replace(str(folder.local), folder.name)
    result = _result((text, data, tables, faults), sha256)
    result.data["out"] = folder.name
    return result


def open_pool(on: str, spec: str, workers: int, folder: Folder) -> Pool:
    """The workers that `on` names."""
    kind, _, address = on.partition("://")
    if kind in ("processes", "slurm") and address:
        raise UsageError(f"--on {kind}: expected no address, got {address!r}")
    if kind == "processes":
        from ringway.sweep.processes import Processes

        return Processes(spec, workers)
    if kind == "ray":
        from ringway.sweep.on_ray import Ray

        return Ray(spec, workers, on if address else None)
    if kind == "dask":
        from ringway.sweep.on_dask import Dask

        return Dask(spec, workers, address or None)
    if kind == "slurm":
        from ringway.sweep.on_slurm import Slurm

        return Slurm(spec, workers, folder.local)
    expected = "processes, ray, ray://HOST:PORT, dask, dask://HOST:PORT or slurm"
    raise UsageError(f"--on: expected {expected}, got {on!r}")
