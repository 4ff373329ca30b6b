"""Attributes that the standard does not allow are one line, before anything relies on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importer.models import F32, imported, model, node, untyped, value

from tensoropt.compiler.pipeline.driver import run_phase
from tensoropt.compiler.support.errors import UserError

pytestmark = pytest.mark.usefixtures("mlir_context")

_IMAGE, _MATRIX = [2, 4, 6, 6], [2, 3]

# Operator, shapes of its operands, attributes, and what is said; all of which follows from the
# attributes alone.
_ALONE = [
    ("Conv", (_IMAGE, [4, 4, 1, 1]), {"group": 0}, "group', expected at least 1, got: 0"),
    ("Conv", (_IMAGE, [4, 4, 1, 1]), {"strides": [0, 1]},
     "strides', expected at least 1 each, got: [0, 1]"),
    ("MaxPool", (_IMAGE,), {"kernel_shape": [1, -1]},
     "kernel_shape', expected at least 1 each, got: [1, -1]"),
    ("MaxPool", (_IMAGE,), {"kernel_shape": [1, 1], "dilations": [1, 0]},
     "dilations', expected at least 1 each, got: [1, 0]"),
    ("MaxPool", (_IMAGE,), {"kernel_shape": [1, 1], "pads": [1, 1, 1]},
     "pads', expected two numbers per dimension, got: [1, 1, 1]"),
    ("MaxPool", (_IMAGE,), {"kernel_shape": [1, 1], "auto_pad": "SAME"},
     "auto_pad', expected one of NOTSET, SAME_UPPER, SAME_LOWER, VALID, got: 'SAME'"),
    ("Einsum", (_MATRIX,), {"equation": ".ij->ji"},
     "equation', expected letters, '...' once per term, ',' and '->', got: '.ij->ji'"),
    ("Einsum", (_MATRIX,), {"equation": "....i"},
     "equation', expected letters, '...' once per term, ',' and '->', got: '....i'"),
    ("Einsum", (_MATRIX,), {"equation": "ij,jk"},
     "equation', expected a term for each of 1 operands, got: 'ij,jk'"),
    ("Einsum", (_MATRIX,), {"equation": "ij->k"},
     "equation', expected each letter of the result once, and in an operand, got: 'ij->k'"),
    ("DepthToSpace", (_IMAGE,), {"blocksize": 0}, "blocksize', expected at least 1, got: 0"),
    ("Split", (_MATRIX,), {"num_outputs": 2**40},
     "num_outputs', expected the number of results, 1, got: 1099511627776"),
    ("Transpose", (_MATRIX,), {"perm": [0, 2]},
     "perm', expected a permutation of 0 to 1, got: [0, 2]"),
    ("Cast", (_MATRIX,), {"to": 99}, "to', expected the number of an element type, got: 99"),
    ("ScatterND", (_MATRIX,), {"reduction": "x" * 99},
     f"reduction', expected one of none, add, mul, max, min, got: '{'x' * 59}..."),
]  # fmt: skip

# The same where the ranks of operands are needed.
_RANKED = [
    ("Softmax", (_MATRIX,), {"axis": 2}, "axis', expected -2 to 1, got: 2"),
    ("Flatten", (_MATRIX,), {"axis": 3}, "axis', expected -2 to 2, got: 3"),
    ("Gather", (_MATRIX, [1]), {"axis": 2**31}, "axis', expected -2 to 1, got: 2147483648"),
    ("Transpose", (_MATRIX,), {"perm": [0]}, "perm', expected a permutation of 0 to 1, got: [0]"),
    ("Einsum", (_MATRIX,), {"equation": "ijk"},
     "equation', expected 'ijk' to have 2 dimensions, got: 'ijk'"),
    ("MaxPool", (_IMAGE,), {"kernel_shape": [1, 1, 1]},
     "kernel_shape', expected 2 numbers, got: [1, 1, 1]"),
    ("ReduceSum", (_MATRIX,), {"axes": [0, -2]}, "axes', expected axes that differ, got: [0, -2]"),
    ("ReduceSum", (_MATRIX,), {"axes": [5]}, "axes', expected axes from -2 to 1, got: [5]"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "said"), _ALONE)
def test_what_is_wrong_alone(
    op_type: str, shapes: Any, attributes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert _refused(op_type, shapes, attributes, tmp_path) == (
        f"model.onnx: node 'n' ({op_type}): has a wrong attribute '{said}"
    )


def _refused(op_type: str, shapes: Any, attributes: dict[str, Any], folder: Path) -> str:
    names = [f"x{at}" for at in range(len(shapes))]
    inputs = [value(name, F32, shape) for name, shape in zip(names, shapes, strict=True)]
    made = node(op_type, names, ["y"], name="n", **attributes)
    with pytest.raises(UserError) as caught:
        imported(model([made], inputs, [untyped("y")], opset=18), folder)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "said"), _RANKED)
def test_what_is_wrong_for_the_ranks(
    op_type: str, shapes: Any, attributes: dict[str, Any], said: str
) -> None:
    """On import, ONNX's inference may say it first; text goes to the pass as it is."""
    from tensoropt.compiler.pipeline.driver import new_context, parse_text

    with new_context():
        module = parse_text(_text(op_type, shapes, attributes))
        with pytest.raises(UserError) as caught:
            run_phase(module, "prepare")
    assert f"'onnx.{op_type}' op has a wrong attribute '{said}" in str(caught.value)


def _text(op_type: str, shapes: Any, attributes: dict[str, Any]) -> str:
    """Return a module with one operation on arguments of ``shapes``."""
    types = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in shapes]
    given = ", ".join(f'%{at}: {kind} {{topt.name = "x{at}"}}' for at, kind in enumerate(types))
    values = ", ".join(f"{name} = {_literal(held)}" for name, held in attributes.items())
    operands = ", ".join(f"%{at}" for at in range(len(types)))
    kinds = f"({', '.join(types)}) -> tensor<*xf32>"
    return (
        "module attributes {topt.opset = {ai.onnx = 12 : i64}, topt.ir_version = 8 : i64} {\n"
        f'  func.func @main({given}) -> (tensor<*xf32> {{topt.name = "y"}}) {{\n'
        f'    %y = "onnx.{op_type}"({operands}) {{{values}}} : {kinds}\n'
        "    return %y : tensor<*xf32>\n  }\n}\n"
    )


def _literal(held: Any) -> str:
    if isinstance(held, list):
        return f"array<i64: {', '.join(map(str, held))}>"
    return f'"{held}"' if isinstance(held, str) else f"{held} : i64"


def test_the_wrong_kind_and_name_of_an_attribute(tmp_path: Path) -> None:
    assert _refused("Softmax", (_MATRIX,), {"axis": "x"}, tmp_path) == (
        "model.onnx: node 'n' (Softmax): has a wrong kind of attribute 'axis', "
        "expected INT, got: STRING"
    )
    assert _refused("Softmax", (_MATRIX,), {"axes": 1}, tmp_path) == (
        "model.onnx: node 'n' (Softmax): has an unknown attribute 'axes', did you mean 'axis'?"
    )
