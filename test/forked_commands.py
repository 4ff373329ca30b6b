"""How lit runs the commands of tests: in forks of a process that has imported what all of them do.

As processes of their own they import for four tenths of a second and run for a few hundredths.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import BinaryIO, NoReturn

import filecheck.main
import lit.formats
import lit.ShUtil
import lit.Test
import lit.TestRunner
from lit.ShCommands import Command

from tensoropt.compiler.cli.entry import opt

__all__ = ["ForkedCommands", "failures"]

# What every run on a text imports, passes excepted: what each of these needs it must import itself.
for module in ("cli.opt", "cli.text_mode", "sharding.rule.files"):
    importlib.import_module(f"tensoropt.compiler.{module}")

COMMANDS: dict[str, Callable[[], object]] = {
    "tensoropt-opt": opt,
    "filecheck": filecheck.main.main,
}

_LABEL = re.compile(r"^%dbg\([^)]*\)")
"""What lit puts in front of a line: where it comes from."""

_BOTH = [((">&", 2), "1")]
"""What lit makes of ``2>&1``."""


class ForkedCommands(lit.formats.ShTest):
    """Runs pipelines of `COMMANDS`, with ``not`` before and ``2>&1`` behind them."""

    def execute(self, test: lit.Test.Test, lit_config: object) -> lit.Test.Result:
        """Run the RUN lines of a file; every command must succeed."""
        script = lit.TestRunner.parseIntegratedTestScript(test)
        if isinstance(script, lit.Test.Result):
            return script
        said = "".join(failures(line.command, test) for line in script)
        return lit.Test.Result(lit.Test.FAIL if said else lit.Test.PASS, said)


def failures(line: str, test: lit.Test.Test) -> str:
    """Run one line of a test; return what the commands say that did not end as they should."""
    line = _LABEL.sub("", line).strip().replace("%s", test.getSourcePath())
    pipeline = lit.ShUtil.ShParser(line, pipefail=True).parse()
    said = ""
    with tempfile.TemporaryFile() as given:
        for command in pipeline.commands:
            with tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as out:
                status = _run(command, test.config.environment, (given, out, err))
                if status != 0:
                    said += f"$ {line}\n{command.args[0]}: exit status {status}\n{_text(err, out)}"
                _hand_over(out, given)
    return said


def _run(
    command: Command, environment: dict[str, str], streams: tuple[BinaryIO, BinaryIO, BinaryIO]
) -> int:
    """Return 0 if a command ended as it should, that is, with a status above 0 after ``not``."""
    negated = command.args[0] == "not"
    args = command.args[negated:]
    if command.redirects not in ([], _BOTH) or args[0] not in COMMANDS:
        raise ValueError(f"expected {' or '.join(COMMANDS)} and no file but %s, got: {command}")
    given, out, err = streams
    status = _fork(args, environment, (given, out, out if command.redirects else err))
    return int(status == 0) if negated and status >= 0 else status


def _fork(args: list[str], environment: dict[str, str], streams: tuple[BinaryIO, ...]) -> int:
    """Run a command in a fork; return its exit status, below 0 if a signal ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be(args, environment, streams)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _be(args: list[str], environment: dict[str, str], streams: tuple[BinaryIO, ...]) -> NoReturn:
    """Be a command, of whose end no code of lit's hears."""
    status: object = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, "rw"[number > 0], closefd=False)  # noqa: SIM115
            for number in range(3)
        )
        sys.argv = args
        os.environ.clear()
        os.environ.update(environment)
        status = COMMANDS[args[0]]()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(status or 0) if not isinstance(status, str) else 1)


def _hand_over(out: BinaryIO, given: BinaryIO) -> None:
    """Make what one command wrote what the next one reads."""
    out.seek(0)
    given.seek(0)
    given.truncate()
    given.write(out.read())
    given.seek(0)


def _text(*streams: BinaryIO) -> str:
    for stream in streams:
        stream.seek(0)
    return "".join(stream.read().decode(errors="replace") for stream in streams)
