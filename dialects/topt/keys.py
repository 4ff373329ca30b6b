"""Typed access to the `topt.*` attributes of operations, arguments, results and the module.

Each attribute is one :class:`Key`, which reads and writes its Python value:
``PHASE.get(op.attributes)``. Keys take an operation's ``attributes``, or the dictionary of an
argument or result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

from tensoropt.compiler.layout.rule_text import NamedRule
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import LayoutAttr, RuleAttr, StrategyAttr
from tensoropt.dialects.topt.layouts import (
    layout_attr,
    layout_of,
    layouts_of_strategy,
    strategy_attr,
)
from tensoropt.dialects.topt.rules import rule_attr, rule_of_attr
from tensoropt.runtime.layout.layout import Layout

__all__ = [
    "ANNOTATED",
    "ARGUMENT",
    "CACHE",
    "CHUNK",
    "CLASSES",
    "DEVICE",
    "DIMS",
    "FIXED",
    "FOLLOWS",
    "GRADIENTS",
    "GRADIENT_OF",
    "HYPER",
    "ID",
    "IR_VERSION",
    "KEYS",
    "LAUNCH",
    "LAYOUT",
    "LISTED",
    "LOST",
    "MERGED",
    "MICRO_BATCHES",
    "MISSING",
    "MODEL",
    "MODULE",
    "NAME",
    "NAMED_SIZES",
    "NORM",
    "OF",
    "OPERATION",
    "OPSET",
    "OVERLAP",
    "PARAM",
    "PASSED",
    "PHASE",
    "PINS",
    "PINS_COST",
    "PIPELINE",
    "PLACES",
    "PREFIX",
    "RANGES",
    "RECOMPUTE",
    "REGIONS",
    "REPEATS",
    "REPLICAS",
    "REPLICA_DEVICES",
    "RESULT",
    "RULE",
    "SCHEDULE",
    "SCORED",
    "SEARCH",
    "SEARCHED",
    "STAGES",
    "STAGE_DEVICES",
    "START",
    "STATE",
    "STRATEGY",
    "TAKES",
    "TIED",
    "TOGETHER",
    "TRAINING",
    "TRIANGLE",
    "UNTIED",
    "UPDATES",
    "Carried",
    "Key",
]

T = TypeVar("T")

Setting = str | int | float
"""The value of a named option; options that were not given are left out."""

PREFIX = "topt."

MODULE, OPERATION, ARGUMENT, RESULT = "the module", "an operation", "an argument", "a result"


class Carried(Protocol):
    """A mapping of attributes: an operation's attributes, or a dictionary."""

    def __contains__(self, name: str, /) -> bool: ...
    def __getitem__(self, name: str, /) -> ir.Attribute: ...


@dataclass(frozen=True)
class Kind(Generic[T]):
    """The type of a key's value: its name in messages, and how to check, read and write it."""

    expected: str
    matches: Callable[[ir.Attribute], bool]
    read: Callable[[Any], T]
    write: Callable[[T], ir.Attribute]


@dataclass(frozen=True)
class Key(Generic[T]):
    """One attribute: its full name, the kind of its value, and the places that may carry it."""

    name: str
    kind: Kind[T]
    places: tuple[str, ...]

    def on(self, attributes: Carried) -> bool:
        """Return whether ``attributes`` has the attribute."""
        return self.name in attributes

    @overload
    def get(self, attributes: Carried) -> T | None: ...
    @overload
    def get(self, attributes: Carried, default: T) -> T: ...
    def get(self, attributes: Carried, default: T | None = None) -> T | None:
        """Return the value of this key in ``attributes``, or ``default`` if it is missing."""
        return self.kind.read(attributes[self.name]) if self.name in attributes else default

    def of(self, attributes: Carried) -> T:
        """Return the value of this key in ``attributes``; raises KeyError if it is missing."""
        return self.kind.read(attributes[self.name])

    def set(self, attributes: ir.OpAttributeMap | dict[str, ir.Attribute], value: T) -> None:
        """Write ``value`` into ``attributes``."""
        attributes[self.name] = self.kind.write(value)

    def item(self, value: T) -> dict[str, ir.Attribute]:
        """Return a dictionary with only this attribute, to merge into others."""
        return {self.name: self.kind.write(value)}

    def remove(self, attributes: ir.OpAttributeMap | dict[str, ir.Attribute]) -> None:
        """Remove the attribute from ``attributes`` if present."""
        if self.name in attributes:
            del attributes[self.name]


