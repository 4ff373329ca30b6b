"""The verifier of `topt` in a module, a single walk over its operations.

Attributes are unique within a context, so results are memoized by attribute and types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensoropt.compiler.layout.execution import AMPLE, LAUNCHES, OVERLAPS
from tensoropt.compiler.support.errors import did_you_mean
from tensoropt.compiler.support.phases import PHASE_NAMES, STEP_PARTS
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import (
    AXIS_CONSTANT,
    POINT,
    RESHARD,
    WAIT,
    RuleAttr,
    StrategyAttr,
)
from tensoropt.dialects.topt.keys import (
    ARGUMENT,
    CHUNK,
    KEYS,
    LAUNCH,
    LAYOUT,
    MODULE,
    OPERATION,
    OVERLAP,
    PASSED,
    PHASE,
    PLACES,
    PREFIX,
    RESULT,
    RULE,
    START,
    STRATEGY,
    TAKES,
    TOGETHER,
)
from tensoropt.dialects.topt.layouts import MESH
from tensoropt.dialects.verifier.async_collectives import check_start, check_takes, check_wait
from tensoropt.dialects.verifier.carrier import Carrier, InvalidError
from tensoropt.dialects.verifier.factors import rule_problem
from tensoropt.dialects.verifier.fused_collectives import check_together
from tensoropt.dialects.verifier.layouts import LayoutChecker
from tensoropt.dialects.verifier.references import References
from tensoropt.runtime.support.collectives import BY_IR_NAME

__all__ = ["verify"]


def verify(module: ir.Module) -> None:
    """Raise :class:`InvalidError` for the first violation in ``module``.

    ``module`` must pass MLIR's verifier. Linear in the operations.
    """
    with module.context, ir.Location.unknown():
        _Verifier(module.operation).run()


_WORDS = {
    PHASE.name: STEP_PARTS,
    PASSED.name: PHASE_NAMES,
    OVERLAP.name: (*OVERLAPS, AMPLE),
    LAUNCH.name: LAUNCHES,
}
"""The allowed values of keys that have an enumeration."""


_COLLECTIVES = [name for name in BY_IR_NAME if name.startswith(PREFIX)]
"""The collectives of this dialect; upstream's have a verifier."""


