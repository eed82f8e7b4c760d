"""Runs the cells of a notebook from top to bottom, as a kernel does: `run_notebook.py FILE`."""

import ast
import json
import sys
import traceback
from pathlib import Path


def main(path: Path) -> int:
    """Returns the status of the process."""
    notebook = json.loads(path.read_text("utf-8"))
    names = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        source = "".join(cell["source"])
        try:
            tree = ast.parse(source, f"cell {number}")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"cell {number}", "exec"), names)
            if last is not None:
                shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
                # What a kernel would show, by either representation.
                html = getattr(shown, "_repr_html_", None)
                print(html()[:60] if html else repr(shown)[:200])
        except Exception:  # noqa: BLE001 a cell may raise anything
            print(f"cell {number}:\n{source}", file=sys.stderr)
            traceback.print_exc()
            return 1
    print(f"{number} cells")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
