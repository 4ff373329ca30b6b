"""The attributes that operations, arguments, results and the module carry for us: `topt.*`.

Each is one :class:`Key`, which reads and writes its Python value: ``PHASE.get(op.attributes)``.
What holds attributes is an operation's ``attributes``, or the dictionary of an argument or result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

from tensoropt.compiler.layout.layout import Layout
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

__all__ = [
    "ANNOTATED",
    "ARGUMENT",
    "CACHE",
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
    "LAYOUT",
    "LISTED",
    "LOST",
    "MERGED",
    "MICRO_BATCHES",
    "MODEL",
    "MODULE",
    "NAME",
    "NORM",
    "OF",
    "OPERATION",
    "OPSET",
    "OVERLAP",
    "PARAM",
    "PASSED",
    "PHASE",
    "PHASES",
    "PINS",
    "PINS_COST",
    "PIPELINE",
    "PREFIX",
    "RANGES",
    "RECOMPUTE",
    "REGIONS",
    "REPEATS",
    "RESULT",
    "RULE",
    "SEARCH",
    "SEARCHED",
    "START",
    "STATE",
    "STRATEGY",
    "TAKES",
    "TOGETHER",
    "TRAINING",
    "UPDATES",
    "Carried",
    "Key",
]

T = TypeVar("T")

Setting = str | int | float
"""What was asked for under a name; what was not is left out."""

PREFIX = "topt."

MODULE, OPERATION, ARGUMENT, RESULT = "the module", "an operation", "an argument", "a result"


class Carried(Protocol):
    """What holds attributes: those of an operation, or a dictionary."""

    def __contains__(self, name: str, /) -> bool: ...
    def __getitem__(self, name: str, /) -> ir.Attribute: ...


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What a key can hold: how it is called, recognised, read and written."""

    expected: str
    matches: Callable[[ir.Attribute], bool]
    read: Callable[[Any], T]
    write: Callable[[T], ir.Attribute]


@dataclass(frozen=True)
class Key(Generic[T]):
    """One attribute: its whole name, what it holds, and what may carry it."""

    name: str
    kind: Kind[T]
    places: tuple[str, ...]

    def on(self, attributes: Carried) -> bool:
        """Say whether ``attributes`` has the attribute."""
        return self.name in attributes

    @overload
    def get(self, attributes: Carried) -> T | None: ...
    @overload
    def get(self, attributes: Carried, default: T) -> T: ...
    def get(self, attributes: Carried, default: T | None = None) -> T | None:
        """Return what ``attributes`` has under this key, ``default`` if it has nothing."""
        return self.kind.read(attributes[self.name]) if self.name in attributes else default

    def of(self, attributes: Carried) -> T:
        """Return what ``attributes`` has under this key; raises KeyError if it has nothing."""
        return self.kind.read(attributes[self.name])

    def set(self, attributes: ir.OpAttributeMap | dict[str, ir.Attribute], value: T) -> None:
        """Write ``value`` into the attributes ``attributes`` of an operation."""
        attributes[self.name] = self.kind.write(value)

    def item(self, value: T) -> dict[str, ir.Attribute]:
        """Return the attribute by its name, to be put among others."""
        return {self.name: self.kind.write(value)}

    def remove(self, attributes: ir.OpAttributeMap | dict[str, ir.Attribute]) -> None:
        """Take the attribute away from ``attributes``, where it has it."""
        if self.name in attributes:
            del attributes[self.name]


def _is_int(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.IntegerAttr) and str(attribute.type) == "i64"


def _is_list_of(attribute: ir.Attribute, kind: type) -> bool:
    return isinstance(attribute, ir.ArrayAttr) and all(isinstance(one, kind) for one in attribute)


