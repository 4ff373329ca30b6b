"""Typed access to `onnx.*` operations: names, attributes, literals, and ONNX's schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy.typing as npt

from tensoropt.compiler.support.entries import replace_entries
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import dense_to_array
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.support.collectives import ATTENTION_KERNELS, BY_IR_NAME, DOMAIN
from tensoropt.runtime.support.drawing import RANDOM

__all__ = [
    "ATTENTION",
    "ATTENTIONS",
    "ATTENTION_GRADIENT",
    "ATTENTION_OPTIONS",
    "ATTENTION_WITH_DROPOUT",
    "BARRIER",
    "BLOCKED_ATTENTION",
    "BLOCKED_GRADIENT",
    "CLASSICAL",
    "CONSTANT",
    "MIXTURE_GRADIENT",
    "NO_VALUE",
    "UNBOUNDED",
    "YIELD",
    "Schema",
    "arguments",
    "attribute",
    "attributes",
    "constant_value",
    "declare",
    "folded_values",
    "function",
    "is_barrier",
    "is_foldable",
    "is_no_value",
    "is_onnx",
    "is_pass_through",
    "is_random",
    "is_random_name",
    "known_domains",
    "known_ops",
    "literal",
    "made_by",
    "node_name",
    "op_name",
    "opsets",
    "owner",
    "phase",
    "read_by",
    "read_values",
    "region_names",
    "require_domain",
    "schema",
    "signature_attributes",
    "split_name",
    "walk",
]

CONSTANT = "onnx.Constant"
NO_VALUE = "onnx.NoValue"
YIELD = "onnx.Yield"

BARRIER = "tensoropt.Barrier"
"""``Barrier(x, after)`` returns ``x`` after ``after`` has been computed."""

ATTENTION = "tensoropt.Attention"
"""``Attention(q, k, v, bias, lengths, offset, row_seeds, key_seeds)`` is ``softmax(scale q k) v``
by a kernel of ours.

Queries are `b h s d`, keys `b g t d`, values `b g t e`; consecutive heads of queries share one of
keys. ``bias`` broadcasts to `b h s t`, keys from ``lengths`` on are not read, and ``offset`` is the
place of the first query. The second result, `b h s`, has the logarithms of the sums of
exponentials. Attributes: ``scale``, ``causal``, ``window``, ``softcap``. The seeds, int64 `b h s 1`
and `1 1 1 t`, drop weights: with the product x of the seeds of a row and a key, their weight is
multiplied by ``drop_scale`` if ``x (x + drop_mix)`` modulo 2^64 is above ``drop_threshold``, else
by 0."""

ATTENTION_GRADIENT = "tensoropt.AttentionGradient"
"""``AttentionGradient(dy, q, k, v, y, lse, bias, lengths, offset, row_seeds, key_seeds)`` returns
the gradients of q, k, v and, if it is wanted, of the bias."""

ATTENTION_WITH_DROPOUT = "tensoropt.AttentionWithDropout"
"""``AttentionWithDropout(q, k, v, bias)`` is `Attention` that drops its weights with the
probability ``ratio``. A training step has the seeds, and replaces it by `Attention`."""

ATTENTIONS = frozenset(f"{DOMAIN}.{kind}" for kind in ATTENTION_KERNELS)
"""Operators with a kernel of ours on processors."""

BLOCKED_ATTENTION = "tensoropt.BlockedAttention"
"""``BlockedAttention(q, k, v, mask)`` is ``softmax(q k) v`` of long sequences, in blocks.

Queries are `... s d`, keys `... d t`, values `... t e`. The second result has the logarithms of the
sums of exponentials. With ``causal``, a row sees the keys up to its own place."""

BLOCKED_GRADIENT = "tensoropt.BlockedAttentionGradient"
"""``BlockedAttentionGradient(q, k, v, y, total, dy, mask)`` returns the gradients of q, k and v."""

MIXTURE_GRADIENT = "tensoropt.MoEGradient"
"""``MoEGradient(x, scores, w1, b1, w2, b2, dy)`` returns the gradients of the operands of a `MoE`.

