"""Check that the samples of a batch are combined only in the mean of the loss.

A step may then split them into any number of micro-batches, with equal results up to rounding. A
batch that is split over ranks shows it: an op combines samples if the split does not pass through
it without communication.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.program.graph import Argument, Graph, Op
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.layout import PARTIAL_SUM, REPLICATE, Placement, split

__all__ = ["check_samples"]

_FLAG = "--micro-batches"
_LOSS = "SoftmaxCrossEntropyLoss"
_SCORES_AND_LABELS = 2


def check_samples(graph: Graph, *, is_mean: bool) -> None:
    """Raise UserError if an op of the forward pass of a training step combines samples.

    ``is_mean`` means that the loss is known to be their mean; else an op has to compute the mean.
    Linear in the operands, times the loops of each op.
    """
    placed: dict[int, Placement] = {}
    for node in graph.nodes:
        if isinstance(node, Argument) and node.is_fed:
            is_scalar = all(_rank(graph, value) == 0 for value in node.results)
            placed |= dict.fromkeys(node.results, REPLICATE if is_scalar else split(0))
        elif isinstance(node, Op) and node.phase == "forward":
            held = [REPLICATE if v is None else placed.get(v, REPLICATE) for v in node.operands]
            made = _place_results(node, held)
            if not is_mean and _adds_up(held, made) and not _is_mean(node):
                raise _refused(node, "adds samples up")
            placed |= dict(zip(node.results, made, strict=True))


def _rank(graph: Graph, value: int) -> int | None:
    info = graph.values[value].info
    return None if info is None else info.rank


def _place_results(node: Op, held: Sequence[Placement]) -> Sequence[Placement]:
    """Return the placements of the results of an op without communication."""
    if all(own == REPLICATE for own in held):
        return [REPLICATE] * len(node.results)
    fewest, found = len(held) + 1, None
    for role in axis_roles(node.rule):
        wanted, made = placements(node.rule, role)
        cuts = sum(a != b for a, b in zip(held, wanted, strict=False))
        if cuts < fewest and _passes(held, wanted) and not _sends(node, role):
            fewest, found = cuts, made
    if found is None:
        raise _refused(node, "lets samples meet")
    return found


def _passes(held: Sequence[Placement], wanted: Sequence[Placement]) -> bool:
    """Return whether operands have the wanted placements, or can be sliced to them."""
    pairs = zip(held, wanted, strict=False)
    return all(own == want or (own == REPLICATE and want.is_split) for own, want in pairs)


def _sends(node: Op, role: AxisRole) -> bool:
    """Return whether an op communicates inside.

    The mean of a loss sends only the number of labels, which is known unless some are ignored.
    """
    info = node.info
    if info.name == _LOSS and len(node.operands) == _SCORES_AND_LABELS:
        return info.attribute("ignore_index", None) is not None
    return any(role in step.factors for step in node.rule.inner if not step.is_local)


def _adds_up(held: Sequence[Placement], made: Sequence[Placement]) -> bool:
    return PARTIAL_SUM in made and PARTIAL_SUM not in held


def _is_mean(node: Op) -> bool:
    is_loss = node.info.name == _LOSS and node.info.attribute("reduction", "mean") == "mean"
    return is_loss or node.info.name == "ReduceMean"


def _refused(node: Op, what: str) -> UserError:
    return UserError(
        f"{_FLAG}: node '{node.name}' {what}, so that another number of micro-batches is another "
        "step; expected one number"
    )
