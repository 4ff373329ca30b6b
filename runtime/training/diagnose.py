"""Which value of a step was the first that is not a number: every value of the graph looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tensoropt.runtime.provider import PlacedArray, Provider
from tensoropt.runtime.session import Session, every_value_session
from tensoropt.runtime.training.finite import all_finite
from tensoropt.runtime.training.step import Step

__all__ = ["first_not_finite"]


class _Place(NamedTuple):
    """``order`` counts nodes of the graph; what is fed comes before them."""

    order: int
    rank: int
    what: str


def first_not_finite(step: Step, threads: int, comm: Any) -> str | None:
    """Return what is NaN or infinite first, over all ranks, in the run that ``step`` is fed for.

    Every rank calls this. The graph runs once more, unoptimised, with every value an output: it
    takes the memory of all of them where the rank computes, and of the largest on the host.
    Gradients are lost. None where this run has no such value.
    """
    found = _fed(step, comm.rank)
    # All ranks have to run: their collectives wait for each other.
    found = _computed(step, threads, comm.rank, found)
    places = sorted(place for place in comm.allgather(found) if place is not None)
    return f"{places[0].what} on rank {places[0].rank}" if places else None


def _fed(step: Step, rank: int) -> _Place | None:
    for kind, arrays in (("input", step.batch), ("state", step.held.state)):
        for name, array in arrays.items():
            if not all_finite(array.get()):
                return _Place(-1, rank, f"{kind} '{name}'")
    return None


def _computed(step: Step, threads: int, rank: int, fed: _Place | None) -> _Place | None:
    nodes, session = _every_value(step.plan.plan.graph(rank), threads, step.held.provider)
    arrays = _read(step)
    for name in session.inputs:
        session.read(name, arrays[name])
    session.run()
    if fed is not None:
        return fed
    wrong = {name for name, array in session.results() if not all_finite(array)}
    for order, (what, outputs) in enumerate(nodes):
        for name in outputs:
            if name in wrong:
                return _Place(order, rank, f"'{name}' of {what}")
    return None


def _read(step: Step) -> dict[str, PlacedArray]:
    """Return all that the graph may read; what gradients are added to is zeros."""
    step.start()
    arrays = {**step.batch, **step.scalars, **step.held.state}
    for gradient in step.plan.gradients:
        if gradient.accumulator is not None:
            arrays[gradient.accumulator] = step.held.gradients[gradient.tensor.name]
    return arrays


def _every_value(
    graph: Path, threads: int, provider: Provider
) -> tuple[list[tuple[str, list[str]]], Session]:
    """Return the nodes with their outputs, and a session that returns all of these."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    nodes = [
        (f"{node.op_type} node '{node.name}'", [name for name in node.output if name])
        for node in model.graph.node
    ]
    held = {output.name for output in model.graph.output}
    for _, outputs in nodes:
        for name in outputs:
            if name not in held:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    text = model.SerializeToString()
    return nodes, every_value_session(text, graph.parent, threads, provider=provider)
