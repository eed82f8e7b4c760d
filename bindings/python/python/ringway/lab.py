"""The laboratory: scenarios, campaigns and papers, as `ringway lab` runs them.

A scenario is a built-in name, a path of a TOML file, or a dict with the same contents; a built-in name goes before a
file of that name, which is "./NAME". The same scenario and seed have the same figures as by the command line, to the
last bit.

>>> from ringway import lab
>>> result = lab.run("lossy-bulk", seed=7, reps=3)
>>> result.seed, len(result.tables["measures"]) > 0
(7, True)
>>> shorter = lab.document("lossy-bulk")
>>> shorter["flow"][0]["size"] = "100 kB"
>>> quick = lab.run(shorter, seed=7)
>>> quick.value("file", "completion") < result.value("file", "completion")
True
"""

import hashlib
import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ringway import _ringway
from ringway._ringway import Error, Table, UsageError

__all__ = [
    "Entry",
    "Error",
    "Progress",
    "Result",
    "UsageError",
    "campaigns",
    "document",
    "paper",
    "papers",
    "run",
    "run_cell",
    "scenarios",
    "show",
    "sweep",
    "text",
]

Progress = Callable[[float, str], object]
"""Called with the share that is done, from 0 to 1, and what is being done."""
Document = Mapping[str, Any]
"""The contents of a TOML file."""


class Entry(NamedTuple):
    """A built-in scenario, campaign or paper."""

    name: str
    title: str


@dataclass(frozen=True, repr=False)
class Result(Mapping[str, Table]):
    """What a command returns. It is also the mapping of its tables.

    A table is read by `pyarrow.table(t)`, `polars.DataFrame(t)` and `pandas.DataFrame.from_arrow(t)` through the Arrow
    PyCapsule interface. pyarrow and polars do not copy its numbers; docs/python.md has how pandas does not.
    """

    text: str
    """The tables for people, as the command line prints them."""
    data: dict[str, Any]
    """What the command line prints with `--json`."""
    tables: dict[str, Table]
    """The long tables, by the names of the files that `out` gets."""
    faults: list[str]
    """Why the command line would end with status 1: flows that failed, figures outside of their tolerance."""
    sha256: str = field(default="")
    """Hash of the scenario's text (empty if it was read from a pipe), of the campaign's and its scenario's, or of the
    paper's name."""

    @property
    def seed(self) -> int:
        """The seed of the random numbers."""
        return int(self.data["seed"])

    @property
    def version(self) -> str:
        """The version of Ringway."""
        return _ringway.version()

    @property
    def build(self) -> str:
        """The hash of Ringway's library."""
        return _ringway.build()

    def value(self, flow: str, measure: str) -> float:
        """The mean of a measure of a flow over the replications; KeyError if no run has one."""
        for entry in self.data.get("summary", ()):
            if (entry["flow"], entry["measure"]) == (flow, measure):
                return float(entry["mean"])
        raise KeyError(f"no measure {measure!r} of a flow {flow!r}")

    def __getitem__(self, name: str) -> Table:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __repr__(self) -> str:
        return f"<ringway.lab.Result {self.data.get('title')!r}: {', '.join(self.tables)}>"


def _entries(kind: str) -> list[Entry]:
    return [Entry(entry["name"], entry["title"]) for entry in json.loads(_ringway.catalogue())[kind]]


def scenarios() -> list[Entry]:
    """The built-in scenarios.

    >>> scenarios()[0].name
    'gangurde-udp'
    """
    return _entries("scenarios")


def campaigns() -> list[Entry]:
    """The built-in campaigns."""
    return _entries("campaigns")


def papers() -> list[Entry]:
    """The papers whose figures can be compared."""
    return _entries("papers")


def text(name: str) -> str:
    """The file of a built-in scenario or campaign."""
    return _ringway.builtin(name)


def document(source: str | os.PathLike[str]) -> dict[str, Any]:
    """A scenario or campaign as a dict, to be changed and run.

    >>> document("lossy-bulk")["scenario"]["nodes"]
    ['server', 'router', 'client']
    """
    name = os.fspath(source)
    contents = None if _is_builtin(name, "scenario") or _is_builtin(name, "campaign") else _file(name)
    return tomllib.loads(text(name) if contents is None else contents)


def show(share: float, what: str) -> None:
    """A `progress` that rewrites a line of standard error."""
    end = "\n" if share >= 1 else ""
    print(f"\r\x1b[K{share:4.0%}  {what}", end=end, file=sys.stderr, flush=True)


