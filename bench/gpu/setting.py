"""Device and sizes of a check, and shared parts of its reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu.models import Zoo

__all__ = ["Part", "Setting", "table"]


@dataclass(frozen=True)
class Setting:
    """Settings of a check; ``host``: nothing runs on a GPU, the provider is the CPU or a stand-in.

    ``gpus`` is the number of GPUs; ``device`` is the description that plans are made for; ``say``
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
        """Folder of plans."""
        return self.zoo.folder

    @property
    def where(self) -> list[str]:
        """Flags of tensoropt-run for the provider."""
        return [] if self.provider == "cpu" else ["--provider", self.provider, "--share-gpus"]

    @property
    def is_quick(self) -> bool:
        """True if times mean nothing: the models are tiny, or ranks take turns on a GPU."""
        return self.zoo.size == "tiny" or (not self.host and self.gpus < self.ranks[0])

    @property
    def precisions(self) -> list[str]:
        """Supported types: ONNX Runtime has no bfloat16 on CPUs."""
        return ["float32", "float16"] + ([] if self.host else ["bfloat16"])


@dataclass
class Part:
    """Result of a part of the check: a section of Markdown, and a line per failure."""

    text: str
    failures: list[str] = field(default_factory=list)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
