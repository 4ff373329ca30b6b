"""Very small models for sweeps and tests, with features that the models of the papers lack."""

from __future__ import annotations

from collections.abc import Mapping

from graphs.catalog import Model
from graphs.decoder import Decoder
from graphs.llama import Llama
from graphs.lstm import Lstm
from graphs.quantized import Quantized

__all__ = ["SMALL"]

SMALL: Mapping[str, Model] = {
    "lstm_small": Lstm(width=32, vocabulary=256, sequence=8, batch=4),
    "mixture_small": Llama(
        layers=2,
        width=32,
        heads=4,
        groups=2,
        inner=48,
        vocabulary=256,
        experts=4,
        sequence=8,
        batch=4,
        dtype="float32",
    ),
    "quantized_small": Quantized(),
    "quantized_odd": Quantized(exact=False),
    "decoder_small": Decoder(),
    "decoder_standard": Decoder(operators="standard"),
    "decoder_runtime": Decoder(operators="runtime"),
    "decoder_4_bits": Decoder(operators="runtime", bits=4),
    "decoder_packed": Decoder(packed=True),
    "decoder_runtime_packed": Decoder(operators="runtime", packed=True),
    "decoder_4_bits_packed": Decoder(operators="runtime", bits=4, packed=True),
}