def _is_int(attribute: ir.Attribute) -> bool:
    if not isinstance(attribute, ir.IntegerAttr):
        return False
    kind = attribute.type  # printing it would take most of the time of a verification
    return isinstance(kind, ir.IntegerType) and kind.is_signless and kind.width == 64


def _int(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _is_setting(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.StringAttr | ir.FloatAttr) or _is_int(attribute)


def _setting(value: Setting) -> ir.Attribute:
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    return _int(value) if isinstance(value, int) else ir.FloatAttr.get(ir.F64Type.get(), value)


_FLAG: Kind[bool] = Kind(
    "no value",
    lambda attr: isinstance(attr, ir.UnitAttr),
    lambda _: True,
    lambda _: ir.UnitAttr.get(),
)
_TEXT: Kind[str] = Kind(
    "a string",
    lambda attr: isinstance(attr, ir.StringAttr),
    lambda attr: str(attr.value),
    ir.StringAttr.get,
)
_TEXTS: Kind[list[str]] = Kind(
    "a list of strings",
    lambda attr: (
        isinstance(attr, ir.ArrayAttr) and all(isinstance(item, ir.StringAttr) for item in attr)
    ),
    lambda attr: [str(item.value) for item in attr],
    lambda texts: ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts]),
)
_TEXT_LISTS: Kind[Mapping[str, list[str]]] = Kind(
    "a list of strings per name",
    lambda attr: isinstance(attr, ir.DictAttr) and all(_TEXTS.matches(item.attr) for item in attr),
    lambda attr: {item.name: _TEXTS.read(item.attr) for item in attr},
    lambda lists: ir.DictAttr.get({name: _TEXTS.write(own) for name, own in lists.items()}),
)
_INT: Kind[int] = Kind("an i64", _is_int, lambda attr: int(attr.value), _int)
_INTS: Kind[list[int]] = Kind(
    "array<i64>",
    lambda attr: isinstance(attr, ir.DenseI64ArrayAttr),
    lambda attr: [int(item) for item in attr],
    lambda values: ir.DenseI64ArrayAttr.get(list(values)),
)
_VERSIONS: Kind[Mapping[str, int]] = Kind(
    "an i64 per domain",
    lambda attr: isinstance(attr, ir.DictAttr) and all(_is_int(item.attr) for item in attr),
    lambda attr: {item.name: int(item.attr.value) for item in attr},
    lambda versions: ir.DictAttr.get({name: _int(version) for name, version in versions.items()}),
)
_SETTINGS: Kind[Mapping[str, Setting]] = Kind(
    "a string, an i64 or an f64 per name",
    lambda attr: isinstance(attr, ir.DictAttr) and all(_is_setting(item.attr) for item in attr),
    lambda attr: {item.name: item.attr.value for item in attr},
    lambda settings: ir.DictAttr.get({name: _setting(own) for name, own in settings.items()}),
)
_LAYOUT: Kind[Layout] = Kind(
    "#topt.layout", lambda attr: isinstance(attr, LayoutAttr), layout_of, layout_attr
)
_RULE: Kind[NamedRule] = Kind(
    "#topt.rule", lambda attr: isinstance(attr, RuleAttr), rule_of_attr, rule_attr
)
_STRATEGY: Kind[tuple[list[Layout], list[Layout]]] = Kind(
    "#topt.strategy",
    lambda attr: isinstance(attr, StrategyAttr),
    layouts_of_strategy,
    lambda sides: strategy_attr(*sides),
)

KEYS: dict[str, Key[Any]] = {}
"""Every key by its full name."""


def _key(name: str, kind: Kind[T], *places: str) -> Key[T]:
    key = Key(PREFIX + name, kind, places)
    KEYS[key.name] = key
    return key


