"""Decoders that score only the tokens that are asked for, against the scores of all tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade_decoder import VOCABULARY, greedy, write_decoder
from onnx import helper, numpy_helper, parser
from onnxruntime import InferenceSession

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.scoring import SCORED, score_asked
from tensoropt.runtime.text.session import TextSession

_ENDS = {
    "product": "logits = MatMul(h, w)",
    "bias": "p = MatMul(h, w)  logits = Add(p, b)",
    "cap": "p = MatMul(h, w) d = Div(p, b) t = Tanh(d) logits = Mul(t, b)",
    "tied": "turned = Transpose<perm = [1, 0]>(v) logits = MatMul(h, turned)",
}
_OTHERS = {
    "over tokens": "p = MatMul(h, w) logits = Softmax<axis = 1>(p)",
    "of two values": "p = MatMul(h, w) logits = Add(p, p)",
    "of no weight": "t = Transpose<perm = [0, 2, 1]>(x) p = MatMul(t, h) logits = MatMul(h, p)",
}


def model_of(end: str, version: int = 20) -> onnx.ModelProto:
    """Return ``h = Tanh(x)``, followed by ``end``."""
    text = f"""<ir_version: 10, opset_import: ["": {version}]>
        g (float[b, s, 4] x) => (float[b, s, n] logits) <float[b, s, 4] h>
        {{ h = Tanh(x) {end} }}"""
    made = parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, shape in {"w": (4, 5), "b": (5,), "v": (5, 4)}.items():
        array = random.normal(size=shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    return InferenceSession(model.SerializeToString()).run(["logits"], feeds)[0]


@pytest.mark.parametrize("end", _ENDS)
def test_scores_are_those_of_the_asked_tokens(end: str) -> None:
    x = np.random.default_rng(1).normal(size=(2, 6, 4)).astype(np.float32)
    asked = np.array([[5, 1], [0, 3]])
    plain, model = model_of(_ENDS[end]), model_of(_ENDS[end])
    assert score_asked(model, "logits")
    onnx.checker.check_model(model, full_check=True)
    found = run(model, x=x, **{SCORED: asked[..., None]})
    np.testing.assert_array_equal(found, np.take_along_axis(run(plain, x=x), asked[..., None], 1))


@pytest.mark.parametrize("end", _OTHERS)
def test_other_graphs_stay_as_they_are(end: str) -> None:
    model = model_of(_OTHERS[end])
    assert not score_asked(model, "logits")
    assert model == model_of(_OTHERS[end])


def test_an_old_opset_stays_as_it_is() -> None:
    assert not score_asked(model_of(_ENDS["product"], 11), "logits")


@pytest.mark.parametrize("layout", ["R", "S(2)@x"])
def test_scores_of_ranks(layout: str, tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=1)
    flags = ["--mesh", "2", "--pin", f"logits={layout}", "-o", str(tmp_path / "plan")]
    assert compile_model([str(model), *flags]) == 0
    for rank in range(2):
        graph = onnx.load(tmp_path / "plan" / f"rank{rank}.onnx", load_external_data=False)
        assert score_asked(graph, "logits")
        (scores,) = (value for value in graph.graph.output if value.name == "logits")
        _, tokens, width = scores.type.tensor_type.shape.dim
        assert tokens.dim_param == "tensoropt.asked"
        assert width.dim_value == VOCABULARY // (1 if layout == "R" else 2)


def test_a_decoder_that_scores_all_tokens(tmp_path: Path) -> None:
    """Its last operator reads two values of a token, so no tokens are selected before it."""
    path = write_decoder(tmp_path / "m.onnx", layers=1)
    model = onnx.load(path)
    model.graph.node[-1].output[0] = "scores"
    model.graph.node.append(onnx.helper.make_node("Max", ["scores", "scores"], ["logits"], "max"))
    onnx.save(model, path)
    assert compile_model([str(path), "--mesh", "2", "-o", str(tmp_path / "plan")]) == 0
    graph = onnx.load(tmp_path / "plan" / "rank0.onnx", load_external_data=False)
    assert not score_asked(graph, "logits")
    with TextSession(tmp_path / "plan", threads=1) as session:
        (found,) = session.generate([3, 7, 1], max_tokens=6)
    assert list(found.tokens) == greedy(path, [3, 7, 1], 6)


def test_a_decoder_that_scores_the_last_token_alone(tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=True)
    made = onnx.load(model)
    product = made.graph.node[-1]
    last = helper.make_node("Gather", [product.input[0], "end"], ["last"], "last", axis=1)
    product.input[0] = "last"
    made.graph.node.insert(len(made.graph.node) - 1, last)
    made.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "end"))
    made.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1
    onnx.save(made, model)
    plan = tmp_path / "plan"
    assert compile_model([str(model), "--mesh", "1", "-o", str(plan)]) == 0
    with TextSession(plan, threads=1) as session:
        found = session.generate([[3, 7, 1], [5, 6]], max_tokens=6)
        with pytest.raises(UserError, match="prompt_logprobs: the model scores the last token"):
            session.stream([3, 7, 1], prompt_logprobs=1)
    assert [list(one.tokens) for one in found] == [greedy(model, p, 6) for p in ([3, 7, 1], [5, 6])]
    with pytest.raises(UserError, match="cannot verify 2 proposed tokens"):
        TextSession(plan, speculate=2)
