"""The coordinator's persistent record, by which a later coordinator finds the ranks."""

from __future__ import annotations

import errno
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.files import replace_private

__all__ = ["NoRoomError", "SavedGeneration", "SavedJob", "unwritten"]

_KEY = 32  # bytes
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class NoRoomError(UserError):
    """The disk is full, or read-only, for now: the write can be retried."""


def unwritten(path: Path, error: OSError) -> UserError:
    """Return the error of a failed write: a `NoRoomError` if the disk is full or read-only."""
    kind = NoRoomError if error.errno in _NO_ROOM else UserError
    return kind(f"{path}: {cause_of(error)}")


@dataclass
class SavedGeneration:
    """A generation: the facts for `Engine.find`, its plan's name, its devices."""

    host: dict[str, Any]
    plan: str
    devices: list[str]


@dataclass
class SavedJob:
    """The address and key for ranks, and the generations that run.

    ``current`` is the number of the generation in charge of the state, 0 before the first.
    ``count`` is the number of the last started one. ``data`` are the facts of the data at the start
    of the job.
    """

    path: Path
    address: str
    key: str = field(default_factory=lambda: secrets.token_hex(_KEY))
    current: int = 0
    count: int = 0
    generations: dict[str, SavedGeneration] = field(default_factory=dict)
    started_at: float = 0.0
    data: dict[str, Any] | None = None

    @classmethod
    def read(cls, path: Path) -> SavedJob | None:
        """Return the record in a file, None if there is no file. Raises `UserError`."""
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            found = facts.pop("generations")
            generations = {number: SavedGeneration(**values) for number, values in found.items()}
            return cls(path, generations=generations, **facts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path}: expected a coordinator's record, got: {error}") from None

    def end(self) -> None:
        """Record that no generation is left; the rest is for a later continuation of the job."""
        self.generations, self.key, self.address = {}, "", ""
        self.write()

    def write(self) -> None:
        """Replace the file. Raises `UserError`."""
        facts = asdict(self)
        del facts["path"]
        try:
            replace_private(self.path, json.dumps(facts))
        except OSError as error:
            raise unwritten(self.path, error) from None
