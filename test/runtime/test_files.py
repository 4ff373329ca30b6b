"""Files that are written aside have the mode of new files in the end."""

from __future__ import annotations

import os

import pytest

from tensoropt.runtime.support.files import file_mode, folder_mode


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_modes_follow_the_mask(mask: int) -> None:
    before = os.umask(mask)
    try:
        assert (file_mode(), folder_mode()) == (0o666 & ~mask, 0o777 & ~mask)
    finally:
        assert os.umask(before) == mask
