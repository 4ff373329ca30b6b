"""Random ONNX graphs, and what is held against ONNX Runtime with them.

``builder`` grows a graph node by node, each evaluated by ONNX Runtime as it is added, so that all
that it makes is valid; ``operators`` holds what may be added; ``graphs`` makes a whole case of a
seed. ``joined`` runs the graphs of all ranks of a plan as one; ``plans`` compiles a case under
random plans and compares; ``minimise`` makes a failing case small.
"""
