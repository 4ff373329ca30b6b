"""Time the operator Attention and its gradient next to PyTorch's attention, in turns.

    python bench/speed/attention.py                                 all sizes; minutes
    python bench/speed/attention.py --tokens 512 2048 --threads 1   some of them, quickly

Both compute float32 in one process, ours in a session of ONNX Runtime and PyTorch's by
`scaled_dot_product_attention`, forward and backward. A time is the least of all rounds and a ratio
is our time over PyTorch's: below 1 we are faster. The ratio of processor times is in parentheses;
other work on the machine hardly prolongs them. Results must agree, or the benchmark fails.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper
from torch.nn.functional import scaled_dot_product_attention

from tensoropt.runtime.ops import library_path
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Sizes", "measure"]

_TOKENS, _HEAD_SIZES = (512, 2048, 8192, 16384), (64, 128)
_WORK = 8192
"""Tokens of all heads together, at least one head."""
_SETTLE_S = 0.02
"""Pause between turns, in which spinning threads of the last contender fall asleep."""
_AGREE = 1e-4
_INPUTS = ("q", "k", "v")


@dataclass(frozen=True)
class Sizes:
    """An attention to measure."""

    tokens: int
    size: int
    causal: bool
    threads: int

    @property
    def heads(self) -> int:
        """The number of heads: less for more tokens."""
        return max(_WORK // self.tokens, 1)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the queries, keys and values."""
        return 1, self.heads, self.tokens, self.size


Step = Callable[[], None]


def _session(sizes: Sizes, kind: str, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Return a session of one node; all its tensors except lse have one shape."""
    shapes = {"lse": list(sizes.shape[:3])}

    def values(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes.get(n, list(sizes.shape)))
            for n in names
        ]

    attributes = {"scale": sizes.size**-0.5, "causal": int(sizes.causal)}
    node = helper.make_node(kind, inputs, outputs, domain="tensoropt", **attributes)
    graph = helper.make_graph([node], kind, values(inputs), values(outputs))
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = sizes.threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(model.SerializeToString(), options)


class _Ours:
    """The sessions of both operators, with bound tensors."""

    def __init__(self, sizes: Sizes, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = dict(tensors)
        for name in ("y", "dq", "dk", "dv"):
            self._tensors[name] = torch.empty(sizes.shape)
        self._tensors["lse"] = torch.empty(sizes.shape[:3])
        back = ("dy", *_INPUTS, "y", "lse")
        self.forward = self._step(sizes, "Attention", _INPUTS, ("y", "lse"))
        self.backward = self._step(sizes, "AttentionGradient", back, ("dq", "dk", "dv"))

    def _step(self, sizes: Sizes, kind: str, inputs: Sequence[str], outputs: Sequence[str]) -> Step:
        session = _session(sizes, kind, inputs, outputs)
        binding = session.io_binding()
        for names, bind in ((inputs, binding.bind_input), (outputs, binding.bind_output)):
            for name in names:
                tensor = self._tensors[name]
                bind(name, "cpu", 0, np.float32, list(tensor.shape), tensor.data_ptr())
        return lambda: session.run_with_iobinding(binding)

    def results(self) -> list[torch.Tensor]:
        """Return y and the gradients of the last steps."""
        return [self._tensors[name] for name in ("y", "dq", "dk", "dv")]


class _Theirs:
    """PyTorch's attention and its backward pass."""

    def __init__(self, sizes: Sizes, tensors: Mapping[str, torch.Tensor]) -> None:
        self._causal, self._dy = sizes.causal, tensors["dy"]
        self._leaves = [tensors[name].clone().requires_grad_() for name in _INPUTS]
        self._y = self._attend()
        self._gradients: tuple[torch.Tensor, ...] = ()

    def _attend(self) -> torch.Tensor:
        return scaled_dot_product_attention(*self._leaves, is_causal=self._causal)

    def forward(self) -> None:
        with torch.no_grad():
            self._attend()

    def backward(self) -> None:
        self._gradients = torch.autograd.grad(self._y, self._leaves, self._dy, retain_graph=True)

    def results(self) -> list[torch.Tensor]:
        """Return y and the gradients of the last steps."""
        return [self._y.detach(), *self._gradients]


def _check(ours: _Ours, theirs: _Theirs) -> None:
    for name, result, expected in zip(
        ("y", "dq", "dk", "dv"), ours.results(), theirs.results(), strict=True
    ):
        off = float((result - expected).abs().max() / expected.abs().max())
        if not off <= _AGREE:
            raise ValueError(f"{name} is {off:.1e} off, expected {_AGREE:g}")


@dataclass(frozen=True)
class Times:
    """Least seconds of a step, and least processor seconds."""

    wall_s: float
    cores_s: float

    def ratios(self, other: Times) -> str:
        """Return the ratios of this to another as text."""
        return f"{self.wall_s / other.wall_s:.2f} ({self.cores_s / other.cores_s:.2f})"


def _run(step: Step) -> tuple[float, float]:
    time.sleep(_SETTLE_S)
    start, cores = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - start, time.process_time() - cores


def measure(sizes: Sizes, rounds: int) -> list[Times]:
    """Return the times of our and PyTorch's forward pass, and of both backward passes."""
    torch.set_num_threads(sizes.threads)
    generator = torch.Generator().manual_seed(0)
    tensors = {n: torch.randn(sizes.shape, generator=generator) for n in (*_INPUTS, "dy")}
    ours, theirs = _Ours(sizes, tensors), _Theirs(sizes, tensors)
    steps: list[Step] = [ours.forward, theirs.forward, ours.backward, theirs.backward]
    for step in steps:
        step()
    _check(ours, theirs)
    turns = [[_run(step) for step in steps] for _ in range(rounds)]
    return [Times(*map(min, zip(*column, strict=True))) for column in zip(*turns, strict=True)]


def rows(cases: Sequence[Sizes], rounds: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| tokens | head size | causal | threads | ours, ms | forward | ours, ms | backward |"
    yield "|---:|---:|---|---:|---:|---:|---:|---:|"
    for case in cases:
        ours, theirs, ours_back, theirs_back = measure(case, rounds)
        numbers = [f"{ours.wall_s * 1e3:.2f}", ours.ratios(theirs)]
        numbers += [f"{ours_back.wall_s * 1e3:.2f}", ours_back.ratios(theirs_back)]
        kind = "yes" if case.causal else "no"
        cells = [str(case.tokens), str(case.size), kind, str(case.threads), *numbers]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the lines of the table when they are measured."""
    parser = Parser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=_TOKENS)
    parser.add_argument("--sizes", type=int, nargs="+", default=_HEAD_SIZES, help="of heads")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse()
    cases = [
        Sizes(tokens, size, causal, threads)
        for threads in arguments.threads
        for tokens in arguments.tokens
        for size in arguments.sizes
        for causal in (False, True)
    ]
    for line in rows(cases, arguments.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