class _Verifier:
    def __init__(self, module: ir.Operation) -> None:
        self.module = module
        self.layouts = LayoutChecker(module)
        self._refer()
        self.foreign: set[str] = set()  # names of attributes that are not ours
        self.known: set[tuple[str, ir.Attribute, str]] = set()
        self.fitted: set[tuple[object, ...]] = set()
        self.checks = {
            "shard.grid": self._grid,
            "func.func": self._function,
            RESHARD: self._reshard,
            AXIS_CONSTANT: self._axis_constant,
            POINT: self._point,
            WAIT: check_wait,
            **dict.fromkeys(_COLLECTIVES, self._collective),
        }

    def _refer(self) -> None:
        """Start collecting references afresh; they never cross functions."""
        self.references = References()
        own = {RULE.name: self._rule, STRATEGY.name: self._strategy, TOGETHER.name: check_together}
        own |= {START.name: check_start, TAKES.name: check_takes, CHUNK.name: self._chunk}
        self.takers = {**self.references.takers, **own}

    def run(self) -> None:
        self._attributes(Carrier(self.module, MODULE), self.module.attributes.items())
        self._check_regions(self.module)
        self.references.check()

    def _check_regions(self, op: ir.Operation) -> None:
        """Check the operations in the regions of ``op``.

        The loop is kept cheap: there are many operations, and most have no `topt` attribute.
        """
        for region in op.regions:
            for block in region:
                for view in block:
                    inner = view.operation
                    check = self.checks.get(inner.name)
                    if check is not None:
                        check(inner)
                    self._attributes(Carrier(inner, OPERATION), inner.attributes.items())
                    if len(inner.regions):
                        self._check_regions(inner)

    def _attributes(self, carrier: Carrier, attributes: Iterable[tuple[str, ir.Attribute]]) -> None:
        foreign, known, takers = self.foreign, self.known, self.takers
        for name, attribute in attributes:
            if name in foreign:
                continue
            if not name.startswith(PREFIX):
                foreign.add(name)
                continue
            if (name, attribute, carrier.place) not in known:
                self._attribute(carrier, name, attribute)
            if name in takers:
                takers[name](carrier, attribute)

    def _attribute(self, carrier: Carrier, name: str, attribute: ir.Attribute) -> None:
        """Check the name, place and kind of an attribute."""
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
        self.known.add((name, attribute, carrier.place))

    def _chunk(self, carrier: Carrier, chunk: ir.Attribute) -> None:
        count = len(PLACES.get(self.module.attributes, []))
        if not 0 <= ir.IntegerAttr(chunk).value < count:
            raise carrier.wrong(
                f"has a {CHUNK.name} that {PLACES.name} of the module lacks, "
                f"expected 0 or more, below {count}, got: {chunk}"
            )

    def _rule(self, carrier: Carrier, rule: ir.Attribute) -> None:
        op = carrier.op
        types = [value.type for value in op.operands], [value.type for value in op.results]
        case = rule, *types[0], None, *types[1]
        if case in self.fitted:
            return
        assert isinstance(rule, RuleAttr)  # checked by its key
        problem = rule_problem(rule, *types)
        if problem is not None:
            raise carrier.wrong(f"{RULE.name} {problem}")
        self.fitted.add(case)

    def _strategy(self, carrier: Carrier, strategy: ir.Attribute) -> None:
        op = carrier.op
        operands = op.operands if not len(op.regions) else onnx.read_by(op)
        types = [value.type for value in operands], [value.type for value in op.results]
        case = strategy, *types[0], None, *types[1]
        if case in self.fitted:
            return
        assert isinstance(strategy, StrategyAttr)
        sides = ("operand", strategy.operands, types[0]), ("result", strategy.results, types[1])
        for side, layouts, own in sides:
            self._side(carrier, side, list(ir.ArrayAttr(layouts)), own)
        self.fitted.add(case)

    def _side(
        self, carrier: Carrier, side: str, layouts: Sequence[ir.Attribute], types: Sequence[ir.Type]
    ) -> None:
        if len(layouts) != len(types):
            raise carrier.wrong(
                f"has a {STRATEGY.name} with a wrong number of {side}s, "
                f"expected {len(types)}, got: {len(layouts)}"
            )
        for number, (layout, type_) in enumerate(zip(layouts, types, strict=True)):
            problem = self.layouts.problem(layout, type_)
            if problem is not None:
                raise carrier.wrong(f"layout of {side} {number} {problem}")

    def _function(self, op: ir.Operation) -> None:
        self.references.check()
        self._refer()
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        local = not _has_global_shapes(op)
        for place, key, types in (
            (ARGUMENT, "arg_attrs", kind.inputs),
            (RESULT, "res_attrs", kind.results),
        ):
            attributes = ir.ArrayAttr(op.attributes[key]) if key in op.attributes else ()
            dictionaries = map(ir.DictAttr, attributes)
            for number, (own, type_) in enumerate(zip(dictionaries, types, strict=False)):
                carrier = Carrier(op, place, number)
                self._attributes(carrier, _entries(own, place))
                if LAYOUT.on(own):
                    problem = self.layouts.problem(own[LAYOUT.name], type_, local=local)
                    if problem is not None:
                        raise InvalidError(op, f"layout of {carrier.subject} {problem}")

    def _reshard(self, op: ir.Operation) -> None:
        carrier, type_ = Carrier(op, OPERATION), op.operands[0].type
        if op.results[0].type != type_:
            raise carrier.wrong(f"changes the type, expected {type_}, got: {op.results[0].type}")
        for name in ("src", "dst"):
            problem = self.layouts.problem(op.attributes[name], type_)
            if problem is not None:
                raise carrier.wrong(f"layout '{name}' {problem}")

    def _axis_constant(self, op: ir.Operation) -> None:
        carrier, axes = Carrier(op, OPERATION), op.attributes["axes"]
        if not isinstance(axes, ir.DenseI64ArrayAttr):
            raise carrier.wrong(f"has the wrong kind of 'axes', expected array<i64>, got: {axes}")
        self._values(carrier, op, self._positions(carrier, list(axes)))

    def _collective(self, op: ir.Operation) -> None:
        carrier, type_ = Carrier(op, OPERATION), op.operands[0].type
        traits, axes = BY_IR_NAME[op.name], op.attributes["grid_axes"]
        keeps_type = not traits.cuts and not traits.joins and not traits.has_rows
        if keeps_type and op.results[0].type != type_:
            raise carrier.wrong(f"changes the type, expected {type_}, got: {op.results[0].type}")
        if not isinstance(axes, ir.DenseI16ArrayAttr):
            raise carrier.wrong(
                f"has the wrong kind of 'grid_axes', expected array<i16>, got: {axes}"
            )
        count = self._positions(carrier, list(axes))
        if "sources" in traits.attributes:
            self._sources(carrier, op.attributes["sources"], count)
        if traits.has_rows:
            self._rows(carrier, op, count)

    @staticmethod
    def _rows(carrier: Carrier, op: ir.Operation, count: int) -> None:
        given, wanted = str(op.operands[1].type), f"tensor<{count}x2xi64>"
        if given != wanted:
            raise carrier.wrong(f"has wrong 'rows', expected {wanted}, got: {given}")
        type_, made = op.operands[0].type, op.results[0].type
        if not isinstance(type_, ir.RankedTensorType) or type_.rank == 0:
            raise carrier.wrong(f"has no rows, expected at least one dimension, got: {type_}")
        sizes = [ir.ShapedType.get_dynamic_size(), *list(type_.shape)[1:]]
        expected = ir.RankedTensorType.get(sizes, type_.element_type)
        if made != expected:
            raise carrier.wrong(f"has a wrong result, expected {expected}, got: {made}")

    @staticmethod
    def _sources(carrier: Carrier, sources: ir.Attribute, count: int) -> None:
        if not isinstance(sources, ir.DenseI64ArrayAttr) or sorted(sources) != [*range(count)]:
            raise carrier.wrong(
                f"has wrong 'sources', expected each position below {count} once, got: {sources}"
            )

    def _positions(self, carrier: Carrier, axes: list[int]) -> int:
        """Return the number of positions along mesh ``axes``; refuses invalid axes."""
        mesh = self.layouts.mesh
        if mesh is None:
            raise carrier.wrong(f"runs along no mesh, expected shard.grid @{MESH}, got: none")
        if len(set(axes)) != len(axes):
            raise carrier.wrong(f"uses an axis twice, expected each once, got: {axes}")
        if not set(axes) <= set(mesh.axes):
            raise carrier.wrong(
                f"names no axis of mesh {mesh}, expected below {len(mesh.axes)}, got: {axes}"
            )
        return mesh.extent(tuple(axes))

    @staticmethod
    def _values(carrier: Carrier, op: ir.Operation, positions: int) -> None:
        """Check that `values` has one value for each of ``positions``."""
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


_OURS = {
    place: [name for name, key in KEYS.items() if place in key.places]
    for place in (ARGUMENT, RESULT)
}


def _entries(attributes: ir.DictAttr, place: str) -> list[tuple[str, ir.Attribute]]:
    """Return the attributes of an argument or result.

    Looking up each possible name is faster than listing the dictionary.
    """
    found = [(name, attributes[name]) for name in _OURS[place] if name in attributes]
    return (
        found if len(found) == len(attributes) else [(item.name, item.attr) for item in attributes]
    )


def _has_global_shapes(function: ir.Operation) -> bool:
    """Return whether a function has the types of whole tensors, as before `partition`."""
    for region in function.regions:
        for block in region:
            for op in block:
                if op.operation.name == RESHARD or STRATEGY.on(op.operation.attributes):
                    return True
    return False
