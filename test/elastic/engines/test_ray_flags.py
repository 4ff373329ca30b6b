"""What is said of a Ray cluster before there is a job, and that Ray is not imported unasked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from families_of_sixths import WIDTHS, sixths

from tensoropt.elastic.cli.job import main


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("flags")
    x, t = (np.zeros((96, size), np.float32) for size in WIDTHS[::2])
    np.savez(folder / "data.npz", x=x, t=t)
    data = ["--data", str(folder / "data.npz"), "--steps", "1", "--devices", "1"]
    return ["run", str(sixths(folder)), *data]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--engine", "ray"], "--engine ray: ray is missing, expected: pip install tensoropt[ray]"),
        (["--ray-address", "node0:6379"], "--ray-address: expected --engine ray with it"),
        (["--engine", "ray", "--share-gpus"], "--share-gpus: expected --engine local with it"),
    ],
)
def test_each_is_one_line(
    flags: list[str],
    more: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setitem(sys.modules, "ray", None)
    capsys.readouterr()
    assert main([*flags, *more]) == 1
    assert capsys.readouterr() == ("", f"error: {line}\n")


def test_nothing_imports_ray_unasked(flags: list[str], tmp_path: Path):
    code = (
        "import sys; sys.modules['ray'] = None;"
        "from tensoropt.elastic.cli.job import main; sys.exit(main(sys.argv[1:]))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, *flags],
        env={"PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")
