"""Writing of a LLaMA's weights as a file of llama.cpp. Needs the packages gguf and safetensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

__all__ = ["KINDS", "write_gguf"]

KINDS = ("llama", "mistral")
"""Kinds of models that are LLaMAs for llama.cpp."""

_ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(folder: Path) -> Path:
    """Write the float32 weights of ``folder/hf`` to ``folder/model.gguf``, without a vocabulary."""
    import gguf
    from safetensors import safe_open

    config = json.loads((folder / "hf" / "config.json").read_text())
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    turned = {"attn_q": heads, "attn_k": config["num_key_value_heads"]}
    with safe_open(folder / "hf" / "model.safetensors", "numpy") as weights:
        for name in weights.keys():  # noqa: SIM118
            array = weights.get_tensor(name).astype(np.float32)
            own = _name(name.removesuffix(".weight"))
            count = turned.get(own.rpartition(".")[2])
            if count is not None:  # llama.cpp rotates pairs of neighbours
                shape = (count, 2, -1, array.shape[1])
                array = array.reshape(shape).swapaxes(1, 2).reshape(array.shape)
            writer.add_tensor(f"{own}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _name(name: str) -> str:
    if not name.startswith("model.layers."):
        return _ENDS[name]
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{_PARTS[part]}"
