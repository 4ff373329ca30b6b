"""The models of the papers, at their sizes, as ONNX graphs whose weights are a hole in a file."""
