"""Options: the same check for flags and for Python, and errors that name either."""

from __future__ import annotations

import argparse
import json
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tensoropt.runtime.pool.job import PoolJob
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser
from tensoropt.runtime.support.job import Job
from tensoropt.runtime.support.options import (
    OptionError,
    add_flags,
    command_text,
    flag_of,
    option_names,
    options_in,
)
from tensoropt.runtime.support.rank_options import RankOptions, SessionOptions
from tensoropt.runtime.training.job import TrainJob


def parsed(*flags: str) -> argparse.Namespace:
    parser = Parser(prog="command")
    add_flags(parser.add_argument, SessionOptions, *option_names(SessionOptions))
    return parser.parse(flags)


def test_flags_have_the_defaults_of_the_fields() -> None:
    values = options_in(parsed(), SessionOptions)
    assert values.pop("dims") == []  # texts such as batch=8
    assert SessionOptions(**values) == SessionOptions()


def test_flags_set_the_fields(tmp_path: Path) -> None:
    flags = ["--provider", "cuda", "--threads", "3", "--cuda-graphs", "--stall", "0.5"]
    values = options_in(parsed(*flags, "--custom-ops", str(tmp_path / "a.so")), SessionOptions)
    found = SessionOptions(**{**values, "dims": {"batch": np.int64(8)}})
    assert found == SessionOptions(
        provider="cuda",
        threads=3,
        cuda_graphs=True,
        stall_s=0.5,
        custom_ops=[tmp_path / "a.so"],
        dims={"batch": 8},
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("threads", 0, "expected a whole number from 1 to 1024, got: {}"),
        ("threads", 2.5, "expected a whole number from 1 to 1024, got: {}"),
        ("threads", 1025, "expected a whole number from 1 to 1024, got: {}"),
        ("stall_s", 0, "expected seconds above 0, got: {}"),
        ("stall_s", float("inf"), "expected seconds above 0, got: {}"),
        ("stall_s", float("nan"), "expected seconds above 0, got: {}"),
        ("provider", "cudaa", "expected 'cpu' or 'cuda', got: {}, did you mean 'cuda'?"),
    ],
)
def test_a_flag_and_an_argument_have_one_check(name: str, value: object, text: str) -> None:
    with pytest.raises(OptionError) as of_python:
        RankOptions(**{name: value})
    assert str(of_python.value) == f"{name}: {text.format(repr(value))}"
    with pytest.raises(UserError) as of_flag:
        parsed(flag_of(name), str(value))
    refusal = f"{flag_of(name)}: {text.format(repr(str(value)))}"
    assert str(of_flag.value) == f"{refusal} (see command --help)"


@pytest.mark.parametrize("value", [True, None, "cpu\n", ["cpu"], 3])
def test_values_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(OptionError, match="provider: expected 'cpu' or 'cuda', got: "):
        RankOptions(provider=value)  # type: ignore[arg-type]


def test_an_error_names_arguments_in_python_and_flags_in_commands() -> None:
    error = OptionError("{checkpoint_every} {0}: expected {start_timeout_s} too", "{x}")
    for found in (error, pickle.loads(pickle.dumps(error))):  # ranks send it to each other
        assert str(found) == "checkpoint_every {x}: expected start_timeout_s too"
        assert command_text(found) == "--checkpoint-every {x}: expected --start-timeout too"
    assert command_text(UserError("a {b}")) == "a {b}"
    assert flag_of("dims") == "--dim"


@pytest.mark.parametrize(
    "job",
    [
        Job(("plan",), dims={"batch": 2}, custom_ops=["/a.so"], int_range=(1, 3), timeout_s=2),
        PoolJob("plan", "inference", {"prefill": "p"}, start_timeout_s=3, custom_ops=["/a.so"]),
        TrainJob("plan", steps=3, data="d.npz", learning_rate=1, share_gpus=True),
    ],
)
def test_ranks_read_the_same_job(job: Job | PoolJob | TrainJob) -> None:
    values = json.loads(json.dumps(asdict(job)))
    read = Job.from_values(values) if isinstance(job, Job) else type(job)(**values)
    assert read == job
