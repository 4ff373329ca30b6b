"""Models of the papers, at their sizes, as ONNX graphs with sparse files of weights."""
