"""Where ranks compute: arrays, devices, and what is refused before and while sessions are made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from handmade import model_of, value_info
from onnx import helper
from stand_ins import stand_ins

from tensoropt.runtime.device import cuda, cudart
from tensoropt.runtime.device.cuda import CudaProvider, StandInProvider, device_of
from tensoropt.runtime.device.provider import CPU, Provider, host_value
from tensoropt.runtime.device.providers import check_provider
from tensoropt.runtime.session.session import RankSession, one_device_session
from tensoropt.runtime.support.dtypes import ONNX_CODES, dtype_of
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.support.job import Job

TYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool", *ONNX_CODES]


@pytest.fixture
def device(monkeypatch) -> Iterator[StandInProvider]:
    """Device code over the stand-in for the CUDA runtime."""
    monkeypatch.setenv("TENSOROPT_CUDART", str(stand_ins() / "libcudart.so.13"))
    cudart._library.cache_clear()
    yield StandInProvider(0)
    cudart._library.cache_clear()


@pytest.fixture(params=["cpu", "cuda"])
def provider(request, device: StandInProvider) -> Provider:
    return CPU if request.param == "cpu" else device


@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
@pytest.mark.parametrize("name", TYPES)
def test_arrays_hold_what_is_put(provider: Provider, name: str, shape: tuple[int, ...]) -> None:
    dtype = dtype_of(name)
    given = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    first, second = provider.zeros(shape, dtype), provider.empty(shape, dtype)
    assert (first.shape, first.dtype, first.nbytes) == (shape, dtype, given.nbytes)
    assert not first.get().astype(bool).any()
    first.put(given)
    second.copy(first)
    first.zero()
    for found in (second.get(), provider.fetch(host_value(given)), provider.place(given).get()):
        assert (found.dtype, found.shape) == (dtype, shape)
        assert found.tobytes() == given.tobytes()
    assert not first.get().astype(bool).any()


def test_on_the_cpu_an_array_is_its_memory() -> None:
    given = np.zeros((2, 3), np.float32)
    assert CPU.place(given).get() is given
    assert CPU.zeros((3,), given.dtype).address % 64 == 0


def test_a_device_takes_only_what_fits(provider: Provider) -> None:
    if provider is not CPU:
        with pytest.raises(ValueError, match=r"expected float32 \(2, 3\), got: float64 \(2, 3\)"):
            provider.zeros((2, 3), np.dtype(np.float32)).put(np.zeros((2, 3)))
        part = np.arange(12, dtype=np.float32).reshape(3, 4).T[:2]
        placed = provider.place(part)
        np.testing.assert_array_equal(placed.get(), part)
        assert provider.placed_bytes() == part.nbytes


def opened(tmp_path: Path, provider: Provider) -> RankSession:
    """x + 1, x itself, and a constant."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["y"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    outputs = [value_info(name, "float32", [2]) for name in ("y", "same", "one")]
    weights = {"one": np.ones(2, np.float32)}
    path = tmp_path / "m.onnx"
    onnx.save(model_of(nodes, [value_info("x", "float32", [2])], outputs, weights), path)
    return one_device_session(path, provider)


def test_outputs_of_a_run_are_not_the_next_ones(provider: Provider, tmp_path: Path) -> None:
    session = opened(tmp_path, provider)
    fetched = []
    for start in (1, 5):
        session.feed("x", np.array([start, start + 1], np.float32))
        session.run()
        session.run()
        fetched.append(session.fetch())
    for start, found in zip((1, 5), fetched, strict=True):
        np.testing.assert_array_equal(found["y"], [start + 1, start + 2])
        np.testing.assert_array_equal(found["same"], [start, start + 1])
        np.testing.assert_array_equal(found["one"], [1, 1])


