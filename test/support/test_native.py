"""Native code that does not survive what a model contains ends a child, not the compiler."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from importer.models import BOOL, F32, imported, model, node, untyped, value
from onnx import helper, numpy_helper

from tensoropt.compiler.pipeline.driver import run_phase
from tensoropt.compiler.shapes import evaluate, onnx_inference
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError

pytestmark = pytest.mark.usefixtures("mlir_context")

_LEAST = {np.int32: -(2**31), np.int64: -(2**63)}


def _endless() -> None:
    while True:
        pass


def _greedy() -> None:
    np.ones(16 << 30, np.int8)


def _refusing() -> None:
    raise ValueError("no such size")


def _failure(action: Callable[..., Any], seconds: int = 20) -> str:
    with pytest.raises(native.NativeFailureError) as caught:
        native.call(action, seconds=seconds)
    return str(caught.value)


def test_how_a_child_ends_is_said() -> None:
    assert _failure(os.abort) == "ended by SIGABRT"
    assert _failure(_endless, seconds=1) == "did not end in 1 s"
    assert _failure(_greedy) == "needs more than 4 GiB of memory"
    with pytest.raises(native.NativeError, match=r"^no such size$"):
        native.call(_refusing, seconds=20)


def test_one_child_answers_until_it_dies() -> None:
    first = native.call(os.getpid, seconds=20)
    assert native.call(os.getpid, seconds=20) == first != os.getpid()
    _failure(os.abort)
    assert native.call(os.getpid, seconds=20) not in (first, os.getpid())


def _abort_beside_file(path: str, number: int) -> None:
    """Abort with the file open under a number that is free here."""
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.abort()


def test_the_stack_of_a_child_that_dies_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the compiler is part of a program that has Python's own handler of faults."""
    monkeypatch.setattr(native, "_living", [])
    own, was = (tmp_path / "stacks").open("w"), faulthandler.is_enabled()
    faulthandler.enable(own)
    try:
        with pytest.raises(native.NativeFailureError, match="ended by SIGABRT"):
            native.call(_abort_beside_file, str(tmp_path / "other"), own.fileno(), seconds=20)
    finally:
        faulthandler.enable() if was else faulthandler.disable()
        own.close()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["", ""]


def test_a_child_that_sleeps_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_LEAST_GRACE_S", 0.5)
    monkeypatch.setattr(native, "_GRACE", 0)
    start = time.monotonic()
    with pytest.raises(native.NativeFailureError, match="did not end in 20 s"):
        native.call(time.sleep, 3600, seconds=20)
    assert time.monotonic() - start < 60


def test_a_copy_of_the_process_has_a_child_of_its_own() -> None:
    own = native.call(os.getpid, seconds=20)
    process = os.fork()
    if not process:
        os._exit(int(native.call(os.getpid, seconds=20) == own))
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert native.call(os.getpid, seconds=20) == own


def _divided(op_type: str, left: int, right: int, dtype: Any, folder: Path) -> str:
    """Return the prepared module of two divisions, the first as given, the second 7 by 2."""
    numbers = {"a": left, "b": right, "c": 7, "d": 2}
    stored = [numpy_helper.from_array(np.array([n], dtype), name) for name, n in numbers.items()]
    nodes = [node(op_type, ["a", "b"], ["y"]), node(op_type, ["c", "d"], ["z"])]
    outputs = [untyped("y"), untyped("z")]
    module = imported(model(nodes, [], outputs, stored), folder)
    run_phase(module, "prepare")
    return str(module)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_a_division_that_ends_the_process_is_not_folded(
    op_type: str, dtype: Any, tmp_path: Path
) -> None:
    for left, right in ((1, 0), (_LEAST[dtype], -1)):
        text = _divided(op_type, left, right, dtype, tmp_path)
        is_number = op_type == "Mod" and right and not ort.__version__.startswith("1.31.")
        assert text.count(f"onnx.{op_type}") == (0 if is_number else 1)
        assert f"dense<{3 if op_type == 'Div' else 1}>" in text


