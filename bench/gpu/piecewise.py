"""Ranks that run a plan as a whole graph, and as pieces between its collectives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from gpu.bound import array_for, bound, drawn, open_provider
from gpu.direct import Direct, direct_for
from gpu.pieces import Piece, cut
from tensoropt.runtime.device.provider import PlacedArray, Provider

__all__ = ["measure"]

_WARM_UP = 1

Step = Callable[[], None]


def measure(comm: Any, plan: str, provider: str, steps: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of a step in every way, by ``ways``, and counts of the pieces.

    A step's time is of the slowest rank, a turn's the median of its steps. The result is the best
    of ``rounds`` turns, as other work on the machine only adds time. The ways take turns.
    ``difference`` is the largest difference between outputs of the pieces and of the whole graph,
    relative to the largest output.
    """
    place = open_provider(provider, comm)
    graph = Path(plan) / f"rank{comm.rank}.onnx"
    whole = onnx.load(graph, load_external_data=False)
    inputs = drawn(whole.graph.input, place)
    pieces = cut(whole)
    ways, outputs = _ways(whole, pieces, inputs, place, graph, comm)
    difference = comm.allreduce(_difference(ways, outputs, comm), _max())
    times = {way: min(turns) for way, turns in _times(ways, steps, rounds, comm)}
    collectives = [piece for piece in pieces if piece.collective]
    return {
        "ways": times,
        "collectives": len(collectives),
        "pieces": len(pieces) - len(collectives),
        "difference": difference,
    }


def _ways(
    whole: onnx.ModelProto,
    pieces: Sequence[Piece],
    inputs: dict[str, PlacedArray],
    place: Provider,
    graph: Path,
    comm: Any,
) -> tuple[dict[str, Step], list[tuple[PlacedArray, PlacedArray]]]:
    """Return the ways to take a step, and pairs of outputs of the whole graph and of the pieces."""
    own = {value.name: array_for(value, place) for value in whole.graph.output}
    crossing = _crossing(pieces, inputs, place)
    sessions = [bound(path, crossing, place) for path in _write(pieces, graph)]
    direct = direct_for(place, comm)
    called = [
        _call(piece, crossing, direct) or session.run
        for piece, session in zip(pieces, sessions, strict=True)
    ]
    pairs = [(own[value.name], crossing[value.name]) for value in whole.graph.output]
    alone = [s.run for s, piece in zip(sessions, pieces, strict=True) if not piece.collective]
    return {
        "graph": bound(graph, {**inputs, **own}, place).run,
        "sessions": _in_turn([session.run for session in sessions]),
        "calls": _in_turn(called),
        "silent": _in_turn(alone),
    }, pairs


def _write(pieces: Sequence[Piece], graph: Path) -> Iterator[Path]:
    """Yield the files of the pieces, written next to the graph for its external data."""
    for number, piece in enumerate(pieces):
        path = graph.with_suffix(f".piece{number}.onnx")
        onnx.save(_model(piece), path)
        yield path


def _model(piece: Piece) -> onnx.ModelProto:
    assert piece.model is not None
    return piece.model


def _crossing(
    pieces: Sequence[Piece], inputs: dict[str, PlacedArray], place: Provider
) -> dict[str, PlacedArray]:
    """Return an array for every value that crosses the border of a piece."""
    found = dict(inputs)
    for piece in pieces:
        for value in _model(piece).graph.output:
            found[value.name] = array_for(value, place)
    return found


def _call(piece: Piece, arrays: dict[str, PlacedArray], direct: Direct) -> Step | None:
    """Return the direct call of an AllReduce of a value in an array.

    Other collectives would have to be packed first; initializers have no arrays.
    """
    if not piece.collective or not piece.reads or piece.nodes[0].op_type != "AllReduce":
        return None
    x, y = arrays[piece.reads[0]], arrays[piece.writes[0]]
    if not direct.supports("AllReduce", x.dtype.name):
        return None
    held = {a.name: helper.get_attribute_value(a) for a in piece.nodes[0].attribute}

    def run() -> None:
        direct.call("AllReduce", held["group"], x, y, held["reduction"].decode())
        direct.wait()

    return run


def _in_turn(steps: Sequence[Step]) -> Step:
    def run() -> None:
        for step in steps:
            step()

    return run


def _difference(
    ways: dict[str, Step], outputs: list[tuple[PlacedArray, PlacedArray]], comm: Any
) -> float:
    ways["graph"]()
    found = 0.0
    for way in ("sessions", "calls"):
        ways[way]()
        for whole, pieced in outputs:
            wanted, held = (np.asarray(a.get()).astype(np.float64) for a in (whole, pieced))
            error = float(np.abs(wanted - held).max() / max(np.abs(wanted).max(), 1e-30))
            found = max(found, error if np.isfinite(error) else float("inf"))
            pieced.zero()
        comm.Barrier()
    return found


def _times(
    ways: dict[str, Step], steps: int, rounds: int, comm: Any
) -> list[tuple[str, list[float]]]:
    """Return the seconds of a step in each turn of every way."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, step in ways.items():
            times = [_timed(step, comm) for _ in range(_WARM_UP + steps)]
            found[way].append(statistics.median(times[_WARM_UP:]))
    return list(found.items())


def _timed(step: Step, comm: Any) -> float:
    """Return the slowest rank's seconds."""
    comm.Barrier()
    start = time.perf_counter()
    step()
    return float(comm.allreduce(time.perf_counter() - start, _max()))


def _max() -> Any:
    from mpi4py import MPI

    return MPI.MAX