def _int(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _values(attribute: ir.DictAttr) -> list[ir.Attribute]:
    return [one.attr for one in attribute]


def _are_versions(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.DictAttr) and all(_is_int(one.attr) for one in attribute)


def _is_setting(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.StringAttr | ir.FloatAttr) or _is_int(attribute)


def _setting(value: Setting) -> ir.Attribute:
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    return _int(value) if isinstance(value, int) else ir.FloatAttr.get(ir.F64Type.get(), value)


_FLAG: Kind[bool] = Kind(
    "no value",
    lambda held: isinstance(held, ir.UnitAttr),
    lambda _: True,
    lambda _: ir.UnitAttr.get(),
)
_TEXT: Kind[str] = Kind(
    "a string",
    lambda held: isinstance(held, ir.StringAttr),
    lambda held: str(held.value),
    ir.StringAttr.get,
)
_TEXTS: Kind[list[str]] = Kind(
    "a list of strings",
    lambda held: _is_list_of(held, ir.StringAttr),
    lambda held: [str(one.value) for one in held],
    lambda texts: ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts]),
)
_TEXT_LISTS: Kind[Mapping[str, list[str]]] = Kind(
    "a list of strings per name",
    lambda held: isinstance(held, ir.DictAttr) and all(map(_TEXTS.matches, _values(held))),
    lambda held: {one.name: _TEXTS.read(one.attr) for one in held},
    lambda lists: ir.DictAttr.get({name: _TEXTS.write(own) for name, own in lists.items()}),
)
_INT: Kind[int] = Kind("an i64", _is_int, lambda held: int(held.value), _int)
_INTS: Kind[list[int]] = Kind(
    "array<i64>",
    lambda held: isinstance(held, ir.DenseI64ArrayAttr),
    lambda held: [int(one) for one in held],
    lambda values: ir.DenseI64ArrayAttr.get(list(values)),
)
_VERSIONS: Kind[Mapping[str, int]] = Kind(
    "an i64 per domain",
    _are_versions,
    lambda held: {one.name: int(one.attr.value) for one in held},
    lambda versions: ir.DictAttr.get({name: _int(version) for name, version in versions.items()}),
)
_SETTINGS: Kind[Mapping[str, Setting]] = Kind(
    "a string, an i64 or an f64 per name",
    lambda held: isinstance(held, ir.DictAttr) and all(_is_setting(one.attr) for one in held),
    lambda held: {one.name: one.attr.value for one in held},
    lambda settings: ir.DictAttr.get({name: _setting(own) for name, own in settings.items()}),
)
_LAYOUT: Kind[Layout] = Kind(
    "#topt.layout", lambda held: isinstance(held, LayoutAttr), layout_of, layout_attr
)
_RULE: Kind[NamedRule] = Kind(
    "#topt.rule", lambda held: isinstance(held, RuleAttr), rule_of_attr, rule_attr
)
_STRATEGY: Kind[tuple[list[Layout], list[Layout]]] = Kind(
    "#topt.strategy",
    lambda held: isinstance(held, StrategyAttr),
    layouts_of_strategy,
    lambda sides: strategy_attr(*sides),
)

KEYS: dict[str, Key[Any]] = {}
"""Every key by its whole name."""


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
"""The configurations of the multi-device annotations in the ONNX file, where it has any."""
DEVICE = _key("device", _TEXT, MODULE)
"""The device description of the search."""
MERGED = _key("merged", _TEXTS, MODULE)
"""Initializers that are stored once and read under several names."""
LOST = _key("lost", _TEXTS, MODULE)
"""Parameters of the PyTorch model that the exporter folded into others or left out."""
ORDERED = _key("ordered", _FLAG, MODULE)
"""The program takes more memory in another order: sessions of its graphs are to keep it."""

OVERLAP = _key("overlap", _TEXT, MODULE)
"""Whether collectives may run beside operators: `off`, or `auto`, as without it, or `ample`: though
the program then takes more memory."""

RANGES = _key("ranges", _SETTINGS, MODULE)
"""The sizes that dimensions without one size may have, by name: `1..4096`, `8..64:8`."""

PIPELINE = ("import", "prepare", "train", "rules", "search", "reshard", "partition")
"""The phases of the compiler, in order."""
PASSED = _key("passed", _TEXT, MODULE)
"""Which of :data:`PIPELINE` the module has passed; before the first there is none."""
TRAINING = _key("training", _SETTINGS, MODULE)
"""The options that the training step was built with."""
SEARCH = _key("search", _SETTINGS, MODULE)
"""What found the strategies: `name`, and where it has them `seed` and `epsilon`. `strategies` is
the fingerprint of what it found: strategies of another one were edited."""
PINS = _key("pins", _TEXT_LISTS, MODULE)
"""What the search had to heed, as it was written: `pin`, `forbid`, `annotations` (a file)."""
PINS_COST = _key("pins_cost", _SETTINGS, MODULE)
"""What that cost, relatively: `time` at the fastest point, `memory` at the leanest."""