def test_many_deaths_end_the_folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = []
    ask = native._Child.ask

    def counted(*given: Any) -> Any:
        try:
            return ask(*given)
        except native.NativeFailureError as failure:
            deaths.append(str(failure))
            raise

    monkeypatch.setattr(native._Child, "ask", counted)
    monkeypatch.setattr(evaluate, "_MOST_DEATHS", 2)
    numbers = {"a": _LEAST[np.int64], "b": -1}
    stored = [numpy_helper.from_array(np.array([n]), name) for name, n in numbers.items()]
    nodes = [node("Div", ["a", "b"], [f"y{i}"]) for i in range(5)]
    module = imported(model(nodes, [], [untyped(f"y{i}") for i in range(5)], stored), tmp_path)
    run_phase(module, "prepare")
    assert str(module).count("onnx.Div") == 5
    assert deaths == ["ended by SIGFPE"] * 3


def _ended_by_third(held: bytes, strict: bool, values: bool) -> bytes:
    """Stand in for the inference of a model: ends the process at a Relu called third."""
    nodes = onnx.ModelProto.FromString(held).graph.node
    if any(held.name == "third" and not held.domain for held in nodes):
        os.abort()
    return onnx_inference._infer_shapes(held, strict, values)


def _ended(held: bytes, strict: bool, values: bool) -> bytes:
    """Stand in for inference that no model survives."""
    os.abort()


def _imported_after(stand_in: Callable[..., bytes], folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Return the module of five nodes, or the error, with ``stand_in`` for ONNX's inference."""
    names = ("first", "second", "third", "fourth", "fifth")
    nodes = [node("Relu", [f"x{i}"], [f"x{i + 1}"], name=name) for i, name in enumerate(names)]
    call = native.call

    def instead(action: Callable[..., Any], *given: Any, seconds: int) -> Any:
        inference = action is onnx_inference._infer_shapes
        return call(stand_in if inference else action, *given, seconds=seconds)

    patch.setattr(native, "call", instead)
    try:
        return str(imported(model(nodes, [value("x0", F32, [2])], [untyped("x5")]), folder))
    except UserError as error:
        return str(error).replace(f"{folder}/", "")


def test_a_node_that_inference_does_not_survive_has_the_types_of_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _imported_after(_ended_by_third, tmp_path, monkeypatch)
    assert text.count('"onnx.Relu"') == text.count("(tensor<2xf32>) -> tensor<2xf32>") == 5


def test_a_node_that_neither_survives_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_inference, "loads", lambda _: False)
    assert _imported_after(_ended_by_third, tmp_path, monkeypatch) == (
        "model.onnx: node 'third' (Relu): types cannot be inferred: onnx ended by SIGABRT"
    )


def test_inference_that_dies_of_no_node_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _imported_after(_ended, tmp_path, monkeypatch) == (
        "model.onnx: types cannot be inferred: onnx ended by SIGABRT"
    )


def _branch(op_type: str, **attributes: Any) -> onnx.GraphProto:
    """Return a body that applies an operator to `p` of the graph around it."""
    return helper.make_graph(
        [node(op_type, ["p"], ["r"], name=op_type, **attributes)], "branch", [], [untyped("r")]
    )


def test_a_unit_matrix_like_a_product_of_the_runtime_has_a_type(tmp_path: Path) -> None:
    """ONNX's inference dies of an EyeLike with a `dtype` whose operand has no type yet."""
    branches = {"then_branch": _branch("EyeLike", dtype=F32), "else_branch": _branch("Relu")}
    nodes = [
        node("FusedMatMul", ["x", "w"], ["p"], domain="com.microsoft"),
        node("EyeLike", ["p"], ["e"], dtype=F32),
        node("If", ["c"], ["r"], **branches),
        node("Add", ["e", "r"], ["y"]),
    ]
    ends = [value("x", F32, ["n", 8]), value("w", F32, [8, 4]), value("c", BOOL, [])]
    proto = model(nodes, ends, [untyped("y")], opset=17, domains={"com.microsoft": 1})
    text = str(imported(proto, tmp_path))
    assert text.count('"onnx.EyeLike"(%0) {dtype = 1 : i64} : (tensor<?x4xf32>)') == 2
    assert "-> (tensor<?x4xf32>" in text
