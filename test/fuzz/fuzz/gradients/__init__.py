"""Random differentiable graphs, each as ONNX and as PyTorch, and their gradients compared.

``graph`` holds what a graph is, ``draft`` one that is being drawn; the other modules draw nodes, a
family each, and register with ``draft.maker``. ``trial`` compares, ``minimise`` makes small.
"""
