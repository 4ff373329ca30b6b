"""Replacement of started and awaited collectives in a rank's graph by blocking ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import helper

from tensoropt.runtime.support.collectives import DOMAIN, JOINED, STARTS, WAITS

__all__ = ["make_blocking"]


def make_blocking(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes equivalent to ``nodes`` without starts and waits, in the same order."""
    for node in nodes:
        if node.domain == DOMAIN and node.op_type in WAITS:
            for y, z in zip(node.input[1:], node.output, strict=False):
                yield helper.make_node("Identity", [y], [z], name=f"{node.name}.{z}")
        elif node.domain == DOMAIN and node.op_type in STARTS:
            yield _whole(node)
        else:
            yield node


def _whole(start: onnx.NodeProto) -> onnx.NodeProto:
    token, *operands = start.input
    given, _, *results = start.output
    whole = onnx.NodeProto()
    whole.CopyFrom(start)
    whole.op_type = STARTS[start.op_type]
    is_joined = whole.op_type in JOINED  # their token comes first
    del whole.input[:], whole.output[:]
    whole.input.extend([token, *operands] if is_joined else [*operands, token])
    whole.output.extend([given, *results] if is_joined else [*results, given])
    return whole
