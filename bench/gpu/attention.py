"""Attention and its gradient on a GPU: numbers next to float64, and times of real shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from gpu.attention_rank import first_row
from gpu.failure import RunError
from gpu.ranks import on_ranks
from gpu.setting import Part, Setting, table
from tensoropt.compiler.sharding.rule.seen import mean_seen
from tensoropt.runtime.support.cudnn_attention import AttentionForm

__all__ = ["attention"]

_TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3}
"""Largest difference from float64, as a part of the largest number."""
_PLAIN = AttentionForm("bfloat16", 2, 8, 2, 100, 150, 64, 64)
_CAUSAL = replace(_PLAIN, causal=True)
_FORMS: Mapping[str, AttentionForm] = {
    "all keys": _PLAIN,
    "float16": replace(_PLAIN, dtype="float16"),
    "causal": _CAUSAL,
    "causal, more queries than keys": replace(_CAUSAL, queries=200),
    "rows in the middle": replace(_CAUSAL, offset=True),
    "window": replace(_CAUSAL, window=30),
    "window of rows in the middle": replace(_CAUSAL, window=30, offset=True),
    "a mask of padding": replace(_PLAIN, bias_sizes=(2, 1, 1)),
    "a trained bias": replace(_PLAIN, bias_sizes=(1, 8, 100), trains_bias=True),
    "lengths": replace(_PLAIN, lengths=True),
    "lengths, causal": replace(_CAUSAL, lengths=True),
    "a limit of scores": replace(_CAUSAL, softcap=2.0),
    "heads of 128": replace(_CAUSAL, size=128, value_size=128),
    "heads of 80 and 96": replace(_CAUSAL, size=80, value_size=96),
}
_SHAPES: Mapping[str, AttentionForm] = {
    "GPT-2, 8 x 1,024 tokens": AttentionForm(
        "bfloat16", 8, 12, 12, 1024, 1024, 64, 64, causal=True
    ),
    "Llama 3.1 8B, 4 x 8,192 tokens": AttentionForm(
        "bfloat16", 4, 32, 8, 8192, 8192, 128, 128, causal=True
    ),
    "Llama 3.1 8B, an eighth of 8,192 rows": AttentionForm(
        "bfloat16", 4, 32, 8, 1024, 8192, 128, 128, causal=True, offset=True
    ),
    "Llama 3.1 8B, 131,072 tokens, 4 heads": AttentionForm(
        "bfloat16", 1, 4, 1, 131072, 131072, 128, 128, causal=True
    ),
    "Mistral, 32,768 tokens": AttentionForm(
        "bfloat16", 1, 32, 8, 32768, 32768, 128, 128, causal=True, window=4096
    ),
}
_LIMIT_S = 600.0


def attention(setting: Setting) -> Part:
    """Compare small forms with float64, and measure large ones where times mean something."""
    failures = list[str]()
    names = [name for name, form in _FORMS.items() if _runs(setting, form)]
    rows = list[list[object]]()
    for name in names:
        setting.say(f"attention: {name}")
        form = _FORMS[name]
        try:
            differences = on_ranks(
                "gpu.attention_rank:differences", 1, provider=setting.provider, form=asdict(form)
            )
        except RunError as error:
            failures.append(f"{name}: {error}")
            continue
        worst = max(differences.values())
        agrees = "agrees" if worst <= _TOLERANCE[form.dtype] else "differs"
        rows.append([name, f"{worst:.2g}", agrees])
        if agrees != "agrees":
            failures.append(f"{name}: differs by {worst:.2g}")
    text = table(["attention", "largest difference", ""], rows)
    if setting.host or setting.is_quick:
        return Part(text, failures)
    times, refused = _times(setting)
    return Part(f"{text}\n{times}", failures + refused)


def _runs(setting: Setting, form: AttentionForm) -> bool:
    """Return whether the kernel of the provider has the type: the CPU's has no float16."""
    return setting.provider != "cpu" or form.dtype == "bfloat16"


def _times(setting: Setting) -> tuple[str, list[str]]:
    rows, failures = list[list[object]](), list[str]()
    for name, form in _SHAPES.items():
        setting.say(f"time of attention: {name}")
        asked = {"provider": setting.provider, "form": asdict(form)}
        try:
            times_s = on_ranks("gpu.attention_rank:times_s", 1, _LIMIT_S, **asked)
        except RunError as error:
            failures.append(f"{name}: {error}")
            continue
        forward, backward = map(_cells, times_s, _work(form))
        rows.append([name, *forward, *backward])
    return table(["attention", "ms", "TFLOP/s", "gradient, ms", "TFLOP/s"], rows), failures


def _work(form: AttentionForm) -> tuple[float, float]:
    """Return the operations of attention and of its gradient, of pairs that are read."""
    first, seen = first_row(form), float(form.keys)
    if form.causal:
        seen = mean_seen(first, first + form.queries, form.window)
    pairs = form.batch * form.heads * form.queries * seen
    size, width = form.size, form.value_size
    return 2.0 * pairs * (size + width), 2.0 * pairs * (3 * size + 2 * width)


def _cells(time_s: float, operations: float) -> tuple[str, str]:
    return f"{1e3 * time_s:.2f}", f"{operations / time_s / 1e12:.0f}"
