"""Prompts that one plan reads, and texts that another one goes on with, against one device."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from handmade_decoder import greedy, write_decoder

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.cli.run import main as run_plan
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.weights import common_weights
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.text.decoder import decoder_of
from tensoropt.runtime.text.session import TextSession
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.opening import open_texts, split_plans
from tensoropt.serving.options import TextLimits

PROMPTS = ([3, 7, 1], [5, 6, 7, 8, 9], [1])


@pytest.fixture(scope="module", params=["concat", "in place"])
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path]]:
    """A model, and a folder with plans: their caches lie whole, or by heads."""
    folder = tmp_path_factory.mktemp("prefill")
    model = write_decoder(folder / "m.onnx", layers=1, in_place=request.param == "in place")
    for name, flags in {
        "whole": ["--pick", "fastest"],
        "heads": ["--device", "v100", "--pick", "leanest"],
        "fours": ["--pin", "logits=S(1)@x", "--dim", "sequence=4"],
        "single": [
            "--device",
            "v100",
            "--pick",
            "leanest",
            "--dim",
            "sequence=1",
            "--dim",
            "batch=1",
        ],
    }.items():
        assert compile_model([str(model), "--mesh", "2", *flags, "-o", str(folder / name)]) == 0
    shutil.copytree(folder / "heads", folder / "copy")
    return model, folder


def layouts(plan: Path) -> set[int]:
    return {cache.past.layout.pieces(1) for cache in decoder_of(Plan.load(plan)).caches}


@pytest.mark.parametrize(
    ("decode", "prefill", "parts"),
    [("heads", "copy", (2, 2)), ("heads", "whole", (2, 1)), ("whole", "heads", (1, 2))],
)
def test_tokens_are_those_of_one_device(
    family: tuple[Path, Path], decode: str, prefill: str, parts: tuple[int, int]
) -> None:
    model, folder = family
    assert (layouts(folder / decode), layouts(folder / prefill)) == ({parts[0]}, {parts[1]})
    with TextSession(folder / decode, prefill=folder / prefill, threads=1) as session:
        for length in (12, 5):  # the second time, with smaller caches
            (found,) = session.generate(PROMPTS[0], max_tokens=length)
            assert list(found.tokens) == greedy(model, PROMPTS[0], length)
        several = session.generate(list(PROMPTS), max_tokens=4)
        assert [list(one.tokens) for one in several] == [greedy(model, p, 4) for p in PROMPTS]


def test_a_plan_of_four_tokens_at_a_time(family: tuple[Path, Path]) -> None:
    """What is left of a prompt, the plan reads that goes on; the last scores are on one rank."""
    model, folder = family
    assert decoder_of(Plan.load(folder / "fours")).scores.layout.pieces(1) == 2
    with TextSession(folder / "heads", prefill=folder / "fours", threads=1) as session:
        for prompt in ([3], [1, 2, 3, 4], [9, 8, 7, 6, 5, 4], [5, 6, 7, 8, 9, 10, 11, 12, 13]):
            (found,) = session.generate(prompt, max_tokens=4)
            assert list(found.tokens) == greedy(model, prompt, 4)
        several = session.generate(list(PROMPTS), max_tokens=4)
        assert [list(one.tokens) for one in several] == [greedy(model, p, 4) for p in PROMPTS]


def test_on_a_server(family: tuple[Path, Path]) -> None:
    model, folder = family
    plans, prefills = {"m": folder / "heads"}, {"m": folder / "whole"}
    assert split_plans(plans, prefills) == ({}, plans)
    with pytest.raises(UserError, match="no such decoder is served, did you mean 'm'"):
        split_plans(plans, {"mm": folder / "whole"})
    options, limits = SessionOptions(threads=1), TextLimits()
    served = open_texts(plans, prefills, options, limits, Metrics())["m"]

    async def tokens() -> list[int]:
        found = [piece.token async for piece in served.pieces([PROMPTS[0]], max_tokens=3)]
        await served.close()
        return found

    assert asyncio.run(tokens()) == greedy(model, PROMPTS[0], 3)


def test_steps_of_single_tokens(
    family: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan that goes on could read a prompt only token by token."""
    model, folder = family
    flags = ["--token-ids", "--max-tokens", "5", "--threads", "1"]
    plans = [str(folder / "single"), "--prefill-plan", str(folder / "whole")]
    capsys.readouterr()
    assert run_plan([*plans, "--generate", "3,7,1", *flags]) == 0
    assert capsys.readouterr().out.strip() == ",".join(map(str, greedy(model, [3, 7, 1], 5)))


def test_weights_that_are_the_same_are_held_once(family: tuple[Path, Path]) -> None:
    _, folder = family
    with TextSession(folder / "heads", prefill=folder / "copy", threads=1) as session:
        for rank, pid in enumerate(session._pool.pids):
            mapped = Path(f"/proc/{pid}/maps").read_text()
            assert str(folder / "heads" / "weights" / f"x={rank}.bin") in mapped
            assert str(folder / "copy") not in mapped


def test_which_weights_are_the_same(family: tuple[Path, Path]) -> None:
    _, folder = family
    one, other = (Plan.load(folder / name) for name in ("heads", "whole"))
    laid = {t.name: t.layout for t in one.parameters}
    same = {t.name for t in other.parameters if t.layout == laid[t.name]}
    found = common_weights(other.graph(1), one.graph(1))
    assert same == found.keys()
    assert 0 < len(same) < len(laid)
    assert all(isinstance(array.get(), np.ndarray) for array in found.values())


def test_plans_that_do_not_fit(
    family: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = family
    other = write_decoder(tmp_path / "other.onnx", layers=1, seed=1)
    assert compile_model([str(other), "--mesh", "2", "-o", str(tmp_path / "other")]) == 0
    model = [str(folder / "m.onnx"), "--mesh", "1", "-o", str(tmp_path / "alone")]
    assert compile_model(model) == 0
    for prefill, why in {
        tmp_path / "other": "is of another model, expected m.onnx",
        tmp_path / "alone": f"expected 2 ranks, as {folder / 'whole'} has, got: 1",
        folder / "single": f"or the number of {folder / 'whole'} (any), got: 1",
    }.items():
        capsys.readouterr()
        flags = ["--generate", "1,2", "--token-ids"]
        assert run_plan([str(folder / "whole"), "--prefill-plan", str(prefill), *flags]) == 1
        error = capsys.readouterr().err
        assert why in error
        assert error.count("\n") == 1
    assert run_plan([str(folder / "fours"), "--generate", "1", "--token-ids"]) == 1
    assert "takes exactly 4 tokens, expected 1 or a symbolic size" in capsys.readouterr().err
    assert run_plan([str(folder / "whole"), "--prefill-plan", "x"]) == 1
    assert "--prefill-plan: expected --generate" in capsys.readouterr().err
