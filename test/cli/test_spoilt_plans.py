"""A plan.json spoilt at random and fed back in: taken, or refused in one line.

Three hundred files; ten thousand where TENSOROPT_SWEEP is set.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TRAIN = ("--train", "--loss", "mse:y,t", "--optimizer", "adam")
COUNT = 5000 if "TENSOROPT_SWEEP" in os.environ else 150

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 64, 2.0, 1e308, 10**400, "", "x", "R", "S(0)", "S(1)", "S(7)",
    "S(999999999)", f"S({'9' * 5000})", "P(sum)", "P(max)", "S(0)\n", "\ud800", "a\nb", [], ["R"],
    ["S(0)"], ["R"] * 3, ["P(sum)"], ["R"] * 100, [1] * 40, [[]], [["R"]], {}, {"name": "x"},
)  # fmt: skip
TEXTS = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"\xff",
    b"\x00",
    b"[" * 3000,
    b"9" * 5000,
    b"{",
    b'"',
    b"",
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*place, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*place, key))


def spoil(document: Any, draw: random.Random) -> None:
    """Change one place: another value, nothing, twice, another key, or what is elsewhere."""
    found = [p for p in places(document) if p[0] not in ("files", "frontier")]
    place, other = draw.choice(found), draw.choice(found)
    holder, key = _at(document, place[:-1]), place[-1]
    kind = draw.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == 1:
        holder[f"{key}x"] = holder.pop(key)
    elif kind == 2:
        holder[key] = copy.deepcopy(_at(document, other))
    else:
        holder[key] = copy.deepcopy(draw.choice(VALUES))


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def spoilt(document: Any, draw: random.Random) -> bytes:
    """Return the bytes of a plan.json with a few changes, seldom in its text."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        spoil(document, draw)
    data = json.dumps(document).encode()
    if draw.random() < 0.15:
        begin = draw.randrange(len(data))
        data = data[:begin] + draw.choice(TEXTS) + data[begin + draw.randrange(20) :]
    return data


@pytest.fixture(scope="module")
def document(mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    from tensoropt.compiler.cli.opt import main

    def compiled(*flags: str) -> Any:
        folder = tmp_path_factory.mktemp("plans") / "plan"
        given = (mlp, "--mesh", "2x2", "--search", "random", "--seed", "3", "-o", folder, *flags)
        assert main([str(flag) for flag in given]) == 0
        return json.loads((folder / "plan.json").read_text())

    return compiled


@pytest.mark.parametrize("flags", [(), (*TRAIN, "--recompute", "none")], ids=["plan", "training"])
def test_a_spoilt_plan_is_taken_or_refused_in_one_line(
    opt, mlp: Path, document: Callable[..., Any], tmp_path: Path, flags: tuple[str, ...]
) -> None:
    original, path = document(*flags), tmp_path / "spoilt.json"
    taken = 0
    for seed in range(COUNT):
        path.write_bytes(spoilt(original, random.Random(seed)))
        written = ("-o", tmp_path / "again") if seed % 8 == 0 else ()
        outcome = opt(mlp, "--strategies", path, *flags, *written)
        taken += outcome.status == 0
        if outcome.status:
            assert outcome.status in (1, 3), seed  # 3: a spoilt plan may fit no device
            assert outcome.err.startswith("error: "), seed
            assert outcome.err.count("\n") == 1, seed
            assert len(outcome.err) < 10_000, seed
    assert 0 < taken < COUNT
