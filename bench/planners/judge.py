"""Sailor's simulator as the judge of plans: whether a plan fits, its time and its memory.

Runs with the Python of the planners, so nothing of tensoropt is imported.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contestants import SIZES, TIMES, Task

__all__ = ["Judge", "OperatorJudge", "judge_of"]

Plan = dict[str, Any]
_GIB = 1 << 30
_HALVINGS = 24


class Judge:
    """Sailor's simulator of layers.

    It takes the time of a layer that its profiles lack as zero, and leaves out the time of
    computation in a tensor group of several machines. So such plans cannot be judged.
    """

    simulator: Any
    capacities: dict[str, float]

    def __init__(self, task: Task) -> None:
        self.task = task
        profiles = task.read(TIMES)
        self.profiles = profiles[task.model]
        root = str(task.planning.parents[2])
        self._load(
            "runtime_simulator", "Simulator", root, task.training, task.read(SIZES),
            False, profiles, task.zone,
        )  # fmt: skip

    def _load(self, module: str, name: str, *arguments: object) -> None:
        own = importlib.import_module(f"sailor.Planner.simulations.{module}")
        self.simulator = getattr(own, name)(*arguments)
        self.capacities = own.GPU_MEMORY_GB

    def fits(self, plan: Plan) -> bool:
        """Return whether a plan fits in the memory of all GPUs."""
        return bool(self.simulator.check_config_fits(plan))

    def time_s(self, plan: Plan) -> float:
        """Return the time of a training step."""
        return float(self.simulator.simulate_iteration_time(plan)[0])

    def memory_bytes(self, plan: Plan) -> int:
        """Return the least memory of a GPU in which a plan fits.

        The simulator says only whether it fits, so its table of capacities is changed for a while.
        """
        known = dict(self.capacities)
        low, high = 0.0, float(max(known.values()))
        try:
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                self.capacities.update(dict.fromkeys(known, middle))
                low, high = (low, middle) if self.fits(plan) else (middle, high)
        finally:
            self.capacities.update(known)
        return round(high * _GIB)

    def prepared(self, plan: Plan) -> Plan:
        """Return a plan as the simulator reads all of them.

        GPUs of one kind in one node are one machine of a tensor group, and numbers are integers.
        """
        own = {**plan, "mbs": int(plan["mbs"])}
        if "pipeline_list" in plan:
            own["pipeline_list"] = [_pipeline(pipeline) for pipeline in plan["pipeline_list"]]
        return own

    def objection(self, plan: Plan) -> str:
        """Return why a plan cannot be judged, or an empty text."""
        used: Counter[str] = Counter()
        for gpu, machines, degree, replicas in self._groups(plan):
            used[gpu] += degree * replicas
            if machines > 1:
                return "a tensor group of several machines"
            if str(degree) not in self.profiles[gpu].get(str(plan["mbs"]), {}):
                return f"no profile of micro-batch {plan['mbs']} and tensor degree {degree}"
        above = [gpu for gpu, count in used.items() if count > self.task.gpus[gpu]]
        if above:
            return f"more GPUs than there are: {used[above[0]]} {above[0]}"
        layers = [*range(self.task.training["num_all_layers"])]
        for pipeline in plan.get("pipeline_list", ()):
            if [layer for own in pipeline["layers_per_stage"] for layer in own] != layers:
                return "not each layer once"
        return ""

    def _groups(self, plan: Plan) -> Iterator[tuple[str, int, int, int]]:
        """Yield the GPU of tensor groups, their machines, their degree, and how many there are."""
        if "pipeline_list" not in plan:
            yield plan["gpu_type"], 1, plan["T"], plan["D"] * plan["P"]
            return
        for pipeline in plan["pipeline_list"]:
            for stage in pipeline["tmp_per_stage"]:
                for machines, degree in stage:
                    yield machines[0][0], len(machines), degree, 1

    def summary(self, plan: Plan) -> str:
        """Return the degrees of a plan: stages, tensor, data, micro-batch."""
        if "pipeline_list" not in plan:
            return f"{plan['P']}, {plan['T']}, {plan['D']}, {plan['mbs']}"
        pipelines: Sequence[Mapping[str, Any]] = plan["pipeline_list"]
        stages = _span(own["num_stages"] for own in pipelines)
        tensor = _span(group[2] for group in self._groups(plan))
        data = _span(degree * len(pipelines) for own in pipelines for degree in own["dp"])
        return f"{stages}, {tensor}, {data}, {plan['mbs']}"


class OperatorJudge(Judge):
    """Sailor's simulator of single operators, with which it judges plans of Aceso."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._load(
            "runtime_simulator_op", "SimulatorOP", task.training,
            task.read("llm_info_aceso.json"), False,
            task.read("simulations/profiles_tmp_aceso.json"),
        )  # fmt: skip

    def prepared(self, plan: Plan) -> Plan:
        return plan

    def objection(self, plan: Plan) -> str:
        count = sum(plan["num_gpus"])
        most = self.task.gpus[self.task.first]
        return f"more GPUs than there are: {count}" if count > most else ""

    def summary(self, plan: Plan) -> str:
        tensor = _span(n for own in plan["model_parallel_size_of_each_op"] for n in own)
        data = _span(n for own in plan["data_parallel_size_of_each_op"] for n in own)
        return f"{plan['num_stages']}, {tensor}, {data}, {plan['micro_batch_size']}"


def judge_of(planner: str, task: Task) -> Judge:
    """Return the simulator for the plans of a planner."""
    return OperatorJudge(task) if planner == "Aceso" else Judge(task)


def _pipeline(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **pipeline,
        "layers_per_stage": [[int(layer) for layer in own] for own in pipeline["layers_per_stage"]],
        "tmp_per_stage": [
            [(_machines(machines, degree), degree) for machines, degree in stage]
            for stage in pipeline["tmp_per_stage"]
        ],
    }


def _machines(machines: Sequence[Sequence[Any]], degree: int) -> Sequence[Sequence[Any]]:
    """Return one machine for GPUs of one kind that fit in a node."""
    is_node = len({own[0] for own in machines}) == 1 and degree <= machines[0][1]
    return machines[:1] if is_node else machines


def _span(numbers: Iterator[int]) -> str:
    """Return the least and the greatest number, once if they are equal."""
    own = sorted({*numbers})
    return str(own[0]) if len(own) == 1 else f"{own[0]} to {own[-1]}"
