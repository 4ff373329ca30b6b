"""Types of the entries of family.json, and their reader."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from tensoropt.runtime.plan.document import document_sha256, read_json, schema_error
from tensoropt.runtime.support.errors import UserError, cause_of

__all__ = [
    "FAMILY_FILE",
    "FAMILY_SCHEMA",
    "INITIAL_FILE",
    "SCHEMA",
    "Entries",
    "LeftOutEntry",
    "PlanEntry",
    "plan_file",
    "read_family",
]

SCHEMA = 1
FAMILY_FILE = "family.json"
INITIAL_FILE = "initial.safetensors"
FAMILY_SCHEMA = Path(__file__).with_name("family.schema.json")


class PlanEntry(TypedDict):
    """A plan: its folder and its predicted cost. ``process_bytes`` is per device."""

    name: str
    devices: int
    time_s: float
    samples_per_s: float
    process_bytes: int


class LeftOutEntry(TypedDict):
    """A number of devices without a plan, and the reason."""

    devices: int
    why_not: str


class _Model(TypedDict):
    name: str
    sha256: str


class Entries(TypedDict):
    """The content of family.json; `family.schema.json` describes it."""

    schema: int
    tool: str
    model: _Model
    device: str
    limit_bytes: int | None
    samples_per_step: int
    plans: list[PlanEntry]
    left_out: list[LeftOutEntry]
    files: dict[str, str]
    sha256: str


def plan_file(name: str) -> str:
    """Return the path of a plan's plan.json inside the folder of the family."""
    return f"{name}/plan.json"


def read_family(folder: Path) -> Entries:
    """Return the family.json in ``folder``; raises `UserError` unless it is valid and unedited."""
    path = folder / FAMILY_FILE
    document = _read(folder, path)
    if document.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: schema version is not known to this tensoropt, "
            f"expected {SCHEMA}, got: {document.get('schema')}"
        )
    error = schema_error(document, FAMILY_SCHEMA)
    if error is not None:
        raise UserError(f"{path}: {error}")
    _check(path, document)
    return document


def _read(folder: Path, path: Path) -> Entries:
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UserError(f"{folder}: expected a family of plans, got: {found}")
    try:
        document: Entries = read_json(path)
    except FileNotFoundError:
        found = "a plan" if (folder / "plan.json").exists() else f"a folder without {FAMILY_FILE}"
        raise UserError(
            f"{folder}: expected a family of plans, as tensoropt-opt MODEL --train --loss LOSS "
            f"--objective profile -o FAMILY writes it, got: {found}"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {cause_of(error)}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: expected a JSON object")
    return document


def _check(path: Path, document: Entries) -> None:
    """Raise `UserError` for faults outside the schema: edits, repeated names, unlisted files."""
    found = document_sha256(document)
    if found != document["sha256"]:
        raise UserError(
            f"{path}: was changed after it was written, expected sha256 {document['sha256']}, "
            f"got: {found}"
        )
    names = [entry["name"] for entry in document["plans"]]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path}: plans: expected each name once, got: '{twice}' twice")
    files = {INITIAL_FILE, *map(plan_file, names)}
    if document["files"].keys() != files:
        odd = min(document["files"].keys() ^ files)
        raise UserError(f"{path}: files: expected initial.safetensors and plans, got: {odd}")
