"""The truth test of a sharding rule: every strategy must give what the whole op gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from sharding.spmd import run_spmd

from tensoropt.compiler.cost.compute import local_bytes
from tensoropt.compiler.cost.memory import record_lifetimes
from tensoropt.compiler.layout import sizes
from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.layout.rule import Rule, Sections, Strategy
from tensoropt.compiler.layout.rule_text import name_factors
from tensoropt.compiler.layout.sizes import Open
from tensoropt.compiler.program import options
from tensoropt.compiler.sharding.proof.onnx_node import Array, evaluate
from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.compiler.sharding.rule.blocks import passes_on, places_of, rule_in_blocks
from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.merges import rule_in_merges
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.compiler.sharding.rule.units import Counts, rule_in_units, takes_units
from tensoropt.dialects import onnx as views
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.context import context
from tensoropt.dialects.elements import element_of_array, to_dense
from tensoropt.dialects.lifetimes import Lifetimes
from tensoropt.dialects.mlir import func, ir
from tensoropt.dialects.sizes import sizes_of_type
from tensoropt.dialects.topt import rule_attr, rule_of_attr, set_mesh
from tensoropt.dialects.verifier.factors import rule_problem
from tensoropt.runtime.layout import padding
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "Case",
    "NotRunnableError",
    "Report",
    "any_padding",
    "check",
    "memory_of",
    "normal",
    "offered",
]


class NotRunnableError(Exception):
    """ONNX Runtime does not run the whole op, so there is nothing to compare with."""


@dataclass(frozen=True)
class Case:
    """One node and its data.

    ``operands`` holds an array per operand, ``None`` for an omitted one; ``literals`` the indices
    of those that are ``onnx.Constant``. ``results`` says which results are there. ``symbolic``
    and ``symbolic_results`` list (index, dimension) pairs whose size the types do not tell. All
    dimensions of the size ``opened`` are open, but known to be multiples of it, and equal.
    ``pads``: only strategies that pad are tried. ``blocks`` are those of its dimensions, ``units``
    the (factor, number of units) of its rule; with any, only strategies in these are tried.
    ``merges`` are the blocks of dimensions that merge samples with heads.
    ``expected`` are the results of an operator that ONNX Runtime does not have.
    """

    op_type: str
    operands: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    version: int = 20
    domain: str = ""
    literals: frozenset[int] = frozenset()
    results: tuple[bool, ...] = (True,)
    symbolic: frozenset[tuple[int, int]] = frozenset()
    symbolic_results: frozenset[tuple[int, int]] = frozenset()
    opened: int = 0
    pads: bool = False
    blocks: Sections = ()
    units: Counts = ()
    merges: Sections = ()
    expected: Sequence[Array] = ()

    @property
    def versions(self) -> dict[str, int]:
        return {"": 20, self.domain: self.version}


@dataclass(frozen=True)
class Report:
    """What was tried: the op as rules see it, its rule, and every strategy, all of them right."""

    info: OpInfo
    rule: Rule
    tried: tuple[Strategy, ...]

    @property
    def offered(self) -> set[str]:
        """The strategies as text, per operand and result one placement per mesh axis.

        On a mesh of one axis ``S(0) R -> S(0)``, on one of two axes ``S(0),R R,R -> S(0),R``.
        """
        return {_text(strategy) for strategy in self.tried}

    @property
    def flops(self) -> float:
        """The work of the whole op by its rule."""
        return self.rule.flops_per_point * math.prod(f.size or 1 for f in self.rule.factors)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Return normally distributed values, the same for the same shape and seed."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), dtype)


def offered(case: Case, mesh_shape: tuple[int, ...] = (2,)) -> set[str]:
    """Check ``case`` and return its strategies as text."""
    return check(case, mesh_shape).offered


def check(
    case: Case,
    mesh_shape: tuple[int, ...],
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    seed: int = 0,
    opens: bool = True,
) -> Report:
    """Partition ``case`` by every strategy of its rule, run all ranks, compare with the whole op.

    Floats may differ by ``rtol``, or by ``atol`` of the largest value (of 1, if none is larger);
    all else must be equal. With ``opens``, the same once more where all dimensions of the size of
    the first one are open, by the strategies that split these. And once more where sizes may have
    any padding, by the strategies that pad, and where all dimensions have two blocks, or a few
    units, by those that are in blocks or units. Fails with the strategy and the local function;
    raises `NotRunnableError` if there is nothing to compare with.
    """
    trial = _tried(case, mesh_shape, rtol, atol, seed)
    if not (case.blocks or case.merges) and (halves := _halves(trial.info, trial.rule)):
        _tried(replace(case, blocks=halves), mesh_shape, rtol, atol, seed)
    with any_padding():
        if any(map(trial.pads, strategies(rule_for(trial.info), trial.mesh))):
            _tried(replace(case, pads=True), mesh_shape, rtol, atol, seed)
        info, rule = trial.info, rule_for(trial.info)
        if not (case.blocks or case.units or case.merges) and (units := _few_units(info, rule)):
            _tried(replace(case, units=units), mesh_shape, rtol, atol, seed)
    opened = _first_size(case)
    if opens and opened > 1:
        _tried(replace(case, opened=opened), mesh_shape, rtol, atol, seed)
    return Report(trial.info, trial.rule, trial.strategies)


def _halves(info: OpInfo, rule: Rule) -> Sections:
    """Return two blocks for all dimensions of the factors that may have any blocks."""
    numbers = [n for n in range(len(rule.factors)) if passes_on(info, rule, n)]
    places = sorted(place for number in numbers for place in places_of(rule, number))
    return tuple((tensor, dim, (1, 1)) for tensor, dim in places)


def _few_units(info: OpInfo, rule: Rule) -> Counts:
    """Return a number of units for each factor that may have any: one unit for most."""
    numbers = (n for n in range(len(rule.factors)) if takes_units(info, rule, n))
    sizes = ((n, rule.factors[n].size) for n in numbers)
    return tuple(
        (n, (next(units for units in (3, 5, 7, 1) if size % units == 0),))
        for n, size in sizes
        if isinstance(size, int)
    )


def local_functions(case: Case, mesh_shape: tuple[int, ...]) -> list[str]:
    """Return the text of the local function of each strategy of ``case``."""
    ctx = _context()
    with ctx, ir.Location.unknown(ctx):
        trial = _Trial(case, Mesh(mesh_shape))
        return [str(trial.localize(strategy)) for strategy in trial.strategies]


def memory_of(case: Case, ranks: int, factor: int) -> Iterator[tuple[int, int]]:
    """Yield the memory of an op of a rank, charged and live, of strategies that split ``factor``.

    On one rank, of the only strategy.
    """
    ctx = _context()
    with ctx, ir.Location.unknown(ctx):
        trial = _Trial(case, Mesh((ranks,)))
        tensors = (*trial.info.operands, *trial.info.results)
        for strategy in trial.strategies:
            if ranks > 1 and not strategy.axes_of(factor):
                continue
            layouts = (*strategy.operands, *strategy.results)
            charged = trial.rule.inner_bytes(strategy, trial.mesh) + sum(
                local_bytes(tensor, layout, trial.mesh)
                for tensor, layout in zip(tensors, layouts, strict=True)
                if tensor is not None
            )
            lifetimes = Lifetimes()
            for _ in record_lifetimes(trial.localize(strategy).operation, lifetimes):
                pass
            yield charged, lifetimes.peak_bytes()


@contextmanager
def any_padding() -> Iterator[None]:
    """Let every size be padded, by as many points as it has."""
    held, known = padding._PADDING, (rule_for, options.op_options, options.stored_layouts)
    units, padding._PADDING, sizes._UNITS = sizes._UNITS, 1, 1
    for cached in known:
        cached.cache_clear()
    try:
        yield
    finally:
        padding._PADDING, sizes._UNITS = held, units
        for cached in known:
            cached.cache_clear()


def _first_size(case: Case) -> int:
    """Return the size of the first dimension of all, 0 where there is none to be opened."""
    if case.symbolic or case.symbolic_results:
        return 0
    held = [o for i, o in enumerate(case.operands) if o is not None and i not in case.literals]
    return next((o.shape[0] for o in held if o.ndim), 0)


def _tried(case: Case, mesh_shape: tuple[int, ...], rtol: float, atol: float, seed: int) -> _Trial:
    mesh, rng = Mesh(mesh_shape), np.random.default_rng(seed)
    ctx = _context()
    with ctx, ir.Location.unknown(ctx):
        trial = _Trial(case, mesh)
        for strategy in trial.strategies:
            if case.opened and not trial.splits_open(strategy):
                continue
            if case.pads and not trial.pads(strategy):
                continue
            if case.blocks and not _has_blocks(strategy):
                continue
            if case.units and not trial.has_units(strategy):
                continue
            function = trial.localize(strategy)
            try:
                trial.compare(strategy, function, rng, rtol, atol)
            except Exception as error:
                raise AssertionError(
                    f"{case.op_type} by {_text(strategy)}: {error}\n{function}"
                ) from error
            function.operation.erase()
    return trial


@cache
def _context() -> ir.Context:
    return context()


def _text(strategy: Strategy) -> str:
    def side(layouts: Sequence[Layout]) -> str:
        return " ".join(",".join(layout.texts) for layout in layouts)

    return f"{side(strategy.operands)} -> {side(strategy.results)}"


class _Trial:
    """One case on one mesh: the whole op with its results, and the local functions."""

    def __init__(self, case: Case, mesh: Mesh) -> None:
        self.case, self.mesh = case, mesh
        self.module = _module(case, mesh)
        self.op, self.expected = self._build_whole()
        self.info = describe(self.op, case.versions)
        self.rule = rule_in_blocks(self.info, rule_for(self.info), case.blocks)
        self.rule = rule_in_merges(self.info, self.rule, case.merges)
        self.rule = rule_in_units(self.info, self.rule, case.units)
        _check_written(self.op, self.rule)
        self.strategies = strategies(self.rule, mesh)

    def splits_open(self, strategy: Strategy) -> bool:
        """Say whether a factor of an open size is split."""
        return any(
            isinstance(factor.size, Open) and strategy.axes_of(number)
            for number, factor in enumerate(self.rule.factors)
        )

    def pads(self, strategy: Strategy) -> bool:
        """Say whether a factor has padding."""
        return any(
            factor.has_padding(self.mesh.extents(strategy.axes_of(number)))
            for number, factor in enumerate(self.rule.factors)
        )

    def has_units(self, strategy: Strategy) -> bool:
        """Say whether the parts of a factor, or of a dimension, have whole units."""
        if any(layout.has_units for layout in (*strategy.operands, *strategy.results)):
            return True
        return any(
            self.rule.is_in_units(number, self.mesh.extents(strategy.axes_of(number)))
            for number in range(len(self.rule.factors))
        )

    def _build_whole(self) -> tuple[ir.Operation, list[Array | None]]:
        case = self.case
        attributes = {name: _attribute(value) for name, value in case.attributes.items()}
        name = views.op_name(case.domain, case.op_type)
        with ir.InsertionPoint(self.module.body):
            holder = func.FuncOp("whole", (self._argument_types(), []))
            with ir.InsertionPoint(holder.add_entry_block()):
                operands = self._values(holder, self._passed())
                op = ir.Operation.create(
                    name, self._no_types(), operands, attributes, loc=ir.Location.name("node")
                )
                expected = _run_whole(op, case)
                typed = ir.Operation.create(
                    name, self._result_types(expected), operands, attributes, loc=op.location
                )
                func.ReturnOp([])
        return typed, expected

    def _no_types(self) -> list[ir.Type]:
        unknown = ir.UnrankedTensorType.get(ir.F32Type.get())
        return [unknown if there else ir.NoneType.get() for there in self.case.results]

    def _result_types(self, results: Sequence[Array | None]) -> list[ir.Type]:
        case = self.case
        return [
            ir.NoneType.get() if r is None else _type(r, i, case.symbolic_results, case.opened)
            for i, r in enumerate(results)
        ]

    def _argument_types(self) -> list[ir.Type]:
        case = self.case
        return [_type(self._array(i), i, case.symbolic, case.opened) for i in self._passed()]

    def _array(self, index: int) -> Array:
        array = self.case.operands[index]
        assert array is not None
        return array

    def _passed(self) -> list[int]:
        """The operands that are arguments of the whole function."""
        present = [i for i, o in enumerate(self.case.operands) if o is not None]
        return [i for i in present if i not in self.case.literals]

    def _values(self, holder: Any, passed: Sequence[int]) -> list[ir.Value]:
        arguments = dict(zip(passed, holder.entry_block.arguments, strict=True))
        return [
            arguments[i] if i in arguments else _held(array)
            for i, array in enumerate(self.case.operands)
        ]

    def localize(self, strategy: Strategy) -> Any:
        """Return the function of one rank, verified; literals stay so where they are whole."""
        passed = self._cut_operands(strategy)
        arguments = [
            self._local_type(self.op.operands[i].type, strategy.operands[i]) for i in passed
        ]
        results = [
            self._local_type(value.type, layout)
            for value, layout in zip(self.op.results, strategy.results, strict=True)
        ]
        with ir.InsertionPoint(self.module.body):
            kept = [t for t in results if not isinstance(t, ir.NoneType)]
            holder = func.FuncOp("local", (arguments, kept), visibility="private")
            with ir.InsertionPoint(holder.add_entry_block()):
                operands = self._values(holder, passed)
                local = LocalOp(
                    self.op, self.info, self.rule, strategy, self.mesh, operands, results
                )
                values = local.build()
                made, wanted = [_plain(v.type) for v in values], [_plain(t) for t in results]
                assert made == wanted, f"{self.case.op_type}: {holder}"
                for value, kind in zip(values, results, strict=True):
                    value.set_type(kind)
                func.ReturnOp([v for v in values if not isinstance(v.type, ir.NoneType)])
        holder.operation.verify()
        return holder

    def _cut_operands(self, strategy: Strategy) -> list[int]:
        whole = {i for i in self.case.literals if strategy.operands[i].is_replicated}
        present = [i for i, o in enumerate(self.case.operands) if o is not None]
        return [i for i in present if i not in whole]

    def _local_type(self, type_: ir.Type, layout: Layout) -> ir.Type:
        if isinstance(type_, ir.NoneType):
            return type_
        ranked = ir.RankedTensorType(type_)
        shape = sizes_of_type(ranked)
        assert fits(layout, shape, self.mesh), f"{layout} does not fit {ranked} on {self.mesh}"
        return tensor_type(layout.local_shape(shape, self.mesh), ranked.element_type)

    def compare(
        self, strategy: Strategy, holder: Any, rng: np.random.Generator, rtol: float, atol: float
    ) -> None:
        """Run ``holder`` on every rank and fail unless its results are those of the whole op."""
        cuts = [
            cut(self._array(i), strategy.operands[i], self.mesh, rng)
            for i in self._cut_operands(strategy)
        ]
        inputs = [[parts[rank] for parts in cuts] for rank in range(self.mesh.size)]
        outputs = run_spmd(holder, inputs, self.mesh)
        layouts = zip(self.expected, strategy.results, strict=True)
        present = [(whole, layout) for whole, layout in layouts if whole is not None]
        for index, (whole, layout) in enumerate(present):
            got = combine([own[index] for own in outputs], layout, self.mesh, whole.shape)
            if whole.dtype.hasobject:  # strings
                np.testing.assert_array_equal(got, whole)
            else:
                np.testing.assert_allclose(got, whole, rtol=rtol, atol=atol * _largest(whole))


def _has_blocks(strategy: Strategy) -> bool:
    return any(layout.has_blocks for layout in (*strategy.operands, *strategy.results))


def _check_written(op: ir.Operation, rule: Rule) -> None:
    """Fail unless the attribute of ``rule`` fits the op and says all of it but ``localize``."""
    attribute = rule_attr(name_factors(rule))
    types = [v.type for v in op.operands], [v.type for v in op.results]
    assert rule_problem(attribute, *types) is None, f"{op.name}: {attribute}"
    assert rule_of_attr(attribute).rule == replace(rule, localize=None), f"{attribute}"


def _run_whole(op: ir.Operation, case: Case) -> list[Array | None]:
    if case.expected:
        return list(case.expected)
    try:
        return evaluate(op, case.operands, case.versions)
    except Exception as error:  # its own types of error have no common base
        raise NotRunnableError(f"{case.op_type}: {error}") from error


def _largest(whole: Array) -> float:
    """Return the largest finite magnitude, at least 1; 0 for what is not floating-point."""
    if whole.dtype.kind != "f":
        return 0.0
    return float(np.abs(whole[np.isfinite(whole)]).max(initial=1))


def _module(case: Case, mesh: Mesh) -> ir.Module:
    module = ir.Module.create()
    set_mesh(module, mesh)
    i64 = ir.IntegerType.get_signless(64)
    versions = {(d or "ai.onnx"): ir.IntegerAttr.get(i64, v) for d, v in case.versions.items()}
    module.operation.attributes["topt.opset"] = ir.DictAttr.get(versions)
    return module


def _held(array: Array | None) -> ir.Value:
    if array is None:
        return ir.Operation.create(views.NO_VALUE, [ir.NoneType.get()]).results[0]
    value = to_dense(array)
    return ir.Operation.create(views.CONSTANT, [value.type], [], {"value": value}).results[0]


def _type(array: Array, index: int, symbolic: frozenset[tuple[int, int]], opened: int) -> ir.Type:
    shape = [None if (index, d) in symbolic else n for d, n in enumerate(array.shape)]
    sizes = [Open(n, n, n, "batch") if n and n == opened else n for n in shape]
    return tensor_type(sizes, element_of_array(array).type())


def _plain(kind: ir.Type) -> ir.Type:
    """Return a type without what it assumes of open sizes."""
    if not isinstance(kind, ir.RankedTensorType):
        return kind
    return ir.RankedTensorType.get(list(kind.shape), kind.element_type)


def _attribute(value: Any) -> ir.Attribute:
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F32Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, np.ndarray):
        return to_dense(value)
    return _list_attribute(list(value))


def _list_attribute(values: list[Any]) -> ir.Attribute:
    if values and isinstance(values[0], str):
        return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in values])
    if values and isinstance(values[0], float):
        return ir.DenseF32ArrayAttr.get(values)
    return ir.DenseI64ArrayAttr.get(values)
