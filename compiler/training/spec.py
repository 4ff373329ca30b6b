"""The training options: loss, optimizer, micro-batches, precision and recomputation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError, did_you_mean

__all__ = [
    "AUTO",
    "CROSS_ENTROPY",
    "LOSSES",
    "OPTIMIZERS",
    "PRECISIONS",
    "RECOMPUTE",
    "Group",
    "Loss",
    "Optimizer",
    "TrainingSpec",
    "check_patterns",
    "check_rows",
    "parse_groups",
    "parse_loss",
    "parse_patterns",
    "parse_rows",
    "parse_weights",
    "pattern_of",
]

CROSS_ENTROPY = "softmax-cross-entropy"
LOSSES = ("output", CROSS_ENTROPY, "mse")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
PRECISIONS = ("float32", "float16", "bfloat16")
RECOMPUTE = ("none", "light", "half", "blocks")
AUTO = "auto"
"""Policy of recomputation: the search chooses one of :data:`RECOMPUTE`."""


@dataclass(frozen=True)
class Loss:
    """A loss: ``kind`` is one of :data:`LOSSES`; ``output`` names an output of the model.

    With ``kind`` "output", the output is the loss itself, a scalar. Otherwise ``labels`` names the
    input that it is compared with: class indices (int64), one for each position in all dimensions
    except the last, or for "mse" values of the output's shape.

    The cross entropy has the parameters of PyTorch's: labels equal to ``ignore_index`` do not
    count, ``label_smoothing`` is the part of the probability that all classes share, and
    ``class_weights`` are one number per class, none if all are 1.
    """

    kind: str
    output: str
    labels: str | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        index, smoothing = self.ignore_index, self.label_smoothing
        _check(-(2**31) <= index < 2**31, "ignore index", "an int32 number", index)
        _check(0 <= smoothing <= 1, "label smoothing", "from 0 to 1", smoothing)
        for weight in self.class_weights:
            _check(0 <= weight < _MOST, "class weights", "finite numbers from 0", weight)

    @property
    def counts_labels(self) -> bool:
        """True if the loss is a mean over the labels that count, over a whole step."""
        return self.kind == CROSS_ENTROPY

    def __str__(self) -> str:
        names = self.output if self.labels is None else f"{self.output},{self.labels}"
        return f"{self.kind}:{names}"


def parse_loss(text: str) -> Loss:
    """Parse a loss, ``output:NAME`` or ``KIND:OUTPUT,LABELS``.

    Raises UserError for a kind outside :data:`LOSSES` and for missing names.
    """
    kind, _, names = text.partition(":")
    check_known("loss: unknown kind", kind, LOSSES)
    if kind == "output":
        output, labels = names, None
    else:
        output, _, labels = names.rpartition(",")
    if not output or labels == "":
        form = "output:NAME" if kind == "output" else f"{kind}:OUTPUT,LABELS"
        raise UserError(f"loss: expected {form}, got: '{text}'")
    return Loss(kind, output, labels)


def parse_weights(text: str) -> tuple[float, ...]:
    """Parse the weights of classes, separated by commas. Raises UserError."""
    try:
        return tuple(map(float, filter(None, text.split(","))))
    except ValueError:
        raise UserError(f"class weights: expected numbers such as 1,0.5, got: '{text}'") from None


def parse_patterns(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of patterns of parameter names."""
    return tuple(pattern for pattern in text.split(",") if pattern)


def check_patterns(
    flag: str, patterns: Sequence[str], names: Sequence[str], none: str = "no weight"
) -> None:
    """Raise UserError, naming ``flag``, for a pattern that matches none of ``names``."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = did_you_mean(pattern, names)
            raise UserError(f"{flag}: '{pattern}' matches {none}{near}")


def parse_rows(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Parse rows by weight, such as ``NAME=0,3;OTHER=-1``. Raises UserError."""
    found = []
    for entry in filter(None, text.split(";")):
        name, _, numbers = entry.rpartition("=")
        try:
            rows = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            rows = ()
        if not name or not rows:
            raise UserError(f"--freeze-rows: expected NAME=ROW,... such as w=0, got: '{entry}'")
        found.append((name, rows))
    return tuple(found)


def check_rows(rows: Sequence[tuple[str, Sequence[int]]], sizes: Mapping[str, int | None]) -> None:
    """Raise UserError for rows that no weight has; ``sizes`` maps weights to numbers of rows."""
    for name, numbers in rows:
        size = sizes.get(name)
        if size is None:
            near = did_you_mean(name, sizes)
            raise UserError(f"--freeze-rows: '{name}' is not a weight with rows{near}")
        for number in numbers:
            if not -size <= number < size:
                raise UserError(
                    f"--freeze-rows {name}={number}: expected a row from 0 to {size - 1}"
                )


def pattern_of(name: str) -> str:
    """Return a pattern that matches ``name``; commas, which separate patterns, become wildcards."""
    return "".join("?" if c == "," else f"[{c}]" if c in "[*?" else c for c in name)


