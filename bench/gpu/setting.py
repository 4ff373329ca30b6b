"""Where and how large a check runs, and what its parts have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu.models import Zoo

__all__ = ["Part", "Setting", "table"]


@dataclass(frozen=True)
class Setting:
    """``host`` says that nothing runs on a GPU: the provider is the CPU, or a stand-in.

    ``gpus`` is how many there are; ``device`` is the description that plans are made for, ``say``
    takes a line of progress.
    """

    provider: str
    host: bool
    gpus: int
    zoo: Zoo
    ranks: Sequence[int]
    device: str
    say: Callable[[str], None]

    @property
    def folder(self) -> Path:
        """Where plans are written."""
        return self.zoo.folder

    @property
    def where(self) -> list[str]:
        """What tensoropt-run takes to compute there."""
        return [] if self.provider == "cpu" else ["--provider", self.provider, "--share-gpus"]

    @property
    def precisions(self) -> list[str]:
        """The types that can be computed in: ONNX Runtime has no bfloat16 on CPUs."""
        return ["float32", "float16"] + ([] if self.host else ["bfloat16"])


@dataclass
class Part:
    """What a part of the check found: a section of Markdown, and a line per failure."""

    text: str
    failures: list[str] = field(default_factory=list)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
