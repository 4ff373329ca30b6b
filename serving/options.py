"""Options of a server and of its models; the flags of tensoropt-serve have the same defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tensoropt.runtime.text.limits import SLOTS, SPECULATE, STEP_TOKENS
from tensoropt.serving.protocol.keys import Keys

__all__ = ["POOLINGS", "ServerOptions", "ServingOptions", "TextLimits"]

POOLINGS = ("mean", "cls")
"""Embeddings of an encoder: the mean of a text's tokens, or its first token."""

_QUEUE, _TIMEOUT_S = 256, 60.0


@dataclass(frozen=True)
class ServerOptions:
    """Addresses of a server, and its grace period; ``grpc_port`` None serves HTTP only.

    ``address_file`` contains the addresses, one per line, while the server runs. Clients need one
    of ``keys``, if it has any.
    """

    host: str = "127.0.0.1"
    grpc_port: int | None = 8001
    grace_s: float = 30.0
    address_file: Path | None = None
    keys: Keys = field(default_factory=Keys)


@dataclass(frozen=True)
class ServingOptions:
    """Options for collecting requests into runs.

    The model is not ready while a run has taken longer than ``timeout_s``. Encoders make embeddings
    by ``pooling``, of texts of at most ``context`` tokens.
    """

    batch_delay_s: float = 0.002
    max_batch: int | None = None
    is_batching: bool = True
    queue: int = _QUEUE
    timeout_s: float = _TIMEOUT_S
    pooling: str = POOLINGS[0]
    context: int | None = None


@dataclass(frozen=True)
class TextLimits:
    """Limits on the queue of requests, on their texts, and on the texts that run together.

    ``slots``, ``context``, ``step_tokens`` and ``speculate`` are for `TextSession`. If a graph
    scores all tokens of a step, 512 over a vocabulary of 128 thousand take 256 MiB in float32.
    """

    queue: int = _QUEUE
    max_prompts: int = 64
    slots: int = SLOTS
    context: int | None = None
    step_tokens: int = STEP_TOKENS
    timeout_s: float = _TIMEOUT_S
    speculate: int = SPECULATE
