"""A session of texts without ranks, which are a mixture of bytes; the rest is as on a server."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from byte_tokenizers import byte_tokenizer
from fake_sessions import FakeSession

from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.engine import Engine
from tensoropt.runtime.text.prompts import Prompts
from tensoropt.runtime.text.session import TextSession
from tensoropt.runtime.text.tokens import Vocabulary
from tensoropt.serving.encoder import Encoder
from tensoropt.serving.protocol.tensors import TensorSpec

CONTEXT = 1 << 11
_MOST = 64  # tokens of a text
_END = 2


class ByteRanks:
    """Stands in for the pool of ranks: a text gets bytes at random, by its prompt and seed."""

    is_alive, silent_s = True, 0.0

    def __init__(self, size: int) -> None:
        self._size = size

    def empty(self, shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}

    def stream(
        self, asked: Message, arrays: Any
    ) -> Generator[Message, None, tuple[Message, dict[str, Any]]]:
        counts = {"copied": [], "failed": [], "proposed": 0, "accepted": 0}
        for new in asked["add"]:
            yield {"chosen": [*self._chosen(new)], **counts}
        return {"chosen": [], **counts}, {}

    def _chosen(self, new: Message) -> Iterator[tuple[int, int | None, Any]]:
        key, prompt, how = new["key"], new["prompt"], new["sampling"]
        draw = random.Random(f"{how['seed']} {new['number']} {len(prompt)}")
        yield key, None, None
        if how["prompt_logprobs"] is not None:
            for token in prompt[1:]:
                yield key, None, self._likely(token, how["prompt_logprobs"], draw)
        count = new["room"] - len(prompt)
        for place in range(min(count, _MOST)):
            token = draw.choice((draw.randrange(3, 259), draw.randrange(self._size)))
            token = _END if place == _MOST - 1 else token
            likely = how["logprobs"]
            yield key, token, None if likely is None else self._likely(token, likely, draw)
            if token in new["end"]:
                return

    def _likely(self, token: int, count: int, draw: random.Random) -> list[tuple[int, float]]:
        others = [draw.randrange(self._size) for _ in range(count)]
        return [(token, -1.5), *((other, -2.0) for other in others)]

    def restart(self) -> None:
        """Nothing to do."""

    def close(self, grace_s: float) -> None:
        """Nothing to do."""


class ByteSession(TextSession):
    """Continues texts by `ByteRanks`; the tokenizer is in the form of a known model."""

    def __init__(self, folder: Path, form: str = "llama") -> None:
        path = folder / "tokenizer.json"
        byte_tokenizer(form).save(str(path))
        self._vocabulary, self._tokenizer, self._grammars = Vocabulary(path), path, None
        size, self._context, self.slots = self._vocabulary.size, CONTEXT, 16
        plan: Any = SimpleNamespace(folder=path.parent)
        self._decoder: Any = SimpleNamespace(
            plan=plan,
            scores=SimpleNamespace(shape=(1, 1, size)),
            context=None,
            scores_all=True,
            entry={"context": CONTEXT, "end": [_END]},
        )
        self.plan, self._pool = plan, ByteRanks(size)  # type: ignore[assignment]
        self._prompts = Prompts(self._decoder, self._vocabulary, CONTEXT)
        self._prompts._template = _Template()  # type: ignore[assignment]
        self._engine = Engine(self._pool)

    def check_grammar(self, grammar: str) -> None:
        """Accept all grammars: a process checks them, in tests of its own."""


class VectorSession(FakeSession):
    """Answers each token with the vector (token, 1)."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        ids = inputs["input_ids"].astype(np.float32)
        return {"last_hidden_state": np.stack([ids, np.ones_like(ids)], axis=-1)}

    def empty(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        return {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


def encoder_of(session: ByteSession, context: int = 512) -> Encoder:
    """Return the encoder of `VectorSession`, with the tokenizer of a session."""
    sizes = ("batch", "tokens")
    inputs = tuple(TensorSpec(name, "int64", sizes) for name in ("input_ids", "attention_mask"))
    output = TensorSpec("last_hidden_state", "float32", (*sizes, 2))
    assert session._tokenizer is not None
    return Encoder(session._tokenizer, inputs, output, "mean", context)


class _Template:
    source = '{{ messages }} <tool_call> {"name": ...}'

    def text_of(self, messages: Sequence[Mapping[str, Any]], *_: object) -> str:
        return "".join(str(message["content"]) for message in messages) or "a"

    def has(self, name: str) -> bool:
        """Return False: it names no further variables."""
        return False

    def close(self) -> None:
        """Nothing to do."""