def test_values_decide_the_size_of_an_output(provider: Provider, tmp_path: Path) -> None:
    """Also where the session is not fed anew: a model may draw them."""
    node = helper.make_node("NonZero", ["x"], ["y"])
    ends = [value_info("x", "float32", [3])], [value_info("y", "int64", [1, "found"])]
    onnx.save(model_of([node], *ends), tmp_path / "m.onnx")
    session = one_device_session(tmp_path / "m.onnx", provider)
    x = provider.zeros((3,), np.dtype(np.float32))
    session.read("x", x)
    for values in ([0, 0, 0], [1, 0, 2], [0, 3, 0]):
        x.put(np.array(values, np.float32))
        session.run()
        np.testing.assert_array_equal(session.fetch()["y"], np.nonzero(values))


def test_arrays_stay_where_they_are(provider: Provider, tmp_path: Path) -> None:
    session = opened(tmp_path, provider)
    x = provider.zeros((2,), np.dtype(np.float32))
    session.read("x", x)
    session.write("y", x)
    for _ in range(3):
        session.run()
    np.testing.assert_array_equal(x.get(), [3, 3])


class Binding:
    """What a session's binding is told."""

    def __init__(self) -> None:
        self.bound: list[str] = []

    def bind_output(self, *_: object) -> None: ...

    def bind_ortvalue_input(self, name: str, value: object) -> None:
        self.bound.append(name)

    def bind_input(self, name: str, *_: object) -> None:
        self.bound.append(name)


PLACES = {"shape": "Cpu", "axes": "CudaPinned", "x": "Cuda"}


def test_inputs_that_are_elsewhere_are_bound_before_each_run(device: StandInProvider) -> None:
    binding = Binding()
    fake = SimpleNamespace(
        io_binding=lambda: binding,
        get_inputs=lambda: [SimpleNamespace(name=name) for name in PLACES],
        get_outputs=lambda: [SimpleNamespace(name="y", type="tensor(float)", shape=[2])],
        get_input_memory_infos=lambda: [SimpleNamespace(name=name) for name in PLACES.values()],
        run_with_iobinding=lambda _: None,
    )
    session = RankSession(fake, CudaProvider(0))
    for provider in (device, CPU):
        for name in PLACES:
            session.read(name, provider.zeros((2,), np.dtype(np.int64)))
        binding.bound.clear()
        session.run()
        session.run()
        assert binding.bound == (["shape", "axes"] * 2 if provider is device else ["x"] * 2)


@pytest.mark.parametrize(
    ("rank", "shown", "devices", "number"),
    [
        (0, [None], 1, 0),
        (3, [None] * 4, 8, 3),
        (1, ["0,1", "0,1"], 2, 1),
        (1, ["0", "1"], 1, 0),
    ],
)
def test_ranks_take_devices_in_turn(rank, shown, devices, number) -> None:
    assert device_of(rank, shown, devices) == number


def test_more_ranks_than_devices() -> None:
    for shown in ([None] * 3, ["0", "0", "1"], ["0,1", "0,1", "0,1"]):
        devices = 2 if shown[0] == "0,1" else 1
        message = f"3 ranks on a machine with {devices} GPUs, expected a GPU for each rank"
        with pytest.raises(UserError, match=message):
            device_of(0, shown, devices)
        found = [device_of(rank, shown, devices, share_gpus=True) for rank in range(3)]
        assert found == ([0, 1, 0] if devices == 2 else [0, 0, 0])


