"""A small decoder with caches that are updated in place, and its plans."""

from __future__ import annotations

import json
from pathlib import Path

from handmade_decoder import write_decoder

from tensoropt.compiler.cli.opt import main as compile_model

__all__ = ["plan_of", "small_decoder"]


def small_decoder(folder: Path, context: int) -> Path:
    """Write a decoder of one layer with a context, but no end token, in its configuration."""
    config = {"max_position_embeddings": context, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    return write_decoder(folder / "m.onnx", layers=1, in_place=True)


def plan_of(model: Path, *flags: str, ranks: int = 2) -> Path:
    """Return the leanest plan on a mesh of one axis, which is compiled once."""
    plan = model.with_name("-".join(["plan", str(ranks), *flags]).replace("=", ""))
    if not plan.exists():
        own = ["--device", "v100", "--pick", "leanest", *flags]
        assert compile_model([str(model), "--mesh", str(ranks), *own, "-o", str(plan)]) == 0
    return plan
