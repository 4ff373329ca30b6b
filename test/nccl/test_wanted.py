"""The oracle of recorded calls, itself: it accepts the calls of a plan, and no others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from compiled import compiled
from handmade import collective, model_of, value_info
from stand_ins import calls, environment
from wanted import Step, communicators, disagreement, steps
from zoo import transformer_path

from tensoropt.runtime.inference.jobs import check_plan

Calls = list[dict[str, Any]]
WAITS = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Step], Calls]:
    """What a rank of a plan with every kind of collective was to call, and called, in two runs."""
    folder = tmp_path_factory.mktemp("recorded")
    path = transformer_path("gpt2_tiny")
    plan = compiled(path, 4, 1, folder / "plans")[-1]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(folder / "log").items():
            patch.setenv(name, value)
        assert check_plan(plan, path, provider="cuda", runs=1, int_range=(0, 200)).passed
    return steps(plan / "rank1.onnx") * 2, calls(folder / "log", 1)


def test_every_kind_is_there(recorded: tuple[list[Step], Calls]) -> None:
    wanted, called = recorded
    reducing = {"AllReduce", "ReduceScatter"}
    moving = {"AllGather", "AllToAll", "CollectivePermute"}
    assert {step.kind for step in wanted} == reducing | moving
    assert len(communicators(wanted)) > 2
    assert disagreement(wanted, called, 1) == ""


def test_nothing_waits_from_the_first_run_to_the_last(recorded: tuple[list[Step], Calls]) -> None:
    names = [call["call"] for call in recorded[1]]
    at = [place for place, name in enumerate(names) if name == "ncclAllReduce"]
    assert not WAITS & set(names[at[0] : at[-1]])
    assert "cudaStreamSynchronize" in names[at[-1] :]  # outputs are fetched


def first(name: str) -> Callable[[Calls], int]:
    return lambda called: next(i for i, call in enumerate(called) if call["call"] == name)


def dropped(name: str) -> Callable[[Calls], None]:
    return lambda called: called.pop(first(name)(called))


def changed(name: str, **values: Any) -> Callable[[Calls], None]:
    return lambda called: called[first(name)(called)].update(values)


def doubled(name: str) -> Callable[[Calls], None]:
    return lambda called: called.insert(first(name)(called), called[first(name)(called)])


def swapped(called: Calls) -> None:
    """Two collectives in the wrong order."""
    i, j = (first(name)(called) for name in ("ncclAllReduce", "ncclAllGather"))
    called[i], called[j] = called[j], called[i]


@pytest.mark.parametrize(
    "spoil",
    [
        dropped("ncclAllReduce"),
        dropped("ncclSend"),
        dropped("cudaMemcpy2DAsync"),
        doubled("ncclReduceScatter"),
        doubled("cudaMemcpy2DAsync"),
        changed("ncclAllReduce", op="min"),
        changed("ncclAllReduce", count=1),
        changed("ncclReduceScatter", type="float16"),
        changed("ncclAllGather", world=[0, 1, 2]),
        changed("ncclRecv", peer=9),
        changed("cudaMemcpy2DAsync", from_pitch=1),
        swapped,
        lambda called: called.append(called[first("ncclAllGather")(called)]),
    ],
)
def test_other_calls_are_refused(
    recorded: tuple[list[Step], Calls], spoil: Callable[[Calls], Any]
) -> None:
    wanted, called = recorded
    spoilt = copy.deepcopy(called)
    spoil(spoilt)
    assert disagreement(wanted, spoilt, 1) != ""


def test_steps_stand_in_the_order_of_tokens(tmp_path: Path) -> None:
    nodes = [
        collective("AllReduce", "x", "b", 1, "second", group=[0, 1], reduction="max"),
        collective("AllToAll", "x", "a", 0, "first", group=[1, 0], split_dim=0, concat_dim=1),
    ]
    outputs = [value_info("a", "bool", [1, 4]), value_info("b", "bool", [2, 2])]
    onnx.save(model_of(nodes, [value_info("x", "bool", [2, 2])], outputs), tmp_path / "g.onnx")
    first_step = Step("first", "AllToAll", [1, 0], "uint8", 1, [2, 2], split_dim=0, concat_dim=1)
    second_step = Step("second", "AllReduce", [0, 1], "uint8", 1, [2, 2], "max")
    assert steps(tmp_path / "g.onnx") == [first_step, second_step]
    assert communicators([first_step, second_step]) == [[1, 0], [0, 1]]