MODEL = _key("model", _TEXT, MODULE)
"""The name of the file that the module was imported from."""
OPSET = _key("opset", _VERSIONS, MODULE)
"""The version of each domain; the standard one is `ai.onnx`."""
IR_VERSION = _key("ir_version", _INT, MODULE)
"""The IR version of the ONNX file."""
ANNOTATED = _key("annotated", _TEXTS, MODULE)
"""The configurations of the multi-device annotations in the ONNX file, if it has any."""
DEVICE = _key("device", _TEXT, MODULE)
"""The device description of the search."""
MERGED = _key("merged", _TEXTS, MODULE)
"""Initializers that are stored once but read under several names."""
LOST = _key("lost", _TEXTS, MODULE)
"""Parameters of the PyTorch model that the exporter folded into others or left out."""
TIED = _key("tied", _TEXT_LISTS, MODULE)
"""Other names of weights in the PyTorch model, by weight."""
SCORED = _key("scored", _TEXT_LISTS, MODULE)
"""The nodes of attention of a training step that have no kernel, by the reason."""
MISSING = _key("missing", _TEXTS, MODULE)
"""The files of external data that were missing at import."""
UNTIED = _key("untied", _FLAG, MODULE)
"""Weights in missing files may be transposed copies of others: they were not compared."""
ORDERED = _key("ordered", _FLAG, MODULE)
"""Peak memory depends on the order of operations: sessions of the graphs must keep the order."""

OVERLAP = _key("overlap", _TEXT, MODULE)
"""Overlap of collectives with operators: `off`, `auto` (the default), or `ample`, which may raise
peak memory."""

LAUNCH = _key("launch", _TEXT, MODULE)
"""The launches of a step: each node (`nodes`, the default), or one CUDA `graph`."""

RANGES = _key("ranges", _SETTINGS, MODULE)
"""The ranges of open dimensions by name: `1..4096`, `8..64:8`."""

NAMED_SIZES = _key("named_sizes", _SETTINGS, MODULE)
"""The sizes of dimensions that the user fixed, by name: the plan has them."""

PASSED = _key("passed", _TEXT, MODULE)
"""The last phase, one of `PHASE_NAMES`, that the module has passed; missing before the first."""
TRAINING = _key("training", _SETTINGS, MODULE)
"""The options that the training step was built with."""
SEARCH = _key("search", _SETTINGS, MODULE)
"""The search that found the strategies: its `name`, and `seed` and `epsilon` if it has them.
`strategies` is the fingerprint of its result, which detects strategies that were edited later."""
PINS = _key("pins", _TEXT_LISTS, MODULE)
"""The constraints of the search as text: `pin`, `forbid`, `annotations` (a file)."""
PINS_COST = _key("pins_cost", _SETTINGS, MODULE)
"""Their relative cost: `time` at the fastest point, `memory` at the leanest point."""

PLACES = _key("places", _INTS, MODULE)
"""The stage of each chunk, if the program is cut into chunks."""
SCHEDULE = _key("schedule", _TEXTS, MODULE)
"""The tasks of each stage in their order, such as `F0 F1 B0 B1`; in inference of one input."""
STAGE_DEVICES = _key("stage_devices", _TEXTS, MODULE)
"""The name of the device of each stage, if these are unlike."""
REPLICAS = _key("replicas", _INTS, MODULE)
"""The number of micro-batches of each replica, if the step has replicas."""
REPLICA_DEVICES = _key("replica_devices", _TEXTS, MODULE)
"""The name of the device of each replica."""
PIPELINE = _key("pipeline", _SETTINGS, MODULE)
"""Predicted times of a program in stages or of replicas: `time_s` as points of the frontier have
it, and `compute_s` and `communication_s` of a stage, or of the slowest replica. In inference in
stages `latency_s` is the time of one input, and `interval_s` the time between results of a stream
of inputs."""

