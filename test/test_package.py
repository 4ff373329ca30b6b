"""The package itself: what `import tensoropt` gives, and what it does not take along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tensoropt
from tensoropt.runtime.support import errors, version

ROOMS = "import sys, tensoropt; print(*(n for n in sys.modules if n.startswith('tensoropt.')))"
HEAVY = "import sys, tensoropt; print('numpy' in sys.modules, 'argparse' in sys.modules)"


def printed(code: str, folder: Path) -> str:
    """Return what a fresh interpreter prints elsewhere than in a clone."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, check=True, text=True, capture_output=True).stdout


def test_all_names_are_there() -> None:
    assert dir(tensoropt) == tensoropt.__all__ == sorted(tensoropt.__all__)
    assert all(getattr(tensoropt, name) is not None for name in tensoropt.__all__)


def test_names_are_those_of_their_rooms() -> None:
    assert tensoropt.UserError is errors.UserError
    assert tensoropt.__version__ == version.__version__


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'tensoropt' has no attribute 'frontier'"):
        _ = tensoropt.frontier  # type: ignore[attr-defined]


@pytest.mark.parametrize(("code", "expected"), [(ROOMS, ""), (HEAVY, "False False")])
def test_import_brings_nothing_along(code: str, expected: str, tmp_path: Path) -> None:
    assert printed(code, tmp_path).strip() == expected


def test_types_are_for_users_too() -> None:
    """Type checkers look for this file beside the package's first."""
    assert Path(tensoropt.__file__).with_name("py.typed").is_file()
