"""Every operator of the standard has a rule or a sentence that says why it has none."""

from __future__ import annotations

import onnx.defs
import pytest

from tensoropt.compiler.protos.versions import MAX_OPSET
from tensoropt.compiler.sharding.ops.unsplit import explained, why_whole
from tensoropt.compiler.sharding.rule.registry import registered


def standard_operators() -> set[str]:
    every = onnx.defs.get_all_schemas_with_history()
    return {s.name for s in every if s.domain == "" and s.since_version <= MAX_OPSET[""]}


def test_the_sentences_are_for_exactly_the_operators_without_a_rule() -> None:
    assert explained() == standard_operators() - set(registered())


@pytest.mark.parametrize("name", sorted(explained()))
def test_a_sentence_starts_small_and_has_no_full_stop(name: str) -> None:
    reason = why_whole(name)
    assert reason is not None
    assert reason[0].islower()
    assert not reason.endswith(".")


def test_an_operator_with_a_rule_has_no_sentence() -> None:
    assert why_whole("MatMul") is None


def test_other_domains_have_a_sentence_each() -> None:
    assert why_whole("ai.onnx.ml.ZipMap") == why_whole("ai.onnx.ml.CastMap") is not None
    assert why_whole("com.microsoft.NoSuchOp") is None
