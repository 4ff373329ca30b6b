"""Sizes that keep ONNX Runtime from loading a model are refused when it is read."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import compose, parser

from tensoropt.compiler.importer.model_file import load_model
from tensoropt.compiler.support.errors import UserError

_MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
chooses (float[n, m] x, bool c) => (y) <int64[1] second = {1}, int64[1] one = {1}> {
    y = If(c) <
        then_branch = inner () => (float[k] t) {
            wide = Concat <axis = 1> (x, x)
            sizes = Shape <start = 1, end = 2> (wide)
            same = Equal(sizes, one)
            t = If(same) <
                then_branch = squeezed () => (float[k] s) { s = Squeeze(wide, second) },
                else_branch = flat () => (float[k] f) {
                    all = Constant <value = int64[1] {-1}> ()
                    f = Reshape(wide, all)
                }
            >
        },
        else_branch = other () => (float[k] e) {
            end = Constant <value = int64[1] {-1}> ()
            e = Reshape(x, end)
        }
    >
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chooses.onnx"
    onnx.save(parser.parse_model(_MODEL), path)
    return path


def test_a_size_that_a_branch_cannot_have_is_named(model: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_model(model, {"n": 2, "m": 3})
    assert str(caught.value).startswith(
        f"{model}: ONNX Runtime does not load the model with --dim m=3, expected 'm' left open: "
    )


def test_a_range_is_not_blamed(tmp_path: Path) -> None:
    """Each of two sizes prevents loading, so the error names all fixed sizes."""
    proto, path = parser.parse_model(_MODEL), tmp_path / "both.onnx"
    other = parser.parse_model(_MODEL.replace("[n, m]", "[n, k]"))
    graph = compose.add_prefix_graph(other.graph, "other.", rename_edges=True)
    for field in ("input", "output", "node", "initializer"):
        getattr(proto.graph, field).extend(getattr(graph, field))
    onnx.save(proto, path)
    with pytest.raises(UserError) as caught:
        load_model(path, {"n": range(2, 9, 2), "m": 3, "k": 3})
    assert "with --dim m=3 --dim k=3, expected 'm' or 'k' left open: " in str(caught.value)


def test_open_sizes_and_others_are_taken(model: Path) -> None:
    load_model(model)
    load_model(model, {"n": 2})
