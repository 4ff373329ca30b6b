"""Registry of passes by name. Importing this module imports no pass."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.passes.base import Pass, option_fields

__all__ = ["PASSES", "UPSTREAM", "create", "pass_class", "unknown_pass"]


_NAMES = (
    "verify-onnx",
    "infer-shapes",
    "fold-constants",
    "reduce-bags",
    "unpack-sequences",
    "simplify",
    "join-boxes",
    "fuse-experts",
    "unmerge-rows",
    "fold-transposes",
    "block-attention",
    "dce",
    "fuse-attention",
    "build-training-step",
    "assume-sizes",
    "schedule",
    "add-rules",
    "mark-caches",
    "recompute",
    "search-strategies",
    "check-strategies",
    "insert-reshards",
    "optimize-reshards",
    "keep-whole",
    "partition",
    "pad-once",
    "combine-collectives",
    "overlap-collectives",
    "mark-order",
)

PASSES: Mapping[str, str] = {
    name: f"tensoropt.passes.{name.replace('-', '_')}:{name.title().replace('-', '')}Pass"
    for name in _NAMES
}
"""Pass name to ``module:Class``, in the order of the pipeline."""

UPSTREAM = ("canonicalize", "cse", "shard-simplify", "symbol-dce")
"""Upstream passes that messages suggest; all other passes of MLIR are accepted too."""


def pass_class(name: str) -> type[Pass]:
    """Return the class of the pass ``name``; raises UserError if tensoropt has no such pass."""
    if name not in PASSES:
        raise unknown_pass(name)
    module, _, attribute = PASSES[name].partition(":")
    found: type[Pass] = getattr(importlib.import_module(module), attribute)
    return found


def create(name: str, options: Mapping[str, str]) -> Pass:
    """Return the pass ``name`` with ``options`` as text from a pipeline; raises UserError."""
    cls = pass_class(name)
    fields = option_fields(cls)
    values: dict[str, Any] = {}
    for key, text in options.items():
        check_known(f"pass '{name}': unknown option", key, fields)
        what = f"pass '{name}': option '{key}'"
        values[fields[key].name] = _convert(what, fields[key].type, text)
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(f"pass '{name}': {error}") from None


def unknown_pass(name: str) -> UserError:
    """Return the error for a pass that neither tensoropt nor MLIR has."""
    ours, upstream = ", ".join(PASSES), ", ".join(UPSTREAM)
    return UserError(
        f"unknown pass '{name}', valid passes are {ours}, and passes of MLIR such as {upstream}"
        f"{did_you_mean(name, [*PASSES, *UPSTREAM])}"
    )


def _convert(what: str, annotation: Any, text: str) -> Any:
    # Dataclass field types are text here, because annotations are not evaluated.
    kind = str(getattr(annotation, "__name__", annotation)).split("|")[0].strip()
    if kind == "bool":
        if text not in ("true", "false"):
            raise UserError(f"{what}: expected true or false, got: '{text}'")
        return text == "true"
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            raise UserError(f"{what}: expected {kind}, got: '{text}'") from None
    return text
