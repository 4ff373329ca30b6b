"""Forms of mixtures of experts without a gradient; test/whole/test_trained_experts.py trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training.harness import node_model, normal
from training.vjp import Vjp

from tensoropt.compiler.support.errors import UserError

UP, DOWN = (4, 16, 8), (4, 8, 16)


def operands(dtype: Any = np.float32, *, third: bool = False) -> list[Any]:
    shapes = [(6, 8), (6, 4), UP, None, DOWN, None, *([UP] if third else [])]
    return [None if shape is None else normal(*shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("given", "attributes", "message"),
    [
        (operands(np.float16), {}, "it is in float16, expected float32"),
        (operands(third=True), {"activation_type": "silu"}, "it has a third layer, expected gates"),
        (operands(), {"use_sparse_mixer": 1}, "it has a sparse mixer, expected a softmax"),
        (
            operands(),
            {"activation_type": "silu", "swiglu_fusion": 1},
            "it has silu with swiglu_fusion=1, expected swiglu with 1",
        ),
    ],
)
def test_other_forms_are_refused(
    given: list[Any], attributes: dict[str, Any], message: str
) -> None:
    model = node_model("MoE", given, {"k": 2, **attributes}, domain="com.microsoft")
    with pytest.raises(UserError, match=message):
        Vjp(model)
