"""Graphs of large public models without weights, for `bench/search/answers.py`.

    python bench/search/large.py FOLDER [NAME ...]        models of a list
    python bench/search/large.py FOLDER --draw 20 --seed 7   others, drawn from all that mobius has
    python bench/search/answers.py FOLDER --flags FOLDER/flags.json --device h100 --devices 8 64

Needs mobius-onnx and transformers, in an environment of their own, and no network: configurations
are the defaults of their classes, or of the sizes written here. A model is `FOLDER/NAME/NAME.onnx`;
its weights are a hole in a file of their size. `FOLDER/flags.json` has the sizes of its inputs.
A drawn architecture has the default configuration of transformers, and a file for each part; some
cannot be built, which a line says.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mobius
import onnx_ir as ir
import transformers
from mobius._builder import build_from_module
from mobius._diffusers_configs import UNet2DConfig
from mobius._registry import MODEL_MAP
from mobius.models import flux_sd3, hunyuan_dit, unet
from mobius.tasks._denoising import DenoisingTask
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SMALLEST = 4096
"""Elements of a weight from which it is a hole."""


@dataclass(frozen=True)
class Large:
    """A graph, and the sizes of its symbolic dimensions."""

    build: Callable[[], ir.Model]
    sizes: Mapping[str, int]


def _denoiser(module: Callable[[Any], Any], config: Any) -> Callable[[], ir.Model]:
    def build() -> ir.Model:
        model: ir.Model = build_from_module(module(config), config, DenoisingTask())["model"]
        return model

    return build


def _transformer(
    config: str, part: str = "model", dtype: str = "f16", **sizes: Any
) -> Callable[[], ir.Model]:
    """Return a builder of a part of a model of transformers."""

    def build() -> ir.Model:
        with tempfile.TemporaryDirectory() as folder:
            getattr(transformers, config)(**sizes).save_pretrained(folder)
            package = mobius.build(folder, load_weights=False, dtype=dtype)
        model: ir.Model = package[part]
        return model

    return build


_IMAGE = {"batch": 2, "height": 128, "width": 128}
_DECODING = {"batch": 64, "sequence_len": 1, "past_sequence_len": 447}
_QWEN3 = {
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
_WHISPER = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_layers": 32,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "num_mel_bins": 128,
}
LARGE: Mapping[str, Large] = {
    "flux": Large(
        _denoiser(flux_sd3.FluxTransformer2DModel, flux_sd3.FluxConfig()),
        {"batch": 1, "height": 64, "width": 64, "sequence_length": 512},
    ),
    "sd3": Large(
        _denoiser(flux_sd3.SD3Transformer2DModel, flux_sd3.SD3Config()),
        {**_IMAGE, "sequence_length": 333},
    ),
    "hunyuan": Large(
        _denoiser(hunyuan_dit.HunyuanDiT2DModel, hunyuan_dit.HunyuanDiTConfig()),
        {**_IMAGE, "sequence_length": 256},
    ),
    "unet": Large(
        _denoiser(unet.UNet2DConditionModel, UNet2DConfig()),
        {"batch": 8, "height": 64, "width": 64, "sequence_length": 77},
    ),
    "qwen3_32b": Large(
        _transformer("Qwen3Config", **_QWEN3), {**_DECODING, "past_seq_len + seq_len": 448}
    ),
    "whisper_encoder": Large(
        _transformer("WhisperConfig", "encoder", dtype="f32", **_WHISPER),
        {"batch": 8, "audio_seq_len": 3000},
    ),
    "whisper_decoder": Large(
        _transformer("WhisperConfig", "decoder", **_WHISPER),
        {**_DECODING, "encoder_sequence_len": 1500},
    ),
}


def write(name: str, model: ir.Model, folder: Path) -> str:
    """Write a model and the hole of its weights; return a line about it."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    offset = 0
    for value in model.graph.initializers.values():
        assert value.shape is not None
        shape = [int(dim) for dim in value.shape]
        if value.const_value is not None and math.prod(shape) < SMALLEST:
            continue
        dtype = value.dtype or ir.DataType.FLOAT
        size_bytes = math.ceil(math.prod(shape) * dtype.itemsize)
        value.const_value = ir.ExternalTensor(
            "weights",
            offset,
            size_bytes,
            dtype,
            shape=ir.Shape(shape),
            name=value.name or "",
            base_dir=place,
        )
        offset += -(-size_bytes // 64) * 64
    with (place / "weights").open("wb") as file:
        file.truncate(max(offset, 1))
    ir.save(model, place / f"{name}.onnx")
    inputs = {value.name: str(value.shape) for value in model.graph.inputs[:4]}
    return f"{name}: {len(model.graph)} nodes, {offset / 1e9:.1f} GB, inputs {inputs}"


def draw(count: int, seed: int) -> Iterator[tuple[str, ir.Model]]:
    """Yield the parts of ``count`` architectures that mobius and transformers have, by name."""
    architectures = sorted(set(MODEL_MAP) & set(CONFIG_MAPPING.keys()))
    for architecture in random.Random(seed).sample(architectures, count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                CONFIG_MAPPING[architecture]().save_pretrained(folder)
                package = mobius.build(folder, load_weights=False)
            except Exception as error:  # of either library, for a configuration of its own
                print(f"{architecture}: cannot be built: {error!r}"[:160], flush=True)
                continue
        for part, model in package.items():
            yield f"{architecture}_{part}".replace("-", "_"), model


def sizes_of(model: ir.Model) -> dict[str, int]:
    """Return sizes of the symbolic dimensions of a model: a step of decoding, or 512 tokens."""
    shapes = [value.shape or () for value in model.graph.inputs]
    dims = {str(dim) for shape in shapes for dim in shape if not isinstance(dim, int)}
    terms = {dim: [name.strip() for name in dim.split("+")] for dim in dims}
    names = {name for summands in terms.values() for name in summands}
    decodes = any("past" in name for name in names)

    def size(name: str) -> int:
        if "past" in name:
            return _DECODING["past_sequence_len"]
        if "batch" in name:
            return _DECODING["batch"]
        return 1 if decodes and name.startswith("seq") else 512

    sums = {dim: sum(map(size, terms[dim])) for dim in dims}
    return {**{name: size(name) for name in names}, **sums}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(LARGE)}")
    parser.add_argument("--draw", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    request = parser.parse_args()
    flags = {}
    if request.draw is None:
        names = request.names or list(LARGE)
        models = ((name, LARGE[name].build(), LARGE[name].sizes) for name in names)
    else:
        pairs = draw(request.draw, request.seed)
        models = ((name, model, sizes_of(model)) for name, model in pairs)
    for name, model, sizes in models:
        print(write(name, model, request.folder), flush=True)
        flags[f"{name}.onnx"] = " ".join(
            f"--dim {shlex.quote(f'{dim}={size}')}" for dim, size in sizes.items()
        )
    (request.folder / "flags.json").write_text(json.dumps(flags, indent=1))


if __name__ == "__main__":
    main()