It has the attributes of the `MoE`. The first results are the gradients of ``x`` and of the scores,
the others belong to the operands that ``layers`` lists."""

CLASSICAL = "ai.onnx.ml"
"""The domain of ONNX's operators for classical machine learning."""

UNBOUNDED = 2**31 - 1
"""The maximum of operands or results of a variadic side of a schema."""

_PREFIX = "onnx."


@dataclass(frozen=True)
class Schema:
    """The schema of one version of an op, from the standard or from ONNX Runtime's own domains.

    ``attributes`` maps each name to its AttributeProto.AttributeType number. A maximum of
    `UNBOUNDED` marks a variadic side; ``outputs`` has one name for all variadic outputs. An op with
    ``is_open`` was declared by a user without its attributes, so it accepts any.
    """

    op_type: str
    domain: str
    since_version: int
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attributes: dict[str, int]
    required: frozenset[str]
    outputs: tuple[str, ...]
    is_open: bool = False


def op_name(domain: str, op_type: str) -> str:
    """Return the MLIR name of an operator: `onnx.Relu`, `onnx.com.microsoft.Gelu`."""
    return f"{_PREFIX}{domain}.{op_type}" if domain else _PREFIX + op_type


def split_name(name: str) -> tuple[str, str]:
    """Return (domain, operator) of an MLIR name; the standard domain is the empty string."""
    domain, _, op_type = name.removeprefix(_PREFIX).rpartition(".")
    return domain, op_type


def is_onnx(op: ir.Operation) -> bool:
    """Return whether ``op`` is an ONNX operator, `onnx.Constant`, `NoValue` or `Yield`."""
    return bool(op.name.startswith(_PREFIX))


