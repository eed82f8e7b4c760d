"""`python -m ringway.sweep FILE --on ENGINE`: what `ringway lab sweep --on` starts."""

import argparse
import json
import sys
from pathlib import Path

from ringway import Error, UsageError, sweep
from ringway.lab import show

DEFAULT_OUT = "lab-results"


def main() -> int:
    """Returns the status of the process, as `ringway lab sweep` does."""
    parser = argparse.ArgumentParser(prog="ringway lab sweep", description="A campaign on a cluster.")
    parser.add_argument("file", help="name or file")
    parser.add_argument("--on", default="processes")
    parser.add_argument("--out")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--reps", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reports: list[sweep.Report] = []
    try:
        result = sweep.run(
            arguments.file,
            on=arguments.on,
            out=arguments.out or str(Path(DEFAULT_OUT, Path(arguments.file).stem)),
            seed=arguments.seed,
            reps=arguments.reps,
            workers=arguments.workers,
            progress=show if sys.stderr.isatty() else None,
            report=reports.append,
        )
    except (Error, OSError) as error:
        for line in str(error).splitlines():
            print(f"ringway: {line}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("ringway: interrupted; the same command resumes", file=sys.stderr)
        return 130
    print(json.dumps(result.data, indent=2) if arguments.json else result.text, end="" if not arguments.json else "\n")
    for report in reports:
        print(report, file=sys.stderr)
    for fault in result.faults:
        print(f"ringway: {fault}", file=sys.stderr)
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
