"""Attention of one long sequence in inference: products, operators of ONNX Runtime, and our kernel.

    python bench/speed/long_attention.py
    python bench/speed/long_attention.py --tokens 4096

12 heads of 64 elements in float32, on one thread. Each line is a process: the least processor time
of three runs, and the memory that the runs add to that of a session. Then plans of a GPT with 2
layers of width 256 and 4 heads, with blocks and with our kernel: median time of a run, and peak
memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from without_kernels import without_kernels

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.support.collectives import DOMAIN
from tensoropt.runtime.support.flags import Parser, run_command

_HEADS, _SIZE, _RUNS = 12, 64, 3
_TOKENS = (512, 2048, 4096)
_MICROSOFT = "com.microsoft"
_DROPOUT = "ours, with dropout"
_WAYS = ("products", "Attention", "MultiHeadAttention", "GroupQueryAttention", "ours", _DROPOUT)


def _nodes(way: str, *, causal: bool) -> list[onnx.NodeProto]:
    """Return the nodes from q, k and v to y."""
    node, flag, scale = helper.make_node, int(causal), _SIZE**-0.5
    if way == "products":
        last = "masked" if causal else "scaled"
        masks = [node("Add", ["scaled", "mask"], ["masked"])] if causal else []
        return [
            node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "turned"], ["scores"]),
            node("Mul", ["scores", "scale"], ["scaled"]),
            *masks,
            node("Softmax", [last], ["weights"]),
            node("MatMul", ["weights", "v"], ["y"]),
        ]
    if way == "Attention":
        return [node(way, ["q", "k", "v"], ["y"], is_causal=flag, scale=scale)]
    if way in ("ours", _DROPOUT):
        options = {"causal": flag, "scale": scale, "drop_scale": 1.25, "drop_threshold": -(2**62)}
        seeds = ["", "", "", "row_seeds", "key_seeds"] if way == _DROPOUT else []
        return [node("Attention", ["q", "k", "v", *seeds], ["y"], domain=DOMAIN, **options)]
    if way == "MultiHeadAttention":
        options = {"num_heads": _HEADS, "unidirectional": flag}
        return [node(way, ["q", "k", "v"], ["y"], domain=_MICROSOFT, **options)]
    read = ["q", "k", "v", "", "", "last", "total"]
    options = {"num_heads": _HEADS, "kv_num_heads": _HEADS}
    return [node(way, read, ["y", "keys", "values"], domain=_MICROSOFT, **options)]


def _model(way: str, tokens: int, *, causal: bool) -> onnx.ModelProto:
    by_head = way in ("products", "Attention", "ours", _DROPOUT)
    shape = [1, _HEADS, tokens, _SIZE] if by_head else [1, tokens, _HEADS * _SIZE]
    nodes = _nodes(way, causal=causal)
    used = {name for node in nodes for name in node.input}
    tensors: dict[str, Any] = {
        "scale": np.float32(_SIZE**-0.5),
        "mask": np.triu(np.full((tokens, tokens), -1e30, np.float32), 1),
        "row_seeds": np.arange(_HEADS * tokens).reshape(1, _HEADS, tokens, 1),
        "key_seeds": np.arange(tokens).reshape(1, 1, 1, tokens),
        "last": np.array([tokens - 1], np.int32),
        "total": np.int32(tokens),
    }
    held = [numpy_helper.from_array(np.asarray(x), n) for n, x in tensors.items() if n in used]
    value, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [value(name, kind, shape) for name in "qkv"]
    graph = helper.make_graph(nodes, "attention", inputs, [value("y", kind, shape)], held)
    opsets = [
        helper.make_opsetid("", 23),
        *(helper.make_opsetid(n, 1) for n in (_MICROSOFT, DOMAIN)),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _memory_mib(field: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


def _measure(way: str, tokens: int, *, causal: bool) -> str:
    """Return the milliseconds and the MiB of a run in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attention.onnx"
        model = _model(way, tokens, causal=causal)
        onnx.save(model, path)
        session = rank_session(path, 1)
    rng = np.random.default_rng(0)
    for one in model.graph.input:
        shape = [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        session.feed(one.name, rng.standard_normal(shape, dtype=np.float32))
    before_mib, times_s = _memory_mib("VmRSS"), []
    for _ in range(_RUNS):
        start = time.process_time()
        session.run()
        times_s.append(time.process_time() - start)
    return f"{min(times_s) * 1e3:.1f} | {_memory_mib('VmHWM') - before_mib:.0f}"


def _plans(folder: Path, tokens: int) -> Iterator[str]:
    """Yield what `tensoropt-run` prints about plans of a GPT with blocks and with our kernel."""
    sizes = {"layers": 2, "width": 256, "heads": 4, "vocabulary": 64, "batch": 1}
    path = Gpt(dtype="float32", sequence=tokens, **sizes).build("gpt").save(folder, seed=0)
    for way, device in (("blocks", str(without_kernels(folder))), ("ours", "cpu")):
        plan = folder / way
        if compile_model([str(path), "--device", device, "--devices", "1", "-o", str(plan)]):
            raise SystemExit(1)
        program = str(Path(sys.executable).with_name("tensoropt-run"))
        command = [program, str(plan), "--runs", "5", "--threads", "1"]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        yield from (f"{tokens} tokens, {way}: {line}" for line in run.stdout.splitlines()[-2:])


def main() -> None:
    """Print the lines of a table in Markdown when they are measured."""
    parser = Parser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=_TOKENS)
    parser.add_argument("--one", nargs=3, help="way, tokens and causality, in this process")
    arguments = parser.parse()
    if arguments.one:
        way, tokens, causal = arguments.one
        print(_measure(way, int(tokens), causal=causal == "yes"))
        return
    print("| tokens | causal | computed by | time, ms | memory, MiB |\n|---:|---|---|---:|---:|")
    for tokens in arguments.tokens:
        for causal in ("no", "yes"):
            for way in _WAYS:
                if way == "GroupQueryAttention" and causal == "no":
                    continue  # it is always causal
                command = [sys.executable, __file__, "--one", way, str(tokens), causal]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"| {tokens} | {causal} | {way} | {run.stdout.strip()} |", flush=True)
    for tokens in arguments.tokens:
        with tempfile.TemporaryDirectory() as folder:
            for line in _plans(Path(folder), tokens):
                print(line, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
