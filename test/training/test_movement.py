"""Gradients of moving elements about, of cutting out and of padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from training.harness import Vjp, check_node, ints, node_model, normal


@pytest.mark.parametrize(
    ("name", "shape", "operand", "made"),
    [
        ("Reshape", (2, 3, 4), (6, -1), (6, 4)),
        ("Reshape", (2, 3, 4), (0, 12), (2, 12)),
        ("Reshape", (1,), (), ()),
        ("Squeeze", (1, 3, 1), (0, -1), (3,)),
        ("Unsqueeze", (3, 2), (-1, 0), (1, 3, 2, 1)),
        ("Expand", (3, 1), (2, 1, 4), (2, 3, 4)),
        ("Expand", (), (2, 3), (2, 3)),
    ],
)
def test_shapes(name: str, shape: Any, operand: Any, made: Any) -> None:
    def function(x: Any, _: Any) -> Any:
        return x.expand(made) if name == "Expand" else x.reshape(made)

    check_node(name, [normal(*shape), ints(*operand)], literals={1}, torch=function)


def test_squeeze_of_all() -> None:
    check_node("Squeeze", [normal(1, 3, 1)], torch=lambda x: x.squeeze())


@pytest.mark.parametrize("axis", [0, 1, -1, 3])
def test_flatten(axis: int) -> None:
    shape = (int(np.prod((2, 3, 4)[:axis])), -1)
    check_node("Flatten", [normal(2, 3, 4)], {"axis": axis}, torch=lambda x: x.reshape(shape))


@pytest.mark.parametrize("perm", [(1, 2, 0), (0, 2, 1), None])
def test_transpose(perm: tuple[int, ...] | None) -> None:
    check_node("Transpose", [normal(2, 3, 4)], {"perm": perm} if perm else {},
               torch=lambda x: x.permute(perm or (2, 1, 0)))  # fmt: skip


def test_tile() -> None:
    for repeats in ((2, 1, 3), (1, 1, 1), (2, 2, 2)):
        check_node("Tile", [normal(2, 3, 4), ints(*repeats)], literals={1},
                   torch=lambda x, r: x.tile(tuple(r)))  # fmt: skip


@pytest.mark.parametrize("wanted", [None, ["x1"]])
@pytest.mark.parametrize("axis", [1, -2])
def test_concat(axis: int, wanted: list[str] | None) -> None:
    vjp = check_node("Concat", [normal(2, 3, 4), normal(2, 1, 4), normal(2, 2, 4)], {"axis": axis},
                     torch=lambda *parts: torch.cat(parts, 1), wanted=wanted)  # fmt: skip
    assert vjp.ops.count("Split") == (wanted is None)


@pytest.mark.parametrize("cotangents", [None, ["y1"], ["y0", "y2"]])
def test_split(cotangents: list[str] | None) -> None:
    check_node("Split", [normal(2, 6), ints(1, 3, 2)], {"axis": -1}, outputs=3, literals={1},
               cotangents=cotangents, torch=lambda x, s: x.split(s.tolist(), 1))  # fmt: skip
    check_node("Split", [normal(7, 2)], {"num_outputs": 3}, outputs=3, cotangents=cotangents,
               torch=lambda x: x.split(3))  # fmt: skip


@pytest.mark.parametrize(
    ("bounds", "cut"),
    [
        ([(1,), (3,), (0,)], np.s_[1:3]),
        ([(1, -3), (100, -1), (1, 2)], np.s_[:, 1:, -3:-1]),
        ([(0, 1), (2, 3)], np.s_[0:2, 1:3]),
        ([(1,), (9,), (2,), (3,)], np.s_[:, :, 1::3]),
        ([(0,), (9,), (0,), (9,)], np.s_[::9]),
        ([(-1,), (-100,), (2,), (-1,)], np.s_[:, :, ::-1]),
        ([(5, 3), (0, 0), (2, 1), (-2, -1)], np.s_[:, 3:0:-1, 5:0:-2]),
        ([(0,), (100,), (1,)], np.s_[:]),
        ([(2,), (1,), (0,)], np.s_[2:1]),
    ],
)
def test_slice(bounds: list[tuple[int, ...]], cut: Any) -> None:
    x = normal(5, 4, 7)
    operands = [x, *(ints(*held) for held in bounds)]
    places = np.arange(x.size).reshape(x.shape)[cut].copy()
    check_node("Slice", operands, literals={*range(1, len(operands))},
               torch=lambda x, *_: x.reshape(-1)[torch.tensor(places)])  # fmt: skip


@pytest.mark.parametrize("sizes", [(2, 0, 3), None])
def test_an_omitted_part(sizes: tuple[int, ...] | None) -> None:
    """ONNX Runtime does not run one, so the step's graph is looked at, and not run."""
    operands = [normal(5, 2), *([ints(*sizes)] if sizes else [])]
    held = {} if sizes else {"num_outputs": 3}
    literals = {1} if sizes else set()
    model = node_model("Split", operands, held, outputs=(True, False, False), literals=literals)
    assert '"onnx.Pad"' in Vjp(model).text
    model = node_model("Split", operands, held, outputs=(True, False, True), literals=literals)
    assert '"onnx.Concat"' in Vjp(model).text