NAME = _key("name", _TEXT, ARGUMENT, RESULT)
"""The name that the ONNX graph gives the tensor."""
DIMS = _key("dims", _TEXTS, ARGUMENT, RESULT)
"""The name of each dimension, empty if it has none."""
LAYOUT = _key("layout", _LAYOUT, ARGUMENT, RESULT)
"""The layout of the tensor."""
PARAM = _key("param", _FLAG, ARGUMENT)
"""The argument is a weight, stored in the model file."""
LISTED = _key("listed", _FLAG, ARGUMENT)
"""The exporter lists the argument as a trainable parameter of the model."""
FIXED = _key("fixed", _FLAG, ARGUMENT)
"""The argument is a weight that the exporter does not list as a parameter."""
TRIANGLE = _key("triangle", _TEXT, ARGUMENT)
"""The kind of causal mask that the argument is: it `hides` later keys, or is true for `earlier` or
`later` ones."""
STATE = _key("state", _TEXT, ARGUMENT)
"""The kind of state that the argument is, which a training step takes and returns."""
OF = _key("of", _TEXT, ARGUMENT)
"""The name of the parameter that the state belongs to."""
HYPER = _key("hyper", _TEXT, ARGUMENT)
"""The name of the scalar that the argument passes to every step, such as `learning_rate`."""
CLASSES = _key("classes", _INT, ARGUMENT)
"""The number of classes, on labels."""
UPDATES = _key("updates", _TEXT, RESULT)
"""The name of the argument that the result becomes in the next step."""
CACHE = _key("cache", _TEXT, RESULT)
"""Like `topt.updates`, for a decoder's cache of keys or values, with a length that may change. With
both, the result is written into the memory of the argument, which has room for it."""

RECOMPUTE = _key("recompute", _TEXT, OPERATION)
"""On a function: the recompute policy of a training step without clones, which the search
writes."""
MICRO_BATCHES = _key("micro_batches", _INT, OPERATION)
"""On a function: the number of micro-batches of a step, if more than 1."""
REGIONS = _key("regions", _TEXTS, OPERATION)
"""The ONNX attribute that each region of the operation represents."""
RULE = _key("rule", _RULE, OPERATION)
"""The sharding rule of the operation."""
STRATEGY = _key("strategy", _STRATEGY, OPERATION)
"""The layouts of the operands, of the values that regions capture, and of the results."""
PHASE = _key("phase", _TEXT, OPERATION)
"""The part of the training step, one of `STEP_PARTS`, that the operation belongs to."""
CHUNK = _key("chunk", _INT, OPERATION)
"""The number of the chunk that the operation belongs to."""
GRADIENT_OF = _key("gradient_of", _TEXT, OPERATION)
"""The name of the parameter; the result is its gradient over the whole batch."""
NORM = _key("norm", _FLAG, OPERATION)
"""The operation computes the sum of the squares of all gradients."""
STAGES = _key("stages", _FLAG, OPERATION)
"""On an all-reduce along no mesh axis: it runs over the ranks with one place in all stages, or in
all replicas."""
ID = _key("id", _INT, OPERATION, ARGUMENT)
"""A unique number, by which others refer to it."""
FOLLOWS = _key("follows", _INT, OPERATION, ARGUMENT, RESULT)
"""The number of its leader, the operation or argument that decides its strategy."""
REPEATS = _key("repeats", _INT, OPERATION)
"""The number of the operation that it recomputes, with the same strategy."""
GRADIENTS = _key("gradients", _INTS, OPERATION)
"""On a leader, groups of four numbers: (operation, result) of a value of its forward part, and
(operation, result) of the gradient of that value."""
TOGETHER = _key("together", _INT, OPERATION)
"""On a collective: the number of consecutive collectives, from this one, that are fused."""
START = _key("start", _FLAG, OPERATION)
"""On a collective, or on the first of a fused group: it starts here and ends where `topt.wait`
reads its result."""
TAKES = _key("takes", _SETTINGS, OPERATION)
"""On the operations that a rank runs for one operation of the search: the number `node` of the
latter, and its total time: `compute_s`, and `sent_s` in inner collectives. Only set if collectives
can overlap operators."""

SEARCHED = frozenset(key.name for key in (RULE, STRATEGY, ID, FOLLOWS, REPEATS, GRADIENTS))
"""Attributes that the search reads and writes; `partition` drops them, as its operations differ."""
