"""A description of processors without the kernel of attention: long attention runs in blocks."""

from __future__ import annotations

from pathlib import Path

from tensoropt.compiler.cost.device import description_text

__all__ = ["without_kernels"]


def without_kernels(folder: Path) -> Path:
    """Write the description into ``folder``, and return its path."""
    text, path = description_text("cpu"), folder / "without.toml"
    path.write_text(text.replace('provider = "cpu"', 'provider = "cuda"'), encoding="utf-8")
    return path
