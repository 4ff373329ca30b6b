"""The sweep over the standard's tests: a sample, that it finds what is wrong, and its page."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import conformance
import numpy as np
import pytest
from conformance import prove
from conformance_rank import Verdict
from node_tests import NodeTest, same, standard_tests
from operator_table import TARGET, Table
from split_model import part_of

from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh


@cache
def passing() -> list[NodeTest]:
    return standard_tests()


def named(*names: str) -> list[NodeTest]:
    return standard_tests(names)


def test_a_sample_passes() -> None:
    sample = [test for test in passing() if len(test.operators) == 1][::144]
    verdicts = prove([*sample, *named("test_softmax_example_expanded", "test_loop13_seq")])
    assert len({operator for test in sample for operator in test.operators}) >= 8
    assert {v.test: v.failures for v in verdicts if v.failures} == {}
    assert len(verdicts) == 2 * (len(sample) + 2)
    table = Table.from_tests(sample, verdicts)
    assert sum(len(row.splits) for row in table.rows.values()) > 50
    assert all(row.passed == row.offered for row in table.rows.values())


def test_what_is_wrong_is_found() -> None:
    (right,) = named("test_relu")
    wrong = replace(right, wanted=[right.wanted[0] + 1e-3])
    verdicts = prove([wrong])
    assert all("output 0: " in text for v in verdicts for text in v.failures.values())
    assert {key for v in verdicts for key in v.failures} >= {"2 whole", "4 Relu S(1) -> S(1)"}


def test_a_plan_that_ends_the_ranks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped: list[frozenset[tuple[str, str]]] = []

    def launch(folder: Path, ranks: int) -> subprocess.Popen[bytes]:
        job = pickle.loads((folder / "tests").read_bytes())
        skipped.append(job.skipped)
        (folder / "now0").write_text("test_relu\t2 whole")
        if job.skipped:
            line = json.dumps(asdict(Verdict(job.tests[0].name, passed=1)))
            (folder / "results").write_text(line + "\n")
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(conformance, "_launch", launch)
    verdicts = conformance.prove(named("test_relu"))
    assert [v.passed for v in verdicts] == [1, 1]
    assert skipped == [frozenset(), frozenset({("test_relu", "2 whole")})] * 2


def test_the_page_is_current() -> None:
    """As far as a few operators tell: `make conformance` writes it anew."""
    counts = Counter(operator for test in passing() for operator in test.operators)
    sample = set([name for name in sorted(counts) if counts[name] < 10][::4])
    table = Table.from_tests([test for test in passing() if not sample.isdisjoint(test.operators)])
    untold = {name for name, row in table.rows.items() if not row.tests}
    page = TARGET.read_text(encoding="utf-8")
    assert len(sample) > 20
    assert table.differs_from(page, sample) == [], "run: make conformance"
    assert all(f"| {name} | " in page for name in untold), "run: make conformance"


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8"])
def test_parts_add_up_without_rounding(dtype: str, shape: Sequence[int]) -> None:
    mesh = Mesh(tuple(shape))
    values = np.random.default_rng(0).normal(0, 40, (3, 7)).astype(np.dtype(dtype))
    layout = Layout.parse(["P(sum)"] * len(shape))
    parts = [part_of(values, layout, mesh, rank) for rank in range(mesh.size)]
    total: Any = sum(part.astype(np.float64) for part in parts)
    assert np.array_equal(total.astype(values.dtype), values)
    if dtype != "uint8":
        assert not any(np.array_equal(part, np.where(part == 0, part, values)) for part in parts)


def test_infinities_are_on_one_rank() -> None:
    mesh, layout = Mesh((2,)), Layout.parse(["P(sum)"])
    values = np.array([np.inf, 3e38, 1.0], np.float32)
    parts = [part_of(values, layout, mesh, rank) for rank in range(2)]
    assert np.array_equal(parts[0] + parts[1], values)


def test_a_few_roundings_are_the_same() -> None:
    (test,) = named("test_relu")
    wanted = [np.array([1.0, 1e-6], np.float32)]
    assert same(test, [np.array([1.0, 1.3e-6], np.float32)], wanted) is None
    assert same(test, [np.array([1.0, 3e-6], np.float32)], wanted) is not None
    assert same(test, [np.array([1.0, 1e-6])], wanted) is not None
