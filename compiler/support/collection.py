"""The collector of objects that refer to each other."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collection"]


@contextmanager
def without_collection() -> Iterator[None]:
    """Leave it out of a block that makes very many objects, of which few refer to each other.

    It looks at all objects again and again: a fifth of the time of making the tables of a mesh.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
