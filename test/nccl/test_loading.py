"""What the library finds of NCCL and CUDA, and what it says where that is not enough."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
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
