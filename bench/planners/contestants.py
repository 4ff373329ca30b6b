"""Sailor's planners, and the files and the description of a cluster that each of them reads.

Runs with the Python of the planners, so nothing of tensoropt is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PLANNERS", "SIZES", "TIMES", "Planner", "Task"]

TIMES = "simulations/profiles_tmp.json"
"""The measured times of layers, that the simulator reads."""
SIZES = "llm_info.json"
"""The sizes of layers, that the simulator reads."""
_OBJECTIVE = "throughput"


class Task:
    """A model and the GPUs of a cluster in one zone, as the files of a checkout describe them.

    ``planning`` is the folder of the planners, ``training`` the name of a training configuration,
    ``gpus`` the number of each kind, in whole nodes. ``quotas`` is a file with the most GPUs that
    Sailor's own planner may use.
    """

    def __init__(
        self, planning: Path, training: str, gpus: Mapping[str, int], quotas: Path
    ) -> None:
        self.planning, self.gpus, self.quotas = planning, gpus, quotas
        self.training_file = planning / "simulations/configs" / training
        self.training: dict[str, Any] = json.loads(self.training_file.read_text("utf-8"))
        self.model: str = self.training["model"]
        self.nodes: dict[str, Any] = self.read("simulations/configs/basic_cluster_config.json")
        self.zone: str = self.nodes["zone"]

    def read(self, name: str) -> Any:
        """Return the content of a file of the planners."""
        return json.loads((self.planning / name).read_text("utf-8"))

    @property
    def first(self) -> str:
        """The only kind of GPU that planners of uniform clusters see."""
        return next(iter(self.gpus))

    def profiles(self, planner: str) -> Path:
        """Return the folder of the profiles of the model for a planner."""
        return self.planning / "baselines" / planner / "profiles" / self.model

    def describe_first(self) -> dict[str, Any]:
        """Return the first kind of GPU, for planners of uniform clusters."""
        return {"gpu_type": self.first, "zone": self.zone, **self._group(self.first)}

    def describe_groups(self) -> dict[str, Any]:
        """Return the nodes of each kind of GPU."""
        return {**{gpu: self._group(gpu) for gpu in self.gpus}, "zone": self.zone}

    def describe_limits(self) -> dict[str, Any]:
        """Return the GPUs of each kind, and no limit on cost and throughput."""
        return {**self._zoned(), "max_cost": 0.0, "min_throughput": 0.0}

    def describe_sizes(self) -> dict[str, Any]:
        """Return the GPUs of each kind, and the size of its nodes."""
        sizes = {gpu: self.nodes[gpu]["gpus_per_node"] for gpu in self.gpus}
        return {**self._zoned(), "gpu_types": [*self.gpus], "gpus_per_node": sizes}

    def _zoned(self) -> dict[str, Any]:
        return {f"{gpu}_{self.zone}": count for gpu, count in self.gpus.items()}

    def _group(self, gpu: str) -> dict[str, int]:
        own = self.nodes[gpu]
        return {
            "num_nodes": self.gpus[gpu] // own["gpus_per_node"],
            "gpus_per_node": own["gpus_per_node"],
            "mem_per_gpu": own["mem_per_gpu"],
        }


@dataclass(frozen=True)
class Planner:
    """The module and the class of a planner, with the arguments after its profile.

    ``profile`` is the file or the folder that it reads, ``cluster`` describes a cluster to it.
    """

    module: str
    name: str
    profile: Callable[[Task], Path]
    arguments: Callable[[Task, str], Sequence[object]]
    cluster: Callable[[Task], dict[str, Any]]

    @property
    def mixes(self) -> bool:
        """True if it plans clusters of unlike GPUs."""
        return self.cluster is not Task.describe_first


def _varuna_file(task: Task) -> Path:
    size = task.nodes[task.first]["gpus_per_node"]
    return task.profiles("Varuna") / task.first / f"profile_{size}.json"


PLANNERS: Mapping[str, Planner] = {
    "AMP": Planner(
        "baselines.AMP.amp_planner", "AMPPlanner",
        lambda task: task.profiles("AMP"),
        lambda _, profile: (profile, _OBJECTIVE),
        Task.describe_groups,
    ),
    "Varuna": Planner(
        "baselines.Varuna.varuna_planner", "VarunaPlanner",
        _varuna_file,
        lambda _, profile: (profile, _OBJECTIVE),
        Task.describe_first,
    ),
    "Piper": Planner(
        "baselines.Piper.piper_planner", "PiperPlanner",
        lambda task: task.profiles("Piper") / task.first / "profile.json",
        lambda _, profile: (profile,),
        Task.describe_first,
    ),
    "Galvatron": Planner(
        "baselines.Galvatron.galvatron_planner", "GalvatronPlanner",
        lambda task: task.profiles("Galvatron") / task.first,
        lambda task, profile: (str(task.training_file), profile, _OBJECTIVE),
        Task.describe_first,
    ),
    "Metis": Planner(
        "baselines.Metis.metis_planner", "MetisPlanner",
        lambda task: task.profiles("Metis"),
        lambda task, profile: (profile, str(task.training_file)),
        Task.describe_groups,
    ),
    "DTFM": Planner(
        "baselines.DTFM.dtfm_planner", "DTFMPlanner",
        lambda task: task.planning / TIMES,
        lambda task, profile: (profile, str(task.training_file), task.read(SIZES), False),
        Task.describe_sizes,
    ),
    "FlashFlex": Planner(
        "baselines.FlashFlex.flashflex_planner", "FlashFlexPlanner",
        lambda task: task.planning / "baselines/FlashFlex/src/machine_amounts.json",
        lambda _, profile: (profile,),
        Task.describe_groups,
    ),
    "Aceso": Planner(
        "baselines.Aceso.aceso_planner", "AcesoPlanner",
        lambda task: task.planning / "baselines/Aceso/profiler" / task.first,
        lambda _, profile: (profile,),
        Task.describe_first,
    ),
    "Sailor": Planner(
        "sailor_planner.cpp_src.planner", "SailorPlanner",
        lambda task: task.planning / "sailor_planner/profiles" / task.model,
        lambda task, profile: (
            f"{profile}/", str(task.training_file), str(task.quotas), _OBJECTIVE, False
        ),
        Task.describe_limits,
    ),
}  # fmt: skip
"""Sailor's planners by the names of their papers."""
