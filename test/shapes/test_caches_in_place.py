"""`mark-caches` marks the caches that their operator can write into the memory of the last ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.passes.mark_caches import MarkCachesPass

CACHE, GROWN, OPEN, ROWS = "2x4x16x8xf32", "2x4x17x8xf32", "2x4x?x8xf32", "2x1x32xf32"
NUMBER, LENGTHS = "1xi32", "2xi32"
GROUPED = '"onnx.com.microsoft.GroupQueryAttention"(%q, %q, %q, %k, %v, %l, %n)'
GROUPED_PACKED = '"onnx.com.microsoft.GroupQueryAttention"(%q, %none, %none, %k, %v, %l, %n)'
MULTI_HEAD = '"onnx.com.microsoft.MultiHeadAttention"(%q, %q, %q, %none, %none, %none, %k, %v'
MASKED = '"onnx.com.microsoft.DecoderMaskedMultiHeadAttention"(%q, %q, %q, %none, %none, %k, %v'


def module_of(
    call: str,
    kinds: Sequence[str],
    past: str = CACHE,
    present: str = CACHE,
    attributes: str = "",
    more: str = "",
) -> ir.Module:
    """Return a step that makes both caches with one operation."""
    tensors = [f"tensor<{kind}>" if kind != "none" else "none" for kind in kinds]
    ends = [f'tensor<{present}> {{topt.name = "present.0.{part}"}}' for part in ("key", "value")]
    given = [
        f'%{name}: tensor<{past}> {{topt.name = "past_key_values.0.{part}"}}'
        for name, part in (("k", "key"), ("v", "value"))
    ]
    return ir.Module.parse(f"""
      module attributes {{topt.opset = {{ai.onnx = 20 : i64, com.microsoft = 1 : i64}}}} {{
        func.func @main({", ".join(given)}, %q: tensor<{ROWS}> {{topt.name = "q"}},
            %l: tensor<{LENGTHS}> {{topt.name = "l"}}, %n: tensor<{NUMBER}> {{topt.name = "n"}})
            -> ({", ".join(ends)}) {{
          %none = "onnx.NoValue"() : () -> none
          {more}
          %made:3 = {call} {{{attributes}}} : ({", ".join(tensors)})
              -> (tensor<{ROWS}>, tensor<{present}>, tensor<{present}>)
          return %made#1, %made#2 : tensor<{present}>, tensor<{present}>
        }}
      }}""")


def marked(module: ir.Module) -> dict[str, str | None]:
    """Return the arguments that results overwrite, by the name of the result."""
    MarkCachesPass().run(module)
    own = onnx.carried(onnx.function(module), "res_attrs")
    assert all(keys.CACHE.on(one) for one in own)
    return {keys.NAME.of(one): keys.UPDATES.get(one) for one in own}


BOTH = {f"present.0.{part}": f"past_key_values.0.{part}" for part in ("key", "value")}
NEITHER = dict.fromkeys(BOTH)

ROW_KINDS = [ROWS] * 3
GROUPED_KINDS = [*ROW_KINDS, CACHE, CACHE, LENGTHS, NUMBER]
PADS = ["none"] * 3


@pytest.mark.usefixtures("mlir_context")
@pytest.mark.parametrize(
    ("call", "kinds", "attributes", "expected"),
    [
        (GROUPED, GROUPED_KINDS, "", ((1, 3, 1), (2, 4, 2))),
        (GROUPED_PACKED, [ROWS, "none", "none", *GROUPED_KINDS[3:]], "", ((1, 3, 0), (2, 4, 0))),
        (
            MULTI_HEAD + ", %n)",
            [*ROW_KINDS, *PADS, CACHE, CACHE, NUMBER],
            "",
            ((1, 6, 1), (2, 7, 2)),
        ),
        (MULTI_HEAD + ")", [*ROW_KINDS, *PADS, CACHE, CACHE], "", ()),
        (
            MASKED + ", %n)",
            [*ROW_KINDS, *PADS[1:], CACHE, CACHE, NUMBER],
            "past_present_share_buffer = 1 : i64",
            ((1, 5, 1), (2, 6, 2)),
        ),
        (MASKED + ", %n)", [*ROW_KINDS, *PADS[1:], CACHE, CACHE, NUMBER], "", ()),
    ],
)
def test_operators(
    call: str, kinds: Sequence[str], attributes: str, expected: tuple[tuple[int, int, int], ...]
) -> None:
    """The cost model reads the mark: which result overwrites which operand, with what."""
    module = module_of(call, kinds, attributes=attributes)
    assert marked(module) == (BOTH if expected else NEITHER)
    (op,) = [op for op in onnx.walk(onnx.function(module)) if len(op.results) == 3]
    assert describe(op, onnx.opsets(module)).in_place == expected


@pytest.mark.usefixtures("mlir_context")
@pytest.mark.parametrize(
    ("past", "present", "expected"),
    [(OPEN, OPEN, BOTH), (CACHE, GROWN, NEITHER), (CACHE, OPEN, NEITHER), (OPEN, GROWN, NEITHER)],
)
def test_the_memory_of_both_has_one_size(past: str, present: str, expected: object) -> None:
    """An open size is what the runtime makes room for. ONNX Runtime refuses another fixed size."""
    kinds = [*ROW_KINDS, past, past, LENGTHS, NUMBER]
    assert marked(module_of(GROUPED, kinds, past, present)) == expected


@pytest.mark.usefixtures("mlir_context")
def test_of_open_sizes_only_an_operator_that_is_told_the_tokens() -> None:
    kinds = [*ROW_KINDS, *PADS, OPEN, OPEN, NUMBER]
    assert marked(module_of(MULTI_HEAD + ", %n)", kinds, OPEN, OPEN)) == NEITHER


@pytest.mark.usefixtures("mlir_context")
def test_another_reader_of_a_cache() -> None:
    """It could run after the cache is overwritten, or count tokens by the size of the memory."""
    more = f'%other = "onnx.Shape"(%k) : (tensor<{CACHE}>) -> tensor<4xi64>'
    assert marked(module_of(GROUPED, GROUPED_KINDS, more=more)) == NEITHER


@pytest.mark.usefixtures("mlir_context")
def test_a_scatter_into_a_cache() -> None:
    name = '{{topt.name = "{}"}}'.format
    module = ir.Module.parse(f"""
      module attributes {{topt.opset = {{ai.onnx = 24 : i64}}}} {{
        func.func @main(%k: tensor<{CACHE}> {name("past.0.key")},
            %x: tensor<2x4x1x8xf32> {name("x")}, %at: tensor<2xi64> {name("at")})
            -> (tensor<{CACHE}> {name("present.0.key")}) {{
          %0 = "onnx.TensorScatter"(%k, %x, %at)
              : (tensor<{CACHE}>, tensor<2x4x1x8xf32>, tensor<2xi64>) -> tensor<{CACHE}>
          return %0 : tensor<{CACHE}>
        }}
      }}""")
    assert marked(module) == {"present.0.key": "past.0.key"}
    (op,) = [op for op in onnx.walk(onnx.function(module)) if op.name == "onnx.TensorScatter"]
    assert describe(op, onnx.opsets(module)).in_place == ((0, 0, 1),)
