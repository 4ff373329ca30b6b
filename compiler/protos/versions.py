"""The newest versions of ONNX's format and operators that ONNX Runtime 1.31 loads.

It is the oldest one that may be installed where a plan runs.
"""

from __future__ import annotations

__all__ = ["MAX_IR_VERSION", "MAX_OPSET"]

# A test compares these with ONNX Runtime, if the oldest version is installed.
MAX_IR_VERSION = 13
MAX_OPSET = {"": 26, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "com.microsoft": 1}