def _json(contents: Document, kind: str) -> str:
    try:
        return json.dumps(contents, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"expected a {kind} of tables, lists, texts and numbers: {error}") from None


def _is_builtin(name: str, kind: str) -> bool:
    return any(entry.name == name for entry in _entries(f"{kind}s"))


def _file(name: str) -> str | None:
    """The text of a file; None where there is none that can be read again."""
    return Path(name).read_text("utf-8") if os.path.isfile(name) else None


def _hash(*contents: str) -> str:
    return hashlib.sha256("\0".join(contents).encode()).hexdigest()


def _source(source: str | os.PathLike[str] | Document, kind: str) -> tuple[str, str | None]:
    """The name, and the JSON of a dict."""
    if isinstance(source, Mapping):
        return kind, _json(source, kind)
    return os.fspath(source), None


def _result(parts: tuple[str, str, list[tuple[str, Table]], list[str]], sha256: str) -> Result:
    text, data, tables, faults = parts
    return Result(text, json.loads(data), dict(tables), faults, sha256)


def _folder(out: str | os.PathLike[str] | None) -> str | None:
    return None if out is None else os.fspath(out)


def run(
    scenario: str | os.PathLike[str] | Document,
    *,
    seed: int | None = None,
    reps: int | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Runs a scenario, as `ringway lab run` does.

    The tables of a scenario with flows are `measures`, `summary`, `links`, `series` (its probes) and, if a probe asks
    for them, `packets`. `reps` is the number of replications, `out` a folder for the files of `--out`, `threads` the
    number of threads (0: one per core). Python's lock is released meanwhile, and Ctrl-C ends the run.

    >>> run("no-such")
    Traceback (most recent call last):
    ringway.UsageError: expected the name of a scenario (ringway lab list) or a file, got "no-such"
    """
    name, contents = _source(scenario, "scenario")
    read = contents
    if contents is None:
        try:
            # The native function takes a built-in one first, too; and it reports errors.
            read = text(name) if _is_builtin(name, "scenario") else _file(name)
        except (OSError, UnicodeDecodeError):
            read = None
    sha256 = "" if read is None else _hash(read)
    return _result(_ringway.run(name, contents, seed, reps, _folder(out), threads, progress), sha256)


def _campaign(
    campaign: str | os.PathLike[str] | Document, scenario: Document | None
) -> tuple[str, str | None, str | None]:
    """The native form of a campaign."""
    return *_source(campaign, "campaign"), None if scenario is None else _json(scenario, "scenario")


def _swept(folder: str | os.PathLike[str]) -> str:
    """The hash of what a campaign was made of, of which there are copies in its folder."""
    return _hash(*(Path(folder, f"{name}.toml").read_text("utf-8") for name in ("campaign", "scenario")))


def sweep(
    campaign: str | os.PathLike[str] | Document,
    *,
    scenario: Document | None = None,
    seed: int | None = None,
    reps: int | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Runs a campaign or a search on `workers` threads, as `ringway lab sweep` does.

    The tables are `results` (every run) and `summary` (every cell). `scenario` replaces the one that the campaign
    names. With a folder `out` results are kept, and the same call resumes an interrupted campaign. A campaign on a
    cluster is `ringway.sweep.run`.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="ringway-") as folder:
            return sweep(
                campaign, scenario=scenario, seed=seed, reps=reps, out=folder, workers=workers, progress=progress
            )
    native = _campaign(campaign, scenario)
    return _result(_ringway.sweep(native, seed, reps, os.fspath(out), workers, progress), _swept(out))


def paper(
    name: str,
    *,
    seed: int | None = None,
    reps: int | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compares a paper's figures with simulated ones, as `ringway lab paper` does.

    The tables are `figures` and `points`; figures outside of their tolerance are faults.

    >>> paper("gangurde").faults
    []
    """
    return _result(_ringway.paper(name, seed, reps, _folder(out), threads, progress), _hash(name))


@lru_cache(maxsize=4)
def _cells(spec: str) -> _ringway.Cells:
    return _ringway.Cells(spec)


def run_cell(spec: str, cell: int, replication: int) -> str:
    """Makes one run of a campaign, for a worker of `ringway.sweep`; returns its line of `results.log`."""
    return _cells(spec).run(cell, replication)
