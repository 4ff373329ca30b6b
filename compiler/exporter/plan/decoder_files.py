"""Files that exporters of models of texts write next to them: tokenizer and configurations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.plan.entries import TextEntry

__all__ = ["copy_tokenizer", "encoder_entry", "head_size", "text_entry"]

_TOKENIZER = "tokenizer_config.json"
_TEXT = ("tokenizer.json", _TOKENIZER, "chat_template.jinja")
_CONFIGS = ("config.json", "generation_config.json", "genai_config.json")
"""In increasing order of precedence."""
_CONTEXT = ("context_length", "max_position_embeddings", "n_positions")
_END = "eos_token_id"
_LATER = {
    *("camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "roberta"),
    *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
}
"""Kinds of models with positions that begin after the token of padding, as in fairseq."""
_UNLIMITED = 10**9  # tokens; some tokenizers have 10**30
_HEAD = ("head_size", "head_dim")
_WIDTH, _HEADS = ("hidden_size", "n_embd"), ("num_attention_heads", "n_head")


def copy_tokenizer(model: Path, folder: Path) -> None:
    """Copy the tokenizer and the chat template in the folder of ``model`` into a plan, if any."""
    for name in _TEXT:
        path = model.parent / name
        if path.is_file():
            shutil.copyfile(path, folder / name)


def text_entry(model: Path) -> TextEntry:
    """Return the context length and the end tokens from the configurations next to ``model``.

    Raises `UserError` for a file that is no JSON object.
    """
    context: int | None = None
    end: list[int] = []
    for values in filter(None, (_config(model.parent / name) for name in _CONFIGS)):
        context = next((n for key in _CONTEXT if _is_count(n := values.get(key))), context)
        found = values.get(_END, end)
        end = [token for token in (found if isinstance(found, list) else [found]) if _is_id(token)]
    return {"context": context, "end": end}


def encoder_entry(model: Path) -> TextEntry | None:
    """Return the entry of an encoder, None if the files next to ``model`` have no limit of tokens.

    The tokenizer's limit counts too. Raises as `text_entry` does.
    """
    entry, config = text_entry(model), _config(model.parent / _CONFIGS[0])
    context, padding = entry["context"], config.get("pad_token_id")
    if context is not None and config.get("model_type") in _LATER and _is_id(padding):
        context = max(1, context - padding - 1)
    longest = _config(model.parent / _TOKENIZER).get("model_max_length")
    if _is_count(longest) and longest < _UNLIMITED:
        context = longest if context is None else min(context, longest)
    return None if context is None else {"context": context, "end": entry["end"]}


def head_size(model: Path) -> tuple[str, int] | None:
    """Return the configuration next to ``model`` that has the head size, and the size; None if no
    file has it."""
    for name in reversed(_CONFIGS):
        values = _config(model.parent / name)
        decoder = values.get("decoder")  # of genai_config.json
        own = decoder if isinstance(decoder, dict) else values
        width, heads = _first(own, _WIDTH), _first(own, _HEADS)
        size = _first(own, _HEAD) or (width // heads if width and heads else None)
        if size is not None:
            return name, size
    return None


def _first(values: Mapping[str, object], names: Sequence[str]) -> int | None:
    found = (values.get(name) for name in names)
    return next((n for n in found if isinstance(n, int) and _is_count(n)), None)


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: expected JSON, got: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object")
    inner = values.get("model")  # of genai_config.json
    return inner if isinstance(inner, dict) else values


def _is_count(value: object) -> TypeGuard[int]:
    return _is_id(value) and value != 0


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
