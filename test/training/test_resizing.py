"""Gradients of resizing: every mode and way to place points, up and down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812
from training.harness import check_node, ints, normal

PLACES = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    function = F.pixel_shuffle if mode == "CRD" else None
    check_node("DepthToSpace", [normal(2, 12, 2, 3)], {"blocksize": 2, "mode": mode},
               torch=None if function is None else lambda x: function(x, 2))  # fmt: skip


def test_space_to_depth() -> None:
    check_node("SpaceToDepth", [normal(2, 3, 4, 6)], {"blocksize": 2})
    check_node("SpaceToDepth", [normal(2, 3, 4, 6)], {"blocksize": 2, "mode": "CRD"}, version=28,
               torch=lambda x: F.pixel_unshuffle(x, 2))  # fmt: skip


def scales(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by", [(1.0, 1.0, 2.0, 0.6), (1.0, 1.0, 1.7, 3.0)])
def test_resize(by: tuple[float, ...], mode: str, places: str) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": places}
    operands = [normal(2, 3, 4, 5, dtype=np.float32), None, scales(*by)]
    check_node("Resize", operands, attributes, literals={2})


def test_against_pytorch() -> None:
    for mode, own in (("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")):
        attributes = {"mode": mode, "nearest_mode": "floor", "cubic_coeff_a": -0.75}
        if mode == "nearest":
            attributes["coordinate_transformation_mode"] = "asymmetric"
        operands = [normal(1, 2, 4, 6, dtype=np.float32), None, None, ints(1, 2, 7, 3)]

        def function(x: Any, *_: Any, own: str = own) -> Any:
            return F.interpolate(x, (7, 3), mode=own)

        check_node("Resize", operands, attributes, literals={3}, torch=function)


def test_whole_factors_are_sums() -> None:
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    attributes["nearest_mode"] = "floor"
    operands = [normal(1, 2, 3, 4, dtype=np.float32), None, None, ints(1, 2, 6, 12)]
    vjp = check_node("Resize", operands, attributes, literals={3},
                     torch=lambda x, *_: F.interpolate(x, (6, 12)))  # fmt: skip
    assert "MatMul" not in vjp.ops


@pytest.mark.parametrize(("mode", "antialias"), [("linear", 1), ("cubic", 1)])
def test_antialiasing(mode: str, antialias: int) -> None:
    operands = [normal(1, 2, 6, 8, dtype=np.float32), None, scales(1, 1, 0.5, 0.6)]
    check_node("Resize", operands, {"mode": mode, "antialias": antialias}, literals={2})


def test_axes_one_dimension_and_volumes() -> None:
    linear = {"mode": "linear"}
    check_node("Resize", [normal(2, 3, 4, 5, dtype=np.float32), None, None, ints(7, 2)],
               {**linear, "axes": [3, -2]}, literals={3})  # fmt: skip
    check_node("Resize", [normal(5, dtype=np.float32), None, scales(1.7)], literals={2})
    volume = [normal(1, 2, 3, 4, 5, dtype=np.float32), None, scales(1, 1, 2, 1, 1.5)]
    check_node("Resize", volume, linear, literals={2})


def test_crop() -> None:
    roi = scales(0, 0, 0.2, 0.3, 1, 1, 0.9, 0.8)
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    operands = [normal(1, 1, 5, 6, dtype=np.float32), roi, None, ints(1, 1, 4, 7)]
    check_node("Resize", operands, attributes, literals={1, 3})
