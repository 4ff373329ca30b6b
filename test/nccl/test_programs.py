"""Random programs of collectives: right results, and ranks that call the same in the same order."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mpi_ranks import under_mpi
from recorded import FULL, check_together
from stand_ins import environment

RANKS = 4
SHAPE = [8, 4, 8]
DTYPES = ["float32", "float16", "bfloat16", "int64", "bool"]
# Ways in which the ranks fall into groups of one size; a rank's place in its group varies.
PARTITIONS = [
    [[0, 1, 2, 3]],
    [[2, 0, 3, 1]],
    [[0, 1], [2, 3]],
    [[2, 0], [1, 3]],
    [[3, 0], [1, 2]],
    [[0], [1], [2], [3]],
]


@st.composite
def programs(draw: st.DrawFn) -> dict[str, Any]:
    shape, steps = list(SHAPE), []
    for _ in range(draw(st.integers(1, 6))):
        groups = draw(st.sampled_from(PARTITIONS))
        step = draw(steps_on(shape, len(groups[0])))
        steps.append({**step, "groups": groups})
    return {"dtype": draw(st.sampled_from(DTYPES)), "shape": SHAPE, "steps": steps}


@st.composite
def steps_on(draw: st.DrawFn, shape: list[int], ranks: int) -> dict[str, Any]:
    """A collective that a tensor of ``shape`` allows; changes ``shape`` to the result's."""
    dims = st.integers(0, len(shape) - 1)
    even = [dim for dim, size in enumerate(shape) if size % ranks == 0]
    ops = ["AllReduce", "AllGather", *(["ReduceScatter", "AllToAll"] if even else [])]
    op, attributes = draw(st.sampled_from(ops)), {}
    if op in ("AllReduce", "ReduceScatter"):
        attributes["reduction"] = draw(st.sampled_from(["sum", "max", "min"]))
    if op == "AllGather":
        attributes["dim"] = draw(dims)
        shape[attributes["dim"]] *= ranks
    if op == "ReduceScatter":
        attributes["dim"] = draw(st.sampled_from(even))
        shape[attributes["dim"]] //= ranks
    if op == "AllToAll":
        attributes |= {"split_dim": draw(st.sampled_from(even)), "concat_dim": draw(dims)}
        shape[attributes["split_dim"]] //= ranks
        shape[attributes["concat_dim"]] *= ranks
    return {"op": op, "attributes": attributes}


# A launch takes seconds, a program a few milliseconds. The first list is the simplest
# one. Shrinking would take minutes, and the ranks say which program is wrong.
@settings(
    max_examples=20 if FULL else 2,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(programs(), min_size=16, max_size=16))
def test_results_and_what_ranks_call_together(drawn: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "programs.json").write_text(json.dumps(drawn))
        script = Path(__file__).with_name("programs.py")
        log = folder / "log"
        wrong = under_mpi(RANKS, script, folder / "programs.json", env=environment(log))
        assert wrong == []
        check_together(log, RANKS)
