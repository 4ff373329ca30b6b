"""GPUs that this machine does not have, as cuDNN describes them in JSON."""

from __future__ import annotations

import json
from typing import NamedTuple

__all__ = ["GPUS", "description"]


class _Gpu(NamedTuple):
    name: str
    multiprocessors: int
    memory_bytes: int
    shared_bytes: int
    """Memory that the threads of a block share, at most."""
    cache_bytes: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int


GPUS = {
    80: _Gpu("A100", 108, 80 << 30, 163 << 10, 40 << 20, 1_410_000, 1_593_000, 5120),
    90: _Gpu("H100", 132, 80 << 30, 227 << 10, 50 << 20, 1_980_000, 2_619_000, 5120),
    100: _Gpu("B200", 148, 180 << 30, 227 << 10, 126 << 20, 1_965_000, 3_996_000, 8192),
}
"""By architecture, from data sheets and CUDA's table of compute capabilities."""

_SHARED = {
    "cudnnVersion": 92800,
    "deviceId": 0,
    "cudaDeviceId": 0,
    "driverVer": 13000,
    "driverVersion": 13000,
    "maxGridSize": [(1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 1 << 16,
    "smCountOrigin": 0,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 48 << 10,
    "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1 << 10,
    "maxRegistersPerSM": 1 << 16,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
}


def description(architecture: int) -> bytes:
    """Return the JSON text of the GPU with an architecture."""
    gpu = GPUS[architecture]
    fields = {
        "deviceVer": architecture * 10,
        "totalGlobalMem": gpu.memory_bytes,
        "multiProcessorCount": gpu.multiprocessors,
        "maxSharedMemoryPerBlockOptin": gpu.shared_bytes,
        "smClockRateKHz": gpu.clock_khz,
        "memClockRateKHz": gpu.memory_clock_khz,
        "memoryBusWidth": gpu.bus_bits,
        "l2CacheSize": gpu.cache_bytes,
        "deviceName": f"NVIDIA {gpu.name}",
    }
    return json.dumps(_SHARED | fields).encode()
