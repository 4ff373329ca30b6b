"""Reshards as collectives in the IR: a tensor goes through many layouts, and is still itself."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from reshard.simulator import splits
from sharding.spmd import run_spmd

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.reshard.steps import layouts_of_rank
from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.dialects.mlir import ir
from tensoropt.passes.pipeline import Pipeline, parse_pipeline
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

SHAPE = (8, 24)
TENSOR = "tensor<8x24xi64>"


def _attribute(layout: Layout) -> str:
    texts = ", ".join(f'"{text}"' for text in layout.texts)
    return f"#topt.layout<@mesh, [{texts}]>"


def _module(mesh: Mesh, layouts: list[Layout], device: str) -> ir.Module:
    moves = "\n".join(
        f'%{number + 1} = "topt.reshard"(%{number}) '
        f"{{src = {_attribute(src)}, dst = {_attribute(dst)}}} : ({TENSOR}) -> {TENSOR}"
        for number, (src, dst) in enumerate(itertools.pairwise(layouts))
    ).replace("(%0)", "(%x)")
    ends = [f'{{topt.name = "{n}", topt.layout = {_attribute(layouts[at])}}}'
            for n, at in (("x", 0), ("y", -1))]  # fmt: skip
    known = f'topt.device = "{device}", topt.opset = {{ai.onnx = 20 : i64}}'
    with driver.new_context():
        return driver.parse_text(
            f"""module attributes {{{known}}} {{
            shard.grid @mesh(shape = {mesh})
            func.func @main(%x: {TENSOR} {ends[0]}) -> ({TENSOR} {ends[1]}) {{
              {moves}
              return %{len(layouts) - 1} : {TENSOR}
            }}
            }}"""
        )


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("mesh", [Mesh((2, 2)), Mesh((4, 2)), Mesh((2, 2, 2))], ids=str)
def test_a_tensor_that_moves_is_still_itself(mesh: Mesh, device: str) -> None:
    others = splits("S(0 of 2)", "S(1 of 3)", "S(1 of 2+1)", "S(1 in 3)", "S(1 of 4+1+1 in 4+1+1)")
    every = [x for x in layouts_of_rank(2, mesh, ("sum",), others) if fits(x, SHAPE, mesh)]
    layouts = [*random.Random(0).sample(every, min(len(every), 40)), Layout.replicated(mesh)]
    module = _module(mesh, layouts, device)
    Pipeline(parse_pipeline("add-rules,partition", module.context)).run(module)
    array = np.random.default_rng(0).integers(-99, 99, SHAPE)
    parts = cut(array, layouts[0], mesh, np.random.default_rng(1))
    (results,) = zip(*run_spmd(module, [[part] for part in parts], mesh), strict=True)
    np.testing.assert_array_equal(combine(list(results), layouts[-1], mesh, SHAPE), array)
