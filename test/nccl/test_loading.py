"""What the library finds of NCCL and CUDA, and what it says where that is not enough."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from handmade import collective, model_of, value_info
from stand_ins import environment, stand_ins

FACTS = "import json; from tensoropt.runtime.ops import library; print(json.dumps(library.cuda()))"


def facts(**variables: object) -> dict:
    """What a process says that has these variables; a library of a name alone is the stand-in."""
    names = {"TENSOROPT_NCCL": "libnccl.so.2", "TENSOROPT_CUDART": "libcudart.so.13"}
    paths = {name: str(stand_ins() / file) for name, file in names.items()}
    env = environment() | paths | {name: str(value) for name, value in variables.items()}
    done = subprocess.run([sys.executable, "-c", FACTS], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_what_is_there() -> None:
    found = facts(TENSOROPT_STAND_IN_GPUS=3, TENSOROPT_STAND_IN_MEMORY=1 << 34)
    assert (found["nccl"], found["cuda"], found["driver"]) == ("2.32.3", "13.0", "13.0")
    assert found["gpus"] == [1 << 34] * 3


def test_nothing_is_there() -> None:
    """The usual names; a machine that has both libraries and a GPU may run these tests too."""
    found = facts(TENSOROPT_NCCL="", TENSOROPT_CUDART="")
    assert found.get("gpus") or "\n" not in found["error"]


@pytest.mark.parametrize(
    ("name", "what"), [("TENSOROPT_NCCL", "NCCL"), ("TENSOROPT_CUDART", "the CUDA runtime")]
)
def test_a_path_that_leads_nowhere(name: str, what: str) -> None:
    message = f"{what} cannot be loaded from {name}: /no/such/file.so: cannot open shared object"
    assert facts(**{name: "/no/such/file.so"})["error"].startswith(message)


def test_another_library_under_its_name() -> None:
    path = stand_ins() / "libcudart.so.13"
    wanted = f"NCCL has no function ncclGetVersion, expected a newer {path}"
    assert facts(TENSOROPT_NCCL=path)["error"] == wanted


@pytest.mark.parametrize(("version", "text"), [(21003, "2.10.3"), (2708, "2.7.8")])
def test_a_nccl_that_is_too_old(version: int, text: str) -> None:
    error = facts(TENSOROPT_STAND_IN_NCCL_VERSION=version)["error"]
    assert error == f"NCCL is too old, expected 2.13.4 or later, got: {text}"


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("TENSOROPT_STAND_IN_GPUS", 0, "no CUDA-capable device is detected"),
        ("TENSOROPT_STAND_IN_DRIVER", 12020, "driver version is insufficient for CUDA runtime"),
    ],
)
def test_no_gpu_and_an_old_driver(variable: str, value: int, text: str) -> None:
    assert text in facts(**{variable: value})["error"]


HOST = """
import sys
from pathlib import Path
import onnxruntime
from mpi4py import MPI
from tensoropt.runtime.ops import library_path
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.add_session_config_entry("tensoropt.stand_in", "1")
options.register_custom_ops_library(str(library_path()))
try:
    onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
except Exception as error:
    print(error)
"""


def test_a_host_that_asks_for_nothing_before(tmp_path: Path) -> None:
    """Any program that loads the graph is told by the node."""
    node = collective("AllReduce", "x", "y", 0, "total", group=[0], reduction="sum")
    ends = [[value_info(name, "float32", [2])] for name in "xy"]
    onnx.save(model_of([node], *ends), tmp_path / "g.onnx")
    env = environment() | {"TENSOROPT_CUDART": "/no/such/file.so"}
    command = [sys.executable, "-c", HOST, str(tmp_path / "g.onnx")]
    said = subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout
    assert "AllReduce node 'total': the CUDA runtime cannot be loaded from TENSOROPT_CUDART" in said
