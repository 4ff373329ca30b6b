"""Layouts of the tensors of a plan, in words and in colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Layouts", "layout_words"]

_COLOURS = 8


def layout_words(layout: Sequence[str], axes: Sequence[str], mesh: Sequence[int]) -> str:
    """Return a layout in words: ``split in dimension 0 over x,y, partial sum over z``.

    Axes of extent 1 are left out.
    """
    found: dict[str, list[str]] = {}
    for placement, axis, size in zip(layout, axes, mesh, strict=False):
        if size > 1 and placement != "R":
            found.setdefault(placement, []).append(axis)
    texts = []
    for placement, own in found.items():  # P(sum), S(0)
        what = "partial" if placement.startswith("P(") else "split in dimension"
        texts.append(f"{what} {placement[2:-1]} over {','.join(own)}")
    return ", ".join(texts) or "replicated"


@dataclass
class Layouts:
    """Numbers of layouts, and the CSS class that colours each.

    The layouts with the most time have colours of their own.
    """

    axes: Sequence[str]
    mesh: Sequence[int]
    _numbers: dict[str, int] = field(default_factory=dict)
    _weights: list[float] = field(default_factory=list)

    def number(self, layout: Sequence[str], weight: float = 0.0) -> int:
        """Return the number of a layout; ``weight`` adds to its rank for a colour of its own."""
        text = layout_words(layout, self.axes, self.mesh)
        number = self._numbers.setdefault(text, len(self._numbers))
        if number == len(self._weights):
            self._weights.append(0.0)
        self._weights[number] += weight
        return number

    def entries(self) -> list[dict[str, Any]]:
        """Return the text, the class and the legend of each layout, and whether it is the first of
        its class."""
        looks = self._looks()
        seen: set[str] = set()
        rows = []
        for text, of in zip(self._numbers, looks, strict=True):
            legend = {"partial": "partial results", "other": "other splits"}.get(of, text)
            rows.append({"text": text, "of": of, "legend": legend, "first": of not in seen})
            seen.add(of)
        return rows

    def _looks(self) -> list[str]:
        texts = list(self._numbers)
        order = sorted(range(len(texts)), key=lambda number: -self._weights[number])
        plain = [n for n in order if texts[n] != "replicated" and "partial" not in texts[n]]
        colours = {number: f"c{place}" for place, number in enumerate(plain[:_COLOURS])}
        return [_look(text, colours.get(number)) for number, text in enumerate(texts)]


def _look(text: str, colour: str | None) -> str:
    if text == "replicated":
        return "replicated"
    return "partial" if "partial" in text else colour or "other"
