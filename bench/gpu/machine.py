"""The machine of the check: facts for the report, or the reason why it cannot run."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from gpu.failure import RunError
from gpu.ranks import on_ranks
from tensoropt.runtime.support.onnx_runtime import installation_fault, installed_builds

__all__ = ["facts", "missing", "probe"]

_DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")


def missing() -> str | None:
    """Return the obstacle to a check on GPUs, None without one; probed in a separate rank."""
    if not any(Path(place).exists() for place in _DRIVER):
        return "no GPU: there is no NVIDIA driver on this machine"
    fault = installation_fault(gpu=True)
    if fault is not None:
        return fault
    try:
        on_ranks("gpu.machine:probe", 1)
    except RunError as error:
        return str(error).removeprefix("rank0: UserError: ").removeprefix("provider cuda: ")
    return None


def probe(comm: Any) -> dict[str, Any]:
    """Return the versions of NCCL and CUDA, and the bytes of every GPU. Raises `UserError`."""
    from gpu.bound import open_provider
    from tensoropt.runtime.ops import library

    open_provider("cuda", comm)
    found: dict[str, Any] = library.cuda()
    return found


def facts(provider: str, stand_in: bool) -> tuple[dict[str, str], int]:
    """Return the facts that figures depend on, by name, and the number of GPUs."""
    build = " ".join(f"{name} {version}" for name, version in installed_builds().items())
    held = {"processor": f"{_processor()}, {os.cpu_count()} cores", "ONNX Runtime": build}
    if provider == "cpu":
        return {**held, "communication": "MPI"}, 0
    found = on_ranks("gpu.machine:probe", 1)
    held |= {"CUDA": found["cuda"], "NCCL": found["nccl"]}
    if stand_in:
        return {"GPU": "none: stand-ins for NCCL and CUDA on host memory", **held}, 0
    count = len(found["gpus"])
    gpu = f"{count} x {found['names'][0]}, {found['gpus'][0] / 2**30:.0f} GiB"
    return {"GPU": gpu, "driver": f"{_driver()}, for CUDA {found['driver']}", **held}, count


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def _driver() -> str:
    """Return the driver's version, as reported by nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__} of nvidia-smi)"
    return said.splitlines()[0].strip()
