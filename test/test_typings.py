"""Hand-written stubs name nothing that the modules they describe do not have."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TYPINGS = Path(__file__).parent.parent / "typings"
COMPILED = {
    TYPINGS.parent / "compiler/search/_engine.pyi": "tensoropt.compiler.search._engine",
    TYPINGS.parent / "compiler/program/_walk.pyi": "tensoropt.compiler.program._walk",
    TYPINGS.parent / "compiler/stages/_schedules.pyi": "tensoropt.compiler.stages._schedules",
}
STUBS = [*sorted(TYPINGS.rglob("*.pyi")), *COMPILED]

# Names that mypy needs to understand what Python does without them.
ONLY_HERE = {
    "DictAttr.__iter__",  # iterated by index
    "Dialect.Attribute",  # made for each subclass of Dialect
    "Dialect.Operation",
    "_D",
    "Frontier",  # a dictionary with these keys
    "_PathStep",  # types of what the walk is told
    "_StrategyCost",
    "_T",
    "set_arena_extend_strategy",  # of builds for GPUs
    "_Table",
    "_CollectiveTime",
    "_Cost",
    "_Costing",  # what a walk asks
}


def module_of(stub: Path) -> ModuleType:
    if stub in COMPILED:
        return importlib.import_module(COMPILED[stub])
    parts = stub.relative_to(TYPINGS).with_suffix("").parts
    return importlib.import_module(".".join(part for part in parts if part != "__init__"))


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield what a stub declares, members as ``Class.name``."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name
            if prefix + node.name not in ONLY_HERE:
                yield from names_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id
        elif isinstance(node, ast.Assign):
            yield from (prefix + t.id for t in node.targets if isinstance(t, ast.Name))


def has(module: ModuleType, name: str) -> bool:
    found: object = module
    for part in name.split("."):
        try:
            found = inspect.getattr_static(found, part)  # a property of a class is not asked
        except AttributeError:
            return False
    return True


def missing(stub: Path, module: ModuleType) -> list[str]:
    names = names_in(ast.parse(stub.read_text()).body)
    return [name for name in names if name not in ONLY_HERE and not has(module, name)]


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: str(stub.relative_to(TYPINGS.parent)))
def test_names_exist(stub: Path) -> None:
    assert missing(stub, module_of(stub)) == []


def test_missing_names_are_found(tmp_path: Path) -> None:
    stub = tmp_path / "path.pyi"
    stub.write_text(
        "class Path:\n    def exists(self) -> bool: ...\n    def gone(self) -> bool: ...\n"
    )
    assert missing(stub, importlib.import_module("pathlib")) == ["Path.gone"]
