"""A sample of `make serving-chaos`."""

from __future__ import annotations

from pathlib import Path

from serving_chaos import (
    attack,
    bombs,
    grammars,
    leave_a_text,
    long_json,
    long_prompt,
    long_prompts,
    many_prompts,
    numbers_at_the_limits,
    unfinished_bodies,
)


def test_a_server_under_attack(tmp_path: Path) -> None:
    attacks = (
        *(long_json, bombs, long_prompt, unfinished_bodies, many_prompts, leave_a_text),
        *(numbers_at_the_limits, long_prompts, grammars),
    )
    report = attack(tmp_path, attacks, rounds=1, seed=0, mib=2, timeout_s=30.0)
    assert report.failures == []
    assert len(report.lines) == len(attacks) + 5, "one each, five bombs, and the end"
    assert report.statuses[500] == 0
