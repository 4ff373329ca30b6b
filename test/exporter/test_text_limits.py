"""Limits of texts in plans, from the files next to a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensoropt.compiler.exporter.plan.decoder_files import encoder_entry


@pytest.mark.parametrize(
    ("config", "tokenizer", "context"),
    [
        ({}, {}, None),
        ({"max_position_embeddings": 512}, {}, 512),
        ({"n_positions": 256}, {"model_max_length": 10**30}, 256),
        ({"max_position_embeddings": 512}, {"model_max_length": 128}, 128),
        ({}, {"model_max_length": 384}, 384),
        ({}, {"model_max_length": 10**30}, None),
        ({}, {"model_max_length": None}, None),
        # Positions of these models begin after that of padding.
        ({"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}, {}, 512),
        ({"max_position_embeddings": 514, "model_type": "mpnet", "pad_token_id": 1}, {}, 512),
        ({"max_position_embeddings": 512, "model_type": "bert", "pad_token_id": 0}, {}, 512),
        ({"max_position_embeddings": 8192, "model_type": "modernbert"}, {}, 8192),
    ],
)
def test_the_longest_text_of_an_encoder(
    tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any], context: int | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    entry = encoder_entry(tmp_path / "m.onnx")
    assert (None if entry is None else entry["context"]) == context
