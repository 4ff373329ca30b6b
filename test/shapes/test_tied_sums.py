"""Sums of dimensions under names of their own: which dimensions of other inputs they add up."""

from __future__ import annotations

import pytest

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import arguments, function
from tensoropt.dialects.topt import keys
from tensoropt.passes.assume_sizes import AssumeSizesPass

pytestmark = pytest.mark.usefixtures("mlir_context")

TOTAL = "past_seq_len + seq_len"

JOINED = """
    %0 = "onnx.Concat"(%past, %new) {axis = 1 : i64} : (tensor<?x?xf32>, tensor<?xNEWxf32>) -> tensor<?x?xf32>
    %1 = "onnx.Add"(%0, %mask) : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
    return %1 : tensor<?x?xf32>
"""  # noqa: E501
SEPARATE = """
    %0 = "onnx.Concat"(%past, %new) {axis = 1 : i64} : (tensor<?x?xf32>, tensor<?xNEWxf32>) -> tensor<?x?xf32>
    return %0 : tensor<?x?xf32>
"""  # noqa: E501


def assumed(body: str, total: str = TOTAL, new: str = "?", ranges: str = 'past = "1..199"') -> str:
    """Return the name of the mask's length after the pass."""
    text = f"""
module attributes {{topt.opset = {{ai.onnx = 24 : i64}}, topt.ranges = {{{ranges}}}}} {{
  func.func @main(
      %past: tensor<?x?xf32> {{topt.name = "past", topt.dims = ["batch", "past"]}},
      %new: tensor<?x{new}xf32> {{topt.name = "new", topt.dims = ["batch", "{"tokens" if new == "?" else ""}"]}},
      %mask: tensor<?x?xf32> {{topt.name = "mask", topt.dims = ["batch", "{total}"]}}
  ) -> (tensor<?x?xf32> {{topt.name = "y"}}) {{{body.replace("NEW", new)}}}
}}"""  # noqa: E501
    module = ir.Module.parse(text)
    AssumeSizesPass().run(module)
    _, attributes = arguments(function(module))[2]
    return keys.DIMS.of(attributes)[1]


def test_the_only_sum_that_fits_is_taken() -> None:
    assert assumed(JOINED) == "past + tokens"


def test_a_known_size_is_part_of_a_sum() -> None:
    assert assumed(JOINED, new="3") == "3 + past"


def test_a_sum_that_nothing_reads_stays() -> None:
    assert assumed(SEPARATE) == TOTAL


def test_a_sum_of_the_inputs_own_names_stays() -> None:
    assert assumed(JOINED, "past + tokens") == "past + tokens"
    assert assumed(JOINED, "tokens + past") == "tokens + past"


def test_ranges_of_its_terms_tie_a_sum() -> None:
    ranges = 'past = "1..199", past_seq_len = "1..199"'
    assert assumed(JOINED, ranges=ranges) == TOTAL


def test_a_sum_without_sizes_is_named_with_its_flags() -> None:
    with pytest.raises(UserError) as caught:
        assumed(JOINED, "a + b + c + d")
    assert "the model takes no past=100: " in str(caught.value)
    assert str(caught.value).endswith(
        "; 'a + b + c + d' has no sizes, expected those too: "
        "--dim a=SIZES --dim b=SIZES --dim c=SIZES --dim d=SIZES"
    )


def test_a_mask_is_as_long_as_the_keys_of_its_attention() -> None:
    text = """
module attributes {topt.opset = {ai.onnx = 24 : i64}, topt.ranges = {past = "1..199"}} {
  func.func @main(
      %q: tensor<1x?x8xf32> {topt.name = "q", topt.dims = ["", "tokens", ""]},
      %k: tensor<1x2x?x4xf32> {topt.name = "k", topt.dims = ["", "", "past", ""]},
      %mask: tensor<1x1x?x?xf32> {topt.name = "mask", topt.dims = ["", "", "tokens", "a + b"]}
  ) -> (tensor<1x?x8xf32> {topt.name = "y"}) {
    %0:3 = "onnx.Attention"(%q, %q, %q, %mask, %k, %k) {q_num_heads = 2 : i64, kv_num_heads = 2 : i64} : (tensor<1x?x8xf32>, tensor<1x?x8xf32>, tensor<1x?x8xf32>, tensor<1x1x?x?xf32>, tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>) -> (tensor<1x?x8xf32>, tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>)
    return %0#0 : tensor<1x?x8xf32>
  }
}"""  # noqa: E501
    module = ir.Module.parse(text)
    AssumeSizesPass().run(module)
    _, attributes = arguments(function(module))[2]
    assert keys.DIMS.of(attributes) == ["", "", "tokens", "tokens + past"]
