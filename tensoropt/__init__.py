"""Spread an ONNX model over several devices: what a person uses from Python.

Names are imported when they are first used: `import tensoropt` costs next to nothing, and a machine
that only runs plans needs no compiler.

ONNX Runtime's telemetry, which writes to HOME and TMPDIR as soon as it is imported, is off unless
``ORT_DISABLE_TELEMETRY=0`` asks for it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensoropt.compiler.api.frontier import Frontier, Interrupted, Point
    from tensoropt.compiler.api.model import Model, load
    from tensoropt.compiler.api.scaling import Scaling
    from tensoropt.compiler.api.service import Service
    from tensoropt.compiler.api.training import Training
    from tensoropt.compiler.planning.service import Deployment, ServiceLevel
    from tensoropt.compiler.search.problem.problem import DoesNotFitError
    from tensoropt.runtime.api.check import check
    from tensoropt.runtime.api.plan import Plan, diff
    from tensoropt.runtime.api.state_dict import state_dict
    from tensoropt.runtime.api.train import TrainingInterrupted, TrainingRun, train
    from tensoropt.runtime.pool.session import Session
    from tensoropt.runtime.support.errors import RankFailedError, TensoroptError, UserError
    from tensoropt.runtime.support.version import __version__
    from tensoropt.runtime.text.session import TextSession

__all__ = [
    "Deployment",
    "DoesNotFitError",
    "Frontier",
    "Interrupted",
    "Model",
    "Plan",
    "Point",
    "RankFailedError",
    "Scaling",
    "Service",
    "ServiceLevel",
    "Session",
    "TensoroptError",
    "TextSession",
    "Training",
    "TrainingInterrupted",
    "TrainingRun",
    "UserError",
    "__version__",
    "check",
    "diff",
    "load",
    "state_dict",
    "train",
]

_HOMES = {
    "tensoropt.compiler.api.frontier": ("Frontier", "Interrupted", "Point"),
    "tensoropt.compiler.api.model": ("Model", "load"),
    "tensoropt.compiler.api.scaling": ("Scaling",),
    "tensoropt.compiler.api.service": ("Service",),
    "tensoropt.compiler.api.training": ("Training",),
    "tensoropt.compiler.planning.service": ("Deployment", "ServiceLevel"),
    "tensoropt.compiler.search.problem.problem": ("DoesNotFitError",),
    "tensoropt.runtime.api.check": ("check",),
    "tensoropt.runtime.api.plan": ("Plan", "diff"),
    "tensoropt.runtime.api.state_dict": ("state_dict",),
    "tensoropt.runtime.api.train": ("TrainingInterrupted", "TrainingRun", "train"),
    "tensoropt.runtime.pool.session": ("Session",),
    "tensoropt.runtime.support.errors": ("RankFailedError", "TensoroptError", "UserError"),
    "tensoropt.runtime.support.version": ("__version__",),
    "tensoropt.runtime.text.session": ("TextSession",),
}
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # to a type checker it would say that there is any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'tensoropt' has no attribute '{name}'")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
