"""A sample of ``make fuzz-disks``: every output on a full disk, and two on a read-only one."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_disks import OUTPUTS, Case, Inputs, can_mount, wrong

needs_mounts = pytest.mark.skipif(not can_mount(), reason="only root may mount file systems")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs.made(tmp_path_factory.mktemp("inputs"))


@needs_mounts
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_full_disk_is_one_line(inputs: Inputs, output: str) -> None:
    assert wrong(Case(output, 4, is_full=True), inputs) is None


@needs_mounts
@pytest.mark.parametrize("output", ["outputs", "plan"])
def test_a_read_only_disk_is_one_line(inputs: Inputs, output: str) -> None:
    assert wrong(Case(output, 64, is_full=False), inputs) is None


@needs_mounts
def test_partial_files_and_tracebacks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = Inputs(*[Path("unread")] * 4)
    for command, found in (
        ("touch a.tmp", "left"),
        ("true a -o plan", "wrote nothing"),
        ("cat nowhere -o plan", "ended with 1"),
    ):
        monkeypatch.setitem(OUTPUTS, "plan", command)
        monkeypatch.setattr("fuzz_disks._tool", lambda name: name)
        assert found in str(wrong(Case("plan", 64, is_full=True), unread))
