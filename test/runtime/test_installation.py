"""Which ONNX Runtime is installed, on folders with no more than its list of distributions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensoropt.compiler.cli.opt import main as opt
from tensoropt.compiler.cli.profile import main as profile
from tensoropt.runtime.cli.run import main as run
from tensoropt.runtime.support import onnx_runtime
from tensoropt.runtime.support.onnx_runtime import CPU, GPU, installation_fault, installed_builds

NONE = (
    "ONNX Runtime is not installed, expected one: "
    "pip install 'tensoropt[cpu]', or 'tensoropt[cuda]' for GPUs"
)
BOTH = (
    "onnxruntime and onnxruntime-gpu are both installed, each over the files of the other, "
    "expected one: pip uninstall --yes onnxruntime onnxruntime-gpu, "
    "then pip install 'tensoropt[cpu]', or 'tensoropt[cuda]' for GPUs"
)
FOR_CPUS = (
    "onnxruntime 1.31.1 is for CPUs, expected onnxruntime-gpu: "
    "pip uninstall --yes onnxruntime, then pip install 'tensoropt[cuda]'"
)
GONE = (
    "onnxruntime-gpu is installed but its files are gone, as after removing its other build, "
    "expected them back: pip install --force-reinstall --no-deps onnxruntime-gpu"
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which alone packages are looked for."""
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def _install(site: Path, *builds: str, files: bool = True) -> None:
    for name in builds:
        info = site / f"{name.replace('-', '_')}-1.31.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.31.1\n")
    (site / "onnxruntime").mkdir()
    if files:
        (site / "onnxruntime" / "__init__.py").touch()


@pytest.mark.parametrize(
    ("builds", "fault", "gpu_fault"),
    [
        ([CPU], None, FOR_CPUS),
        ([GPU], None, None),
        ([CPU, GPU], BOTH, BOTH),
        ([], None, None),  # built from source
    ],
)
def test_what_is_installed(
    site: Path, builds: list[str], fault: str | None, gpu_fault: str | None
) -> None:
    _install(site, *builds)
    assert installed_builds() == dict.fromkeys(builds, "1.31.1")
    assert installation_fault() == fault
    assert installation_fault(gpu=True) == gpu_fault


def test_nothing_is_installed(site: Path) -> None:
    assert installation_fault() == installation_fault(gpu=True) == NONE


def test_one_build_was_removed_from_under_the_other(site: Path) -> None:
    _install(site, GPU, files=False)
    assert installation_fault() == GONE


def test_every_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(onnx_runtime, "installation_fault", lambda: NONE)
    commands = ((opt, ["model.onnx", "--pareto"]), (profile, []), (run, [str(tmp_path)]))
    for command, flags in commands:
        assert command(flags) == 1
        assert capsys.readouterr() == ("", f"error: {NONE}\n")


def test_what_needs_no_onnx_runtime_does_not_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(onnx_runtime, "installation_fault", lambda: NONE)
    assert opt(["--list-passes"]) == 0
    assert capsys.readouterr().err == ""


def test_onnx_runtime_writes_nothing_to_home_and_temporary_folders(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    given = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"}
    del given["ORT_DISABLE_TELEMETRY"]
    environment = {**given, "HOME": str(tmp_path / "home"), "TMPDIR": str(temporary)}
    code = "import tensoropt, onnxruntime"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert list(tmp_path.rglob("*")) == [temporary]


def test_a_machine_that_only_runs_plans_has_no_compiler() -> None:
    program = (
        "import sys; sys.modules['torch_mlir'] = None\n"
        "from tensoropt.compiler.cli.opt import main; sys.exit(main(['--list-passes']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    text = "MLIR is not installed, which planning needs: pip install 'tensoropt[compiler]'"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {text}\n")