def test_sharing_needs_a_recent_nccl(monkeypatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(UserError, match=r"--share-gpus: expected NCCL 2.30 or newer, got: 2.28.9"):
        cuda._allow_sharing("2.28.9", 2, 1)
    cuda._allow_sharing("2.30.3", 2, 2)
    assert os.environ == {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    cuda._allow_sharing("2.30.3", 3, 2)
    assert os.environ["NCCL_MAX_CTAS"] == "4"
    os.environ["NCCL_MAX_CTAS"] = "2"
    cuda._allow_sharing("2.30.3", 3, 2)
    assert os.environ["NCCL_MAX_CTAS"] == "2"


def test_onnx_runtime_without_cuda(monkeypatch) -> None:
    monkeypatch.delenv("TENSOROPT_STAND_IN", raising=False)
    with pytest.raises(UserError) as error:
        check_provider(Job(("p",), provider="cuda"))
    assert str(error.value).startswith("provider cuda: onnxruntime ")
    assert "expected onnxruntime-gpu: pip uninstall --yes onnxruntime, then pip" in str(error.value)
    monkeypatch.setattr(cuda, "installation_fault", lambda gpu: None)
    with pytest.raises(UserError, match="was built without CUDA"):
        check_provider(Job(("p",), provider="cuda"))


@pytest.mark.parametrize("flag", ["share_gpus", "cuda_graphs"])
def test_flags_of_cuda_need_it(flag: str) -> None:
    with pytest.raises(UserError, match=f"^{flag}: expected provider cuda$"):
        check_provider(Job(("p",), **{flag: True}))


def test_a_folder_without_stand_ins(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSOROPT_STAND_IN", str(tmp_path))
    with pytest.raises(UserError, match=f"expected {tmp_path}/libnccl.so.2, which is missing"):
        check_provider(Job(("p",), provider="cuda"))


LOG = (
    "\x1b[1;31m2026-11-21 17:03:24.59 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator"
    "()] Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library libx.so with error: liby.so: "
    "cannot open shared object file\n\x1b[m\n\x1b[0;93m2026-11-21 [W:onnxruntime:] more\x1b[m\n"
)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (LOG, "Failed to load library libx.so with error: liby.so: cannot open shared object file"),
        ("\x1b[0;93mno device\x1b[m\n", "no device"),
        ("", "its log has no reason"),
    ],
)
def test_a_session_that_fell_back_to_the_cpu(said: str, reason: str) -> None:
    def make() -> SimpleNamespace:
        os.write(2, said.encode())  # as C++ does
        return SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])

    with pytest.raises(UserError) as error:
        CudaProvider(0).open_session(make)
    assert str(error.value) == f"ONNX Runtime cannot use CUDA here: {reason}"


def test_nodes_that_a_device_left_to_the_cpu() -> None:
    parts = [
        SimpleNamespace(ep_name=f"{name}ExecutionProvider", get_nodes=lambda n=nodes: [None] * n)
        for name, nodes in (("CUDA", 5), ("CPU", 2), ("CPU", 1))
    ]
    session = SimpleNamespace(get_provider_graph_assignment_info=lambda: parts)
    assert CudaProvider(0).nodes_on_cpu(session) == 3


def test_the_copies_of_the_cuda_runtime(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSOROPT_CUDART", str(tmp_path / "none.so"))
    cudart._library.cache_clear()
    with pytest.raises(UserError, match=r"the CUDA runtime cannot be loaded: .*none\.so"):
        cudart.copy(1, 1, 1)
    monkeypatch.setenv("TENSOROPT_CUDART", str(stand_ins() / "libcudart.so.13"))
    cudart._library.cache_clear()
    with pytest.raises(UserError, match=r"cudaSetDevice: .* \(CUDA error 101\)"):
        cudart.use_device(100)
    cudart._library.cache_clear()


@pytest.mark.parametrize(
    ("shown", "number", "name"),
    [("", 1, "1"), ("3,5", 1, "5"), ("3", 1, "1"), ("GPU-ab", 0, "GPU-ab")],
)
def test_a_gpu_without_memory_is_called_as_on_the_machine(
    monkeypatch: pytest.MonkeyPatch, shown: str, number: int, name: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    error = RuntimeError("Failed to allocate memory for requested buffer of size 64")
    assert CudaProvider(number).explain(error) == f"GPU {name}: {one_line(error)}"
    assert CudaProvider(number).explain(RuntimeError("no kernel")) == one_line(
        RuntimeError("no kernel")
    )
