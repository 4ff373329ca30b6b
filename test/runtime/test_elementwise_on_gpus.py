"""Fused arithmetic on GPUs: kernels compiled from source, run on the host by stand-ins."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from stand_ins import calls, environment
from test_elementwise import FLOAT, NARROW, drawn, model, node, run, typed, updates

from tensoropt.runtime.device.cuda import StandInProvider
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.elementwise import fuse_chains, fuse_elementwise
from tensoropt.runtime.session.session import made_session, training_session
from tensoropt.runtime.support.arithmetic import GATE, ON_GPU, STEPS
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

PROVIDER = StandInProvider(0)
PER_BLOCK = 1024  # elements
NVRTC = os.environ.get("TENSOROPT_NVRTC_CHECK")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
TYPES = {"float32": (FLOAT, np.float32)} | {
    "float16": (NARROW["float16"], np.float16),
    "bfloat16": (NARROW["bfloat16"], ml_dtypes.bfloat16),
}
UNARY = ("Sqrt", "Neg", "Reciprocal", "Exp", "Sigmoid", "Tanh", "Erf")


@pytest.fixture(autouse=True)
def folders(monkeypatch, tmp_path: Path) -> None:
    settings = environment(tmp_path / "log", sources=tmp_path / "sources")
    folder = settings["TENSOROPT_STAND_IN"]
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENSOROPT_CUDART", f"{folder}/libcudart.so.13")
    for name in ("TENSOROPT_NVRTC", "TENSOROPT_CUDA_DRIVER"):
        monkeypatch.setenv(name, f"{folder}/libnvrtc.so.13")


def fused(given: onnx.ModelProto, folder: Path, *, update: bool = False) -> dict[str, Array]:
    """Return the results of a step on the stand-ins, with random inputs."""
    onnx.save(given, folder / "m.onnx")
    session = training_session(folder / "m.onnx", 1, provider=PROVIDER, fused=update)
    return run(session, drawn(given))


def test_updates_are_a_launch_per_parameter(tmp_path: Path) -> None:
    shapes = [(3,), (7, 11), (300, 257), (0, 4), (70_000,)]
    given = updates(shapes)
    expected = run(made_session(given.SerializeToString(), CPU), drawn(given))
    results = fused(given, tmp_path, update=True)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)
    launches = [call for call in calls(tmp_path / "log", 0) if call["call"] == "cuLaunchKernel"]
    sizes = [int(np.prod(shape)) for shape in shapes]
    assert [one["blocks"] for one in launches] == [-(-n // PER_BLOCK) for n in sizes if n]
    assert {(one["threads"], one["stream"]) for one in launches} == {(256, 0)}
    compiled = [one for one in calls(tmp_path / "log", 0) if one["call"] == "nvrtcCompileProgram"]
    assert len(compiled) <= 1  # none if an earlier test had the same program


def swish(kind: int, shape: Sequence[int]) -> onnx.ModelProto:
    """Return the gradient of x sigmoid(x) y by x, and the product, in a type."""
    nodes = [
        node("Sigmoid", "x", "s"),
        node("Mul", "x", "s", "silu"),
        node("Mul", "silu", "y", "gated"),
        node("Mul", "dz", "y", "dsilu"),
        node("Sub", "one", "s", "rest"),
        node("Mul", "silu", "rest", "curve"),
        node("Add", "s", "curve", "slope"),
        node("Mul", "dsilu", "slope", "dx"),
    ]
    inputs = [typed(name, shape, kind) for name in ("x", "y", "dz")]
    made = model(nodes, inputs, [typed(name, shape, kind) for name in ("gated", "dx")])
    element = helper.tensor_dtype_to_np_dtype(kind)
    made.graph.initializer.append(numpy_helper.from_array(np.array(1.0, element), "one"))
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.parametrize("name", TYPES)
def test_swiglu_and_its_gradient_are_one_kernel(name: str, tmp_path: Path) -> None:
    """Arithmetic is in float32, and rounded once."""
    kind, element = TYPES[name]
    given = swish(kind, (9, 311))
    x, y, dz = (array.astype(np.float32) for array in drawn(given).values())
    s = 1 / (1 + np.exp(-x))
    expected = {"gated": x * s * y, "dx": dz * y * (s + x * s * (1 - s))}
    results = fused(given, tmp_path)
    tolerance = 2 * float(ml_dtypes.finfo(element).eps)
    for output, array in expected.items():
        assert results[output].dtype == element
        np.testing.assert_allclose(
            results[output].astype(np.float32), array, rtol=tolerance, atol=1e-6
        )
    assert fuse_chains(given, ON_GPU)
    assert [one.op_type for one in given.graph.node] == ["Elementwise"]


@pytest.mark.parametrize("step", [step for step in STEPS if step != GATE])
def test_every_step_agrees_with_onnx_runtime(step: str, tmp_path: Path) -> None:
    """After a product, which the kernel does not store, and before a sum."""
    operands = ["p"] if step in UNARY else ["p", "y"]
    nodes = [
        node("Mul", "x", "x", "p"),
        node(step, *operands, "f"),
        node("Add", "f", "beta", "sum"),
        node("Neg", "sum", "z"),
    ]
    shape = (3, 700)
    given = model(nodes, [typed("x", shape), typed("y", shape)], [typed("z", shape)])
    expected = run(made_session(given.SerializeToString(), CPU), drawn(given))["z"]
    np.testing.assert_allclose(fused(given, tmp_path)["z"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TYPES)
def test_gates_and_casts(name: str, tmp_path: Path) -> None:
    kind, element = TYPES[name]
    nodes = [
        node("Greater", "y", "zero", "passes"),
        node("Where", "passes", "x", "zero", "gate"),
        node("Cast", "gate", "wide", to=FLOAT),
        node("Mul", "wide", "beta", "z"),
    ]
    given = model(nodes, [typed(n, (40, 41), kind) for n in "xy"], [typed("z", (40, 41))])
    given.graph.initializer.append(numpy_helper.from_array(np.array(0, element), "zero"))
    given = onnx.shape_inference.infer_shapes(given)
    x, y = (array.astype(np.float32) for array in drawn(given).values())
    expected = np.where(y > 0, x, np.float32(0)) * np.float32(0.9)
    np.testing.assert_array_equal(fused(given, tmp_path)["z"], expected)
    assert fuse_chains(given, ON_GPU)
    assert [one.op_type for one in given.graph.node] == ["Elementwise"]


@pytest.mark.parametrize("name", NARROW)
def test_every_narrow_number_is_read_and_rounded(name: str, tmp_path: Path) -> None:
    kind, element = TYPES[name]
    bits = np.arange(1 << 16, dtype=np.uint16)
    nodes = [
        node("Cast", "x", "wide", to=FLOAT),
        node("Mul", "wide", "beta", "less"),
        node("Cast", "less", "z", to=kind),
    ]
    given = model(nodes, [typed("x", bits.shape, kind)], [typed("z", bits.shape, kind)])
    onnx.save(given, tmp_path / "m.onnx")
    session = training_session(tmp_path / "m.onnx", 1, provider=PROVIDER)
    x = bits.view(element)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) * np.float32(0.9)).astype(element)
    wide = run(session, {"x": x})["z"].astype(np.float32)
    np.testing.assert_array_equal(wide, expected.astype(np.float32))


def test_state_is_written_over_itself(tmp_path: Path) -> None:
    given = updates([(5, 300)])
    onnx.save(given, tmp_path / "m.onnx")
    arrays = drawn(given)
    expected = run(made_session(given.SerializeToString(), CPU), arrays)
    state = {name: PROVIDER.place(array.copy()) for name, array in arrays.items()}
    session = training_session(tmp_path / "m.onnx", 1, provider=PROVIDER, fused=True)
    for name, array in state.items():
        session.read(name, array)
    for name in ("w0", "v0"):
        session.write(f"{name}.new", state[name])
    session.run()
    for name in ("w0", "v0"):
        np.testing.assert_array_equal(state[name].get(), expected[f"{name}.new"])


def test_sums_and_squares(tmp_path: Path) -> None:
    nodes = [
        node("Pow", "x", "two", "square"),
        node("Sum", "square", "x", "y", "sum"),
        node("Pow", "sum", "three", "cube"),
        node("Sum", "cube", "copy"),
        node("Neg", "copy", "z"),
    ]
    given = model(nodes, [typed(name, (3, 700)) for name in "xy"], [typed("z", (3, 700))])
    for name, number in (("two", np.float32(2)), ("three", np.float32(3))):
        given.graph.initializer.append(numpy_helper.from_array(np.array(number), name))
    given = onnx.shape_inference.infer_shapes(given)
    expected = run(made_session(given.SerializeToString(), CPU), drawn(given))["z"]
    np.testing.assert_allclose(fused(given, tmp_path)["z"], expected, rtol=1e-5, atol=1e-6)
    assert fuse_chains(given, ON_GPU)
    assert [one.op_type for one in given.graph.node] == ["Elementwise", "Pow", "Elementwise"]


@pytest.mark.parametrize(
    "shape", [(7,), (5, 7), (1, 5, 1), (3, 1, 1), (3, 5, 1), (1, 1, 1), (5, 1)]
)
def test_smaller_arrays_are_broadcast(shape: Sequence[int], tmp_path: Path) -> None:
    whole = (3, 5, 7)
    nodes = [node("Mul", "x", "y", "p"), node("Sub", "y", "p", "d"), node("Exp", "d", "z")]
    given = model(nodes, [typed("x", shape), typed("y", whole)], [typed("z", whole)])
    expected = run(made_session(given.SerializeToString(), CPU), drawn(given))["z"]
    np.testing.assert_allclose(fused(given, tmp_path)["z"], expected, rtol=1e-5, atol=1e-6)
    assert fuse_chains(given, ON_GPU)
    assert [one.op_type for one in given.graph.node] == ["Elementwise"]


def test_a_broadcast_result_of_a_chain_is_written_first(tmp_path: Path) -> None:
    """Two chains: the rows that the second one reads are the results of the first."""
    nodes = [
        node("Mul", "r", "r", "square"),
        node("Add", "square", "beta", "rows"),
        node("Mul", "x", "rows", "scaled"),
        node("Sub", "scaled", "x", "z"),
    ]
    given = model(nodes, [typed("r", (9, 1)), typed("x", (9, 70))], [typed("z", (9, 70))])
    expected = run(made_session(given.SerializeToString(), CPU), drawn(given))["z"]
    np.testing.assert_allclose(fused(given, tmp_path)["z"], expected, rtol=1e-5, atol=1e-6)
    fuse_chains(given, ON_GPU)
    assert [one.op_type for one in given.graph.node] == ["Elementwise", "Elementwise"]


@pytest.mark.parametrize("shape", [(3, 1, 7), (3, 5, 7, 1)])
def test_other_broadcasts_stay(shape: Sequence[int]) -> None:
    """One with a gap, and one of two arrays that are both smaller than the result."""
    nodes = [node("Mul", "x", "y", "p"), node("Exp", "p", "z")]
    inputs = [typed("x", shape), typed("y", (3, 5, 7))]
    given = onnx.shape_inference.infer_shapes(model(nodes, inputs, [typed("z", None)]))
    assert not fuse_chains(given, ON_GPU)


def test_a_chain_of_two_pays_on_gpus_only() -> None:
    def chain() -> onnx.ModelProto:
        nodes = [node("Add", "x", "y", "s"), node("Tanh", "s", "z")]
        return model(nodes, [typed("x", (2, 3)), typed("y", (2, 3))], [typed("z", (2, 3))])

    assert fuse_chains(chain(), ON_GPU)
    assert not fuse_chains(chain())


def test_a_narrow_scalar_that_is_no_constant_stays() -> None:
    kind = NARROW["bfloat16"]
    nodes = [node("Mul", "x", "rate", "less"), node("Add", "x", "less", "z")]
    inputs = [typed("x", (2, 3), kind), typed("rate", (), kind)]
    given = model(nodes, inputs, [typed("z", (2, 3), kind)])
    fuse_elementwise(given, ON_GPU)
    assert [one.op_type for one in given.graph.node] == ["Mul", "Elementwise"]


def chain_of_all() -> onnx.ModelProto:
    """Return a chain of all steps but gates, in float32, with a row that is broadcast."""
    steps = [step for step in STEPS if step != GATE]
    names = ["x", *(f"t{place}" for place in range(len(steps)))]
    nodes = [
        node(step, *([before] if step in UNARY else [before, "y"]), after)
        for step, (before, after) in zip(steps, itertools.pairwise(names), strict=True)
    ]
    return model(nodes, [typed("x", (2, 3)), typed("y", (3,))], [typed(names[-1], (2, 3))])


def open_all(folder: Path) -> None:
    """Open sessions that have every step and every type."""
    relu = [node("Greater", "y", "zero", "p"), node("Where", "p", "x", "zero", "z")]
    gate = model(relu, [typed(name, (2, 3)) for name in "xy"], [typed("z", (2, 3))])
    gate.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    cases = [chain_of_all(), onnx.shape_inference.infer_shapes(gate), updates([(2, 3)])]
    cases += [swish(kind, (2, 3)) for kind, _ in TYPES.values()]
    for place, given in enumerate(cases):
        onnx.save(given, folder / f"{place}.onnx")
        training_session(folder / f"{place}.onnx", 1, provider=PROVIDER)


@pytest.mark.skipif(not NVRTC, reason="no NVRTC, expected it after: make cudnn-check")
def test_nvrtc_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """Every step and type, without CUDA's headers, and without calls of functions left out."""
    # A new process: this one keeps its kernels, and compiles none twice.
    code = "import sys, pathlib, test_elementwise_on_gpus as tests; "
    code += "tests.open_all(pathlib.Path(sys.argv[1]))"
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, tmp_path], env=settings, check=True)
    sources = sorted((tmp_path / "sources").glob("*.cu"))
    assert len(sources) == 6
    for source, architecture in itertools.product(sources, ARCHITECTURES):
        code = compile_for(architecture, source.read_bytes())
        assert b"__nv_" not in code.replace(b"__nv_reserved", b"")


