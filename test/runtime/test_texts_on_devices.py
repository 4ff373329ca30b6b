"""Texts on devices, with stand-ins for NCCL and the CUDA runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handmade_decoder import greedy, write_decoder
from stand_ins import calls, environment

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.text.session import TextSession

PROMPTS = [[3, 7, 1], [5, 6], [2, 2, 9, 4, 1]]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("ranks", [1, 2])
def test_texts_join_and_leave_on_the_device(
    ranks: int, in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their caches are arranged there, without a copy on the host."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=in_place)
    plan = tmp_path / "plan"
    flags = ["--mesh", str(ranks), "--search", "expert"]
    assert compile_model([str(model), *flags, "-o", str(plan)]) == 0
    for name, value in environment(tmp_path / "log").items():
        monkeypatch.setenv(name, value)
    with TextSession(plan, provider="cuda", threads=1) as session:
        streams = [session.stream(p, max_tokens=4 * n) for n, p in enumerate(PROMPTS, 1)]
        found = [[piece.token for piece in stream] for stream in streams]
    assert found == [greedy(model, p, 4 * n) for n, p in enumerate(PROMPTS, 1)]
    own = calls(tmp_path / "log", ranks - 1)
    copies = sum(call["call"] == "cudaMemcpy2DAsync" for call in own)
    assert copies
    # Of each of two caches: a text is copied when it joins, and another one when it leaves.
    assert not in_place or copies <= 2 * (2 * len(PROMPTS) - 1)


def test_turns_of_chats_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that have ended keep their caches there, and take other rows when chats go on."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=True)
    plan = tmp_path / "plan"
    flags = ["--mesh", "2", "--search", "expert"]
    assert compile_model([str(model), *flags, "-o", str(plan)]) == 0
    for name, value in environment(tmp_path / "log").items():
        monkeypatch.setenv(name, value)
    chats = [[n, *range(17)] for n in range(3)]
    with TextSession(plan, provider="cuda", threads=1, slots=3) as session:
        for _ in range(3):
            streams = [session.stream(p, max_tokens=4 + 2 * n) for n, p in enumerate(chats)]
            found = [[piece.token for piece in stream] for stream in streams]
            assert found == [greedy(model, p, 4 + 2 * n) for n, p in enumerate(chats)]
            chats = [[*p, *own, 3] for p, own in zip(chats[::-1], found[::-1], strict=True)]
        assert session.copied > 100


@pytest.mark.parametrize("in_place", [True, False])
def test_scores_of_half_precision(in_place: bool, tmp_path: Path) -> None:
    """They are compared in float32, and choose the same tokens."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=in_place, dtype=np.float16)
    plan = tmp_path / "plan"
    assert compile_model([str(model), "--mesh", "2", "--search", "expert", "-o", str(plan)]) == 0
    with TextSession(plan, threads=1, speculate=2 if in_place else 0) as session:
        found = session.generate(PROMPTS, max_tokens=8)
    assert [list(one.tokens) for one in found] == [greedy(model, p, 8) for p in PROMPTS]
