"""Run on two ranks under mpiexec: each collective of the compiler's table, in each of its forms.

Rank 0 prints the operators whose results have other shapes than the table says. An operator that
the library lacks, or with other attributes, ends the rank.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from handmade import DOMAIN, model_of, value_info
from mpi4py import MPI
from onnx import helper

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.support.collectives import (
    COLLECTIVES,
    JOINED,
    OPERATOR_ATTRIBUTES,
    STARTS,
    WAITS,
    CollectiveTraits,
    reads_later,
)

SHAPE = [4, 6]
CUT, JOINED_ALONG = 0, 1
XS = ["x", "other"]
ROWS = np.full((2, 2), SHAPE[0] // 2)


def forms(traits: CollectiveTraits) -> Iterator[tuple[str, list[onnx.NodeProto]]]:
    """Yield (operator, nodes) of each form, with the results y0, y1, ..."""
    plain = traits.op_type
    read = ["x", "rows", "t0"] if traits.has_rows else ["x", "t0"]
    yield plain, [node(plain, read, ["y0", "t1"], settings(plain, traits))]
    for kind in (plain, *(fused for fused, one in JOINED.items() if one == plain)):
        xs = XS if kind in JOINED else XS[:1]
        results, made = ([f"{name}{i}" for i in range(len(xs))] for name in "yz")
        if kind in JOINED:
            yield kind, [node(kind, ["t0", *xs], ["t1", *results], settings(kind, traits))]
        for start in (start for start, one in STARTS.items() if one == kind):
            (wait,) = (wait for wait, one in WAITS.items() if one == start)
            read = xs if reads_later(start) else []
            begun = node(start, ["t0", *xs], ["t1", "h", *made], settings(start, traits))
            yield start, [begun, node(wait, ["h", *made, *read], results, {})]


def node(op: str, inputs: list[str], outputs: list[str], attributes: dict) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=op, domain=DOMAIN, **attributes)


def settings(op: str, traits: CollectiveTraits) -> dict:
    dim = JOINED_ALONG if traits.joins else CUT
    every = {"reduction": "sum", "sources": [1, 0], "dims": [dim] * len(XS)}
    every |= {traits.cuts: CUT, traits.joins: JOINED_ALONG}
    return {"group": [0, 1], **{name: every[name] for name in OPERATOR_ATTRIBUTES[op]}}


def shapes(nodes: list[onnx.NodeProto], folder: Path) -> list[tuple[int, ...]]:
    """Return the shapes of the results."""
    made = [name for own in nodes for name in own.output if name.startswith("y")]
    inputs = [value_info(x, "float32", SHAPE) for x in XS]
    path = folder / "model.onnx"
    outputs = [value_info(y, "float32", None) for y in made]
    onnx.save(model_of(nodes, inputs, outputs, {"rows": ROWS}), path)
    session = rank_session(path, 1, provider=CPU)
    for x in XS:
        session.feed(x, np.ones(SHAPE, np.float32))
    session.run()
    return [session.fetch()[y].shape for y in made]


def main() -> None:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for traits in COLLECTIVES.values():
            cut, joined = (2 if name else 1 for name in (traits.cuts, traits.joins))
            expected = SHAPE[CUT] // cut, SHAPE[JOINED_ALONG] * joined
            for op, nodes in forms(traits):
                if {*shapes(nodes, Path(folder))} != {expected}:
                    found.append(op)
    if MPI.COMM_WORLD.rank == 0:
        json.dump(found, sys.stdout)


main()
