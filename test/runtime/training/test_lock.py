"""One run at a time in a folder of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.lock import lock_folder


def test_a_second_run_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    folder = str(tmp_path)
    refusal = pytest.raises(UserError, match="another run writes checkpoints there")
    with lock_folder(folder), refusal, lock_folder(folder):
        pass
    with lock_folder(folder):
        pass


def test_no_folder() -> None:
    with lock_folder(None), lock_folder(None):
        pass
