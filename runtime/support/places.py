"""Paths that flags take: inputs, and outputs, which never replace inputs or foreign files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensoropt.runtime.support.errors import UserError

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["FORMS", "INPUT", "Folder", "Form", "Input", "Output", "Place", "Role", "check_places"]

_HEAD_BYTES = 4096
_READ = {".arrow", ".feather", ".npz", ".onnx", ".parquet", ".safetensors", ".so", ".toml"}
"""Suffixes of files that commands read."""


@dataclass(frozen=True)
class Form:
    """A content of files: its ``noun``, the suffixes of its files and a pattern of their start.

    ``is_read`` if commands also read such files, out of folders too.
    """

    noun: str
    suffixes: tuple[str, ...]
    start: re.Pattern[bytes]
    is_read: bool = False

    def check_name(self, flag: str, path: Path) -> None:
        """Raise `UserError` for the suffix of files that commands read, unless it is of this form.

        A form without suffixes takes all.
        """
        if self.suffixes and path.suffix.lower() in _READ - {*self.suffixes}:
            *most, last = self.suffixes
            expected = f"{', '.join(most)} or {last}" if most else last
            raise UserError(f"{flag}: expected a file ending in {expected}, got: '{path}'")

    def check_content(self, flag: str, path: Path) -> None:
        """Raise `UserError` for a file with another content; an empty file has none."""
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head and not self.start.match(head):
            raise UserError(
                f"{flag} {path}: expected a new file or {self.noun}, got: a file with another "
                "content, which is not replaced"
            )


def _form(noun: str, suffixes: str, start: bytes, *, is_read: bool = False) -> Form:
    return Form(noun, tuple(suffixes.split()), re.compile(start, re.DOTALL), is_read)


_MLIR = rb'\s*(//|module\b|"?builtin\.module|"?func\.func|[#!][\w.$-]+ *=|\{-#)'
_TABLE = rb"|node +mesh +strategies "

FORMS = {
    "mlir": _form("MLIR text", ".mlir", _MLIR + _TABLE),
    "onnx": _form("an ONNX model", ".onnx", rb"\x08[\x01-\x3f]", is_read=True),
    "npz": _form("an archive of arrays", ".npz", rb"PK\x03\x04.{26}[^\0]*?\.npy|PK\x05\x06",
        is_read=True),
    "log": _form("a log of steps", ".jsonl", rb'\{"step": '),
    "placements": _form("placements", ".json", rb'\{\s*"mesh": '),
    "manifest": _form("a manifest", ".json .yaml .yml", rb'\{\s*"apiVersion": |apiVersion: '),
    "page": _form("a page", ".html .htm", rb"(?i:<!doctype html>)"),
    "picture": _form("a picture", ".png .svg", rb"\x89PNG|<\?xml|<svg"),
    "device": _form("a device description", ".toml", rb"(#[^\n]*\n|\s)*name = "),
    "addresses": _form("addresses of a server", "", rb"(http|grpc)://"),
}  # fmt: skip
"""The contents of output files. A picture may be drawn over another, and so on."""


class Folder(Enum):
    """Changes of an output that is a folder."""

    FILLED = "filled"  # files are added
    REPLACED = "replaced"


@dataclass(frozen=True)
class Place:
    """A path that a flag takes; also its type in argparse, which ``take`` converts."""

    take: Callable[[str], Any] = Path

    def __call__(self, text: str) -> Any:
        return self.take(text)


@dataclass(frozen=True)
class Input(Place):
    """A file or folder that a command reads; ``separators`` divide a value with several names."""

    separators: str = ""

    def paths(self, value: object) -> Iterator[Path]:
        """Yield the existing files and folders in a value."""
        text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
        parts = re.split(f"[{re.escape(self.separators)}]", text) if self.separators else []
        for part in {text: None, **dict.fromkeys(parts)}:
            if part not in ("", "-") and os.path.exists(part):  # noqa: PTH110 - any text
                yield Path(part)


INPUT = Input(str)
"""A path that stays text."""


@dataclass(frozen=True)
class Output(Place):
    """A file of ``form`` that a command writes, or a ``folder``.

    ``aside`` is the suffix of a second file. ``extends`` are the names of inputs that a command
    continues in the same place.
    """

    form: Form | None = None
    folder: Folder | None = None
    aside: str = ""
    extends: tuple[str, ...] = ()


class Role(NamedTuple):
    """A place and its value: ``flag`` is its name in errors, ``name`` the name of the option."""

    flag: str
    name: str
    place: Place
    value: object


class _Path(NamedTuple):
    role: Role
    path: Path

    def __str__(self) -> str:
        return f"{self.role.flag} {self.path}".strip()


def check_places(roles: Iterable[Role]) -> None:
    """Raise `UserError` for an output that is an input, another output, or has a foreign content.

    Files are compared by identity, through links. Files with weights are inputs like their model.
    """
    inputs, outputs = [], []
    for role in roles:
        if isinstance(role.place, Input):
            inputs += [_Path(role, path) for path in role.place.paths(role.value)]
        elif str(role.value) != "-":
            outputs.append(_Path(role, Path(str(role.value))))
    for output in outputs:
        _check_output(output, inputs)
    for one, other in combinations(outputs, 2):
        _check_pair(one, other)


def _check_output(output: _Path, inputs: Iterable[_Path]) -> None:
    place = output.role.place
    assert isinstance(place, Output)
    for source in inputs:
        if source.role.name not in place.extends:
            _check_input(output, place, source)
    if place.form is None:
        return
    if place.folder is None:
        place.form.check_name(output.role.flag, output.path)
    if output.path.is_file():
        place.form.check_content(output.role.flag, output.path)


def _check_input(output: _Path, place: Output, source: _Path) -> None:
    """Raise `UserError` if writing ``output`` changes ``source``."""
    path, relation = output.path, None
    if _is_same(path, source.path):
        relation = "is an input"
    elif place.folder is Folder.REPLACED and path.is_dir() and _is_inside(source.path, path):
        relation = "contains an input"
    elif _is_listed(place) and path.is_file() and _is_inside(path, source.path):
        relation = "is part of an input"
    elif any(
        _is_same(written, weights)
        for written in _unmarked(path, place)
        for weights in _weights(source.path)
    ):
        relation = "replaces weights of an input"
    if relation is not None:
        raise UserError(f"{output}: {relation} ({source}), expected another name")


def _is_listed(place: Output) -> bool:
    return place.form is not None and place.form.is_read


def _unmarked(output: Path, place: Output) -> Iterator[Path]:
    """Yield the existing files that are replaced and may be weights by their first bytes."""
    suffixes = {"" if _is_listed(place) else place.aside, place.aside}
    paths = (output.with_name(f"{output.name}{suffix}") for suffix in suffixes)
    yield from (path for path in paths if path.is_file())


def _weights(model: Path) -> Iterator[Path]:
    """Yield the files with the weights of an ONNX model; none of a model that cannot be read."""
    if model.suffix.lower() != ".onnx" or not model.is_file():
        return
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.load(model, load_external_data=False)
    except (OSError, DecodeError):
        return
    locations = {
        entry.value
        for tensor in _tensors(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    yield from (model.parent / location for location in locations)


def _tensors(message: Message) -> Iterator[Any]:
    """Yield all tensors of a protobuf message, also of subgraphs and functions."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if isinstance(value, Iterable) else [value]:
                yield from _tensors(part)


def _check_pair(one: _Path, other: _Path) -> None:
    """Raise `UserError` if an output replaces another."""
    for first, second in ((one, other), (other, one)):
        place = second.role.place
        assert isinstance(place, Output)
        replaced = place.folder is Folder.REPLACED and second.path.is_dir()
        if replaced and _is_inside(first.path, second.path):
            raise UserError(
                f"{first}: lies in {second}, which is replaced, expected another folder"
            )
    is_one = _is_same(one.path, other.path) or one.path.resolve() == other.path.resolve()
    if is_one and not _is_device(one.path):
        raise UserError(f"{other}: is the output of {one.role.flag}, expected another name")


def _is_device(path: Path) -> bool:
    """Return whether a path is no file or folder, such as /dev/null."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return not _is_device(one) and one.samefile(other)
    except OSError:
        return False


def _is_inside(path: Path, folder: Path) -> bool:
    return folder.is_dir() and path.resolve().is_relative_to(folder.resolve())
