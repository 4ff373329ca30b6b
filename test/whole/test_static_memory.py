"""What a training plan says it keeps in memory, beside what its ranks keep."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from sweep_train import Case, memory_error
from train_plans import plans, write_plan


@pytest.mark.parametrize("name", ["cnn", "gpt2", "lstm"])
def test_predicted_static_memory_is_what_two_ranks_hold(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path, steps=1)
    for plan in islice(plans(case.path, case.recipe, 2, 0), 2):
        result = case.run(write_plan(case.path, plan, tmp_path)).result
        held = sum(result.held_bytes.values())
        assert result.held_bytes["constants_bytes"] > 0
        assert memory_error(result) < 0.02
        assert plan.point.static_bytes == pytest.approx(held, rel=0.02)
