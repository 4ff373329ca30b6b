"""Placement of the labels of a plot's points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Box", "Label", "Text", "place_labels"]

_RADIUS, _RING = 3.0, 7.5  # radius of a point, and of the ring around a named point
_WIDTH, _HEIGHT = 0.62, 1.1  # of a letter, relative to the font size

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


@dataclass(frozen=True)
class Text:
    """A label of a point; a label that ``must`` be drawn may cover other points."""

    point: int
    text: str
    must: bool = False


@dataclass(frozen=True)
class Label:
    """A text, and the offset of its lower left corner from its point, in points of 1/72 inch."""

    text: Text
    right: float
    up: float


def place_labels(
    places: Sequence[tuple[float, float]],
    texts: Sequence[Text],
    frame: Box,
    size: float,
    taken: Sequence[Box] = (),
) -> list[Label]:
    """Return the labels of ``texts`` that fit without overlap; earlier texts have priority.

    ``places`` are the places of all points, ``taken`` are other boxes that must stay free, and all
    labels stay inside ``frame``; all in points of 1/72 inch. ``size`` is the font size. Takes
    O(texts x points) time.
    """
    points = [_around(x, y, _RADIUS) for x, y in places]
    points += [_around(*places[text.point], _RING) for text in texts if text.must]
    covered = list(taken)
    labels: list[Label] = []
    for text in texts:
        apart = covered if text.must else [*covered, *points]
        for box, right, up in _candidates(places[text.point], text, size):
            if _is_inside(box, frame) and not _meets(box, apart):
                covered.append(box)
                labels.append(Label(text, right, up))
                break
    return labels


def _candidates(
    place: tuple[float, float], text: Text, size: float
) -> Iterator[tuple[Box, float, float]]:
    """Yield boxes around a point, the best first, with the offset of each."""
    (x, y), width, height = place, len(text.text) * size * _WIDTH, size * _HEIGHT
    gap = 9.0 if text.must else 4.5  # a named point may have a ring
    offsets = [
        (gap, gap / 2),
        (-gap - width, -gap / 2 - height),
        (-width / 2, gap),
        (-width / 2, -gap - height),
        (-gap - width, gap / 2),
        (gap, -gap / 2 - height),
    ]
    if text.must:
        offsets += [(gap * 2, up * height) for up in (2, -2, 3, -3)]
        offsets += [(-gap * 2 - width, up * height) for up in (2, -2, 3, -3)]
    for right, up in offsets:
        yield (x + right, y + up, x + right + width, y + up + height), right, up


def _around(x: float, y: float, radius: float) -> Box:
    return x - radius, y - radius, x + radius, y + radius


def _is_inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _meets(box: Box, others: Iterable[Box]) -> bool:
    return any(
        box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
        for other in others
    )
