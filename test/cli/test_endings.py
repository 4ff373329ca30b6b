"""How the command ends: versions, pipes, interrupts, full disks."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.version import TOOL
from tensoropt.runtime.support.command import INTERRUPTED, run_main
from tensoropt.runtime.support.flags import BROKEN_PIPE, run_command

COMMAND = [sys.executable, "-c", "import sys; from tensoropt.compiler.cli.opt import main; "
           "sys.exit(main())"]  # fmt: skip
HEAVY = {"torch_mlir", "onnx", "onnxruntime", "numpy", "matplotlib", "rich", "jsonschema"}


def _processor_s() -> float:
    """The time that processes started from here, and ended, took of a processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_version_is_quick() -> None:
    """It takes three to four and a half times as long as Python with a few modules, by processor.

    NumPy would make it five to ten.
    """
    commands = [
        [sys.executable, "-c", "import argparse, json, subprocess"],
        [*COMMAND, "--version"],
    ]
    times: list[list[float]] = [[], []]
    for _ in range(8):
        for command, taken in zip(commands, times, strict=True):
            before = _processor_s()
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            taken.append(_processor_s() - before)
    assert result.stdout == f"{TOOL}\n"
    assert min(times[1]) < 5 * min(times[0])


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_nothing_heavy_is_imported(flag: str) -> None:
    code = (
        "import sys\nfrom tensoropt.compiler.cli.opt import main\n"
        f"try: main([{flag!r}])\nexcept SystemExit: pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(result.stderr.split())


def test_a_reader_that_leaves_early(tmp_path) -> None:
    source = tmp_path / "a.mlir"
    bodies = "".join(f"func.func @f{index}() {{ return }}\n" for index in range(4000))
    source.write_text(bodies)
    process = subprocess.Popen(
        [*COMMAND, str(source)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == BROKEN_PIPE
    assert errors == b""


def _raise(error: BaseException) -> int:
    raise error


def test_interrupt_is_quiet(capsys) -> None:
    assert run_command(lambda: _raise(KeyboardInterrupt())) == INTERRUPTED
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_half_written(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tensoropt.runtime.support.flags import run_command\n"
        "from tensoropt.compiler.exporter.plan.writer import plan_folder\n"
        "def write():\n"
        " with plan_folder(Path(sys.argv[1])) as folder:\n"
        "  (folder / 'rank0.onnx').write_bytes(b'half')\n"
        "  print('ready', flush=True)\n"
        "  time.sleep(60)\n"
        "sys.exit(run_command(write))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "plan"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate()[1] == ""
    assert process.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "error: no space left on device, free some space or choose another place\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "a"),
            "error: a: permission denied, get the right to it or choose another place\n",
        ),
        (
            MemoryError(),
            "error: out of memory, free some memory or raise its limit (ulimit -v)\n",
        ),
    ],
)
def test_what_the_system_refuses_is_one_line(capsys, error: Exception, line: str) -> None:
    assert run_command(lambda: _raise(error)) == 1
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError("can't start new thread"),
            "error: RuntimeError: can't start new thread, raise the limits of processes and of "
            "memory (ulimit -u, ulimit -v)\n",
        ),
        (
            ImportError("libx.so: failed to map segment from shared object"),
            "error: ImportError: libx.so: failed to map segment from shared object, free some "
            "memory or raise its limit (ulimit -v)\n",
        ),
        (MemoryError(), "error: out of memory, free some memory or raise its limit (ulimit -v)\n"),
    ],
)
def test_a_library_that_gets_too_little_is_one_line(
    capsys, monkeypatch, error: Exception, line: str
) -> None:
    monkeypatch.setattr("importlib.import_module", lambda _: _raise(error))
    assert run_main("any") == 1
    assert capsys.readouterr().err == line


def test_a_bug_while_importing_keeps_its_traceback(monkeypatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda _: _raise(RuntimeError("a bug")))
    with pytest.raises(RuntimeError):
        run_main("any")


def test_a_closed_output(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run_command(lambda: 0) == 1
    assert capsys.readouterr().err == "error: standard output is closed\n"


def test_a_message_is_one_line_whatever_a_name_holds(capsys) -> None:
    error = UserError("m.onnx: node 'a\nb\x1b[2J\u00e9': wrong")
    assert run_command(lambda: _raise(error)) == 1
    assert capsys.readouterr().err == "error: m.onnx: node 'a\\nb\\x1b[2J\u00e9': wrong\n"


def test_the_end_frees_nothing_and_loses_nothing() -> None:
    code = (
        "from tensoropt.runtime.support.command import end\n"
        "kept = type('Kept', (), {'__del__': lambda self: print('freed')})()\n"
        "print('x' * 100000, end='')\n"
        "end(3)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "x" * 100000, "")


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command(lambda: 1 // 0)


_INTERRUPTED_IMPORT = """
import importlib.metadata, os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)

found = importlib.metadata.entry_points(group="console_scripts", name=sys.argv[1])
sys.meta_path.insert(0, Finder())
[command] = found
sys.exit(command.load()())
"""


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("tensoropt-opt", "tensoropt.compiler.planning.request"),
        ("tensoropt-profile", "tensoropt.compiler.cli.training_flags"),
        ("tensoropt-run", "tensoropt.runtime.support.job"),
    ],
)
def test_an_interrupt_while_modules_are_imported(command: str, module: str) -> None:
    """Before the command has read its arguments."""
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT, command, module], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")