def owner(value: ir.Value) -> ir.Operation | None:
    """Return the operation that defines ``value``, or ``None`` for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def made_by(value: ir.Value, *op_types: str) -> ir.Operation | None:
    """Return the operation that makes ``value``, ``None`` unless it is one of these operators.

    They are of ONNX's own domain.
    """
    op = owner(value)
    is_one = op is not None and op.name in {_PREFIX + op_type for op_type in op_types}
    return op if is_one else None


def is_no_value(value: ir.Value) -> bool:
    """Return whether ``value`` represents an omitted operand or result."""
    return isinstance(value.type, ir.NoneType)


def is_barrier(op: ir.Operation) -> bool:
    """Return whether ``op`` is a `Barrier`: it returns its first operand after its second.

    The second operand may have any layout.
    """
    return bool(op.name == _PREFIX + BARRIER)


def is_pass_through(op: ir.Operation) -> bool:
    """Return whether ``op`` passes a gradient on unchanged; such an op only sets its layout."""
    if op.name != "onnx.Identity" or keys.GRADIENT_OF.on(op.attributes):
        return False
    return phase(op) == "backward"


def node_name(op: ir.Operation) -> str | None:
    """Return the ONNX name of a node, stored in its location, or ``None``."""
    location = op.location
    return location.name_str if hasattr(location, "name_str") else None


def attributes(op: ir.Operation) -> Iterator[str]:
    """Yield the names of the ONNX attributes of ``op`` (not `topt.*`) in alphabetical order."""
    return (name for name in op.attributes if not name.startswith("topt."))


def attribute(op: ir.Operation, name: str, default: object = None) -> Any:
    """Return an ONNX attribute as int, float, str (bytes if not UTF-8), list or array.

    A type attribute is returned as its MLIR type. Returns ``default`` if the attribute is missing.
    """
    return _python(op.attributes[name]) if name in op.attributes else default


def _python(value: ir.Attribute) -> Any:
    for kind, convert in _CONVERSIONS:
        if isinstance(value, kind):
            return convert(value)
    return dense_to_array(value)  # dense strings have no class in the bindings


def _text(value: ir.StringAttr) -> str | bytes:
    raw: bytes = value.value_bytes
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


_CONVERSIONS: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (ir.IntegerAttr, lambda value: value.value),
    (ir.FloatAttr, lambda value: value.value),
    (ir.StringAttr, _text),
    ((ir.DenseI64ArrayAttr, ir.DenseF32ArrayAttr), list),
    (ir.TypeAttr, lambda value: value.value),
    (ir.ArrayAttr, lambda value: [_python(item) for item in value]),
)


def literal(value: ir.Value) -> ir.Attribute | None:
    """Return the attribute of an `onnx.Constant` literal, or ``None`` if ``value`` is not one."""
    op = owner(value)
    return op.attributes["value"] if op is not None and op.name == CONSTANT else None


def constant_value(value: ir.Value) -> npt.NDArray[Any] | None:
    """Return the array of an `onnx.Constant` literal, or ``None`` if ``value`` is not one."""
    attribute = literal(value)
    return None if attribute is None else dense_to_array(attribute)


def function(module: ir.Module) -> ir.Operation:
    """Return `func.func @main` of ``module``.

    Raises ``UserError`` if there is none, or if it is not a single block that ends with a return.
    """
    for op in module.body:
        if (
            op.operation.name == "func.func"
            and ir.StringAttr(op.attributes["sym_name"]).value == "main"
        ):
            _check_body(op.operation)
            return op.operation
    raise UserError("the module has no function @main, expected one imported from an ONNX model")


def _check_body(main: ir.Operation) -> None:
    """Refuse a body without a return; MLIR accepts any unknown operation as a terminator."""
    blocks = list(main.regions[0].blocks)
    ops = blocks[0].operations if len(blocks) == 1 else ()
    if not len(ops) or ops[len(ops) - 1].operation.name != "func.return":
        raise UserError("function @main: expected one block that ends with a return")


def opsets(module: ir.Module) -> dict[str, int]:
    """Return the operator set version of each domain; the standard domain is the empty string."""
    attributes = module.operation.attributes
    if not keys.OPSET.on(attributes):
        raise UserError("the module has no attribute topt.opset, expected one version per domain")
    table = keys.OPSET.of(attributes)
    return {"" if domain == "ai.onnx" else domain: version for domain, version in table.items()}


def require_domain(module: ir.Module, domain: str) -> None:
    """Add version 1 of ``domain`` to ``module``, unless it already has a version."""
    attributes = module.operation.attributes
    keys.OPSET.set(attributes, {domain: 1, **keys.OPSET.of(attributes)})


def region_names(op: ir.Operation) -> list[str]:
    """Return the ONNX attribute that each region of ``op`` represents."""
    return keys.REGIONS.get(op.attributes, [])


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the operations inside ``op``, each before those in its regions."""
    for region in op.regions:
        for block in region:
            for child in block:
                yield child.operation
                if len(child.operation.regions):
                    yield from walk(child.operation)


def arguments(main: ir.Operation) -> list[tuple[ir.Value, ir.DictAttr]]:
    """Return the arguments of `@main` with their attributes."""
    values = main.regions[0].blocks[0].arguments
    return list(zip(values, signature_attributes(main, "arg_attrs", len(values)), strict=True))


def signature_attributes(main: ir.Operation, side: str, count: int) -> list[ir.DictAttr]:
    """Return the attributes of ``count`` arguments (``arg_attrs``) or results (``res_attrs``)."""
    return carried(main, side) or [ir.DictAttr.get({}, context=main.context)] * count


def carried(main: ir.Operation, side: str) -> list[ir.DictAttr]:
    """Return the attributes of arguments (``arg_attrs``) or results (``res_attrs``).

    The list is empty if the function has none.
    """
    if side not in main.attributes:
        return []
    return [ir.DictAttr(own) for own in ir.ArrayAttr(main.attributes[side])]


