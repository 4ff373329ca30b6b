"""What the check runs on: the facts for its report, or why it cannot run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu.failure import RunError
from gpu.ranks import on_ranks
from tensoropt.runtime.onnx_runtime import installation_fault, installed_builds

__all__ = ["facts", "missing", "probe", "share_gpus"]


def missing() -> str | None:
    """Return what a check on GPUs lacks here, None if nothing: looked for on a rank of its own."""
    fault = installation_fault(gpu=True)
    if fault is not None:
        return fault
    try:
        on_ranks("gpu.machine:probe", 1)
    except RunError as error:
        return str(error).removeprefix("rank0: UserError: ")
    return None


def probe(comm: Any) -> dict[str, Any]:
    """Return the versions of NCCL and CUDA, and the bytes of every GPU. Raises `UserError`."""
    from gpu.bound import open_provider
    from tensoropt.runtime.ops import library

    open_provider("cuda", comm)
    found: dict[str, Any] = library.cuda()
    return found


def share_gpus(environment: Any = os.environ) -> None:
    """Set what ranks that share a GPU need, unless it is set.

    NCCL's guide asks for few thread blocks per rank, as kernels that wait for one another must all
    fit on the device.
    """
    environment.setdefault("NCCL_MAX_CTAS", "4")


def facts(provider: str, stand_in: bool) -> Mapping[str, str]:
    """Return what the figures depend on, by what it is called."""
    build = " ".join(f"{name} {version}" for name, version in installed_builds().items())
    held = {"processor": f"{_processor()}, {os.cpu_count()} cores", "ONNX Runtime": build}
    if provider == "cpu":
        return {**held, "communication": "MPI"}
    try:
        found = on_ranks("gpu.machine:probe", 1)
    except RunError as error:
        return {**held, "CUDA": str(error)}
    versions = {name: str(found[key]) for name, key in (("NCCL", "nccl"), ("CUDA", "cuda"))}
    if stand_in:
        return {**held, **versions, "GPU": "none: stand-ins for NCCL and CUDA on host memory"}
    return {"GPU": _gpus(), **held, **versions}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _gpus() -> str:
    """Return name, memory and driver as the driver's own tool gives them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__} of nvidia-smi)"
    lines = said.strip().splitlines()
    name, memory, driver = (part.strip() for part in lines[0].split(","))
    return f"{len(lines)} x {name}, {memory}, driver {driver}"
