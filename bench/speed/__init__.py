"""Steps compared with PyTorch, ONNX Runtime and manual plans."""