def signature(main: ir.Operation) -> ir.FunctionType:
    """Return the type of a function."""
    return ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)


def phase(op: ir.Operation) -> str | None:
    """Return the part of a training step that ``op`` is marked with, or ``None``."""
    return keys.PHASE.get(op.attributes)


def folded_values(main: ir.Operation) -> set[ir.Value]:
    """Return the values of `@main` that depend on no input, which ONNX Runtime folds at load.

    These are parameters, literals, and results of deterministic ops on them, except collectives.
    """
    folded = {value for value, own in arguments(main) if keys.PARAM.on(own)}
    for op in main.regions[0].blocks[0]:
        if is_foldable(op.operation) and folded.issuperset(read_values(op.operation)):
            folded.update(op.operation.results)
    return folded


def read_values(op: ir.Operation) -> list[ir.Value]:
    """Return the operands of ``op`` and of the operations inside it."""
    return [*op.operands, *(value for child in walk(op) for value in child.operands)]


def read_by(op: ir.Operation) -> list[ir.Value]:
    """Return the operands of ``op``, followed by the outer values that its regions capture."""
    return [*op.operands, *_captured(op)]


def _captured(op: ir.Operation) -> list[ir.Value]:
    """Return the outer values that the regions of a control-flow op capture, each once."""
    inside: set[ir.Value] = set()
    outer: dict[ir.Value, None] = {}
    for block in (block for region in op.regions for block in region):
        inside.update(block.arguments)
        for inner in block:
            outer.update((v, None) for v in inner.operation.operands if v not in inside)
            outer.update((v, None) for v in _captured(inner.operation) if v not in inside)
            inside.update(inner.operation.results)
    return list(outer)


_RANDOM = frozenset(f"onnx.{name}" for name in RANDOM)


def is_foldable(op: ir.Operation) -> bool:
    """Return whether ``op`` is deterministic and needs no other rank."""
    name: str = op.name
    return not is_random(op) and name not in BY_IR_NAME and name != "func.return"


def is_random(op: ir.Operation) -> bool:
    """Return whether ``op`` draws random numbers, so that its result varies."""
    return is_random_name(op.name)


def is_random_name(name: str) -> bool:
    """Return whether the operator with an MLIR name (`onnx.RandomNormal`) draws random numbers."""
    return name in _RANDOM


_DECLARED: dict[tuple[str, str], Schema] = {}


def declare(schemas: Iterable[Schema]) -> None:
    """Declare operators that neither the standard nor ONNX Runtime has.

    Replaces all earlier declarations.
    """
    undefined = (own for own in schemas if own.op_type not in _defined_ops(own.domain))
    replace_entries(_DECLARED, {(own.domain, own.op_type): own for own in undefined})


def schema(domain: str, op_type: str, version: int) -> Schema | None:
    """Return the schema of an operator in ``version`` of its domain, or ``None`` if unknown."""
    declared = _DECLARED.get((domain, op_type))
    if declared is not None:
        return declared if version >= declared.since_version else None
    return _defined(domain, op_type, version)


@cache
def _defined(domain: str, op_type: str, version: int) -> Schema | None:
    import onnx.defs

    if domain == DOMAIN:
        return _OWN.get(op_type)
    if op_type in _standard_ops(domain):
        try:
            found: Any = onnx.defs.get_schema(op_type, version, domain)
        except onnx.defs.SchemaError:
            return None
        return _make_schema(found, {n: int(a.type.value) for n, a in found.attributes.items()})
    versions = [s for s in _runtime_schemas().get(domain, {}).get(op_type, ())]
    versions = [s for s in versions if s.since_version <= version]
    return max(versions, key=lambda s: s.since_version, default=None)


def known_ops(domain: str) -> frozenset[str]:
    """Return the names of all operators of ``domain``, including ONNX Runtime's additions."""
    return _defined_ops(domain) | {op_type for own, op_type in _DECLARED if own == domain}


