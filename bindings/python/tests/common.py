"""What several tests use."""

import json
import unittest
from pathlib import Path

CAMPAIGN = Path(__file__).with_name("campaign.toml")


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; of the manifest all but the host."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            contents = path.read_bytes()
            if path.name == "manifest.json":
                manifest = json.loads(contents)
                del manifest["host"]
                contents = json.dumps(manifest).encode()
            found[path.relative_to(folder).as_posix()] = contents
    return found


class Case(unittest.TestCase):
    """With a comparison of folders."""

    def assert_same_files(self, expected: Path, got: Path, but: set[str] = frozenset()) -> None:
        """Fails unless both folders have the same bytes."""
        expected, got = files(expected), files(got)
        self.assertEqual(expected.keys(), got.keys())
        self.assertEqual([name for name in expected if expected[name] != got[name] and name not in but], [])
