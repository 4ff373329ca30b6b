"""Texts of a decoder on GPUs: every token is the likeliest by the scores of one device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpu.failure import RunError
from gpu.models import write_plan
from gpu.setting import Part, Setting, table
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.session import TextSession

__all__ = ["texts"]

_COUNT = 24  # tokens of a text
_TEXTS = 4
_PROMPT = 16
_ROUNDING = 1e-2  # of float16, as a part of the range of scores
_HEAD = ["ranks", "texts", "largest distance", "", "first token", "a token"]

Row = list[object]
Tokens = list[int]


def texts(setting: Setting) -> Part:
    """Continue one text, and several that end one by one, on one rank and on several.

    The distance is between the score of a chosen token and the largest score, as a part of the
    range of scores: plans add up products in another order, so the likeliest token may change.
    """
    model = setting.zoo.decoder()
    one = _OneDevice(setting, model)
    rows, failures = list[Row](), list[str]()
    for ranks in (1, setting.ranks[0]):
        setting.say(f"texts on {ranks} ranks")
        try:
            found = _continued(setting, model, ranks)
        except (RunError, UserError) as error:
            failures.append(f"{ranks} ranks: {error}")
            continue
        for own in found:
            distance = max(map(one.distance, own.prompts, own.tokens))
            agrees = "agrees" if distance <= _ROUNDING else "differs"
            times = (f"{1e3 * time_s:.2f} ms" for time_s in (own.first_s, own.token_s))
            row = [ranks, len(own.prompts), f"{distance:.2g}", agrees, *times]
            setting.say(", ".join(map(str, row)))
            rows.append(row)
            if agrees != "agrees":
                failures.append(
                    f"{len(own.prompts)} texts on {ranks} ranks differ by {distance:.2g}"
                )
    return Part(table(_HEAD, rows), failures)


@dataclass
class _Found:
    """Texts that were continued together, the time of the first token, and of one after it."""

    prompts: list[Tokens]
    tokens: list[Tokens]
    first_s: float
    token_s: float


def _continued(setting: Setting, model: Path, ranks: int) -> list[_Found]:
    """Return one text, then several, after a first run that is not timed."""
    plan = write_plan(model, ranks, "expert", setting.device, setting.folder)
    shares = setting.provider != "cpu" and setting.gpus < ranks
    prompts = [
        [(7 * n * n + 3 * n + text) % 97 + 1 for n in range(_PROMPT)] for text in range(_TEXTS)
    ]
    with TextSession(
        plan, provider=setting.provider, share_gpus=shares, threads=1, slots=_TEXTS
    ) as session:
        _run(session, prompts)
        return [_run(session, prompts[:1]), _run(session, prompts)]


def _run(session: TextSession, prompts: list[Tokens]) -> _Found:
    start = time.perf_counter()
    streams = [session.stream(own, max_tokens=_COUNT - n) for n, own in enumerate(prompts)]
    tokens = [[next(streams[0]).token]]
    first = time.perf_counter()
    tokens[0] += [piece.token for piece in streams[0]]
    each_s = (time.perf_counter() - first) / (len(tokens[0]) - 1)
    tokens += [[piece.token for piece in stream] for stream in streams[1:]]
    return _Found(prompts, tokens, first - start, each_s)


class _OneDevice:
    """ONNX Runtime on one device, which reads a whole text for each of its tokens."""

    def __init__(self, setting: Setting, model: Path) -> None:
        import onnxruntime

        is_host = setting.host
        provider = "CPUExecutionProvider" if is_host else "CUDAExecutionProvider"
        self._session = onnxruntime.InferenceSession(model, providers=[provider])
        self._caches = [own for own in self._session.get_inputs() if own.name.startswith("past")]
        self._output = self._session.get_outputs()[0].name

    def distance(self, prompt: Tokens, tokens: Sequence[int]) -> float:
        """Return the largest distance of ``tokens`` after ``prompt``."""
        known, largest = [*prompt], 0.0
        for token in tokens:
            scores = self._scores(known)
            largest = max(largest, float((scores.max() - scores[token]) / np.ptp(scores)))
            known.append(token)
        return largest

    def _scores(self, tokens: Tokens) -> np.ndarray:
        feeds = {"input_ids": np.array([tokens], np.int64)}
        feeds["attention_mask"] = np.ones_like(feeds["input_ids"])
        for cache in self._caches:
            _, heads, _, size = cache.shape
            feeds[cache.name] = np.zeros((1, heads, len(tokens), size), np.float16)
        (scores,) = self._session.run([self._output], feeds)
        return scores[0, -1].astype(np.float32)