@cache
def _defined_ops(domain: str) -> frozenset[str]:
    if domain == DOMAIN:
        return frozenset(_OWN)
    return _standard_ops(domain) | frozenset(_runtime_schemas().get(domain, ()))


@cache
def _standard_ops(domain: str) -> frozenset[str]:
    import onnx.defs

    every = onnx.defs.get_all_schemas_with_history()
    return frozenset(s.name for s in every if s.domain == domain)


def known_domains() -> frozenset[str]:
    """Return the domains with operators of the standard, of ONNX Runtime or of a user."""
    declared = {domain for domain, _ in _DECLARED}
    return _standard_domains() | frozenset(_runtime_schemas()) | declared


@cache
def _standard_domains() -> frozenset[str]:
    import onnx.defs

    return frozenset(s.domain for s in onnx.defs.get_all_schemas_with_history())


@cache
def _runtime_schemas() -> dict[str, dict[str, list[Schema]]]:
    """Return the operators that ONNX Runtime adds, by domain and name."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    table: dict[str, dict[str, list[Schema]]] = {}
    for schema in get_all_operator_schema():
        if schema.name not in _standard_ops(schema.domain):
            row = table.setdefault(schema.domain, {}).setdefault(schema.name, [])
            kinds = {name: int(a.type) for name, a in schema.attributes.items()}
            row.append(_make_schema(schema, kinds))
    return table


def _make_schema(schema: Any, kinds: dict[str, int]) -> Schema:
    return Schema(
        op_type=schema.name,
        domain=schema.domain,
        since_version=schema.since_version,
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
        attributes=kinds,
        required=frozenset(name for name, a in schema.attributes.items() if a.required),
        outputs=tuple(output.name for output in schema.outputs),
    )


_CAUSAL = {"causal": 2}  # AttributeProto.INT
_ATTENTION = {**_CAUSAL, "scale": 1, "softcap": 1, "window": 2}
_DROPPED = {"ratio": 1, **_ATTENTION}
_ATTENTION |= {"drop_mix": 2, "drop_scale": 1, "drop_threshold": 2}
ATTENTION_OPTIONS = tuple(_ATTENTION)
"""Attributes of `Attention` and of its gradient."""

_SCALE = frozenset(("scale",))
_GRADIENTS = ("dq", "dk", "dv", "dbias")
_MIXTURE = {
    "activation_alpha": 1,  # AttributeProto.FLOAT
    "activation_beta": 1,
    "activation_type": 3,  # AttributeProto.STRING
    "k": 2,
    "layers": 7,  # AttributeProto.INTS
    "normalize_routing_weights": 2,
    "swiglu_fusion": 2,
    "swiglu_limit": 1,
    "use_sparse_mixer": 2,
}
_OWN = {
    own.op_type: own
    for own in (
        Schema("Barrier", DOMAIN, 1, 2, 2, 1, 1, {}, frozenset(), ("y",)),
        Schema("Attention", DOMAIN, 1, 3, 8, 2, 2, _ATTENTION, _SCALE, ("y", "lse")),
        Schema("AttentionGradient", DOMAIN, 1, 6, 11, 3, 4, _ATTENTION, _SCALE, _GRADIENTS),
        Schema("AttentionWithDropout", DOMAIN, 1, 3, 4, 2, 2, _DROPPED, _SCALE, ("y", "lse")),
        Schema("BlockedAttention", DOMAIN, 1, 3, 4, 2, 2, _CAUSAL, frozenset(), ("y", "total")),
        Schema(
            "BlockedAttentionGradient", DOMAIN, 1, 6, 7, 3, 3, _CAUSAL, frozenset(), _GRADIENTS[:3]
        ),
        Schema("MoEGradient", DOMAIN, 1, 7, 7, 2, UNBOUNDED, _MIXTURE, frozenset(), ("gradients",)),
    )
}
"""Operators that only tensoropt has: its runtime, or ``partition`` in operators of the standard."""
