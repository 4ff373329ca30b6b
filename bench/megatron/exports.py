"""Exports transformers of many families by the tools that users export with.

    python bench/megatron/exports.py FOLDER [NAME ...]

Needs no network: configurations are built here, weights are random. Needs torch, transformers and
onnxscript, in an environment of their own. Names that end in `-genai` also need
onnxruntime-genai, which builds float and 4-bit models with its operator GroupQueryAttention.
A model is `FOLDER/NAME/model.onnx`: two layers, 1,024 wide, with the proportions of its family.
Decoders have a KV cache. Models are exported in sequence, each in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers
from inference.decoders import tokenizer
from transformers import DynamicCache
from transformers.modeling_utils import PreTrainedModel

WIDTH, HEADS, SHARED, LAYERS = 1024, 16, 4, 2
SIZE, VOCABULARY, CONTEXT = WIDTH // HEADS, 16384, 4096
GATED = 2816  # features between the products of a gated layer

_STANDARD: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": CONTEXT,
}
_WIDE = {**_STANDARD, "intermediate_size": 4 * WIDTH}
_LLAMA = {**_STANDARD, "num_key_value_heads": SHARED, "intermediate_size": GATED}
_SIZED = {**_LLAMA, "head_dim": SIZE}
_GPT = {
    "vocab_size": VOCABULARY,
    "n_positions": CONTEXT,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": GATED // 2}

DECODERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bloom": (
        "Bloom",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS},
    ),
    "cohere": ("Cohere", _LLAMA),
    "falcon": ("Falcon", {**_STANDARD, "multi_query": True, "new_decoder_architecture": False}),
    "falcon-grouped": (
        "Falcon",
        {**_STANDARD, "num_kv_heads": SHARED, "new_decoder_architecture": True},
    ),
    "gemma": ("Gemma", _SIZED),
    "gemma2": ("Gemma2", {**_SIZED, "query_pre_attn_scalar": SIZE}),
    "gemma3": ("Gemma3Text", {**_SIZED, "query_pre_attn_scalar": SIZE}),
    "gpt-bigcode": ("GPTBigCode", {**_GPT, "multi_query": True}),
    "gpt-neo": (
        "GPTNeo",
        {
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "hidden_size": WIDTH,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "attention_types": [[["global"], LAYERS]],
        },
    ),
    "gpt-neox": ("GPTNeoX", _WIDE),
    "gpt-oss": ("GptOss", {**_SIZED, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "gpt2": ("GPT2", _GPT),
    "gptj": ("GPTJ", {**_GPT, "rotary_dim": SIZE // 2}),
    "granite": ("Granite", _LLAMA),
    "llama": ("Llama", _LLAMA),
    "mistral": ("Mistral", {**_LLAMA, "sliding_window": None}),
    "mixtral": ("Mixtral", {**_LLAMA, "num_local_experts": 8, "sliding_window": None}),
    "mpt": (
        "Mpt",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_seq_len": CONTEXT,
        },
    ),
    "olmo2": ("Olmo2", _LLAMA),
    "opt": ("OPT", {**_STANDARD, "ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH}),
    "phi": ("Phi", {**_WIDE, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {**_LLAMA, "sliding_window": None, "pad_token_id": 0}),
    "qwen2": ("Qwen2", _LLAMA),
    "qwen2-moe": (
        "Qwen2Moe",
        {**_LLAMA, **_EXPERTS, "shared_expert_intermediate_size": GATED},
    ),
    "qwen3": ("Qwen3", _SIZED),
    "stablelm": ("StableLm", _LLAMA),
    "starcoder2": ("Starcoder2", {**_WIDE, "num_key_value_heads": SHARED, "sliding_window": None}),
}
"""Class prefix and sizes, by name."""

ENCODERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("BertForMaskedLM", _WIDE),
    "distilbert": (
        "DistilBertForMaskedLM",
        {
            "vocab_size": VOCABULARY,
            "dim": WIDTH,
            "hidden_dim": 4 * WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_position_embeddings": CONTEXT,
        },
    ),
    "roberta": ("RobertaForMaskedLM", _WIDE),
}

GENAI = {"llama-genai": ("llama", "fp32"), "phi3-genai": ("phi3", "fp32"),
         "qwen2-genai": ("qwen2", "fp32"), "llama-genai-int4": ("llama", "int4"),
         "phi3-genai-int4": ("phi3", "int4")}  # fmt: skip
"""Decoder and precision, by name."""


def configured(name: str, sizes: Mapping[str, Any]) -> Any:
    """Return a configuration of class ``name``."""
    config = getattr(transformers, f"{name}Config")(**sizes)
    config.eos_token_id = config.bos_token_id = config.pad_token_id = 0
    return config


def created(kind: str, config: Any) -> PreTrainedModel:
    """Return a model with random weights."""
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"  # the one that exporters can write
    model: PreTrainedModel = getattr(transformers, kind)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # exporters drop zeros and share ones
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


class _WithPast(torch.nn.Module):
    """A decoder with its cache as a flat list of keys and values."""

    def __init__(self, inner: PreTrainedModel) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, past: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.inner(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache)
        layers = out.past_key_values.layers
        return out.logits, *(pair for layer in layers for pair in (layer.keys, layer.values))


class _Scores(torch.nn.Module):
    """An encoder that returns its scores."""

    def __init__(self, inner: PreTrainedModel) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.inner(input_ids=input_ids, attention_mask=attention_mask).logits
        return scores


def export_decoder(name: str, path: Path) -> None:
    """Export a decoder with `batch` 1 and the sizes `sequence` and `past`."""
    prefix, sizes = DECODERS[name]
    inner = created(_kind(prefix), configured(prefix, sizes))
    ids = torch.zeros(1, 3, dtype=torch.int64)
    with torch.no_grad():
        made = inner(input_ids=ids, use_cache=True).past_key_values
    shapes = [pair.shape for layer in made.layers for pair in (layer.keys, layer.values)]
    past = 5
    caches = [torch.zeros(*shape[:2], past, shape[3]) for shape in shapes]
    mask = torch.ones(1, past + 3, dtype=torch.int64)
    sequence = torch.export.Dim("sequence", min=1, max=CONTEXT // 4)
    held = torch.export.Dim("past", min=1, max=CONTEXT // 2)
    names = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    torch.onnx.export(
        _WithPast(inner),
        (ids, mask, caches),
        path,
        dynamo=True,
        dynamic_shapes=(
            {1: sequence},
            {1: torch.export.Dim.AUTO},
            [{2: held} for _ in caches],
        ),
        input_names=["input_ids", "attention_mask", *(f"past_key_values.{n}" for n in names)],
        output_names=["logits", *(f"present.{name}" for name in names)],
    )


def _kind(prefix: str) -> str:
    """Return the class of the decoder."""
    own = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
    return own.get(prefix, f"{prefix}ForCausalLM")


def export_encoder(name: str, path: Path) -> None:
    """Export an encoder with `batch` 1 and the size `sequence`."""
    kind, sizes = ENCODERS[name]
    inner = created(kind, configured(kind.removesuffix("ForMaskedLM"), sizes))
    ids = torch.zeros(1, 8, dtype=torch.int64)
    sequence = torch.export.Dim("sequence", min=1, max=CONTEXT // 4)
    torch.onnx.export(
        _Scores(inner),
        (ids, torch.ones_like(ids)),
        path,
        dynamo=True,
        dynamic_shapes=({1: sequence}, {1: sequence}),
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
    )


def export_genai(name: str, path: Path) -> None:
    """Build a decoder by onnxruntime-genai for the CPU."""
    decoder, precision = GENAI[name]
    prefix, sizes = DECODERS[decoder]
    source = path.parent / "hf"
    created(_kind(prefix), configured(prefix, sizes)).save_pretrained(source)
    tokenizer([Path(__file__)]).save_pretrained(source)
    flags = ["-i", source, "-o", path.parent, "-p", precision, "-e", "cpu"]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *map(str, flags)]
    subprocess.run([*command, "-c", str(path.parent / "cache")], check=True)
    shutil.rmtree(source)


EXPORTERS: dict[str, Callable[[str, Path], None]] = {
    **dict.fromkeys(DECODERS, export_decoder),
    **dict.fromkeys(ENCODERS, export_encoder),
    **dict.fromkeys(GENAI, export_genai),
}


def main() -> None:
    folder, *names = sys.argv[1:]
    if len(names) == 1:
        path = Path(folder) / names[0] / "model.onnx"
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir(parents=True)
        EXPORTERS[names[0]](names[0], path)
        return
    for name in names or EXPORTERS:
        done = subprocess.run(
            [sys.executable, __file__, folder, name], capture_output=True, text=True
        )
        print(
            name,
            "exported" if done.returncode == 0 else done.stderr.strip().splitlines()[-1],
            flush=True,
        )


if __name__ == "__main__":
    main()
