"""A task of a Slurm array: `python -m ringway.sweep.task FOLDER INDEX` makes a batch and writes its results."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from ringway.lab import Error
from ringway.sweep.pool import work


def main(folder: Path, index: int) -> int:
    """Returns the status of the process."""
    spec = (folder.parent / "spec.json").read_text("utf-8")
    runs = json.loads((folder / "batches.json").read_text("utf-8"))[index]
    found: dict[str, Any]
    try:
        done = work(spec, [(cell, replication) for cell, replication in runs])
        found = {"lines": done.lines, "seconds": done.seconds, "process": done.process}
    except Error as error:
        found = {"error": str(error)}
    # Whole or not at all: the sweep may look at any time.
    partial = folder / f"partial-{index}-{os.getpid()}"
    partial.write_text(json.dumps(found), "utf-8")
    partial.rename(folder / f"result-{index}.json")
    return 1 if "error" in found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