def compile_for(architecture: str, source: bytes) -> bytes:
    """Return NVRTC's machine code."""
    compiler, program = ctypes.CDLL(NVRTC), ctypes.c_void_p()
    size = ctypes.c_size_t()
    compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"a.cu", 0, None, None)
    texts = (f"--gpu-architecture={architecture}", "--fmad=false", "--disable-warnings")
    options = (ctypes.c_char_p * len(texts))(*map(str.encode, texts))
    status = compiler.nvrtcCompileProgram(program, len(options), options)
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, log)
    assert (status, log.value) == (0, b"")
    compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    assert compiler.nvrtcGetCUBIN(program, code) == 0
    return code.raw


def test_a_kernel_that_does_not_compile_is_one_line(monkeypatch, tmp_path: Path) -> None:
    script = tmp_path / "compiler"
    script.write_text("#!/bin/sh\necho no compiler >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    nodes = [node("Tanh", "x", "a"), node("Tanh", "a", "b"), node("Neg", "b", "z")]
    onnx.save(model(nodes, [typed("x", (2,))], [typed("z", (2,))]), tmp_path / "m.onnx")
    with pytest.raises(UserError) as raised:
        training_session(tmp_path / "m.onnx", 1, provider=PROVIDER)
    assert "Elementwise node 'z.Elementwise': NVRTC for sm_90: no compiler" in str(raised.value)
    assert "\n" not in str(raised.value)
