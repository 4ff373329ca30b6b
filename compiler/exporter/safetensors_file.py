"""Streaming writer of safetensors files, with bounded memory.

The format (huggingface.co/docs/safetensors, Format): 8 bytes with the length of the header,
little-endian; the header, JSON with element type, shape and offsets of each tensor, padded with
spaces; the tensors in sequence, in row-major order. The safetensors library can only write tensors
that are whole in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tensoropt.compiler.exporter.weights import Cut, ParameterSource, length

__all__ = ["Part", "write_safetensors"]

_TYPES: Mapping[str, str] = {
    "DOUBLE": "F64",
    "FLOAT": "F32",
    "FLOAT16": "F16",
    "BFLOAT16": "BF16",
}
"""The trainable element types, with their names in the format."""

_ALIGNMENT_BYTES = 8


class Part(NamedTuple):
    """The part of a parameter in ``cuts``, one per dimension."""

    name: str
    cuts: Sequence[Cut]

    @property
    def shape(self) -> list[int]:
        return [*map(length, self.cuts)]


def write_safetensors(
    path: Path,
    parts: Sequence[Part],
    source: ParameterSource,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write ``parts`` of the parameters of ``source``; equal parts have equal bytes.

    ``metadata`` is stored in the header. Tensors are sorted by decreasing element size, so that
    each is aligned to its elements; the sort is stable. The folder of ``path`` is created.
    """
    ordered = sorted(parts, key=lambda part: -source.element(part.name).bits)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(_header(ordered, source, metadata))
        for part in ordered:
            for chunk in source.stream(part.name, part.cuts):
                file.write(chunk)


def _header(
    parts: Sequence[Part], source: ParameterSource, metadata: Mapping[str, str] | None
) -> bytes:
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    start = 0
    for part in parts:
        element = source.element(part.name)
        end = start + math.prod(part.shape) * element.bits // 8
        offsets = {"data_offsets": [start, end]}
        entries[part.name] = {"dtype": _TYPES[element.name], "shape": part.shape, **offsets}
        start = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(8, "little") + text
