"""Files that are written aside have the mode of new files in the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensoropt.runtime.support.files import file_mode, folder_mode, may_replace


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_modes_follow_the_mask(mask: int) -> None:
    before = os.umask(mask)
    try:
        assert (file_mode(), folder_mode()) == (0o666 & ~mask, 0o777 & ~mask)
    finally:
        assert os.umask(before) == mask


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    assert may_replace(tmp_path / "free")
    (tmp_path / "file").touch()
    assert may_replace(tmp_path / "file")
    assert not may_replace(Path(os.devnull))
    assert not may_replace(tmp_path)
    assert not may_replace(tmp_path / "none" / "free")
