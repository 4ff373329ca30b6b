"""Compilation time, from the ONNX file to the frontier."""
