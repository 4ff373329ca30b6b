"""Attention of one long sequence in inference: products, operators of ONNX Runtime, and our kernel.

    python bench/speed/long_attention.py
    python bench/speed/long_attention.py --tokens 4096
    python bench/speed/long_attention.py --tokens 2048 --heads 8 --packed --bias

12 heads of 64 elements in float32, on one thread. `--packed` has all heads of a token next to
each other, as `MultiHeadAttention` reads them, and transposes them for `Attention` and for ours;
`--bias` adds a bias for each pair of tokens. Each line is a process: the least processor time of
three runs, and the memory that the runs add to that of a session. Without `--packed`, plans of a
GPT with 2 layers of width 256 and 4 heads, with blocks and with our kernel: median time of a run,
and peak memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

_RUNS = 3
_TOKENS = (512, 2048, 4096)
_MICROSOFT = "com.microsoft"
_DROPOUT = "ours, with dropout"
_BY_HEAD = ("products", "Attention", "ours", _DROPOUT)
_WAYS = ("products", "Attention", "MultiHeadAttention", "GroupQueryAttention", "ours", _DROPOUT)


@dataclass(frozen=True)
class _Form:
    """The sizes and the inputs of an attention."""

    tokens: int
    heads: int
    size: int
    causal: bool
    packed: bool
    bias: bool


def _packed(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes by head, between transposes of packed heads."""
    node, order = helper.make_node, [0, 2, 1, 3]
    before = [
        one
        for name in "qkv"
        for one in (
            node("Reshape", [name, "by_head"], [f"{name}_split"]),
            node("Transpose", [f"{name}_split"], [f"{name}_heads"], perm=order),
        )
    ]
    for one in nodes:
        one.input[:] = [f"{name}_heads" if name in tuple("qkv") else name for name in one.input]
        one.output[:] = ["y_heads" if name == "y" else name for name in one.output]
    turned = node("Transpose", ["y_heads"], ["y_split"], perm=order)
    return [*before, *nodes, turned, node("Reshape", ["y_split", "packed"], ["y"])]


def _nodes(way: str, form: _Form) -> list[onnx.NodeProto]:
    """Return the nodes from q, k and v to y."""
    nodes = _by_head(way, form)
    return _packed(nodes) if form.packed and way in _BY_HEAD else nodes


def _by_head(way: str, form: _Form) -> list[onnx.NodeProto]:
    node, flag, scale = helper.make_node, int(form.causal), form.size**-0.5
    bias, causal = (["bias"] if form.bias else []), form.causal
    if way == "products":
        last = "masked" if causal else "scaled"
        masks = [node("Add", ["scaled", "mask"], ["masked"])] if causal else []
        return [
            node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "turned"], ["scores"]),
            node("Mul", ["scores", "scale"], ["scaled"]),
            *masks,
            *([node("Add", [last, "bias"], ["biased"])] if bias else []),
            node("Softmax", ["biased" if bias else last], ["weights"]),
            node("MatMul", ["weights", "v"], ["y"]),
        ]
    if way == "Attention":
        return [node(way, ["q", "k", "v", *bias], ["y"], is_causal=flag, scale=scale)]
    if way in ("ours", _DROPOUT):
        options = {"causal": flag, "scale": scale, "drop_scale": 1.25, "drop_threshold": -(2**62)}
        seeds = ["", "", "row_seeds", "key_seeds"] if way == _DROPOUT else []
        read = ["q", "k", "v", *(bias or [""] * bool(seeds)), *seeds]
        return [node("Attention", read, ["y"], domain=DOMAIN, **options)]
    if way == "MultiHeadAttention":
        options = {"num_heads": form.heads, "unidirectional": flag}
        read = ["q", "k", "v", *(["", "", "bias"] if bias else [])]
        return [node(way, read, ["y"], domain=_MICROSOFT, **options)]
    read = ["q", "k", "v", "", "", "last", "total"]
    options = {"num_heads": form.heads, "kv_num_heads": form.heads}
    return [node(way, read, ["y", "keys", "values"], domain=_MICROSOFT, **options)]


def _model(way: str, form: _Form) -> onnx.ModelProto:
    tokens, heads, size = form.tokens, form.heads, form.size
    by_head = way in _BY_HEAD and not form.packed
    shape = [1, heads, tokens, size] if by_head else [1, tokens, heads * size]
    nodes = _nodes(way, form)
    used = {name for node in nodes for name in node.input}
    tensors: dict[str, Any] = {
        "scale": np.float32(size**-0.5),
        "by_head": np.array([1, tokens, heads, size]),
        "packed": np.array([1, tokens, heads * size]),
        "bias": np.linspace(-1, 1, tokens * tokens, dtype=np.float32).reshape(1, 1, tokens, tokens),
        "mask": np.triu(np.full((tokens, tokens), -1e30, np.float32), 1),
        "row_seeds": np.arange(heads * tokens).reshape(1, heads, tokens, 1),
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


def _measure(way: str, form: _Form) -> str:
    """Return the milliseconds and the MiB of a run in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attention.onnx"
        model = _model(way, form)
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
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--size", type=int, default=64, help="elements of a head")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--one", nargs=2, help="way and causality, in this process")
    arguments = parser.parse()
    sizes = arguments.heads, arguments.size
    flags = [f"--{name}" for name in ("packed", "bias") if getattr(arguments, name)]
    flags += [f"--heads={arguments.heads}", f"--size={arguments.size}"]
    if arguments.one:
        way, causal = arguments.one
        options = causal == "yes", arguments.packed, arguments.bias
        print(_measure(way, _Form(arguments.tokens[0], *sizes, *options)))
        return
    print("| tokens | causal | computed by | time, ms | memory, MiB |\n|---:|---|---|---:|---:|")
    for tokens in arguments.tokens:
        for causal in ("no", "yes"):
            for way in _WAYS:
                if way == "GroupQueryAttention" and (causal == "no" or arguments.bias):
                    continue  # it is always causal
                command = [
                    sys.executable,
                    __file__,
                    *flags,
                    f"--tokens={tokens}",
                    "--one",
                    way,
                    causal,
                ]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"| {tokens} | {causal} | {way} | {run.stdout.strip()} |", flush=True)
    for tokens in () if arguments.packed else arguments.tokens:
        with tempfile.TemporaryDirectory() as folder:
            for line in _plans(Path(folder), tokens):
                print(line, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
