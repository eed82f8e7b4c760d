"""Where a sweep's files go: a folder, or a URL of fsspec, which has a local folder until the end."""

import os
import tempfile
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ringway.lab import UsageError
from ringway.sweep.pool import missing

RESULTS = "results.log"


class Folder:
    """A local folder whose contents get to a URL in the end; `results.log` also from time to time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._store: Any = None
        self._root = ""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._sent = -1
        if "://" not in name:
            self.local = Path(name)
            return
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as error:
            raise missing(f"--out {name}", "fsspec", "stores", error) from None
        try:
            self._store, self._root = fsspec.core.url_to_fs(name)
        except (ImportError, ValueError) as error:
            raise UsageError(f"--out {name}: {error}") from None
        # Slurm's tasks see it if TMPDIR is on a shared file system.
        self._temporary = tempfile.TemporaryDirectory(prefix="ringway-")
        self.local = Path(self._temporary.name)
        if self._store.exists(self._at(RESULTS)):
            self._store.get_file(self._at(RESULTS), str(self.local / RESULTS))

    @property
    def is_url(self) -> bool:
        """Whether the local folder is a temporary one."""
        return self._temporary is not None

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def checkpoint(self) -> None:
        """Stores the results so far, so that an interrupted sweep is resumed."""
        results = self.local / RESULTS
        size = results.stat().st_size if results.exists() else 0
        if self._store is not None and size > self._sent:
            self._put(results)
            self._sent = size

    def upload(self) -> None:
        """Stores all files."""
        if self._store is not None:
            for path in sorted(self.local.rglob("*")):
                if path.is_file():
                    self._put(path)

    def _put(self, path: Path) -> None:
        target = self._at(path.relative_to(self.local).as_posix())
        self._store.makedirs(os.path.dirname(target), exist_ok=True)
        self._store.put_file(str(path), target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
