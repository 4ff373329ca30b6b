"""Print what extras of pyproject.toml require, one a line: `python tools/requirements.py EXTRA...`.

The extra `build` is the build system, `cudnn` its addition for attention on GPUs, and the empty one
the product itself. Extras that other extras
name are followed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_OWN = re.compile(r"tensoropt\[(.+)\]")


def _requirements(extras: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    for requirement in extras[name]:
        own = _OWN.fullmatch(requirement)
        if own is None:
            yield requirement
        else:
            for other in own[1].split(","):
                yield from _requirements(extras, other.strip())


def main() -> None:
    """Print the requirements of the extras that the command names."""
    held = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    project, build = held["project"], held["build-system"]["requires"]
    (cudnn,) = held["tool"]["scikit-build"]["overrides"]
    parts = {"build": build, "cudnn": cudnn["build"]["requires"], "": project["dependencies"]}
    extras = {**project["optional-dependencies"], **parts}
    print(*dict.fromkeys(r for name in sys.argv[1:] for r in _requirements(extras, name)), sep="\n")


if __name__ == "__main__":
    main()
