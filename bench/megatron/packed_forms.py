"""Modules that pack projections as models do, by the name of the form.

    python bench/megatron/packed_forms.py FOLDER [NAME ...]

Needs torch and onnxscript, in an environment of their own. Each module is exported by both
exporters of PyTorch, `FOLDER/NAME.dynamo.onnx` and `FOLDER/NAME.script.onnx`. A module is
`lead`, a product that every rank runs whole, then `columns`, the packed projection, and `rows`,
the product after attention or after the gate. Batch and tokens are symbolic.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor, nn
from torch.nn import functional

from megatron.packed_attention import (
    ALL,
    FEATURES,
    FORMS,
    HEADS,
    SIZE,
    WIDTH,
    Parts,
    attend,
    heads,
)

TOKENS, BATCH = 5, 2
EXPORTERS = ("dynamo", "script")
FIXED = {"heads_three_size_unbind", "three_unflattened", "tokens_first_unflatten", "tensor_split"}
"""Forms that the older exporter writes for the sizes of the export alone."""


class _TokensFirst(nn.Module):
    """Attention on tokens, batch, features."""

    def __init__(self, columns: int, unpack: Callable[[Tensor], Parts]) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, columns)
        self.rows = nn.Linear(ALL, WIDTH)
        self.unpack = unpack

    def forward(self, x: Tensor) -> Tensor:
        packed = self.columns(self.lead(x).transpose(0, 1))
        tokens, batch = packed.shape[:2]
        q, k, v = self.unpack(packed)  # batch and heads, tokens, size
        weights = torch.softmax(q @ k.transpose(-1, -2) / SIZE**0.5, dim=-1)
        mixed = (weights @ v).transpose(0, 1).reshape(tokens, batch, -1)
        made: Tensor = self.rows(mixed)
        return made.transpose(0, 1)


def _tokens_first_unflatten(x: Tensor) -> Parts:
    """As torch.nn.MultiheadAttention."""
    tokens, batch = x.shape[:2]
    x = x.unflatten(-1, (3, ALL)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
    q, k, v = (x[n].view(tokens, batch * HEADS, SIZE).transpose(0, 1) for n in range(3))
    return q, k, v


def _tokens_first_chunk(x: Tensor) -> Parts:
    """As Transformer-XL and fairseq."""
    tokens, batch = x.shape[:2]
    q, k, v = (own.reshape(tokens, batch * HEADS, SIZE).transpose(0, 1) for own in x.chunk(3, -1))
    return q, k, v


def _tokens_first_heads(x: Tensor) -> Parts:
    """As Megatron-LM: q, k and v of each head."""
    tokens, batch = x.shape[:2]
    q, k, v = x.view(tokens, batch, HEADS, 3 * SIZE).split(SIZE, dim=3)
    q, k, v = (own.reshape(tokens, batch * HEADS, SIZE).transpose(0, 1) for own in (q, k, v))
    return q, k, v


FORMS["tokens_first_unflatten"] = lambda: _TokensFirst(3 * ALL, _tokens_first_unflatten)
FORMS["tokens_first_chunk"] = lambda: _TokensFirst(3 * ALL, _tokens_first_chunk)
FORMS["tokens_first_heads"] = lambda: _TokensFirst(3 * ALL, _tokens_first_heads)


class _Cross(nn.Module):
    """Attention with keys and values packed."""

    def __init__(self, unpack: Callable[[Tensor], tuple[Tensor, Tensor]], columns: int) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.q_columns = nn.Linear(WIDTH, ALL)
        self.kv_columns = nn.Linear(WIDTH, columns)
        self.rows = nn.Linear(ALL, WIDTH)
        self.unpack = unpack

    def forward(self, x: Tensor) -> Tensor:
        x = self.lead(x)
        made: Tensor = self.rows(attend(heads(self.q_columns(x)), *self.unpack(self.kv_columns(x))))
        return made


def _kv_chunk(x: Tensor) -> tuple[Tensor, Tensor]:  # JetMoe, Granite speech
    k, v = x.chunk(2, dim=-1)
    return heads(k), heads(v)


def _kv_permute_unbind(x: Tensor) -> tuple[Tensor, Tensor]:  # PVT, Twins
    k, v = x.reshape(*x.shape[:2], 2, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
    return k, v


def _kv_heads_split(x: Tensor) -> tuple[Tensor, Tensor]:  # DeepSeek's latent attention
    x = x.view(*x.shape[:2], -1, 2 * SIZE).transpose(1, 2)
    k, v = torch.split(x, [SIZE, SIZE], dim=-1)
    return k, v


FORMS |= {
    own.__name__.strip("_"): partial(_Cross, own, 2 * ALL)
    for own in (_kv_chunk, _kv_permute_unbind, _kv_heads_split)
}


class _Latent(nn.Module):
    """Latent attention of DeepSeek: parts of heads are turned, one is shared by all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, 8 + 2)
        self.q_columns = nn.Linear(8, HEADS * (SIZE + 2))
        self.kv_columns = nn.Linear(8, HEADS * (SIZE + SIZE))
        self.rows = nn.Linear(ALL, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        latent, turned = torch.split(self.lead(x), [8, 2], dim=-1)
        q = self.q_columns(latent).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
        q_pass, q_turned = torch.split(q, [SIZE, 2], dim=-1)
        kv = self.kv_columns(latent).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
        k_pass, v = torch.split(kv, [SIZE, SIZE], dim=-1)
        turned = turned.view(x.shape[0], 1, x.shape[1], 2)
        turned = (0.5 * turned).expand(*k_pass.shape[:-1], -1)
        k = torch.cat((k_pass, turned), dim=-1)
        q = torch.cat((q_pass, 0.5 * q_turned), dim=-1)
        made: Tensor = self.rows(attend(q, k, v))
        return made


FORMS["latent"] = _Latent


class _Gated(nn.Module):
    """A gate and an up projection, packed."""

    def __init__(self, unpack: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 2 * FEATURES)
        self.rows = nn.Linear(FEATURES, WIDTH)
        self.unpack = unpack

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.unpack(self.columns(self.lead(x)))
        made: Tensor = self.rows(functional.silu(gate) * up)
        return made


def _gate_chunk(x: Tensor) -> tuple[Tensor, Tensor]:  # Phi-3, GLM
    gate, up = x.chunk(2, dim=-1)
    return gate, up


def _gate_slices(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., :FEATURES], x[..., FEATURES:]


def _gate_slices_from_the_end(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., -FEATURES:], x[..., :-FEATURES]


def _gate_turns(x: Tensor) -> tuple[Tensor, Tensor]:  # GPT-OSS
    return x[..., ::2], x[..., 1::2]


def _gate_view_unbind(x: Tensor) -> tuple[Tensor, Tensor]:  # ESM
    gate, up = x.view(*x.shape[:2], 2, FEATURES).unbind(-2)
    return gate, up


def _gate_view_select(x: Tensor) -> tuple[Tensor, Tensor]:  # Dia, T5Gemma
    x = x.unflatten(-1, (2, -1))
    return x[..., 0, :], x[..., 1, :]


def _gate_view_last(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.view(*x.shape[:2], FEATURES, 2)
    return x[..., 0], x[..., 1]


def _gate_glu(x: Tensor) -> tuple[Tensor, Tensor]:
    return functional.glu(x, dim=-1), torch.ones(())


def _gate_transposed(x: Tensor) -> tuple[Tensor, Tensor]:  # Mamba
    gate, up = x.transpose(1, 2).chunk(2, dim=1)
    return gate.transpose(1, 2), up.transpose(1, 2)


def _gate_transposed_view(x: Tensor) -> tuple[Tensor, Tensor]:  # Zamba
    x = x.transpose(1, 2)
    gate, up = x.reshape(x.shape[0], -1, 2, x.shape[2]).chunk(2, dim=2)
    return gate.squeeze(2).transpose(1, 2), up.squeeze(2).transpose(1, 2)


FORMS |= {
    own.__name__.strip("_"): partial(_Gated, own)
    for own in (
        _gate_chunk,
        _gate_slices,
        _gate_slices_from_the_end,
        _gate_turns,
        _gate_view_unbind,
        _gate_view_select,
        _gate_view_last,
        _gate_glu,
        _gate_transposed,
        _gate_transposed_view,
    )
}


class _ShortConvolution(nn.Module):
    """Mamba: a gate, and channels that a convolution mixes with earlier tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 2 * FEATURES)
        self.taps = nn.Conv1d(FEATURES, FEATURES, 4, groups=FEATURES, padding=3)
        self.rows = nn.Linear(FEATURES, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        packed = self.columns(self.lead(x)).transpose(1, 2)
        inner, gate = packed.chunk(2, dim=1)
        inner = functional.silu(self.taps(inner)[..., : x.shape[1]])
        made: Tensor = self.rows((inner * functional.silu(gate)).transpose(1, 2))
        return made


FORMS["short_convolution"] = _ShortConvolution


class _ShortConvolutionOfThree(nn.Module):
    """LFM 2: two gates and the input of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 3 * FEATURES)
        self.taps = nn.Conv1d(FEATURES, FEATURES, 3, groups=FEATURES, padding=2)
        self.rows = nn.Linear(FEATURES, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, c, x = self.columns(self.lead(x)).transpose(-1, -2).chunk(3, dim=-2)
        made: Tensor = self.rows((c * self.taps(b * x)[..., : x.shape[-1]]).transpose(-1, -2))
        return made


FORMS["short_convolution_of_three"] = _ShortConvolutionOfThree


class _ConvolvedParts(nn.Module):
    """Gated delta networks: one convolution over queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 3 * ALL)
        self.taps = nn.Conv1d(3 * ALL, 3 * ALL, 4, groups=3 * ALL, padding=3)
        self.rows = nn.Linear(ALL, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        packed = self.columns(self.lead(x)).transpose(1, 2)
        packed = functional.silu(self.taps(packed)[:, :, : x.shape[1]]).transpose(1, 2)
        q, k, v = torch.split(packed, [ALL, ALL, ALL], dim=-1)
        made: Tensor = self.rows(attend(heads(q), heads(k), heads(v)))
        return made


FORMS["convolved_parts"] = _ConvolvedParts


class _Parallel(nn.Module):
    """Attention and a feed-forward network from one product, and into one (FLUX, ViT-22B)."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 3 * ALL + FEATURES)
        self.rows = nn.Linear(ALL + FEATURES, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        qkv, features = torch.split(self.columns(self.lead(x)), [3 * ALL, FEATURES], dim=-1)
        qkv = qkv.view(*qkv.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        mixed = attend(qkv[0], qkv[1], qkv[2])
        made: Tensor = self.rows(torch.cat((mixed, functional.gelu(features)), dim=2))
        return made


FORMS["parallel"] = _Parallel


class _JoinedBias(nn.Module):
    """BEiT and Swin v2: the bias of keys is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 3 * ALL, bias=False)
        self.q_bias = nn.Parameter(torch.randn(ALL))
        self.v_bias = nn.Parameter(torch.randn(ALL))
        self.register_buffer("k_bias", torch.zeros(ALL), persistent=False)
        self.rows = nn.Linear(ALL, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        bias = torch.cat((self.q_bias, self.k_bias, self.v_bias))
        packed = self.columns(self.lead(x)) + bias
        packed = packed.reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = packed.unbind(0)
        made: Tensor = self.rows(attend(q, k, v))
        return made


FORMS["joined_bias"] = _JoinedBias


class _CutWeight(nn.Module):
    """The weight is cut before its products, as in attention between two sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = nn.Linear(WIDTH, WIDTH)
        self.columns = nn.Linear(WIDTH, 3 * ALL)
        self.rows = nn.Linear(ALL, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lead(x)
        weights = self.columns.weight.chunk(3)
        biases = self.columns.bias.chunk(3)
        pairs = zip(weights, biases, strict=True)
        q, k, v = (functional.linear(x, *own) for own in pairs)
        made: Tensor = self.rows(attend(heads(q), heads(k), heads(v)))
        return made


FORMS["cut_weight"] = _CutWeight


class _Channels(nn.Module):
    """Attention on pixels, with convolutions of one pixel as products."""

    def __init__(self, unpack: Callable[[Tensor], Parts]) -> None:
        super().__init__()
        self.lead = nn.Conv1d(WIDTH, WIDTH, 1)
        self.columns = nn.Conv1d(WIDTH, 3 * ALL, 1)
        self.rows = nn.Conv1d(ALL, WIDTH, 1)
        self.unpack = unpack

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.unpack(self.columns(self.lead(x.transpose(1, 2))))
        weights = torch.softmax(q.transpose(-1, -2) @ k / SIZE**0.5, dim=-1)
        mixed = (v @ weights.transpose(-1, -2)).flatten(1, 2)
        made: Tensor = self.rows(mixed)
        return made.transpose(1, 2)


def _channels_chunk(x: Tensor) -> Parts:
    q, k, v = (own.reshape(own.shape[0], HEADS, SIZE, -1) for own in x.chunk(3, dim=1))
    return q, k, v


def _channels_heads_split(x: Tensor) -> Parts:  # YOLO
    q, k, v = x.view(x.shape[0], HEADS, 3 * SIZE, -1).split([SIZE, SIZE, SIZE], dim=2)
    return q, k, v


def _channels_three_unbind(x: Tensor) -> Parts:
    q, k, v = x.reshape(x.shape[0], 3, HEADS, SIZE, -1).unbind(1)
    return q, k, v


FORMS |= {
    own.__name__.strip("_"): partial(_Channels, own)
    for own in (_channels_chunk, _channels_heads_split, _channels_three_unbind)
}


def export(name: str, folder: Path, exporter: str, *, symbolic: bool = True) -> Path:
    """Return the file of a form, written by an exporter: `dynamo` or `script`.

    Unless ``symbolic``, batch and tokens have the sizes of the export.
    """
    torch.manual_seed(7)
    module, x = FORMS[name]().eval(), torch.randn(BATCH, TOKENS, WIDTH)
    path, named = folder / f"{name}.{exporter}.onnx", {"input_names": ["x"], "output_names": ["y"]}
    dims: dict[str, Any] = {}
    if symbolic and exporter == "dynamo":
        sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
        dims = {"dynamic_shapes": (sizes,)}
    elif symbolic:
        dims = {"dynamic_axes": {"x": {0: "batch", 1: "tokens"}}}
    newer = {"external_data": False, "verbose": False} if exporter == "dynamo" else {}
    is_newer = exporter == "dynamo"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=is_newer, **newer, **named, **dims)
    return path


def main() -> None:
    """Export forms in sequence."""
    folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, exporter in itertools.product(names or FORMS, EXPORTERS):
        export(name, Path(folder), exporter, symbolic=exporter == "dynamo" or name not in FIXED)


if __name__ == "__main__":
    main()
