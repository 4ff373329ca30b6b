"""Reductions, in the form of each opset; what searches, orders and accumulates along an axis."""

from __future__ import annotations

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker

EXACT = {"ReduceSum": "linear", "ReduceMax": "move", "ReduceMin": "move"}
KINDS = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1",
         "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")  # fmt: skip


@maker(5.0)
def reduction(b: Builder) -> None:
    kind, x = b.choose(KINDS), b.pick(lambda v: v.dtype != "bool")
    # Of nothing, ONNX Runtime keeps axes that are counted from the end, and infers otherwise.
    negative = 0.4 if x.array.size else 0.0
    axes = [a - x.rank if b.flip(negative) else a for a in b.subset(x.rank)]
    held = {"keepdims": b.choose((None, 0, 1))}
    exact = EXACT.get(kind, "no")
    if not axes and b.flip(0.3) and (b.opset >= 18 or kind == "ReduceSum"):
        noop = b.choose((None, 0, 1))
        b.add(kind, x, b.numbers_of([]), noop_with_empty_axes=noop, exact=exact, **held)
    elif not axes or b.flip(0.15):
        if b.flip(0.3) and (b.opset >= 18 or kind == "ReduceSum"):
            held["noop_with_empty_axes"] = b.integer(0, 1)
        b.add(kind, x, exact=exact, **held)
    elif b.opset >= 18 or kind == "ReduceSum":
        b.add(kind, x, b.numbers_of(axes), exact=exact, **held)
    else:
        b.add(kind, x, axes=axes, exact=exact, **held)


@maker(2.0)
def extreme(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0 and v.array.size > 0)  # as above
    held = {
        "axis": b.axis(x.rank),
        "keepdims": b.choose((None, 0, 1)),
        "select_last_index": b.choose((None, 0, 1)),
    }
    b.add(b.choose(("ArgMax", "ArgMin")), x, exact="jump", **held)


@maker(2.0)
def best(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axis = b.axis(x.rank)
    if not x.shape[axis]:
        raise UnsuitableError("nothing to choose from")
    count = b.numbers_of([b.integer(0, x.shape[axis])])
    largest = b.choose((None, 0, 1))
    b.add("TopK", x, count, results=2, axis=axis, largest=largest, exact="jump")


@maker(1.5)
def cumulative(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    held = {"exclusive": b.choose((None, 1)), "reverse": b.choose((None, 1))}
    axis = b.numbers_of(b.axis(x.rank), b.choose(("int64", "int32")))
    b.add("CumSum", x, axis, exact="linear", **held)


@maker(0.7)
def nonzero(b: Builder) -> None:
    b.add("NonZero", b.pick(lambda v: v.bits is not None), exact="jump")


@maker(0.4)
def distinct(b: Builder) -> None:
    x = b.pick(lambda v: v.bits is not None)
    axis = b.axis(x.rank) if x.rank and b.flip() else None
    b.add("Unique", x, axis=axis, sorted=b.choose((None, 0, 1)), exact="jump",
          results=b.choose((1, 2, 4)))  # fmt: skip


def along(b: Builder, x: Value) -> int | None:
    return b.axis(x.rank) if b.flip(0.8) else None


@maker(2.5)
def softmax(b: Builder) -> None:
    x = b.float(least=1)
    b.add(b.choose(("Softmax", "LogSoftmax")), x, axis=along(b, x))


@maker(0.5)
def hardmax(b: Builder) -> None:
    x = b.float(least=1)
    b.add("Hardmax", x, axis=along(b, x), exact="jump")
