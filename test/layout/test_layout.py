"""Layouts: their text, what they cut, and that the parts cover a tensor exactly."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensoropt.compiler.layout.layouts import describe_misfit, fits, reordered
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout import layout as layouts
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Layout, Placement, ratio_of, split
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.padding import can_pad
from tensoropt.runtime.plan import plan

TEXTS = [
    "R",
    "S(0)",
    "S(1 of 3)",
    "S(12)",
    "S(2 of 4+1+1)",
    "S(3 in 12)",
    "S(4 of 3 in 12)",
    "S(5 of 8+1+1 in 8+1+1)",
    "P(sum)",
    "P(max)",
    "P(min)",
]


def runs_of(layout: Layout, shape: tuple[int, ...], mesh: Mesh, rank: int) -> list[list[slice]]:
    """Return the runs of indices of each dimension that ``rank`` has, without padding."""
    divisions = [layout.division(dim, size, mesh) for dim, size in enumerate(shape)]
    pieces = [mesh.linear(rank, layout.axes_splitting(dim)) for dim in range(len(shape))]
    return [own.runs(piece) for own, piece in zip(divisions, pieces, strict=True)]


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
def test_text_round_trips(texts: list[str]) -> None:
    layout = Layout.parse(texts)
    assert layout.texts == texts
    assert str(layout) == "[" + ", ".join(texts) + "]"
    assert layout.has_partial == any(text.startswith("P") for text in texts)
    assert layout.is_replicated == all(text == "R" for text in texts)


_WRONG = [
    *("", "s(0)", "S()", "S(-1)", "S(00)", "P", "P(prod)", "R "),
    *("S(0 of)", "S(0 of 0)", "S(0 of 1+0)", "S(0 of 1000)", "S(0 in 3 of 3)"),
]


@pytest.mark.parametrize("text", _WRONG)
def test_wrong_placement_text(text: str) -> None:
    with pytest.raises(UserError, match=r"placement: expected R, S\(<dim>\) or P\(sum\|max\|min\)"):
        Placement.parse(text)


def test_turns_say_in_which_order_axes_split() -> None:
    layout = Layout.parse(["S(0, 1)", "S(1)", "S(0, 0)"])
    assert layout.axes_splitting(0) == (2, 0)
    assert layout.texts == ["S(0, 1)", "S(1)", "S(0, 0)"]
    starts = [runs_of(layout, (8, 4), Mesh((2, 1, 4)), rank)[0][0].start for rank in range(8)]
    assert starts == [0, 2, 4, 6, 1, 3, 5, 7]


def test_turns_in_the_order_of_the_mesh_are_none() -> None:
    assert Layout.parse(["S(0, 0)", "S(0, 1)"]) == Layout.parse(["S(0)", "S(0)"])
    turned = Layout.parse(["S(0, 1)", "S(0, 0)"])
    assert turned != Layout.parse(["S(0)", "S(0)"])
    assert turned.replace([1], Placement.parse("R")) == Layout.parse(["S(0)", "R"])
    assert turned.ordered([0, 1]) == Layout.parse(["S(0)", "S(0)"])


@pytest.mark.parametrize(
    "texts", [["S(0, 1)", "S(0)"], ["S(0, 0)", "S(0, 0)"], ["S(0, 1)", "R"], ["S(0, 1)", "S(0, 2)"]]
)
def test_wrong_turns(texts: list[str]) -> None:
    with pytest.raises(UserError, match="placement: expected turns from 0 to "):
        Layout.parse(texts)


def test_blocks_are_a_ratio_in_lowest_terms() -> None:
    assert Layout.parse(["S(1 of 4096+1024+1024)"]).texts == ["S(1 of 4+1+1)"]
    assert Layout.parse(["S(1 of 768+768+768)"]) == Layout.parse(["S(1 of 3)"])
    assert Layout.parse(["S(1 of 1)"]) == Layout.parse(["S(1)"])
    turned = Layout.parse(["S(0, 1 of 2+1)", "S(0, 0 of 2+1)"])
    assert turned.texts == ["S(0, 1 of 2+1)", "S(0, 0 of 2+1)"]
    assert turned.replace([1], Placement.parse("R")) == Layout.parse(["S(0 of 2+1)", "R"])


def test_axes_of_one_dimension_agree_about_its_blocks() -> None:
    with pytest.raises(
        UserError, match="placement: expected the same blocks and units on all axes"
    ):
        Layout.parse(["S(0 of 3)", "S(0)"])


def test_units_are_of_each_block() -> None:
    with pytest.raises(UserError, match="placement: expected units of 2 blocks, got: '1\\+1\\+1'"):
        Placement.parse("S(0 of 2 in 1+1+1)")


def test_ranks_have_copies_of_blocks_of_few_units() -> None:
    mesh, layout = Mesh((2, 2)), Layout.parse(["S(0 of 4+1+1 in 8+2+1)"] * 2)
    assert layout.local_shape((48,), mesh) == (8 + 4 + 8,)
    runs = [runs_of(layout, (48,), mesh, rank)[0][1:] for rank in range(4)]
    assert runs == [[slice(*ends), slice(40, 48)] for ends in [(32, 36)] * 2 + [(36, 40)] * 2]
    once = [layout.local_boxes((48,), mesh, rank, once=True)[1:] for rank in range(4)]
    sizes = [[box.whole[0].stop - box.whole[0].start for box in own] for own in once]
    assert sizes == [[4, 8], [0, 0], [4, 0], [0, 0]]


def test_blocks_have_padding_of_their_own() -> None:
    mesh, layout = Mesh((2,)), Layout.parse(["S(0 of 2 in 5)"])
    assert layout.local_shape((10,), mesh) == (6,)
    first, last = (layout.local_boxes((10,), mesh, rank) for rank in range(2))
    assert [box.part[0] for box in first] == [slice(0, 3), slice(3, 6)]
    assert [box.part[0] for box in last] == [slice(0, 2), slice(3, 5)]
    assert layout.padded_dims((10,), mesh) == (0,)


@st.composite
def divisions(draw: st.DrawFn) -> Division:
    """A division that fits, of one to three blocks with units."""
    pieces, point = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    units = tuple(draw(st.lists(st.integers(1, 12), min_size=2, max_size=3)))
    sizes = [draw(st.integers(1, 3)) * own for own in units]
    division = Division(sum(sizes) * point, pieces, ratio_of(sizes), units)
    assume(division.fits)
    return division


@given(divisions())
def test_pieces_of_units_have_every_index_once(division: Division) -> None:
    owners, held = np.zeros(division.size, int), np.zeros(division.size, int)
    for piece in range(division.pieces):
        first, every = division.runs(piece, once=True), division.runs(piece)
        for own, run, share in zip(first, every, division.shares, strict=True):
            owners[own] += 1
            held[run] += 1
            assert (
                own.stop - own.start in (0, run.stop - run.start) and run.stop - run.start <= share
            )
    assert (owners == 1).all() and (held >= 1).all()
    order, places = division.order(), division.places()
    assert len(order) == division.pieces * division.part
    assert [order[place] for place in places] == [*range(division.size)]


def test_every_rank_has_a_piece_of_every_block() -> None:
    mesh, layout = Mesh((2,)), Layout.parse(["S(1 of 4+1+1)"])
    (own,) = runs_of(layout, (1, 12), mesh, 1)[1:]
    assert own == [slice(4, 8), slice(9, 10), slice(11, 12)]
    assert layout.local_shape((1, 12), mesh) == (1, 6)
    assert [box.part[1] for box in layout.local_boxes((1, 12), mesh, 1)] == [
        slice(0, 4), slice(4, 5), slice(5, 6)]  # fmt: skip


def test_reordered_layouts_are_all_others() -> None:
    mesh, layout = Mesh((2, 2, 2)), Layout.parse(["S(0)", "S(0)", "S(0)"])
    assert len({*reordered(layout, mesh), layout}) == 6
    assert not [*reordered(Layout.parse(["S(0)", "S(1)", "R"]), mesh)]
    deep = Mesh((2, 2, 2, 2))
    assert not [*reordered(Layout.parse(["S(0)"] * 4), deep)]
    turned = Layout.parse(["S(0, 1)", "S(0, 0)", "R", "R"])
    assert "which is deep" in str(describe_misfit(turned, (4,), deep))


@st.composite
def cut_tensors(draw: st.DrawFn) -> tuple[Mesh, Layout, tuple[int, ...]]:
    """A mesh, a layout without partials, and a shape that it divides."""
    mesh = Mesh(tuple(draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3))))
    rank = draw(st.integers(1, 3))
    texts = st.sampled_from(["R", *(f"S({dim})" for dim in range(rank))])
    layout = Layout.parse([draw(texts) for _ in mesh.axes])
    for dim in range(rank):
        layout = layout.with_split(split(dim, draw(st.sampled_from([(), (1, 1), (2, 1, 1)]))))
        if not layout.blocks(dim):
            layout = layout.with_split(split(dim, (), draw(st.sampled_from([(), (5,), (12,)]))))
    layout = draw(st.sampled_from([layout, *reordered(layout, mesh)]))
    least = [layout.pieces(dim, mesh) * (sum(layout.blocks(dim)) or 1) for dim in range(rank)]
    for dim in range(rank):
        if units := sum(layout.units(dim)):
            assume(
                units % layout.pieces(dim, mesh) == 0 or can_pad(units, layout.pieces(dim, mesh))
            )
            least[dim] = units
    shape = tuple(draw(st.integers(0, 2)) * unit for unit in least)
    return mesh, layout, shape


@given(cut_tensors())
def test_parts_cover_every_element_once_per_replica(
    case: tuple[Mesh, Layout, tuple[int, ...]],
) -> None:
    mesh, layout, shape = case
    assert fits(layout, shape, mesh)
    held = np.zeros(shape, dtype=int)
    for rank in range(mesh.size):
        part = np.zeros(layout.local_shape(shape, mesh), dtype=int)
        for box in layout.local_boxes(shape, mesh, rank):
            held[box.whole] += 1
            part[box.part] += 1
        real = tuple(
            slice(sum(own.stop - own.start for own in runs))
            for runs in runs_of(layout, shape, mesh, rank)
        )
        assert (part[real] == 1).all() and part.sum() == part[real].size
    replicas = mesh.extent(layout.axes_of(Placement.parse("R")))
    assert (held == replicas).all()


def test_axes_split_major_to_minor_in_mesh_order() -> None:
    mesh, layout = Mesh((2, 3)), Layout.parse(["S(0)", "S(0)"])
    starts = [runs_of(layout, (12,), mesh, rank)[0][0].start for rank in range(6)]
    assert starts == [0, 2, 4, 6, 8, 10]
    assert layout.axes_splitting(0) == (0, 1)
    assert layout.pieces(0, mesh) == 6


@pytest.mark.parametrize(
    ("texts", "shape", "expected"),
    [
        (["S(0)", "R"], (4,), True),
        (["S(0)", "S(0)"], (2,), False),
        (["S(0)", "R"], (3,), True),
        (["S(0)", "R"], (1,), False),
        (["S(0)", "S(0)"], (6,), True),
        (["S(0)", "S(0)"], (5,), False),
        (["S(1)", "R"], (4,), False),
        (["S(0)", "R"], (None,), False),
        (["P(sum)", "R"], (None,), True),
        (["R", "R"], (), True),
    ],
)
def test_fits(texts: list[str], shape: tuple[int | None, ...], expected: bool) -> None:
    assert fits(Layout.parse(texts), shape, Mesh((2, 2))) is expected


def test_axes_pad_a_dimension_together() -> None:
    mesh, layout = Mesh((2, 2)), Layout.parse(["S(0)", "S(0)"])
    assert layout.local_shape((50257,), mesh) == (12565,)
    ends = [runs_of(layout, (50257,), mesh, rank)[0][0] for rank in range(4)]
    assert [(own.start, own.stop) for own in ends] == [
        (0, 12565), (12565, 25130), (25130, 37695), (37695, 50257)
    ]  # fmt: skip


def test_parts_are_whole_units() -> None:
    mesh, layout = Mesh((5,)), Layout.parse(["S(1 in 12)"])
    assert layout.texts == ["S(1 in 12)"]
    assert layout.local_shape((8, 768), mesh) == (8, 192)
    runs = [runs_of(layout, (8, 768), mesh, rank)[1][0] for rank in range(5)]
    assert [(own.start, own.stop) for own in runs] == [
        (0, 192), (192, 384), (384, 576), (576, 768), (768, 768)
    ]  # fmt: skip
    assert layout.padded_dims((8, 768), mesh) == (1,)
    assert not layout.padded_dims((8, 768), Mesh((4,)))
    assert fits(layout, (8, 12), mesh) and not fits(layout, (8, 770), mesh)
    assert not fits(layout, (8, 768), Mesh((10,)))


def test_turned_units_are_read() -> None:
    texts = ["S(0, 1 in 12)", "S(0, 0 in 12)"]
    layout = Layout.parse(texts)
    assert layout.texts == texts and layout.axes_splitting(0) == (1, 0)
    with pytest.raises(UserError, match="the same blocks and units"):
        Layout.parse(["S(0 in 12)", "S(0)"])


def test_local_shape_keeps_symbolic_dimensions() -> None:
    layout = Layout.parse(["S(1)", "R"])
    assert layout.local_shape((None, 8), Mesh((4, 2))) == (None, 2)


def test_replace() -> None:
    layout = Layout.parse(["S(0)", "R", "R"]).replace([1, 2], Placement.parse("P(max)"))
    assert layout.texts == ["S(0)", "P(max)", "P(max)"]
    assert Layout.replicated(Mesh((2, 2))).texts == ["R", "R"]


@given(st.from_regex(layouts._PLACEMENT))
def test_the_schema_of_plans_has_the_same_grammar(text: str) -> None:
    schema = json.loads(Path(plan.__file__).with_name("plan.schema.json").read_bytes())
    pattern = schema["$defs"]["layout"]["items"]["pattern"]
    assert bool(re.search(pattern, text)) == bool(layouts._PLACEMENT.fullmatch(text))
