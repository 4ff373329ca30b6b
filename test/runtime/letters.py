"""A decoder of single characters, for texts that keep to grammars."""

from __future__ import annotations

import json
from pathlib import Path

from handmade_decoder import write_decoder

from tensoropt.compiler.cli.opt import main as compile_model

LETTERS = [*map(chr, range(ord(" "), ord("~") + 1)), "\n"]
END = len(LETTERS)
CONTEXT = 600


def write_letters(path: Path) -> None:
    """Write a tokenizer of one token a character, and an end token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = {split.pre_tokenize_str(text)[0][0]: n for n, text in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.BPE(words, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    assert tokenizer.token_to_id("<end>") == END
    tokenizer.save(str(path))


def letters_plan(folder: Path, *, ranks: int = 2, template: str = "", seed: int = 0) -> Path:
    """Return the plan of a decoder with random weights, which writes characters."""
    write_letters(folder / "tokenizer.json")
    config = {"max_position_embeddings": CONTEXT, "eos_token_id": END}
    (folder / "config.json").write_text(json.dumps(config))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    how = {"layers": 1, "in_place": True, "seed": seed, "vocabulary": len(LETTERS) + 1}
    model = write_decoder(folder / "m.onnx", **how)
    plan = folder / "plan"
    flags = ["--mesh", str(ranks), "--device", "v100", "--pick", "leanest", "-o", str(plan)]
    assert compile_model([str(model), *flags]) == 0
    return plan
