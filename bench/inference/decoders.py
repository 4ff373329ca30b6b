"""Exports decoders with KV caches by the tools that users export with.

    python bench/inference/decoders.py FOLDER [NAME ...]

Needs no network: configurations are built here, weights are random. Needs torch, transformers and
optimum-onnx; `genai` also needs onnxruntime-genai and a version of transformers that fits it, which
optimum may refuse: run it in a separate environment. Each model is a folder with `model.onnx`,
`tokenizer.json` and `hf/`, the weights as transformers stores them. The exporters are

- `script`: optimum, by torch's older exporter, which traces;
- `dynamo`: torch.onnx.export(dynamo=True);
- `genai`: the model builder of onnxruntime-genai, with GroupQueryAttention in its models;
- `genai-cuda`: the same for GPUs, in float16.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)
from transformers.modeling_utils import PreTrainedModel

VOCABULARY = 1024
LAYERS, WIDTH, HEADS, SHARED = 4, 256, 8, 4
CONTEXT = 1024
END = "<|endoftext|>"

_GROUPED = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": SHARED,
    "max_position_embeddings": CONTEXT,
}
_WIDE = {
    "vocab_size": 32_000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}
# Sizes of Llama 3.2 1B, with a separate head.
_BILLION = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
_PLAIN = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": CONTEXT,
}

_SIZES = {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": WIDTH, "n_layer": LAYERS}

CONFIGS: dict[str, tuple[str, Callable[[], PretrainedConfig]]] = {
    "gpt2": ("script", lambda: GPT2Config(**_SIZES, n_head=HEADS)),
    "opt": (
        "script",
        lambda: OPTConfig(**_PLAIN, ffn_dim=4 * WIDTH, word_embed_proj_dim=WIDTH),
    ),
    "neox": ("script", lambda: GPTNeoXConfig(**_PLAIN, intermediate_size=4 * WIDTH)),
    "llama": ("script", lambda: LlamaConfig(**_GROUPED)),
    "qwen2": ("dynamo", lambda: Qwen2Config(**_GROUPED)),
    "wide": ("genai", lambda: LlamaConfig(**_WIDE)),
    "mistral": ("genai", lambda: MistralConfig(**_GROUPED, sliding_window=None)),
    "billion": ("genai-cuda", lambda: LlamaConfig(**_BILLION)),
}


def tokenizer(texts: list[Path]) -> PreTrainedTokenizerFast:
    """Return a byte-pair tokenizer trained on ``texts``."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    made.train([str(path) for path in texts], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, bos_token=END)


def model(config: PretrainedConfig) -> PreTrainedModel:
    """Return a model of ``config``; weights of five times the usual size separate tokens."""
    torch.manual_seed(7)
    config.initializer_range = 0.1
    config.eos_token_id = config.bos_token_id = config.pad_token_id = 0
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def export_script(folder: Path) -> None:
    """Export by optimum."""
    from optimum.exporters.onnx import main_export

    main_export(
        str(folder / "hf"),
        output=folder / "out",
        task="text-generation-with-past",
        do_validation=False,
        local_files_only=True,
    )


def export_genai(folder: Path, precision: str = "fp32", provider: str = "cpu") -> None:
    """Build by onnxruntime-genai, by default for the CPU in float32."""
    builder = "onnxruntime_genai.models.builder"
    flags = ["-i", folder / "hf", "-o", folder / "out", "-p", precision, "-e", provider]
    command = [sys.executable, "-m", builder, *map(str, flags), "-c", str(folder / "cache")]
    subprocess.run(command, check=True)


class _WithPast(torch.nn.Module):
    """A model with its cache as a flat list of keys and values."""

    def __init__(self, inner: PreTrainedModel) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past: list[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.inner(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
        )
        kept = [pair for layer in cache.layers for pair in (layer.keys, layer.values)]
        return out.logits, *kept


def export_dynamo(folder: Path) -> None:
    """Export by torch itself, with names of our own."""
    inner = AutoModelForCausalLM.from_pretrained(folder / "hf", attn_implementation="eager").eval()
    batch, sequence, past = 2, 3, 5
    dims = [torch.export.Dim(name, min=1, max=4096) for name in ("batch", "sequence", "past")]
    shape = (batch, SHARED, past, WIDTH // HEADS)
    caches = [torch.zeros(shape) for _ in range(2 * LAYERS)]
    ids = torch.zeros(batch, sequence, dtype=torch.int64)
    mask = torch.ones(batch, past + sequence, dtype=torch.int64)
    auto = torch.export.Dim.AUTO
    shapes = (
        {0: dims[0], 1: dims[1]},
        {0: dims[0], 1: auto},
        {0: dims[0], 1: dims[1]},
        [{0: dims[0], 2: dims[2]} for _ in caches],
    )
    names = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    (folder / "out").mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        _WithPast(inner),
        (ids, mask, ids.clone(), caches),  # the same tensor twice would become one input
        folder / "out" / "model.onnx",
        dynamo=True,
        dynamic_shapes=shapes,
        input_names=[
            "input_ids",
            "attention_mask",
            "position_ids",
            *(f"past_key_values.{name}" for name in names),
        ],
        output_names=["logits", *(f"present.{name}" for name in names)],
    )


EXPORTERS = {
    "script": export_script,
    "dynamo": export_dynamo,
    "genai": export_genai,
    "genai-cuda": partial(export_genai, precision="fp16", provider="cuda"),
}


def make(name: str, root: Path) -> None:
    """Fill ``root/name``."""
    exporter, config = CONFIGS[name]
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    model(config()).save_pretrained(folder / "hf")
    texts = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    tokenizer(texts).save_pretrained(folder / "hf")
    EXPORTERS[exporter](folder)
    for path in (folder / "out").iterdir():
        path.rename(folder / path.name)
    shutil.copy(folder / "hf" / "tokenizer.json", folder / "tokenizer.json")
    print(f"{name}: {exporter}, {folder / 'model.onnx'}")


if __name__ == "__main__":
    for wanted in sys.argv[2:] or (name for name, (how, _) in CONFIGS.items() if "cuda" not in how):
        make(wanted, Path(sys.argv[1]))
