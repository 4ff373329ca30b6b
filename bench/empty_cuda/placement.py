"""List the nodes of ONNX files that onnxruntime-gpu leaves to the CPU, a line per file.

    LD_LIBRARY_PATH=FOLDER python bench/empty_cuda/placement.py GRAPH.onnx ...

FOLDER has CUDA's libraries or the ones of `make.py`. Graphs with collectives need their library,
which is loaded from the file in TENSOROPT_OPS, and as many ranks.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import onnxruntime

_SILENT = 4


def placement(path: str) -> str:
    """Return the nodes on the CPU by operator, and the number of copies."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "optimised.onnx")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT
        options.optimized_model_filepath = str(made)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if "TENSOROPT_OPS" in os.environ:
            options.register_custom_ops_library(os.environ["TENSOROPT_OPS"])
        session = onnxruntime.InferenceSession(path, options, ["CUDAExecutionProvider"])
        if session.get_providers()[0] != "CUDAExecutionProvider":
            return "refused: the CUDA provider cannot be loaded"
        copies = made.read_bytes().count(b"Memcpy") // 2  # each is an operator and in a name
    parts = session.get_provider_graph_assignment_info()
    nodes = [(part.ep_name, node.op_type) for part in parts for node in part.get_nodes()]
    left = Counter(kind for provider, kind in nodes if not provider.startswith("CUDA"))
    on_cpu = ", ".join(f"{kind} ({count})" for kind, count in sorted(left.items())) or "none"
    return f"{len(nodes)} nodes, on the CPU: {on_cpu}; copies: {copies}"


def main() -> None:
    onnxruntime.set_default_logger_severity(_SILENT)
    for path in sys.argv[1:]:
        try:
            text = placement(path)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            text = f"refused: {str(error).splitlines()[0]}"
        print(f"{path}: {text}")


if __name__ == "__main__":
    main()
