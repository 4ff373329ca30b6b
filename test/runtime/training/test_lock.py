"""One run at a time in a folder of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.lock import alone_in


def test_a_second_run_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    folder = str(tmp_path)
    refusal = pytest.raises(UserError, match="another run writes checkpoints there")
    with alone_in(folder), refusal, alone_in(folder):
        pass
    with alone_in(folder):
        pass


def test_no_folder() -> None:
    with alone_in(None), alone_in(None):
        pass
