"""What a coordinator writes down so that another one, after its death, finds the ranks."""

from __future__ import annotations

import errno
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.files import replace_private

__all__ = ["NoRoomError", "Saved", "SavedGeneration", "unwritten"]

_KEY = 32  # bytes
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class NoRoomError(UserError):
    """A disk takes nothing now, but may later: whoever has time tries again."""


def unwritten(path: Path, error: OSError) -> UserError:
    """Return the error of a file that could not be written: a `NoRoomError` where room is short."""
    kind = NoRoomError if error.errno in _NO_ROOM else UserError
    return kind(f"{path}: {cause_of(error)}")


@dataclass
class SavedGeneration:
    """A generation: what `Engine.find` finds it by, its plan's name, its devices."""

    host: dict[str, Any]
    plan: str
    devices: list[str]


@dataclass
class Saved:
    """Where ranks meet their coordinator, and the generations that there are.

    ``current`` is the one in charge of the state, 0 before the first is. ``count`` is the number of
    the last that was started. ``data`` are the facts of the data, as they were at first.
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
    def read(cls, path: Path) -> Saved | None:
        """Return what was written, None where there is nothing. Raises `UserError`."""
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            found = facts.pop("generations")
            generations = {number: SavedGeneration(**one) for number, one in found.items()}
            return cls(path, generations=generations, **facts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path}: not what a coordinator writes: {error}") from None

    def end(self) -> None:
        """Write down that no generation is left: what stays is for a job that goes on later."""
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
