"""A directory of records that does not grow without end."""

import contextlib
import hashlib
from datetime import UTC, datetime
from pathlib import Path

from kubewright.errors import ConfigError
from kubewright.records.record import UNFINISHED, write

SUFFIX = ".record"
MOST_FILES = 200
MOST_BYTES = 256 * 2**20


class Directory:
    """Records by the moment of their pass; the oldest go when there are too many, or too many bytes.

    Other files in the directory are left alone.
    """

    def __init__(self, path: Path, *, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
        """
        Raises:
            ConfigError: the directory is not there and cannot be made, or cannot be written to.
        """
        self.path = path
        self._most_files = most_files
        self._most_bytes = most_bytes
        try:
            path.mkdir(parents=True, exist_ok=True)
            trial = path / f".trial{SUFFIX}"
            write(trial, b"")
            trial.unlink()
            # What a process that was killed left half written.
            for leftover in path.glob(f".*{SUFFIX}{UNFINISHED}"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--record: found {str(path)!r}, which cannot be written to ({error.strerror}); write a directory that can"
            ) from error

    def add(self, now: datetime, data: bytes) -> Path | None:
        """Write one record and make room; None when it alone is larger than the directory may be.

        Raises:
            OSError: it could not be written; what was there is whole.
        """
        if len(data) > self._most_bytes:
            return None
        stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self.path / f"{stamp}-{hashlib.sha256(data).hexdigest()[:8]}{SUFFIX}"
        write(path, data)
        self._make_room()
        return path

    def records(self) -> list[Path]:
        """The oldest first."""
        return sorted(p for p in self.path.glob(f"*{SUFFIX}") if not p.name.startswith("."))

    def _make_room(self) -> None:
        kept, size = 0, 0
        for path in reversed(self.records()):
            with contextlib.suppress(FileNotFoundError):  # somebody else tidies, too
                size += path.stat().st_size
                kept += 1
                if kept > self._most_files or size > self._most_bytes:
                    path.unlink()
