"""The choice of memory for a rank's state."""

from __future__ import annotations

from tensoropt.elastic.generation.memory import StateMemory
from tensoropt.elastic.generation.on_host import HostMemory
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["memory_of"]


def memory_of(plan: TrainingPlan, rank: int, provider: Provider) -> StateMemory:
    """Return memory for a rank's state on the device of ``provider``. Raises `UserError`."""
    if provider.name == "cpu":
        return HostMemory(plan, rank)
    from tensoropt.elastic.generation.on_cuda import CudaMemory
    from tensoropt.runtime.device.cuda import CudaProvider

    assert isinstance(provider, CudaProvider), provider.name
    return CudaMemory(plan, rank, provider)
