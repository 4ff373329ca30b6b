"""Checks what a module says with `topt`, where MLIR's own verifier cannot.

One walk over the operations. Attributes are unique within a context, so that what was found of one
of them, with the types it goes with, is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensoropt.compiler.support.errors import did_you_mean
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import AXIS_CONSTANT, POINT, RESHARD
from tensoropt.dialects.topt.keys import (
    ARGUMENT,
    KEYS,
    LAYOUT,
    MODULE,
    OPERATION,
    PASSED,
    PHASE,
    PHASES,
    PIPELINE,
    PREFIX,
    RESULT,
    RULE,
    STRATEGY,
)
from tensoropt.dialects.topt.layouts import MESH
from tensoropt.dialects.verifier.carrier import Carrier, InvalidError
from tensoropt.dialects.verifier.factors import rule_problem
from tensoropt.dialects.verifier.fitting import Fitting
from tensoropt.dialects.verifier.references import References

__all__ = ["verify"]


def verify(module: ir.Module) -> None:
    """Raise :class:`InvalidError` for the first thing that ``module`` says and cannot be.

    ``module`` must be valid to MLIR. Linear in the operations.
    """
    with module.context, ir.Location.unknown():
        _Verifier(module.operation).run()


_WORDS = {PHASE.name: PHASES, PASSED.name: PIPELINE}
"""The words that a key may hold, where they are few."""


class _Verifier:
    def __init__(self, module: ir.Operation) -> None:
        self.module = module
        self.fitting = Fitting(module)
        self.references = References()
        self.known: set[tuple[str, ir.Attribute, str]] = set()
        self.fitted: set[tuple[Any, ...]] = set()
        self.checks = {
            "shard.grid": self._grid,
            "func.func": self._function,
            RESHARD: self._reshard,
            AXIS_CONSTANT: self._axis_constant,
            POINT: self._point,
        }

    def run(self) -> None:
        self._attributes(Carrier(self.module, MODULE), self.module.attributes)
        for op in onnx.walk(self.module):
            check = self.checks.get(op.name)
            if check is not None:
                check(op)
            held = op.attributes
            if any(name.startswith(PREFIX) for name in held):
                self._attributes(Carrier(op, OPERATION), held)
                if RULE.on(held):
                    self._rule(op, held[RULE.name])
                if STRATEGY.on(held):
                    self._strategy(op, held[STRATEGY.name])
        self.references.check()

    def _attributes(self, carrier: Carrier, held: Any) -> None:
        takers = self.references.takers
        for name in _names(held):
            if name.startswith(PREFIX):
                attribute = held[name]
                self._attribute(carrier, name, attribute)
                if name in takers:
                    takers[name](carrier, attribute)

    def _attribute(self, carrier: Carrier, name: str, attribute: ir.Attribute) -> None:
        """Check name, place and kind of one attribute, each once."""
        case = name, attribute, carrier.place
        if case in self.known:
            return
        key = KEYS.get(name)
        if key is None:
            raise carrier.wrong(f"has an unknown attribute '{name}'{did_you_mean(name, KEYS)}")
        if carrier.place not in key.places:
            places = " or ".join(key.places)
            raise carrier.wrong(f"has a stray {name}, expected {places}, got: {carrier.place}")
        if not key.kind.matches(attribute):
            expected = key.kind.expected
            raise carrier.wrong(
                f"has the wrong kind of {name}, expected {expected}, got: {attribute}"
            )
        words = _WORDS.get(name)
        if words is not None and key.kind.read(attribute) not in words:
            raise carrier.wrong(
                f"has an unknown {name}, expected one of {', '.join(words)}, got: {attribute}"
            )
        self.known.add(case)

    def _rule(self, op: ir.Operation, rule: Any) -> None:
        types = [value.type for value in op.operands], [value.type for value in op.results]
        case = rule, *types[0], None, *types[1]
        if case in self.fitted:
            return
        problem = rule_problem(rule, *types)
        if problem is not None:
            raise Carrier(op, OPERATION).wrong(f"{RULE.name} {problem}")
        self.fitted.add(case)

    def _strategy(self, op: ir.Operation, strategy: Any) -> None:
        operands = op.operands if not len(op.regions) else onnx.read_by(op)
        types = [value.type for value in operands], [value.type for value in op.results]
        case = strategy, *types[0], None, *types[1]
        if case in self.fitted:
            return
        sides = ("operand", strategy.operands, types[0]), ("result", strategy.results, types[1])
        for side, layouts, own in sides:
            self._side(Carrier(op, OPERATION), side, list(ir.ArrayAttr(layouts)), own)
        self.fitted.add(case)

    def _side(
        self, carrier: Carrier, side: str, layouts: Sequence[Any], types: Sequence[ir.Type]
    ) -> None:
        if len(layouts) != len(types):
            raise carrier.wrong(
                f"has a {STRATEGY.name} with a wrong number of {side}s, "
                f"expected {len(types)}, got: {len(layouts)}"
            )
        for number, (layout, type_) in enumerate(zip(layouts, types, strict=True)):
            self._layout(carrier, f"layout of {side} {number}", layout, type_)

    def _layout(
        self, carrier: Carrier, name: str, layout: Any, type_: ir.Type, *, local: bool = False
    ) -> None:
        problem = self.fitting.problem(layout, type_, local=local)
        if problem is not None:
            raise carrier.wrong(f"{name} {problem}")

    def _function(self, op: ir.Operation) -> None:
        self.references.check()
        self.references = References()  # a function refers to nothing of another
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        local = not _has_global_shapes(op)
        for place, key, types in (
            (ARGUMENT, "arg_attrs", kind.inputs),
            (RESULT, "res_attrs", kind.results),
        ):
            held = ir.ArrayAttr(op.attributes[key]) if key in op.attributes else ()
            dictionaries = map(ir.DictAttr, held)
            for number, (own, type_) in enumerate(zip(dictionaries, types, strict=False)):
                subject = f"{place.removeprefix('an ').removeprefix('a ')} {number}"
                self._attributes(Carrier(op, place, subject), own)
                if LAYOUT.on(own):
                    carrier = Carrier(op, place)
                    self._layout(
                        carrier, f"layout of {subject}", own[LAYOUT.name], type_, local=local
                    )

    def _reshard(self, op: ir.Operation) -> None:
        carrier, type_ = Carrier(op, OPERATION), op.operands[0].type
        if op.results[0].type != type_:
            raise carrier.wrong(f"changes the type, expected {type_}, got: {op.results[0].type}")
        for name in ("src", "dst"):
            self._layout(carrier, f"layout '{name}'", op.attributes[name], type_)

    def _axis_constant(self, op: ir.Operation) -> None:
        carrier, axes, mesh = Carrier(op, OPERATION), op.attributes["axes"], self.fitting.mesh
        if mesh is None:
            raise carrier.wrong(f"runs along no mesh, expected shard.grid @{MESH}, got: none")
        if not isinstance(axes, ir.DenseI64ArrayAttr):
            raise carrier.wrong(f"has the wrong kind of 'axes', expected array<i64>, got: {axes}")
        if len(set(axes)) != len(axes):
            raise carrier.wrong(f"uses an axis twice, expected each once, got: {list(axes)}")
        if not set(axes) <= set(mesh.axes):
            raise carrier.wrong(
                f"names no axis of mesh {mesh}, expected below {len(mesh.axes)}, got: {list(axes)}"
            )
        self._values(carrier, op, mesh.extent(tuple(axes)))

    @staticmethod
    def _values(carrier: Carrier, op: ir.Operation, positions: int) -> None:
        """Check that there is one value for each of so many positions."""
        result, values = op.results[0].type, op.attributes["values"]
        expected = "a ranked tensor"
        if isinstance(result, ir.RankedTensorType):
            whole = ir.RankedTensorType.get([positions, *result.shape], result.element_type)
            if getattr(values, "type", None) == whole:
                return
            expected = str(whole)
        got = getattr(values, "type", values)
        raise carrier.wrong(f"has wrong 'values', expected {expected}, got: {got}")

    @staticmethod
    def _point(op: ir.Operation) -> None:
        mesh = op.attributes["mesh"]
        if not isinstance(mesh, ir.DenseI64ArrayAttr):
            raise InvalidError(
                op, f"has the wrong kind of 'mesh', expected array<i64>, got: {mesh}"
            )

    @staticmethod
    def _grid(op: ir.Operation) -> None:
        if ir.StringAttr(op.attributes["sym_name"]).value != MESH:
            return
        sizes = list(ir.DenseI64ArrayAttr(op.attributes["shape"]))
        if not sizes or min(sizes) < 1:
            text = "x".join(str(size) if size >= 0 else "?" for size in sizes) or "none"
            raise InvalidError(op, f"has an axis without a size, expected 1 or more, got: {text}")


def _names(held: Any) -> list[str]:
    """Return the names of the attributes in an operation's, or in a dictionary."""
    if isinstance(held, ir.DictAttr):
        return [item.name for item in held]
    return list(held)


def _has_global_shapes(function: ir.Operation) -> bool:
    """Say whether the types in a function are those of whole tensors, as before `partition`."""
    for region in function.regions:
        for block in region:
            for op in block:
                if op.operation.name == RESHARD or STRATEGY.on(op.operation.attributes):
                    return True
    return False
