"""Attention in training on GPUs: a fit to cuDNN's published times, and errors of rows left out.

    python bench/accuracy/gpu_attention.py            errors of each row, predicted by the others
    python bench/accuracy/gpu_attention.py --write    and descriptions and docs/benchmarks.md again

gpu_attention.csv has the times that NVIDIA measured with bfloat16 on H200, GB200 and GB300 (cuDNN
9.19 and 9.22; github.com/NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results, MIT), of
heads of up to 128 elements, in milliseconds. Gradients are not the deterministic ones.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

from tensoropt.compiler.calibrate.fit import relative_errors
from tensoropt.compiler.calibrate.tables.description import MARK, kernel_lines
from tensoropt.compiler.calibrate.tables.grid import factors_of, fit_axes
from tensoropt.compiler.calibrate.tables.rows import Floats, KernelRows
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.sharding.rule.seen import mean_seen
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["FAMILIES", "MEASURED", "described", "misses", "read_rows"]

_FILE = Path(__file__).with_name("gpu_attention.csv")
_INCLUDED = Path(__file__).resolve().parents[2] / "compiler/cost/devices"
_DTYPE, _ITEM_BYTES, _SUM_BYTES = "bfloat16", 2, 4
FAMILIES = ("attention", "attention_gradient")
_KNOTS = ((1024.0, 2048.0, 8192.0), (64.0, 128.0))
"""Keys that a query sees, and elements of a head."""
MEASURED = {"h200": "h200", "gb200": "gb200", "b300": "gb300"}
"""Descriptions of the GPUs that were measured."""
_BY_RATIO = {"a100": "h200", "h100": "h200", "l40s": "h200", "b200": "gb200"}
"""GPUs with the factors of another one, over a roofline of their own."""
_BEGIN = "# Attention in training, fitted by bench/accuracy/gpu_attention.py"
_TEXT = """\
## Attention in training on GPUs

`make bench-gpu-attention ARGS=--write`: median and 90th percentile of |predicted / measured - 1| of
[cuDNN's kernels](https://github.com/NVIDIA/cudnn-frontend), as NVIDIA measured them with bfloat16.
Each row is predicted by a fit to the other rows of its GPU. The factors over the roofline are for
1,024 keys that a query sees and heads of 128, and for 8,192 keys. `b300` has the factors of
GB300, `a100`, `h100` and `l40s` of H200, and `b200` of GB200: nobody has published their times by
this benchmark.
"""

Rows = Mapping[tuple[str, str], KernelRows]


def read_rows() -> Rows:
    """Return the measured kernels by (GPU, family)."""
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    with _FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for family, passed in zip(FAMILIES, ("forward", "backward"), strict=True):
                time_s = 1e-3 * float(row[f"{passed}_ms"])
                rows[row["gpu"], family].append((*_work(family, row), time_s))
    columns = {key: np.array(kernels).T for key, kernels in rows.items()}
    return {key: KernelRows(parts[:2].T, *parts[2:]) for key, parts in columns.items()}


def _work(family: str, row: Mapping[str, str]) -> tuple[float, float, float, float]:
    """Return the keys that a query sees, the size of a head, the FLOPs and the bytes of a row."""
    names = ("causal", "batch", "tokens", "heads", "key_heads", "size", "window")
    causal, batch, tokens, heads, key_heads, size, window = (int(row[name]) for name in names)
    seen = mean_seen(0, tokens, window) if causal else float(tokens)
    backward = family == FAMILIES[1]
    flops = 2.0 * (5 if backward else 2) * size * batch * heads * tokens * seen
    rows, tensors = batch * tokens, 2 * (heads + key_heads) * size
    # The gradient also reads one tensor for the result, and writes one for each operand.
    tensors *= 2 if backward else 1
    return seen, size, flops, float(rows * (tensors * _ITEM_BYTES + heads * _SUM_BYTES))


def _fit(rows: KernelRows, device: Device) -> tuple[Floats, Floats]:
    return rows.sizes, rows.time_s / rows.roofline_s(_DTYPE, device)


def misses(rows: KernelRows, device: Device) -> Floats:
    """Return the error of each row, predicted by a fit to the other rows."""
    errors = []
    for index in range(len(rows)):
        left_out = np.arange(len(rows)) == index
        table = fit_axes(*_fit(rows.pick(~left_out), device), _KNOTS)
        row = rows.pick(left_out)
        predicted_s = factors_of(table, row.sizes) * row.roofline_s(_DTYPE, device)
        errors.append(relative_errors(predicted_s, row.time_s))
    return np.concatenate(errors)


def described(name: str, rows: Rows) -> str:
    """Return the text of a description with the fitted tables, which are before `MARK`."""
    source = _BY_RATIO.get(name, name)
    gpu = MEASURED[source]
    lines = [f"{_BEGIN} to the times of {gpu.upper()}."]
    if source != name:
        lines.append(f"# By ratio: the factors of {source}, over the roofline of this GPU.")
    for family in FAMILIES:
        table = fit_axes(*_fit(rows[gpu, family], load_device(source)), _KNOTS)
        lines += kernel_lines(family, _DTYPE, table)
    head, mark, rest = (_INCLUDED / f"{name}.toml").read_text(encoding="utf-8").partition(MARK)
    text = "\n".join(lines)
    return f"{head.partition(_BEGIN)[0].rstrip()}\n\n{text}\n\n{mark}{rest}"


def _table(rows: Rows) -> Iterator[str]:
    """Yield the table."""
    yield "| GPU | kernel | rows | left out | factor, 1,024 keys | factor, 8,192 keys |"
    yield "|---|---|---:|---|---:|---:|"
    for name, gpu in MEASURED.items():
        device = load_device(name)
        for family in FAMILIES:
            kernels = rows[gpu, family]
            errors, table = misses(kernels, device), fit_axes(*_fit(kernels, device), _KNOTS)
            figures = f"{np.median(errors):.1%}, {np.percentile(errors, 90):.1%}"
            factors = " | ".join(f"{table.factor((keys, 128.0)):.2f}" for keys in (1024, 8192))
            yield f"| {gpu} | {family} | {len(kernels)} | {figures} | {factors} |"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="descriptions and docs/benchmarks.md")
    given, rows = parser.parse(), read_rows()
    table = "\n".join(_table(rows))
    print(table)
    if given.write:
        for name in (*MEASURED, *_BY_RATIO):
            text = described(name, rows)
            (_INCLUDED / f"{name}.toml").write_text(text, encoding="utf-8")
        write_section("gpu_attention", f"{_TEXT}\n{table}")


if __name__ == "__main__":
    sys.exit(run_command(main))
