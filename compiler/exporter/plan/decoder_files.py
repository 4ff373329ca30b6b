"""What exporters of decoders write beside the model: tokenizer, context, tokens that end texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.plan.entries import TextEntry

__all__ = ["copy_tokenizer", "text_entry"]

_TOKENIZER = "tokenizer.json"
_CONFIGS = ("config.json", "generation_config.json", "genai_config.json")
"""Later ones count more."""
_CONTEXT = ("context_length", "max_position_embeddings", "n_positions")
_END = "eos_token_id"


def copy_tokenizer(model: Path, folder: Path) -> None:
    """Copy the tokenizer beside ``model`` into the plan ``folder``, if there is one."""
    path = model.parent / _TOKENIZER
    if path.is_file():
        shutil.copyfile(path, folder / _TOKENIZER)


def text_entry(model: Path) -> TextEntry:
    """Return what the files beside ``model`` say of text; raises `UserError` for a broken one."""
    context: int | None = None
    end: list[int] = []
    for values in filter(None, (_config(model.parent / name) for name in _CONFIGS)):
        context = next((n for key in _CONTEXT if _is_count(n := values.get(key))), context)
        found = values.get(_END, end)
        end = [token for token in (found if isinstance(found, list) else [found]) if _is_id(token)]
    return {"context": context, "end": end}


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


def _is_count(value: object) -> bool:
    return _is_id(value) and value != 0


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
