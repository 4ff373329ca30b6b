"""Bytes sent for the edges of an image when a convolution is split over its rows and columns.

The convolution is partitioned for a grid of ranks: rows of the grid split the height of the image,
columns the width. The bytes that the program sends are summed. The lower bound is the number of
bytes that the windows of some rank read outside its part. For comparison, the table has the bytes
that a rank receives if the edges of all parts along an axis are gathered. Prints a table;
``--write`` puts it into docs/benchmarks.md.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from sections import print_section

from tensoropt.compiler.pipeline import driver
from tensoropt.dialects import onnx
from tensoropt.dialects.build import sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.passes.partition import PartitionPass
from tensoropt.runtime.support.flags import run_command

__all__ = ["CONVOLUTIONS", "GRIDS", "Convolution", "bound_bytes", "gathered_bytes", "sent_bytes"]


@dataclass(frozen=True)
class Convolution:
    """A square image, and windows over it, one per ``stride`` pixels."""

    channels: int
    size: int
    taps: int
    stride: int

    @property
    def begin(self) -> int:
        """Number of elements that windows read before a part."""
        return (self.taps - 1) // 2

    @property
    def after(self) -> int:
        """Number of elements that windows read after a part."""
        return max(self.taps - self.stride - self.begin, 0)

    def __str__(self) -> str:
        return f"{self.channels} x {self.size} x {self.size}, {self.taps}, {self.stride}"


CONVOLUTIONS = (
    Convolution(64, 512, 3, 1),
    Convolution(64, 512, 3, 2),
    Convolution(64, 512, 5, 1),
    Convolution(3, 1024, 7, 2),
)
GRIDS = ((4, 1), (2, 2), (16, 1), (4, 4))
_ITEM_BYTES = 4
_FILTERS = 64
_TEXT = """\
## One convolution: bytes of edges against the lower bound

`python bench/search/convolution_volume.py --write`: bytes that a rank sends if the height and the
width of a float32 image are split over a grid of ranks, counted in the program that runs; the bytes
that the windows of some rank read outside its part, a lower bound for any algorithm; and the bytes
that a rank received when the edges of all parts were gathered, along the height alone
([decision 61](decisions/0061-halo-exchange.md)).
"""


def sent_bytes(one: Convolution, grid: tuple[int, int]) -> int:
    """Return the bytes that each rank sends, counted in the program of one rank."""
    with driver.new_context():
        module = driver.parse_text(_text(one, grid))
    driver.run_phase(module, "rules")
    PartitionPass().run(module)
    sent = [op.operation for op in onnx.function(module).regions[0].blocks[0]]
    return sum(_held_bytes(op.operands[0]) for op in sent if op.name == "topt.collective_permute")


def _held_bytes(value: ir.Value) -> int:
    return math.prod(sizes_of(value)) * _ITEM_BYTES


def _text(one: Convolution, grid: tuple[int, int]) -> str:
    """Return the program with a strategy: the first axis splits rows, the second columns."""
    axes = {dim: extent for dim, extent in enumerate(grid, 2) if extent > 1}
    shape = "x".join(map(str, axes.values()))
    split, whole = (
        f"#topt.layout<@mesh, [{', '.join(texts)}]>"
        for texts in ([f'"S({dim})"' for dim in axes], ['"R"'] * len(axes))
    )
    x = f"tensor<1x{one.channels}x{one.size}x{one.size}xf32>"
    w = f"tensor<{_FILTERS}x{one.channels}x{one.taps}x{one.taps}xf32>"
    count = one.size // one.stride
    y = f"tensor<1x{_FILTERS}x{count}x{count}xf32>"
    end = one.taps - one.stride - one.begin
    pads = f"{one.begin}, {one.begin}, {max(end, 0)}, {max(end, 0)}"
    return f"""module attributes {{topt.device = "cpu", topt.opset = {{ai.onnx = 20 : i64}}}} {{
      shard.grid @mesh(shape = {shape})
      func.func @main(%x: {x} {{topt.name = "x", topt.layout = {split}}},
                      %w: {w} {{topt.name = "w", topt.layout = {whole}}})
          -> ({y} {{topt.name = "y", topt.layout = {split}}}) {{
        %0 = "onnx.Conv"(%x, %w) {{pads = array<i64: {pads}>,
            strides = array<i64: {one.stride}, {one.stride}>,
            topt.strategy = #topt.strategy<[{split}, {whole}], [{split}]>}} : ({x}, {w}) -> {y}
        return %0 : {y}
      }}
    }}"""


def bound_bytes(one: Convolution, grid: tuple[int, int]) -> int:
    """Return the most bytes that the windows of some rank read outside its part."""
    own, reads = zip(*(_read(one, extent) for extent in grid), strict=True)
    return (math.prod(reads) - math.prod(own)) * one.channels * _ITEM_BYTES


def _read(one: Convolution, parts: int) -> tuple[int, int]:
    """Return the length of a part, and the most elements that its windows read, without padding."""
    part = one.size // parts
    begin, after = (one.begin, one.after) if parts > 1 else (0, 0)
    return part, part + (max(begin, after) if parts == 2 else begin + after)


def gathered_bytes(one: Convolution, grid: tuple[int, int]) -> int | None:
    """Return the bytes that each rank receives if edges of all parts are gathered; rows only."""
    if grid[1] > 1:
        return None
    return (grid[0] - 1) * (one.begin + one.after) * one.size * one.channels * _ITEM_BYTES


def table() -> str:
    """Return the table of all convolutions and grids in Markdown."""
    lines = [
        "| channels x pixels, window, stride | grid | sent | bound | ratio | all edges gathered |",
        "|---|---|---|---|---|---|",
    ]
    for one in CONVOLUTIONS:
        for grid in GRIDS:
            sent, bound, before = (f(one, grid) for f in (sent_bytes, bound_bytes, gathered_bytes))
            assert sent is not None and bound is not None
            held = "" if before is None else f"{before:,}"
            lines.append(
                f"| {one} | {grid[0]}x{grid[1]} | {sent:,} | {bound:,} | {sent / bound:.3f} "
                f"| {held} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(lambda: print_section(__doc__, "convolution_volume", _TEXT, table)))