@dataclass(frozen=True)
class Optimizer:
    """An optimizer; ``name`` is one of :data:`OPTIMIZERS`, in any case: PyTorch has ``AdamW``.

    The learning rate is an input of every step. SGD: w - lr (g + decay w). Momentum: v' = momentum
    v + g, w - lr v' (as in PyTorch). Adam and AdamW: Kingma and Ba, algorithm 1; Loshchilov and
    Hutter, algorithm 2 (decay apart from the gradient).
    """

    name: str
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name.lower() in OPTIMIZERS:
            object.__setattr__(self, "name", self.name.lower())
        check_known("optimizer: unknown name", self.name, OPTIMIZERS)
        for what in ("momentum", "beta1", "beta2"):
            value = getattr(self, what)
            _check(0 <= value < 1, what, "at least 0 and below 1", value)
        _check(0 < self.epsilon < 1, "epsilon", "above 0 and below 1", self.epsilon)
        decays = 0 <= self.weight_decay < _MOST
        _check(decays, "weight decay", "0 or more", self.weight_decay)


@dataclass(frozen=True)
class Group:
    """Parameters with a name that matches a pattern, and options of their own.

    Their learning rate is ``rate_factor`` times the step's. A ``weight_decay`` of None is the
    optimizer's.
    """

    patterns: tuple[str, ...]
    weight_decay: float | None = None
    rate_factor: float = 1.0

    def __post_init__(self) -> None:
        decay, factor = self.weight_decay, self.rate_factor
        _check(decay is None or 0 <= decay < _MOST, "--group", "a weight decay of 0 or more", decay)
        _check(0 <= factor < _MOST, "--group", "a rate factor of 0 or more", factor)

    def has(self, name: str) -> bool:
        """Return whether a parameter is in the group."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def __str__(self) -> str:
        options = [f"rate-factor={self.rate_factor}"]
        if self.weight_decay is not None:
            options.append(f"weight-decay={self.weight_decay}")
        return f"{','.join(self.patterns)}:{','.join(options)}"


def parse_groups(text: str) -> tuple[Group, ...]:
    """Parse groups such as ``*.bias,*norm*:weight-decay=0;head.*:rate-factor=10``.

    Raises UserError.
    """
    return tuple(_parse_group(entry) for entry in filter(None, text.split(";")))


def _parse_group(text: str) -> Group:
    names, _, options = text.rpartition(":")
    pairs = [option.partition("=")[::2] for option in options.split(",")]
    try:
        given = {key: float(value) for key, value in pairs}
    except ValueError:
        given = {}
    patterns = parse_patterns(names)
    if not patterns or not given or given.keys() - {"weight-decay", "rate-factor"}:
        form = "PATTERN,...:weight-decay=D,rate-factor=F (one or both)"
        raise UserError(f"--group: expected {form}, got: '{text}'")
    return Group(patterns, given.get("weight-decay"), given.get("rate-factor", 1.0))


@dataclass(frozen=True)
class TrainingSpec:
    """The options of one training step.

    Gradients are summed over ``micro_batches`` batches and divided by their number. ``clip_norm``
    bounds the global norm of the gradients. With a narrow ``precision`` the forward and backward
    passes compute in that type, on copies of float32 parameters; with float16 an input scales the
    loss. ``recompute`` selects the activations to recompute in the backward pass: "none"; "light":
    all except results of products and convolutions; "half" and "blocks": everything inside every
    second or every repeated block. Parameters that match a pattern of ``freeze`` are not trained.
    ``freeze_rows`` lists rows of weights, by name, that get no gradient, as with PyTorch's
    ``padding_idx``. Of ``groups`` the first with a parameter has its options.
    """

    loss: Loss
    optimizer: Optimizer = field(default_factory=lambda: Optimizer("adamw"))
    micro_batches: int = 1
    clip_norm: float | None = None
    precision: str = "float32"
    recompute: str = "none"
    freeze: tuple[str, ...] = ()
    freeze_rows: tuple[tuple[str, tuple[int, ...]], ...] = ()
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        check_known("precision: unknown type", self.precision, PRECISIONS)
        check_known("recompute: unknown policy", self.recompute, (*RECOMPUTE, AUTO))
        _check(self.micro_batches >= 1, "micro batches", "1 or more", self.micro_batches)
        if self.clip_norm is not None:
            _check(0 < self.clip_norm < _MOST, "clip norm", "above 0", self.clip_norm)

    @property
    def scales_loss(self) -> bool:
        """True if the step has a loss scale as input; bfloat16 has enough range without it."""
        return self.precision == "float16"


_MOST = float("inf")


def _check(holds: bool, what: str, expected: str, got: float | None) -> None:
    """Raise UserError about a number unless ``holds``; NaN satisfies no condition."""
    if not holds:
        raise UserError(f"{what}: expected {expected}, got: {got}")
