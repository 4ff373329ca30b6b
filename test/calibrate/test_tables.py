"""Descriptions from measured tables: products as CSV, collectives as output of nccl-tests."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tensoropt.compiler.calibrate.tables.description import (
    describe_tables,
    fit_tables,
)
from tensoropt.compiler.calibrate.tables.read import read_tables
from tensoropt.compiler.calibrate.tables.rows import product_rows
from tensoropt.compiler.cli.profile import main
from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.expected_error import ExpectedError, FigureError
from tensoropt.compiler.report.expected import expected_line
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

# The format is that of nccl-tests 2.13.
NCCL = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid   1234 on       node device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1234 on       node device  1 [0x0a] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)
{rows}
# Out of bounds values : 0 OK
"""
SIZES = [1 << power for power in range(10, 28)]


def nccl(kind: str, rate: float = 1e11, start_us: float = 8.0) -> str:
    rows = []
    for size in SIZES:
        time_us = start_us + size / rate * 1e6
        bandwidth = f"{size / time_us / 1e3:.2f}"
        rows.append(f"{size} {size // 4} float sum -1 {time_us:.2f} {bandwidth} {bandwidth} 0 1.00")
    return f"# Collective test starting: {kind}\n{NCCL.format(rows=chr(10).join(rows))}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    lines = ["rows,columns,depth,dtype,time_s"]
    for _ in range(200):
        rows, columns, depth = 2 ** rng.integers(5, 13, 3)
        time_s = 1e-5 + 2.0 * rows * columns * depth / 1.2e13
        lines.append(f"{rows},{columns},{depth},float32,{time_s}")
    (tmp_path / "products.csv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "gather.txt").write_text(nccl("all_gather_perf"), encoding="utf-8")
    (tmp_path / "reduce.log").write_text(nccl("all_reduce_perf"), encoding="utf-8")
    return tmp_path


def test_a_folder_becomes_a_description(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "here.toml"
    command = ["--from-tables", str(folder), "--base", "v100", "--name", "ours", "-o", str(path)]
    assert main(command) == 0
    assert "collectives: 0%, nine in ten below" in capsys.readouterr().out
    device, base = load_device(str(path)), load_device("v100")
    assert (device.name, device.network) == ("ours", base.network)
    assert device.expected_error is not None
    assert device.expected_error.parts["products"].samples == 50
    # An all-gather of nccl-tests counts the bytes of the whole result, ours those of a rank.
    for kind, size in (("all_reduce", 1 << 20), ("all_gather", 1 << 19)):
        found = collective_time_s(kind, size, (0,), Mesh((2,)), device)
        assert found == pytest.approx(8e-6 + (1 << 20) / 1e11, rel=0.02)


def test_a_fitted_part_is_replaced(folder: Path) -> None:
    tables = read_tables(folder)
    path = folder / "here.toml"
    _, once = describe_tables(tables, "v100", None)
    path.write_text(once, encoding="utf-8")
    assert describe_tables(tables, str(path), None)[1] == once


def test_rows_decide_the_time_of_products(folder: Path) -> None:
    base = load_device("v100")
    fitted = fit_tables(read_tables(folder), base)
    figure = fitted.errors["products"]
    assert figure.mean is not None
    assert figure.mean < 0.25
    assert figure.samples == 50


def test_one_size_is_no_curve_and_has_no_error(tmp_path: Path) -> None:
    row = "1024 256 float sum -1 8.0 1.0 1.0 0 1.00"
    text = f"# Collective test starting: all_reduce_perf\n{NCCL.format(rows=row)}"
    (tmp_path / "reduce.txt").write_text(text, encoding="utf-8")
    fitted = fit_tables(read_tables(tmp_path), load_device("v100"))
    assert (fitted.collectives, fitted.errors) == ([], {})


@pytest.mark.parametrize(("dtype", "item"), [("int8", 1), ("bfloat16", 2), ("float64", 8)])
def test_a_thin_product_moves_the_bytes_of_its_type(dtype: str, item: int) -> None:
    base = load_device("v100")
    rows = product_rows(np.array([[1.0, 4096.0, 4096.0]]), dtype, np.ones(1))
    found = rows.roofline_s(dtype, base) - base.launch_overhead_s
    moved = item * (4096 + 4096 * 4096) + max(item, 2) * 4096
    assert found[0] == pytest.approx(moved / base.memory_bandwidth_bytes_per_s)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "rows,columns,depth,dtype\n1,2,3,float32", "p.csv: expected the columns rows, "),
        (
            "p.csv",
            "rows,columns,depth,dtype,time_s\n1,2,x,float32,1",
            "p.csv:2: depth: expected a ",
        ),
        (
            "p.csv",
            "rows,columns,depth,dtype,time_s\n1,2,3,float,1",
            "p.csv:2: unknown element type",
        ),
        ("c.txt", "hello", "c.txt: expected the output of nccl-tests, got: no line with times"),
        ("c.txt", "1024 256 float sum -1 8.0 1.0 1.0 0", "c.txt:1: expected the header of nccl-"),
        ("a.md", "", "expected products as *.csv, output of nccl-tests as *.txt or *.log, or the "),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(message)):
        read_tables(tmp_path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--quick", "--base", "v100"], "--from-tables measures nothing, expected no --quick with"),
        (
            ["model.onnx", "--base", "v100"],
            "--from-tables measures nothing, expected no model with",
        ),
        ([], "--from-tables: expected --base with the device of the tables, got: none"),
    ],
)
def test_wrong_flags(
    folder: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from-tables", str(folder), *flags]) == 1
    assert message in capsys.readouterr().err


def test_reports_name_the_errors_of_the_parts() -> None:
    parts = ExpectedError(
        parts={"products": FigureError(0.1, 0.2, 3000), "collectives": FigureError(0.3, 0.4, 10)}
    ).of_plan(known=False)
    assert expected_line(parts, "ours") == (
        "expected error: products 10%, collectives 30%, other operators and whole steps not "
        "measured; memory not measured"
    )
    assert expected_line(parts, "ours", {"products": 0.7, "attention": 0.2}) == (
        "expected error: products 10% (70% of the time), other operators and whole steps not "
        "measured; memory not measured"
    )
