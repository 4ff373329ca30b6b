"""Layers of the models with compiled training steps, grouped as in PaSE's Table II."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from search import table_two
from search.table_two import FLAT_SCORES, LOOKUP, PRODUCT, SCORES, VALUES, Group, Model

__all__ = ["GROUPS", "PASE"]

_INPUTS = {"b": (-1, 0), "s": (-1, 1), "d": (0, -1), "e": (-1, -1)}
_STEPS = {"b": (-1, 0), "d": (0, -1), "e": (-1, -1)}
_LSTM = {
    "inputs": (r"layer./lstm\.Einsum", _INPUTS),
    "steps": (r"layer./lstm\..*Recurrence\.Einsum(_\d+)?", _STEPS),
}


def _with_operator(model: Model) -> Model:
    """Return PaSE's RNNLM with the LSTM operator, which training unrolls by itself."""
    if model.name != "lstm_unrolled":
        return model
    groups = [
        replace(g, ops=_LSTM[g.kind][0], dims=_LSTM[g.kind][1]) if g.kind in _LSTM else g
        for g in model.groups
    ]
    return replace(model, name="lstm", groups=groups)


PASE = tuple(map(_with_operator, table_two.MODELS))
"""PaSE's models at its sizes."""

_GPT = (
    Group("embedding", "", r"tokens/gather", "", LOOKUP),
    Group("q, k, v", "", r"layer\d+/attention/qkv/matmul", "", PRODUCT),
    Group("scores", "", r"layer\d+/attention/matmul", "", SCORES),
    Group("values", "", r"layer\d+/attention/matmul_1", "", VALUES),
    Group("out", "", r"layer\d+/attention/out/matmul", "", PRODUCT),
    Group("up", "", r"layer\d+/mlp/up/matmul", "", PRODUCT),
    Group("down", "", r"layer\d+/mlp/down/matmul", "", PRODUCT),
    Group("unembedding", "", r"unembed/gemm", "", FLAT_SCORES),
)
GROUPS: Mapping[str, Sequence[Group]] = {
    **{model.name: model.groups for model in PASE},
    "gpt3_175b": _GPT,
}
"""Groups of layers by the name of the model."""
