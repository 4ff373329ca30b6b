"""Costs of kernels and collectives on GPUs, next to published measurements.

    python bench/accuracy/gpu_costs.py SYSTEMS/data             errors of rows left out of the fit
    python bench/accuracy/gpu_costs.py SYSTEMS/data --write     and descriptions and docs again

SYSTEMS is the folder `systems` of AIConfigurator (github.com/ai-dynamo/aiconfigurator, or
`pip install aiconfigurator-core`). Per GPU and family the table has the median and the 90th
percentile of |predicted / measured - 1|: by the data sheet alone, of every fourth kernel and every
third size of a collective that the fit leaves out, and of kernels by the factors of another GPU of
the list, the best and the worst.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

from tensoropt.compiler.calibrate.fit import relative_errors
from tensoropt.compiler.calibrate.tables.description import (
    collective_misses,
    describe_tables,
    kernel_misses,
)
from tensoropt.compiler.calibrate.tables.grid import factors_of
from tensoropt.compiler.calibrate.tables.read import read_tables
from tensoropt.compiler.calibrate.tables.rows import Floats, KernelRows, Tables
from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

GPUS = {
    "a100": "a100_sxm",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
"""Folders of the GPUs that are described."""
_TEXT = """\
## Costs on GPUs, next to published measurements

`make bench-gpu-costs ARGS="SYSTEMS/data --write"` with the tables of
[AIConfigurator](https://github.com/ai-dynamo/aiconfigurator) (Apache-2.0): median and 90th
percentile of |predicted / measured - 1| of matrix products, attention, mixtures of experts, and
collectives on 2, 4 and 8 GPUs. "Left out" are every fourth kernel and every third size of a
collective, predicted by a fit to the others. The last column predicts the kernels of a GPU from its
data sheet and the factors that were measured on another one: the best and the worst other GPU by
their median.
"""
_INCLUDED = Path(__file__).resolve().parents[2] / "compiler/cost/devices"


def _plain(device: Device) -> Device:
    """Return a device as its data sheet describes it."""
    return replace(device, kernels={}, collectives={})


def _by_sheet(rows: KernelRows, dtype: str, device: Device) -> Floats:
    """Return the errors of kernels by the roofline at the efficiency of the data sheet."""
    peaks = tuple((name, rate * device.contraction_efficiency) for name, rate in device.peaks)
    return relative_errors(rows.roofline_s(dtype, replace(device, peaks=peaks)), rows.time_s)


def _collectives_by_sheet(tables: Tables, device: Device) -> Floats:
    """Return the errors of collectives by the latency and the bandwidth of the data sheet."""
    predicted_s = [
        collective_time_s(own.kind, own.bytes, (0,), Mesh((own.ranks,)), device)
        for own in tables.collectives
    ]
    return relative_errors(
        np.array(predicted_s), np.array([own.time_s for own in tables.collectives])
    )


def _by_others(
    name: str, key: tuple[str, str], tables: Mapping[str, Tables]
) -> Iterator[tuple[float, str]]:
    """Yield the median error of the kernels of a GPU by the factors of each other one."""
    rows, roofline_s = tables[name].kernels[key], None
    for other in tables:
        table = load_device(other).kernels.get(key)
        if other != name and table is not None:
            if roofline_s is None:
                roofline_s = rows.roofline_s(key[1], load_device(name))
            predicted_s = factors_of(table, rows.sizes) * roofline_s
            yield float(np.median(relative_errors(predicted_s, rows.time_s))), other


def _figures(misses: Floats) -> str:
    return f"{np.median(misses):.1%}, {np.percentile(misses, 90):.1%}"


def _rows(tables: Mapping[str, Tables]) -> Iterator[str]:
    """Yield the table."""
    yield "| GPU | family | rows | data sheet | left out | by another GPU's factors |"
    yield "|---|---|---|---|---|---|"
    for name, own in tables.items():
        device = _plain(load_device(name))
        for key, misses in kernel_misses(own, device).items():
            family, dtype = key
            sheet = _figures(_by_sheet(own.kernels[key], dtype, device))
            best, *_, worst = sorted(_by_others(name, key, tables))
            others = f"{best[0]:.1%} ({best[1]}) to {worst[0]:.1%} ({worst[1]})"
            count, figures = len(own.kernels[key]), _figures(misses)
            yield f"| {name} | {family}, {dtype} | {count:,} | {sheet} | {figures} | {others} |"
        sheet, left_out = _collectives_by_sheet(own, device), collective_misses(own)
        count = len(own.collectives)
        yield f"| {name} | NCCL | {count} | {_figures(sheet)} | {_figures(left_out)} | - |"


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder systems/data of AIConfigurator")
    parser.add_argument("--write", action="store_true", help="descriptions and docs/benchmarks.md")
    given = parser.parse()
    tables = {name: read_tables(given.data / folder) for name, folder in GPUS.items()}
    if given.write:
        for name, own in tables.items():
            _, text = describe_tables(own, name, None)
            (_INCLUDED / f"{name}.toml").write_text(text, encoding="utf-8")
        load_device.cache_clear()
    table = "\n".join(_rows(tables))
    print(table)
    if given.write:
        write_section("gpu_costs", f"{_TEXT}\n{table}")


if __name__ == "__main__":
    sys.exit(run_command(main))
