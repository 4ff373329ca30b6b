"""A copy of a checkout of Sailor, in which its planners are built and run.

Planners write next to their sources, and nothing may be written into the checkout. Each runs in a
process of its own, with the Python that has its packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensoropt.runtime.support.errors import UserError

__all__ = ["PACKAGES", "Workplace"]

PACKAGES = "einops, pandas, pybind11, pymetis, scipy, torch, tqdm, transformers"
_SIMULATOR = "sailor/Planner/simulations/runtime_simulator.py"
_SUFFIX = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
_LIMIT_S = 600.0  # of a compiler


@dataclass(frozen=True)
class _Build:
    """The C++ sources of a planner, as patterns, and its program or its Python extension.

    The result is ``into``, for extensions in a folder that no script of the checkout cleans up.
    """

    folder: str
    sources: Sequence[str]
    flags: Sequence[str]
    into: str
    is_extension: bool = False
    libraries: Sequence[str] = ()


_BUILDS: Mapping[str, _Build] = {
    "Varuna": _Build(
        "baselines/Varuna/simulator", ["*.cc"], ["-std=c++11"], "simulate-varuna.bin"
    ),
    "Piper": _Build(
        "baselines/Piper/src", ["algo.cpp"], ["-O3"], "algo.bin", libraries=["-ljsoncpp"]
    ),
    "Galvatron": _Build(
        "baselines/Galvatron/csrc", ["dp_core.cpp"], ["-O3", "-std=c++11"], "galvatron_dp_core",
        is_extension=True,
    ),
    "Sailor": _Build(
        "sailor_planner/cpp_src", ["*.cpp", "utils/*.cpp"], ["-O3"], "extensions/libplanner",
        is_extension=True, libraries=["-ljsoncpp"],
    ),
}  # fmt: skip


class Workplace:
    """A copy of the sources of a checkout in ``folder``, and the Python that runs planners.

    Raises :class:`UserError` if the checkout has no simulator, or the Python does not run.
    """

    def __init__(self, checkout: Path, python: str, folder: Path) -> None:
        if not (checkout / _SIMULATOR).is_file():
            raise UserError(
                f"{checkout}: expected a checkout of github.com/eth-easl/sailor, "
                f"got: no {_SIMULATOR}"
            )
        self.python, self.folder = python, folder
        self._suffix = self._output([python, "-c", _SUFFIX], "python").strip()
        # The planners expect the checkout in a folder of this name.
        shutil.copytree(checkout / "sailor", folder / "sailor/sailor")
        self.planning = folder / "sailor/sailor/Planner"

    def build(self, planner: str) -> None:
        """Build the C++ of a planner, if it has any.

        Raises :class:`UserError` with the first error of the compiler.
        """
        own = _BUILDS.get(planner)
        if own is None:
            return
        folder = self.planning / own.folder
        sources = sorted(str(path) for name in own.sources for path in folder.glob(name))
        target, flags = folder / own.into, [*own.flags]
        if own.is_extension:
            include = self._output([self.python, "-m", "pybind11", "--includes"], planner)
            flags += ["-shared", "-fPIC", *include.split()]
            target = target.with_name(f"{target.name}{self._suffix}")
        target.parent.mkdir(exist_ok=True)
        self._output(["g++", *flags, *sources, *own.libraries, "-o", str(target)], planner)

    def run(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer of `inside.py`, with the failure ``time`` or ``end`` if it gave none.

        A planner that takes more than ``limit_s`` is ended, and all processes that it started.
        """
        room = self.folder / "room"
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir()
        quotas = {gpu: {self._zone: count} for gpu, count in request["gpus"].items()}
        files = {"planning": str(self.planning), "quotas": str(room / "quotas.json")}
        (room / "quotas.json").write_text(json.dumps(quotas), encoding="utf-8")
        (room / "request.json").write_text(json.dumps({**request, **files}), encoding="utf-8")
        script = Path(__file__).with_name("inside.py")
        with (room / "output").open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [self.python, str(script), "request.json", "answer.json"],
                cwd=room, env=self._environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return {"failure": "time", "cause": f"no answer in {limit_s:.0f} s"}
            finally:
                _end(process)
        answer = room / "answer.json"
        if not answer.exists():
            how = f"exit status {status}" if status > 0 else f"ended by signal {-status}"
            return {"failure": "end", "cause": how}
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    @property
    def _zone(self) -> str:
        nodes = self.planning / "simulations/configs/basic_cluster_config.json"
        zone: str = json.loads(nodes.read_text(encoding="utf-8"))["zone"]
        return zone

    @property
    def _environment(self) -> dict[str, str]:
        """The environment of planners: some look for the checkout in the home folder."""
        extensions = self.planning / "sailor_planner/cpp_src/extensions"
        paths = [str(self.folder / "sailor"), str(extensions)]
        own = {"SAILOR_PATH": str(self.folder), "HOME": str(self.folder)}
        return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths)}

    def _output(self, command: Sequence[str], name: str) -> str:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except OSError as error:
            raise UserError(
                f"{name}: expected to run {command[0]}, got: {error.strerror}"
            ) from error
        if done.returncode:
            raise UserError(f"{name}: {' '.join(command[:3])} ...: {_first_error(done.stderr)}")
        return done.stdout


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "cannot find" in line]
    return next(iter(errors or lines[-1:]), "no message")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, which are a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
