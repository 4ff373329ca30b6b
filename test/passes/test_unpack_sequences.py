"""Random programs of sequences: without them ONNX Runtime computes the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from importer.models import F32, model, node, run, saved, untyped, value
from onnx import numpy_helper

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline import driver
from tensoropt.dialects.onnx import function, walk

ROWS, COLUMNS = 6, 4


class Program:
    """A model that makes one sequence, changes it, and reads it in every way."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.literals: list[onnx.TensorProto] = []
        self.count = 0

    def literal(self, array: Any) -> str:
        name = f"c{len(self.literals)}"
        self.literals.append(numpy_helper.from_array(np.asarray(array, np.int64), name))
        return name

    def make(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def position(self, end: int) -> str:
        """Return a literal position of ``count`` items, which may count from the back."""
        low = -min(self.count, end)
        return self.literal(self.draw(st.integers(low, end - 1)))

    def split(self) -> str:
        """Return parts that all have the shape 1x4 or 4, so that any of them may be joined."""
        self.count, keep = ROWS, self.draw(st.sampled_from([0, 1]))
        how = self.draw(st.sampled_from(["omitted", "one size", "sizes"]))
        if how == "omitted":
            return self.make("SplitToSequence", "x", axis=-2, keepdims=keep)
        sizes = 1 if how == "one size" else [1] * ROWS
        return self.make("SplitToSequence", "x", self.literal(sizes), axis=0, keepdims=keep)

    def changed(self, sequence: str) -> str:
        how = self.draw(st.sampled_from(["insert", "erase", "same"]))
        if how == "insert":
            item = self.make("SequenceAt", sequence, self.position(self.count))
            item = self.make("Neg", item)
            at = [self.position(self.count + 1)] if self.draw(st.booleans()) else []
            self.count += 1
            return self.make("SequenceInsert", sequence, item, *at)
        if how == "erase" and self.count > 1:
            at = [self.position(self.count)] if self.draw(st.booleans()) else []
            self.count -= 1
            return self.make("SequenceErase", sequence, *at)
        return self.make("Identity", sequence)

    def proto(self) -> onnx.ModelProto:
        sequence = self.split()
        for _ in range(self.draw(st.integers(0, 4))):
            sequence = self.changed(sequence)
        axis, new = self.draw(st.sampled_from([-1, 0])), self.draw(st.sampled_from([0, 1]))
        results = [
            self.make("SequenceAt", sequence, self.position(self.count)),
            self.make("SequenceLength", sequence),
            self.make("ConcatFromSequence", sequence, axis=axis, new_axis=new),
        ]
        x, outputs = value("x", F32, [ROWS, COLUMNS]), [untyped(name) for name in results]
        return model(self.nodes, [x], outputs, self.literals, opset=18)


@examples(100)
@given(st.data())
def test_nothing_is_left_of_sequences_and_the_results_are_the_same(data: Any) -> None:
    proto = Program(data.draw).proto()
    x = {"x": np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)}
    with tempfile.TemporaryDirectory() as folder:
        expected, got = run(saved(proto, Path(folder)), x), _prepared(proto, Path(folder), x)
    for wanted, found in zip(expected, got, strict=True):
        assert wanted.shape == found.shape
        assert (wanted == found).all()


def _prepared(proto: onnx.ModelProto, folder: Path, inputs: dict[str, Any]) -> list[Any]:
    module = driver.load(saved(proto, folder), {})
    driver.run_phase(module, "prepare")
    left = [op.name for op in walk(function(module)) if "Sequence" in op.name]
    assert left == []
    source = ParameterSource(folder / "model.onnx")
    written = export_model(module, folder / "out.onnx", source)
    return list(run(written[0], inputs))
