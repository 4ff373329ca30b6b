"""Tokenizers in the forms of models whose vocabulary falls back to bytes: Llama 2, Mistral, Gemma.

Also one of bytes alone, in the form of GPT-2.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers as splits

__all__ = ["FORMS", "byte_id", "byte_tokenizer"]

FORMS = ("llama", "mistral", "gemma", "gpt2")

_SPECIAL = ("<unk>", "<s>", "</s>")
_LETTERS = "▁abcdefghijklmnopqrstuvwxyz.,!"
_MERGES = ("▁ a", "▁ t", "h e", "▁t he", "o r", "▁ ▁", "▁▁ ▁▁")


def byte_id(byte: int) -> int:
    """Return the token of a byte in any form but GPT-2's."""
    return len(_SPECIAL) + byte


def byte_tokenizer(form: str) -> Tokenizer:
    """Return a tokenizer with a token for each of the 256 bytes, some letters and merges."""
    if form == "gpt2":
        return _byte_level()
    fallbacks = [f"<0x{byte:02X}>" for byte in range(256)]
    merges = [tuple(merge.split()) for merge in _MERGES]
    words = [*_SPECIAL, *fallbacks, *_LETTERS, *map("".join, merges)]
    vocabulary = {word: token for token, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if form == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = splits.Split(" ", "merged_with_previous")
    else:
        steps.append(decoders.Strip(" ", 1, 0))
    if form == "llama":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    if form == "mistral":
        tokenizer.pre_tokenizer = splits.Metaspace("▁", "first", split=False)
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in _SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def _byte_level() -> Tokenizer:
    words = [*_SPECIAL, *sorted(splits.ByteLevel.alphabet()), "Ġt", "he", "Ã©"]
    merges = [("Ġ", "t"), ("h", "e"), ("Ã", "©")]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = splits.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in _SPECIAL])
    return tokenizer
