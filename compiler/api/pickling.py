"""Pickling of results of searches: programs by their files and flags, everything else by value."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from tensoropt.compiler.api.program import Program
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.costs import NodeCosts
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import bytecode
from tensoropt.dialects.mlir import ir
from tensoropt.passes.search_strategies import SearchReport

__all__ = ["reduced"]


def reduced(result: object, programs: Sequence[Program]) -> tuple[Any, ...]:
    """Return what ``__reduce__`` of a ``result`` of searches in ``programs`` returns.

    Unpickling reads the models of the programs again, and raises :class:`UserError` if they have
    changed.
    """
    written = io.BytesIO()
    with ExitStack() as locks:
        for program in sorted(programs, key=id):  # the same order in all threads
            locks.enter_context(program.lock)
        digests = [_digest(program) for program in programs]
        _Pickler(written, type(result), programs).dump(result)
    return _restored, (programs, digests, written.getvalue())


def _restored(programs: Sequence[Program], digests: Sequence[str], content: bytes) -> object:
    for program, digest in zip(programs, digests, strict=True):
        if _digest(program) != digest:
            raise UserError(
                f"{program.source.path}: has changed since its plans were pickled, "
                "expected the same model"
            )
    return _Unpickler(io.BytesIO(content), programs).load()


def _digest(program: Program) -> str:
    return sha256(bytecode(program.module)).hexdigest()


class _Pickler(pickle.Pickler):
    """Writes references to the programs and their operations, which live in MLIR's memory.

    The result itself, of the class ``plain``, is written by its attributes. Cached properties and
    tables of costs are made again, tables with the same options, as points have some of these.
    """

    def __init__(self, file: io.BytesIO, plain: type, programs: Sequence[Program]) -> None:
        super().__init__(file)
        self._plain = plain
        self._programs = {id(program): number for number, program in enumerate(programs)}
        self._modules = {own.module.operation: number for number, own in enumerate(programs)}
        self._operations = {
            op: (number, place)
            for number, program in enumerate(programs)
            for place, op in enumerate(_operations(program))
        }

    def persistent_id(self, one: object) -> tuple[object, ...] | None:
        if isinstance(one, Program):
            return "program", self._programs[id(one)]
        if isinstance(one, ir.Module):
            return "module", self._modules[one.operation]
        if isinstance(one, ir.Operation):
            return "operation", *self._operations[one]
        return None

    def reducer_override(self, one: Any) -> Any:  # noqa: ANN401 - as the base class has it
        if isinstance(one, NodeCosts):
            return type(one), (one.graph, one.mesh, one.device), {"options": one.options}
        if isinstance(one, Request):
            return _request, (_flags(one),)
        if isinstance(one, SearchReport):
            found = {name: value for name, value in vars(one).items() if name not in _OF_RUN}
            return _report, (found,)
        remade = _remade(type(one))  # type: ignore[arg-type]
        if type(one) is not self._plain and not remade:
            return NotImplemented
        state = {name: value for name, value in vars(one).items() if name not in remade}
        return copyreg.__newobj__, (type(one),), state  # type: ignore[attr-defined]


_OF_RUN = ("say", "begun_s", "graphs", "point")
"""Fields of a report about the run of its search, not about the result."""


@cache
def _remade(kind: type) -> frozenset[str]:
    """Return the attributes of a class that are made again on their next use."""
    every = {name: value for base in kind.__mro__ for name, value in vars(base).items()}
    cached = {name for name, value in every.items() if isinstance(value, cached_property)}
    return frozenset(cached | {"settled"} if "settled" in every else cached)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, programs: Sequence[Program]) -> None:
        super().__init__(file)
        self._programs = programs
        self._operations = [[*_operations(program)] for program in programs]

    def persistent_load(self, place: tuple[str, int, int]) -> object:
        kind, number, *rest = place
        if kind == "operation":
            return self._operations[number][rest[0]]
        program = self._programs[number]
        return program if kind == "program" else program.module


def _operations(program: Program) -> Iterator[ir.Operation]:
    """Yield the operations of all functions of a program, which are the nodes of its graphs."""
    for function in program.module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                yield from (op.operation for op in block.operations)


def _flags(request: Request) -> dict[str, Any]:
    """Return the options of a request, with absolute paths."""
    flags = {own.name: getattr(request, own.name) for own in fields(Request)}
    for name in ("device", "strategies", "annotations", "model"):
        if flags[name] is not None and Path(flags[name]).exists():
            flags[name] = str(Path(flags[name]).absolute())
    return flags


def _request(flags: dict[str, Any]) -> Request:
    return Request(**flags)


def _report(content: dict[str, Any]) -> SearchReport:
    return SearchReport(**content)