NAME = _key("name", _TEXT, ARGUMENT, RESULT)
"""The name that the ONNX graph gives the tensor."""
DIMS = _key("dims", _TEXTS, ARGUMENT, RESULT)
"""A name for each dimension, empty for those that have none."""
LAYOUT = _key("layout", _LAYOUT, ARGUMENT, RESULT)
"""How the tensor lies over the ranks."""
PARAM = _key("param", _FLAG, ARGUMENT)
"""The argument is a weight, whose bytes lie in the model file."""
LISTED = _key("listed", _FLAG, ARGUMENT)
"""The exporter names this as a parameter of the model, to be trained."""
FIXED = _key("fixed", _FLAG, ARGUMENT)
"""The argument is a weight that the exporter does not call a parameter."""
STATE = _key("state", _TEXT, ARGUMENT)
"""What the argument is to a training step that is given it and gives it back."""
OF = _key("of", _TEXT, ARGUMENT)
"""The name of the parameter that the state is kept for."""
HYPER = _key("hyper", _TEXT, ARGUMENT)
"""Which of the scalars that every step is given the argument is, such as `learning_rate`."""
CLASSES = _key("classes", _INT, ARGUMENT)
"""Labels: how many classes there are."""
UPDATES = _key("updates", _TEXT, RESULT)
"""The name of the argument whose value in the next step the result is."""
CACHE = _key("cache", _TEXT, RESULT)
"""The same of a decoder's cache of keys or values, which may be of another length. With
`topt.updates` as well, it is written into the memory of the argument, which has room for it."""

RECOMPUTE = _key("recompute", _TEXT, OPERATION)
"""On a function: what this way to build the training step computes anew."""
MICRO_BATCHES = _key("micro_batches", _INT, OPERATION)
"""On a function: how often a step runs what is not its update, where that is more than once."""
REGIONS = _key("regions", _TEXTS, OPERATION)
"""The ONNX attribute that each region of the operation stands for."""
RULE = _key("rule", _RULE, OPERATION)
"""How the operation may be split."""
STRATEGY = _key("strategy", _STRATEGY, OPERATION)
"""The layouts of the operands, and of what the regions capture, and of the results."""
PHASES = ("forward", "recompute", "backward", "update")
"""In which order they run; the first three make the graph of gradients, the last is one of its own.
Recomputation runs among the backward ops."""
PHASE = _key("phase", _TEXT, OPERATION)
"""Which of :data:`PHASES` of a training step the operation belongs to."""
GRADIENT_OF = _key("gradient_of", _TEXT, OPERATION)
"""The name of the parameter whose gradient, of the whole batch, is the result."""
NORM = _key("norm", _FLAG, OPERATION)
"""The operation adds up the squares of all gradients."""
ID = _key("id", _INT, OPERATION, ARGUMENT)
"""A number of its own, by which others refer to it."""
FOLLOWS = _key("follows", _INT, OPERATION, ARGUMENT, RESULT)
"""The number of the operation or argument whose strategy decides that of this one."""
REPEATS = _key("repeats", _INT, OPERATION)
"""The number of the operation that this one computes anew, with the same strategy."""
GRADIENTS = _key("gradients", _INTS, OPERATION)
"""On an operation that others follow, numbers in fours: (operation, result) of a value of its
forward part, (operation, result) of the gradient of that value."""
TOGETHER = _key("together", _INT, OPERATION)
"""On a collective: how many, this one and those behind it, are sent as one."""
START = _key("start", _FLAG, OPERATION)
"""On a collective, the first of those sent as one: it begins here, and ends where `topt.wait` reads
its result."""
TAKES = _key("takes", _SETTINGS, OPERATION)
"""On all that one rank runs of an operation that the search knew as one: its number `node`, and
what it takes as a whole: `compute_s`, and `sent_s` in collectives inside. Only where collectives
run beside operators."""

SEARCHED = frozenset(key.name for key in (RULE, STRATEGY, ID, FOLLOWS, REPEATS, GRADIENTS))
"""What the search reads and writes; the program of one rank, whose operations are others, is
without it."""
