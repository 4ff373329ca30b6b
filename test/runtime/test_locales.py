"""Text of commands in locales that lack its characters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tensoropt.runtime.cli.generate import _decoded, _prompt
from tensoropt.runtime.support.errors import UserError

PRINT = """
import sys
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import run_command
def work():
    print("1 \\u00b1 2 \\u2192 3")
    raise UserError("\\u00e9: expected a file")
sys.exit(run_command(work))
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_the_locale_lacks_are_escaped(encoding: str) -> None:
    own = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    more = {} if encoding == "ascii" else {"PYTHONIOENCODING": encoding}
    result = subprocess.run(
        [sys.executable, "-c", PRINT],
        env={**os.environ, **own, **more},
        capture_output=True,
        timeout=60,
        check=False,
    )

    def escaped(text: str) -> bytes:
        return text.encode(encoding, "backslashreplace")

    assert result.returncode == 1
    assert result.stdout == escaped("1 \u00b1 2 \u2192 3\n")
    assert result.stderr == escaped("error: \u00e9: expected a file\n")


def test_a_prompt_that_the_locale_could_not_decode() -> None:
    """Python keeps its bytes as lone surrogates; text is UTF-8."""
    kept = "\udcc3\udca9 a"
    assert _prompt(kept, is_ids=False) == "\u00e9 a"
    assert _prompt("\u00e9 \u2192", is_ids=False) == "\u00e9 \u2192"
    with pytest.raises(UserError, match=r"^--stop: expected text in UTF-8, got other bytes"):
        _decoded("--stop", "a\udcff")
