"""Ranks that train on data of every kind, beside the same samples from an .npz file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tensoropt.runtime.launch.start import start
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.job import TrainJob

STEPS = 9  # the eighth wraps around: there are 30 samples

_LOADERS = """
import numpy as np

held = dict(np.load({path!r}))

def sample(n):
    return {{name: array[n] for name, array in held.items()}}

def samples():
    return [sample(n) for n in range(len(held["x"]))]

class Stream:
    def __init__(self, end):
        self.end, self.at = end, 0
    def __len__(self):
        return len(held["x"])
    def seek(self, position):
        self.at = position
    def __iter__(self):
        return (sample(n) for n in range(self.at, self.end))

def stream():
    return Stream(30)

def short():
    return Stream(14)
"""


@pytest.fixture
def places(data: Path, tmp_path: Path) -> dict[str, str]:
    """The samples of ``data`` in several ways, by name."""
    held = dict(np.load(data))
    loaders = tmp_path / "loaders.py"
    loaders.write_text(_LOADERS.format(path=str(data)))
    folder = tmp_path / "rows"
    folder.mkdir()
    columns = {"x": pa.array(list(held["x"])), "labels": held["labels"]}
    for number, start_ in enumerate((0, 11, 23)):
        rows = slice(start_, (11, 23, 30)[number])
        part = pa.table({name: values[rows] for name, values in columns.items()})
        parquet.write_table(part, folder / f"{number}.parquet", row_group_size=4)
    names = ("samples", "stream", "short")
    return {"rows": str(folder), **{name: f"{loaders}:{name}" for name in names}}


def test_losses_are_those_of_npz(train, plans, places) -> None:
    _, expected = train(plans["data2"], STEPS)
    losses = [entry["loss"] for entry in expected]
    for kind in ("rows", "samples", "stream"):
        _, found = train(plans["data2"], STEPS, data=places[kind])
        assert [entry["loss"] for entry in found] == losses, kind


def test_other_ranks_go_on_where_these_ended(train, plans, places, tmp_path) -> None:
    """In an order drawn from a seed, the samples are those that one rank reads."""
    _, expected = train(plans["data1"], STEPS, data=places["rows"], shuffle=3)
    saved = {"checkpoint": str(tmp_path / "saved"), "data": places["rows"], "shuffle": 3}
    _, before = train(plans["data2"], 5, **saved)
    _, both = train(plans["data1"], STEPS - 5, resume=str(tmp_path / "saved"), **saved)
    assert len(before) == 5
    losses = [[entry["loss"] for entry in entries] for entries in (both, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_stream_that_ends_too_soon(plans, places, tmp_path: Path) -> None:
    """The error comes with the step that needs the sample, not when it is read ahead."""
    log = tmp_path / "log.jsonl"
    job = TrainJob(str(plans["data2"]), steps=9, data=places["short"], log=str(log))
    with pytest.raises(UserError, match=r"step 4: .*:short: ended after 14 samples, expected 30"):
        start(job)
    # Where rank 1 comes to its error first, it may end rank 0 before the line of step 3.
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps in ([1, 2], [1, 2, 3])
