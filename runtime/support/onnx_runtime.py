"""Check of the installed ONNX Runtime: the build for CPUs, or the build for GPUs and CPUs.

Both distributions are the package ``onnxruntime`` and write into the same folder. tensoropt depends
on them only through extras, so commands check the installation before they import it. The check
reads only the list of installed distributions.
"""

from __future__ import annotations

from importlib.metadata import Distribution
from importlib.util import find_spec

__all__ = ["CPU", "GPU", "installation_fault", "installed_builds"]

CPU, GPU = "onnxruntime", "onnxruntime-gpu"
"""The names of the distributions."""

_EXTRAS = "pip install 'tensoropt[cpu]', or 'tensoropt[cuda]' for GPUs"


def installed_builds() -> dict[str, str]:
    """Return the installed versions of :data:`CPU` and :data:`GPU` by name."""
    found = {name: next(iter(Distribution.discover(name=name)), None) for name in (CPU, GPU)}
    return {name: value.version for name, value in found.items() if value is not None}


def installation_fault(*, gpu: bool = False) -> str | None:
    """Return the fault of the installed ONNX Runtime and its remedy, None if there is no fault.

    With ``gpu`` the build for GPUs is required. A build from source, which is in no list of
    distributions, is assumed to support both.
    """
    builds = installed_builds()
    if len(builds) > 1:
        return (
            f"{CPU} and {GPU} are both installed, each over the files of the other, expected one: "
            f"pip uninstall --yes {CPU} {GPU}, then {_EXTRAS}"
        )
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:  # a folder that lost its files is a namespace
        return _missing(*builds)
    if gpu and CPU in builds:
        return (
            f"{CPU} {builds[CPU]} is for CPUs, expected {GPU}: "
            f"pip uninstall --yes {CPU}, then pip install 'tensoropt[cuda]'"
        )
    return None


def _missing(build: str | None = None) -> str:
    if build is None:
        return f"ONNX Runtime is not installed, expected one: {_EXTRAS}"
    return (
        f"{build} is installed but its files are gone, as after removing its other build, "
        f"expected them back: pip install --force-reinstall --no-deps {build}"
    )