EMPTY = [
    ("MatMul", [normal(2, 3, 0), normal(1, 0, 4)], {}, torch.matmul),
    ("MatMul", [normal(0), normal(0, 2)], {}, torch.matmul),
    ("Concat", [normal(2, 0), normal(2, 3)], {"axis": 1}, lambda a, b: torch.cat([a, b], 1)),
    ("Mul", [normal(2, 0), normal(1)], {}, torch.mul),
    ("Einsum", [normal(3), normal(0)], {"equation": "i,j->i"},
     lambda a, b: torch.einsum("i,j->i", a, b)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "held", "function"), EMPTY)
def test_tensors_without_elements(
    name: str, operands: Any, held: dict[str, Any], function: Any
) -> None:
    check_node(name, operands, held, torch=function)


@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize(
    ("pads", "axes"),
    [((1, 0, 2, 1), None), ((2, 1), (-1,)), ((-1, 1, 0, -2), (0, 1)), ((0, 0), (0,))],
)
def test_pad_with_a_number(pads: Any, axes: Any, value: bool) -> None:
    operands = [normal(3, 5), ints(*pads), np.array(0.5) if value else None]
    operands += [] if axes is None else [ints(*axes)]
    while operands[-1] is None:
        operands.pop()
    literals = {i for i in (1, 3) if i < len(operands)}
    whole = np.zeros((2, 2), int)
    whole[:, list(axes or (0, 1))] = np.reshape(pads, (2, -1))
    widths = [*whole[:, 1], *whole[:, 0]]

    def function(x: Any, _: Any, fill: Any = None, __: Any = None) -> Any:
        kept = F.pad(x, widths)
        return kept if fill is None else kept + fill * F.pad(x * 0 + 1, widths).eq(0)

    check_node("Pad", operands, literals=literals, torch=function)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_pad_with_what_is_there(mode: str) -> None:
    pads = np.array([[0, 2, 1], [0, 1, 3]])
    x = normal(2, 4, 5)
    places = np.pad(np.arange(x.size).reshape(x.shape), pads.T, mode=mode)  # type: ignore[call-overload]
    check_node("Pad", [x, pads.reshape(-1)], {"mode": mode}, literals={1},
               torch=lambda x, _: x.reshape(-1)[torch.tensor(places)])  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 4), (5, 2), (2, 7), (4, 9)])
def test_center_crop_pad(shape: tuple[int, int]) -> None:
    check_node("CenterCropPad", [normal(4, 5, dtype=np.float32), ints(*shape)], literals={1})


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, -1, 2])
def test_trilu(upper: int, diagonal: int | None) -> None:
    operands = [normal(2, 3, 4), *([] if diagonal is None else [np.array(diagonal, np.int64)])]
    function = torch.triu if upper else torch.tril
    check_node("Trilu", operands, {"upper": upper}, literals={1} if diagonal is not None else (),
               torch=lambda x, *_: function(x, diagonal or 0))  # fmt: skip


@pytest.mark.parametrize("time", [0, 1])
def test_reverse_sequence(time: int) -> None:
    attributes = {"time_axis": time, "batch_axis": 1 - time}

    def function(x: Any, lengths: Any) -> Any:
        x = x.transpose(0, time)
        parts = [torch.cat([x[:n, i].flip(0), x[n:, i]]) for i, n in enumerate(lengths.tolist())]
        return torch.stack(parts, 1).transpose(0, time)

    check_node("ReverseSequence", [normal(4, 4, 2), ints(1, 4, 2, 3)], attributes, torch=function)


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1, -(2**63)])
def test_a_reversed_part_beside_another(end: int) -> None:
    """ONNX Runtime checks what reads it, and takes it to be empty where the end is the largest."""
    operands = [normal(4), ints(-2), ints(end), ints(0), ints(-1)]
    vjp = check_node("Slice", operands, literals={1, 2, 3, 4}, torch=lambda x, *_: x[:3].flip(0))
    assert "dense<-9223372036854775808> : tensor<1xi64>" in vjp.text


def test_a_start_in_front_of_the_first_element() -> None:
    operands = [normal(4), ints(-9), ints(-(2**63)), ints(0), ints(-1)]
    check_node("Slice", operands, literals={1, 2, 3, 4}, torch=lambda x, *_: x[:1])
