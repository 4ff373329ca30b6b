"""Contenders that run a model in turns: the ranks of a plan, and one process of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from turns import Gate, Place

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.dtypes import Array

__all__ = ["Outputs", "check_outputs", "read_inputs", "run_by_one", "run_by_ranks"]

_AGREE = 1e-3

Outputs = dict[str, Array]


def check_outputs(name: str, found: Outputs, wanted: Outputs) -> None:
    """Raise ValueError if outputs differ by more than a thousandth of their largest element."""
    for output, right in wanted.items():
        off = float(np.abs(found[output] - right).max() / np.abs(right).max())
        if not off <= _AGREE:
            raise ValueError(f"{name}: {output} is {off:.1e} off, expected {_AGREE:g}")


def run_by_ranks(place: Place, gate: Gate, plan: Path, data: Path) -> Outputs:
    """Run a plan on the whole inputs in ``data``, on ranks of one thread."""
    inputs, found = read_inputs(data), Outputs()
    with Session(plan, threads=1) as session:
        session.run(inputs)
        while gate():
            found = session.run(inputs)
    return found


def run_by_one(place: Place, gate: Gate, model: Path, data: Path, threads: int) -> Outputs:
    """Run a model in plain ONNX Runtime, as its users do, on ``threads`` threads."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = read_inputs(data)
    names, found = [output.name for output in session.get_outputs()], list[Array]()
    session.run(names, inputs)
    while gate():
        found = session.run(names, inputs)
    return dict(zip(names, found, strict=True))


def read_inputs(data: Path) -> dict[str, Array]:
    """Return the arrays of a file, without labels."""
    with np.load(data) as arrays:
        return {name: arrays[name] for name in arrays if name != "labels"}
