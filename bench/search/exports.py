"""Exports models of other people's code, of two layers, for `bench/search/answers.py`.

    python bench/search/exports.py FOLDER [NAME ...]

Needs torch, transformers and onnxscript, in an environment of their own, and no network:
configurations are built here, and weights are random. A model is `FOLDER/NAME.onnx`, 128 wide, with
two inputs of 32 tokens or two images of 64 x 64. Each is exported in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

BATCH, TOKENS, WIDTH, HEADS, VOCABULARY = 2, 32, 128, 8, 512

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
}
_GROUPED = {**_SIZES, "num_key_value_heads": HEADS // 2}

DECODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bloom": (
        "Bloom",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 2, "n_head": HEADS},
    ),
    "gemma3": (
        "Gemma3Text",
        {**_GROUPED, "head_dim": 16, "intermediate_size": 4 * WIDTH, "sliding_window": 16},
    ),
    "mamba2": (
        "Mamba2",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_heads": HEADS,
            "head_dim": 2 * WIDTH // HEADS,
            "state_size": 16,
            "n_groups": 1,
            "chunk_size": 16,
        },
    ),
    "mixtral": (
        "Mixtral",
        {**_GROUPED, "intermediate_size": 2 * WIDTH, "num_local_experts": 4},
    ),
}


class _Decoder(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(tokens, use_cache=False).logits
        return scores


class _Encoder(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.model(data)[0]
        return states


class _Whisper(torch.nn.Module):
    def __init__(self, model: Any, tokens: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("tokens", tokens)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        answer = self.model(input_features=sound, decoder_input_ids=self.tokens, use_cache=False)
        scores: torch.Tensor = answer.logits
        return scores


def _tokens() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, TOKENS))


def _decoder(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    family, sizes = DECODERS[name]
    config = getattr(transformers, f"{family}Config")(**sizes)
    config._experts_implementation = "batched_mm"  # the one that exporters can write
    return _Decoder(transformers.AutoModelForCausalLM.from_config(config)), _tokens()


def _sam() -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers.models.sam.modeling_sam import SamVisionEncoder

    config = transformers.SamVisionConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        image_size=64,
        patch_size=8,
        output_channels=32,
        window_size=4,
        global_attn_indexes=[1],
        mlp_dim=4 * WIDTH,
    )
    return _Encoder(SamVisionEncoder(config)), torch.randn(BATCH, 3, 64, 64)


def _deberta() -> tuple[torch.nn.Module, torch.Tensor]:
    config = transformers.DebertaV2Config(
        **_SIZES,
        intermediate_size=4 * WIDTH,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    )
    return _Encoder(transformers.DebertaV2Model(config)), _tokens()


def _whisper() -> tuple[torch.nn.Module, torch.Tensor]:
    sizes = {"vocab_size": VOCABULARY, "d_model": WIDTH, "max_source_positions": TOKENS}
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": 2,
            f"{side}_attention_heads": HEADS,
            f"{side}_ffn_dim": 4 * WIDTH,
        }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(**sizes, **tokens, num_mel_bins=16)
    model = transformers.WhisperForConditionalGeneration(config)
    return _Whisper(model, _tokens()), torch.randn(BATCH, 16, 2 * TOKENS)


MODELS: Mapping[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    **{name: partial(_decoder, name) for name in DECODERS},
    "deberta": _deberta,
    "sam": _sam,
    "whisper": _whisper,
}


def export(name: str, folder: Path) -> None:
    """Write one model."""
    torch.manual_seed(0)
    model, data = MODELS[name]()
    path = str(folder / f"{name}.onnx")
    torch.onnx.export(model.eval(), (data,), path, dynamo=True, external_data=False)


def main() -> int:
    folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    if len(names) == 1:
        export(names[0], Path(folder))
        return 0
    failed = 0
    for name in names or MODELS:
        command = [sys.executable, __file__, folder, name]
        done = subprocess.run(command, capture_output=True, text=True)
        result = done.stderr.strip().splitlines()[-1] if done.returncode else "exported"
        print(f"{name}: {result}", flush=True)
        failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
