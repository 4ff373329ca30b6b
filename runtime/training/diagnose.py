"""Diagnosis of NaN and infinity: searches every value of a step's graph for the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tensoropt.runtime.device.provider import PlacedArray, Provider
from tensoropt.runtime.plan.graphs import graph_task
from tensoropt.runtime.session.session import VALUE_RUNS, RankSession, every_value_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.finite import all_finite
from tensoropt.runtime.training.staged import StagedStep
from tensoropt.runtime.training.step import TrainingStep

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["first_not_finite"]


class _Place(NamedTuple):
    """A value that is not finite; ``order`` is the number of its node, -1 for inputs and state."""

    order: int
    rank: int
    value: str


def first_not_finite(
    step: TrainingStep | StagedStep,
    micro: int,
    seed: Callable[[int], int],
    batch: Callable[[int], Mapping[str, Array]],
    threads: int,
    comm: MPI.Comm,
) -> str | None:
    """Return the first NaN or infinite value, over all ranks, in a micro-batch.

    ``seed`` and ``batch`` return the seed and the inputs of a micro-batch. All ranks must call
    this. The graph runs again, unoptimised, with the results of an eighth of the nodes as outputs
    in each run, to limit memory on the device. It stops after a run with a value that is not
    finite. With stages, the optimised graphs run, and the first value that is not finite is
    returned. Gradients are overwritten. Returns None if all values are finite.
    """
    if isinstance(step, StagedStep):
        return _first_among_graphs(step, micro, seed, batch, comm)
    inputs = batch(micro)
    step.set("seed", seed(micro))
    step.feed(inputs)
    found = comm.allgather(_check_inputs(inputs, step.held.state, comm.rank))
    for part in range(VALUE_RUNS):
        if any(found):
            break
        # All ranks must run, as their collectives wait for each other.
        found = comm.allgather(_check_nodes(step, threads, comm.rank, part))
    place = _first(found)
    return None if place is None else f"{place.value} on rank {place.rank}"


def _first_among_graphs(
    step: StagedStep,
    micro: int,
    seed: Callable[[int], int],
    batch: Callable[[int], Mapping[str, Array]],
    comm: MPI.Comm,
) -> str | None:
    step.start()
    read: dict[str, Array] = {}

    def inputs(number: int) -> Mapping[str, Array]:
        read.update(batch(number))
        return read

    own = _check_inputs({}, step.held.state, comm.rank)
    for order, graph in enumerate(step.stages.chunk_graphs):
        if graph in step.sessions:
            step.run(graph_task(graph, micro), seed, inputs)
            own = own or _check_inputs(read, {}, comm.rank)
            names = () if own is not None else step.not_finite(graph)
            own = _Place(order, comm.rank, f"'{names[0]}' of {graph}") if names else own
    step.end_sends()
    place = _first(comm.allgather(own))
    if place is None:
        return None
    return f"{place.value} on rank {place.rank} of stage {step.plan.stage(place.rank)}"


def _first(found: Iterable[_Place | None]) -> _Place | None:
    return min((place for place in found if place is not None), default=None)


def _check_inputs(
    inputs: Mapping[str, Array], state: Mapping[str, PlacedArray], rank: int
) -> _Place | None:
    arrays = ((name, array.get()) for name, array in state.items())
    for kind, own in (("input", inputs.items()), ("state", arrays)):
        for name, array in own:
            if not all_finite(array):
                return _Place(-1, rank, f"{kind} '{name}'")
    return None


def _check_nodes(step: TrainingStep, threads: int, rank: int, part: int) -> _Place | None:
    """Return the first value that is not finite in one part of the graph."""
    graph = step.plan.plan.graph(rank)
    nodes, session = _open_part(graph, part, threads, step.held.provider)
    step.start()  # sets the sums of gradients, which the graph may read, to zero
    arrays = {**step.batch, **step.sums, **step.scalars, **step.held.state}
    for name in session.inputs:
        session.read(name, arrays[name])
    for name, array in step.held.gradients.items():
        session.write(name, array)
    session.run()
    names = {name for _, _, outputs in nodes for name in outputs}
    wrong = {name for name, array in session.results(names) if not all_finite(array)}
    for order, node, outputs in nodes:
        for name in outputs:
            if name in wrong:
                return _Place(order, rank, f"'{name}' of {node}")
    return None


def _open_part(
    graph: Path, part: int, threads: int, provider: Provider
) -> tuple[list[tuple[int, str, list[str]]], RankSession]:
    """Return the nodes of a part, and a session that returns all their results.

    A node is its number, its description and the names of its outputs. The graph keeps its own
    outputs, so that all ranks run all of it.
    """
    import onnx

    model = onnx.load(graph, load_external_data=False)
    nodes = [
        (order, f"{node.op_type} node '{node.name}'", [name for name in node.output if name])
        for order, node in enumerate(model.graph.node)
    ]
    size = -(-len(nodes) // VALUE_RUNS)
    chosen = nodes[part * size : (part + 1) * size]
    held = {output.name for output in model.graph.output}
    names = (name for _, _, outputs in chosen for name in outputs)
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in held)
    text = model.SerializeToString()
    return chosen, every_value_session(text, graph.parent, threads, provider=provider)
