"""Times of nodes, from what ONNX Runtime writes down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensoropt.runtime.check.trace import kernel_times_s, merge_ranks


def kernel(name: str, start: int, duration: int, operator: str = "Add") -> dict[str, Any]:
    named = {"name": f"{name}_kernel_time", "args": {"op_name": operator}}
    return {"cat": "Node", "ts": start, "dur": duration, **named}


def run(start: int, *durations: tuple[str, int]) -> list[dict[str, Any]]:
    """Return the events of one run, the run itself last, as it is written when it ends."""
    events, now = [], start
    for name, duration in durations:
        events.append(kernel(name, now, duration))
        now += duration
    return [*events, {"cat": "Session", "name": "model_run", "ts": start, "dur": now - start}]


def written(folder: Path, *runs: list[dict[str, Any]]) -> Path:
    path = folder / "trace.json"
    other = {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5}
    path.write_text(json.dumps([other, *(event for events in runs for event in events)]))
    return path


def test_the_fastest_runs_after_the_first_ones_count(tmp_path: Path) -> None:
    runs = [run(100 * number, ("a", 10 + number), ("b", 3)) for number in range(12)]
    found = kernel_times_s(written(tmp_path, *runs), warm_up=2)
    assert found["a"] == ("Add", pytest.approx(12.5e-6))  # cut to whole microseconds
    assert found["b"] == ("Add", pytest.approx(3.5e-6))


def test_a_node_in_a_loop_counts_each_time(tmp_path: Path) -> None:
    found = kernel_times_s(written(tmp_path, run(0, ("a", 2), ("a", 3))), warm_up=0)
    assert found["a"][1] == pytest.approx(6e-6)


def test_a_collective_beside_other_nodes_has_the_time_of_its_transfer(tmp_path: Path) -> None:
    runs = [run(100 * number, ("s", 2), ("a", 10), ("w", 3)) for number in range(4)]
    for event in (event for events in runs for event in events):
        kinds = {"s_kernel_time": "AllReduceStart", "w_kernel_time": "AllReduceWait"}
        event["args"] = {"op_name": kinds.get(event["name"], "Add")}
    transfers = {"s": [9.0, 0.5, 0.25, 0.75], "a": [7.0] * 4, "gone": [1.0] * 4}
    found = kernel_times_s(written(tmp_path, *runs), 1, transfers)
    assert found["s"] == ("AllReduceStart", 0.25)
    assert found["w"] == ("AllReduceWait", pytest.approx(3.5e-6))
    assert found["a"] == ("Add", pytest.approx(10.5e-6))
    other = {"s": ("AllReduceStart", 0.125), "w": ("AllReduceWait", 1.0), "a": ("Add", 0.0)}
    assert merge_ranks([found, other])["s"] == 0.125
    assert merge_ranks([found, other])["w"] == pytest.approx(3.5e-6)


def test_ranks_agree_on_a_mean_but_on_the_shortest_wait() -> None:
    ranks = [
        {"a": ("Add", 1.0), "c": ("AllReduce", 9.0)},
        {"a": ("Add", 3.0), "c": ("AllReduce", 4.0)},
    ]
    assert merge_ranks(ranks) == {"a": 2.0, "c": 4.0}


def test_a_node_of_one_rank_alone_has_its_time() -> None:
    assert merge_ranks([{"a": ("Add", 1.0)}, {}]) == {"a": 1.0}


@pytest.mark.parametrize("kind", ["AllToAll", "CombinedAllReduce", "CombinedAllGather"])
def test_each_kind_that_waits_for_other_ranks_takes_the_shortest_time(kind: str) -> None:
    assert merge_ranks([{"c": (kind, 9.0)}, {"c": (kind, 4.0)}]) == {"c": 4.0}
