"""Location of a parameter's bytes, checked without reading them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import onnx

from tensoropt.compiler.importer.wire import INLINE_KEY
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import Element, element_of

__all__ = ["Folder", "StoredTensor", "check_stored", "fetch", "locate"]

_MOST_DIGITS = 19  # digits of a 64-bit number of bytes


@dataclass(frozen=True)
class StoredTensor:
    """A stored tensor: ``nbytes`` at ``offset`` of ``path``, or in ``tensor`` if there is no path.

    Elements narrower than a byte are packed starting from the low bits (onnx.proto, TensorProto).
    The file may be missing; only `open` needs it.
    """

    element: Element
    shape: tuple[int, ...]
    nbytes: int
    path: Path | None
    offset: int
    tensor: onnx.TensorProto
    is_missing: bool = False
    what: str = ""
    """The place for errors: the model and the name of the tensor."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def check_present(self, reason: str = "its values are read") -> None:
        """Raise :class:`UserError` if the file is missing; ``reason`` says why it is needed."""
        if self.is_missing:
            raise UserError(
                f"{self.what}: external data file '{self.path}' does not exist, expected it on "
                f"disk: {reason}"
            )

    def open(self) -> BinaryIO:
        """Open the file, unbuffered; raises :class:`UserError` if it is missing."""
        self.check_present()
        assert self.path is not None
        return self.path.open("rb", buffering=0)


class Folder:
    """The folder of a model, which must contain its external data. Checks each file once."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self._sizes: dict[Path, int | None] = {}
        self._paths: dict[str, Path] = {}

    @cached_property
    def homes(self) -> tuple[Path, Path]:
        """The folder, and the target's folder if the model is a link, as in a download cache."""
        return self.model.parent.resolve(), self.model.resolve().parent

    def path(self, what: str, location: str) -> Path:
        """Return the file of external data at ``location``; raises :class:`UserError`."""
        if location not in self._paths:
            self._paths[location] = _resolve(what, self, location)
        return self._paths[location]

    def size_bytes(self, what: str, path: Path) -> int | None:
        """Return the size of a file, or ``None`` if it is missing.

        Raises :class:`UserError` for anything else at ``path``, such as a folder.
        """
        if path not in self._sizes:
            if path.exists() and not path.is_file():
                raise UserError(f"{what}: external data '{path}' is no file, expected one")
            self._sizes[path] = path.stat().st_size if path.is_file() else None
        return self._sizes[path]

    @property
    def missing(self) -> list[str]:
        """The locations of the missing files among those located so far."""
        return [name for name, path in self._paths.items() if self._sizes.get(path, 0) is None]


def locate(folder: Folder, tensor: onnx.TensorProto) -> StoredTensor:
    """Return the location of ``tensor`` in the model of ``folder``, without opening files.

    Raises :class:`UserError` if its external data is outside the model's folder, or too short. A
    missing file is no error.
    """
    element = element_of(tensor.data_type)
    assert element is not None, "checked by check_graph"
    nbytes = (math.prod(tensor.dims) * element.bits + 7) // 8
    shape = tuple(tensor.dims)
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return StoredTensor(element, shape, nbytes, None, 0, tensor)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    what = f"{folder.model}: parameter '{tensor.name}'"
    inline = INLINE_KEY in entries
    path = folder.model if inline else folder.path(what, entries.get("location", ""))
    if element.name == "STRING":
        raise UserError(f"{what}: strings cannot be external data")
    offset = _number(what, entries, "offset", 0)
    length = _number(what, entries, "length", nbytes)
    if length != nbytes:
        raise UserError(f"{what}: has the wrong length, expected {nbytes} bytes, got: {length}")
    size_bytes, needed = folder.size_bytes(what, path), offset + nbytes
    if size_bytes is not None and size_bytes < needed:
        raise UserError(
            f"{what}: external data file '{path}' is too short, expected at least {needed} "
            f"bytes, got: {size_bytes}"
        )
    is_missing = size_bytes is None
    return StoredTensor(element, shape, nbytes, path, offset, tensor, is_missing, what)


def fetch(folder: Folder, tensor: onnx.TensorProto) -> None:
    """Read the external data of ``tensor`` into it, as if it were stored in the model file.

    For tensors that determine how an operation works, such as shapes. Raises like `locate`, and
    :class:`UserError` if the file is missing.
    """
    stored = locate(folder, tensor)
    if stored.path is None:
        return
    with stored.open() as file:
        file.seek(stored.offset)
        tensor.raw_data = file.read(stored.nbytes)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def check_stored(folder: Folder, tensor: onnx.TensorProto) -> None:
    """Raise :class:`UserError` if the bytes of ``tensor`` cannot be where the file says."""
    stored = locate(folder, tensor)
    if stored.path is None and tensor.HasField("raw_data") and stored.element.name != "STRING":
        size_bytes = len(tensor.raw_data)
        if size_bytes != stored.nbytes:
            raise UserError(
                f"{folder.model}: parameter '{tensor.name}': has the wrong length, "
                f"expected {stored.nbytes} bytes, got: {size_bytes}"
            )


def _resolve(what: str, folder: Folder, location: str) -> Path:
    """Return the file ``location``, which must be in the folder of the model."""
    relative = Path(location)
    is_malformed = not location or "\0" in location or "\\" in location
    if is_malformed or relative.is_absolute() or ".." in relative.parts:
        raise UserError(
            f"{what}: external data must be in the model's folder, expected a plain relative "
            f"path, got: '{location}'"
        )
    path = folder.model.parent / relative
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        raise UserError(f"{what}: external data file '{path}' cannot be reached") from None
    if not any(real.is_relative_to(home) for home in folder.homes):
        raise UserError(
            f"{what}: external data must be in the model's folder, but '{location}' is a link "
            f"that leaves it"
        )
    return path


def _number(what: str, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise UserError(
            f"{what}: external data has a bad {key}, expected a number, got: '{text[:40]}'"
        )
    return int(text)
