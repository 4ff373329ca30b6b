"""GroupQueryAttention of long prompts: keys travel in a ring, and every strategy is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, local_functions, normal, offered

from tensoropt.compiler.sharding.proof.onnx_node import Array
from tensoropt.runtime.layout.mesh import Mesh

_ROWS, _SIZE, _TOTAL = 272, 16, 6


def prompt(
    heads: tuple[int, int] = (4, 2), *, batch: int = 1, rows: int = _ROWS, past: int | None = 0,
    size: int = _SIZE, packed: bool = False, rotary: int = 0, kept: bool = True, 
    more: dict[int, Array] | None = None, **attributes: Any,
) -> Case:  # fmt: skip
    """Return attention of a whole prompt; ``rotary`` elements of each head are rotated."""
    count, shared = heads
    widths = (
        [(count + 2 * shared) * size] if packed else [n * size for n in (count, shared, shared)]
    )
    operands: list[Array | None] = [
        2 * normal(batch, rows, n, seed=i) for i, n in enumerate(widths)
    ]
    operands += [None] * (3 - len(operands))
    empty = None if past is None else np.zeros((batch, shared, past, size), np.float32)
    total = rows + (past or 0)
    lengths = np.full(batch, total - 1, np.int32), np.array([total], np.int32)
    angles = normal(rows, rotary // 2)
    tables = (np.cos(angles), np.sin(angles)) if rotary else (None, None)
    operands += [empty, empty, *lengths, *tables]
    for index, operand in (more or {}).items():
        operands += [None] * (index + 1 - len(operands))
        operands[index] = operand
    attributes |= {"num_heads": count, "kv_num_heads": shared, "do_rotary": int(rotary > 0)}
    return Case(
        "GroupQueryAttention", operands, attributes, 1, "com.microsoft",
        literals=frozenset([_TOTAL]), results=(True, kept, kept),
    )  # fmt: skip


def has_ring(case: Case) -> bool:
    """Return whether a strategy splits the rows, and all are right."""
    return any(text.split(" -> ")[1].startswith("S(1)") for text in offered(case))


@pytest.mark.parametrize(
    ("mesh", "packed", "rotary"),
    [((2,), False, 0), ((4,), True, _SIZE), ((2, 2), True, 0), ((8,), False, _SIZE)],
)
def test_keys_travel_in_a_ring(mesh: tuple[int, ...], packed: bool, rotary: int) -> None:
    whole, slots = (",".join([f"S({d})"] * len(mesh)) for d in (1, 2))
    none = ",".join(["R"] * len(mesh))
    read = f"{whole} {none} {none}" if packed else f"{whole} {whole} {whole}"
    found = offered(prompt(packed=packed, rotary=rotary, batch=2), mesh)
    assert any(
        text.startswith(read) and text.endswith(f"-> {whole} {slots} {slots}") for text in found
    )


@pytest.mark.parametrize("packed", [False, True])
def test_heads_and_sequence_split_together(packed: bool) -> None:
    for heads in ((4, 2), (4, 1)):
        check(prompt(heads, packed=packed, rotary=_SIZE), (2, 2))


@pytest.mark.parametrize("past", [None, 0])
@pytest.mark.parametrize("kept", [False, True])
def test_a_prompt_has_no_cache(past: int | None, kept: bool) -> None:
    assert has_ring(prompt(past=past, kept=kept))
    assert has_ring(replace(prompt(past=past, kept=True), literals=frozenset()))


@pytest.mark.parametrize("name", ["softcap", "scale", "rotary_interleaved", "local_window_size"])
def test_options_of_the_operator(name: str) -> None:
    value = {"softcap": 3.0, "scale": 0.7, "rotary_interleaved": 1, "local_window_size": _ROWS}[
        name
    ]
    assert has_ring(prompt(rotary=_SIZE, **{name: value}))


def test_some_elements_of_a_head_are_rotated() -> None:
    assert has_ring(prompt(rotary=16, size=32, rows=544))


def test_half_precision() -> None:
    case = prompt(rotary=_SIZE)
    halves = [
        x.astype(np.float16) if x is not None and x.dtype == np.float32 else x
        for x in case.operands
    ]
    check(replace(case, operands=halves), (4,), rtol=1e-2, atol=5e-3)


_BIAS = normal(1, 1, _ROWS, _ROWS)
_REFUSED = {
    "a short prompt": prompt(rows=256),
    "rows without halves": prompt(rows=273),
    "a cache": prompt(past=_ROWS),
    "a window": prompt(local_window_size=20),
    "a smooth softmax": prompt(smooth_softmax=1),
    "no causality": prompt(causal=0),
    "positions": prompt(rotary=_SIZE, more={9: np.arange(_ROWS, dtype=np.int64)[None]}),
    "a bias": prompt(more={10: _BIAS}),
    "sinks": prompt(more={11: normal(4)}),
    "unknown lengths": replace(
        prompt(), literals=frozenset(), symbolic_results=frozenset([(1, 2), (2, 2)])
    ),
}


@pytest.mark.parametrize("reason", _REFUSED)
def test_no_ring(reason: str) -> None:
    assert not has_ring(_REFUSED[reason])


def test_all_messages_are_priced() -> None:
    case = prompt(rotary=_SIZE)
    report = check(case, (4,))
    for strategy, text in zip(report.tried, local_functions(case, (4,)), strict=True):
        kinds = [kind for kind, *_ in report.rule.inner_steps(strategy, Mesh((4,)))]
        assert kinds.count("collective_permute") == text.count("topt.collective_permute")
        assert bool(report.rule.inner_bytes(strategy, Mesh((4,)))) == ("permute" in text)
        assert "all_gather" not in text
