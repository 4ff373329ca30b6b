"""Which points of a picture are given their number, and where it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Box", "Label", "Text", "place_labels"]

_RADIUS, _RING = 3.0, 7.5  # of a point, and of what is drawn around one with a name
_WIDTH, _HEIGHT = 0.62, 1.1  # of a letter, in sizes of the type

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


@dataclass(frozen=True)
class Text:
    """What to write at a point; one that ``must`` be there may cover other points."""

    point: int
    text: str
    must: bool = False


@dataclass(frozen=True)
class Label:
    """A text, and by how much its left lower corner is off its point; in points of 1/72 inch."""

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
    """Return those of ``texts`` that fit without overlap, the first of them first.

    ``places`` are those of all points, ``taken`` what else must stay free; like ``frame``, inside
    of which labels stay, they are in points of 1/72 inch. ``size`` is that of the type. Time grows
    with the number of texts times that of points.
    """
    points = [_around(x, y, _RADIUS) for x, y in places]
    points += [_around(*places[text.point], _RING) for text in texts if text.must]
    covered = list(taken)
    labels: list[Label] = []
    for text in texts:
        apart = covered if text.must else [*covered, *points]
        for box, right, up in _candidates(places[text.point], text, size):
            if _inside(box, frame) and not _meets(box, apart):
                covered.append(box)
                labels.append(Label(text, right, up))
                break
    return labels


def _candidates(
    place: tuple[float, float], text: Text, size: float
) -> Iterator[tuple[Box, float, float]]:
    """Yield boxes around a point, the best first, and how far each is off it."""
    (x, y), width, height = place, len(text.text) * size * _WIDTH, size * _HEIGHT
    gap = 9.0 if text.must else 4.5  # a ring may be around it
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


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _meets(box: Box, others: Iterable[Box]) -> bool:
    return any(
        box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
        for other in others
    )
