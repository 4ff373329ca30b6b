"""Found plans next to Megatron-LM's plan, on models that users export.

    python bench/megatron/compare.py FOLDER              all models of `exports.py` in the folder
    python bench/megatron/compare.py FOLDER gpt2 -v      with the collectives of both plans
    python bench/megatron/compare.py FOLDER --run        both plans on ranks, against one device
    python bench/megatron/compare.py FOLDER --write      docs/benchmarks.md

Pins state Megatron's plan (arXiv 1909.08053): products before an activation or before attention
split their columns, products after it their rows; attention and caches are split by heads, the
embedding and the scores by words. Experts split their features as other products do. Nodes are
found by the modules that exporters name, not by our rules. Batch and sequence have sizes that are
never split.

Megatron's plan sends one all-reduce after the embedding and one for each sum of a residual: its
time is the time of the pinned plan with these collectives alone.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

import tensoropt as to
from tensoropt.compiler.api.frontier import Point
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.support.collectives import COLLECTIVES
from tensoropt.runtime.support.flags import Parser, run_command

_TEXT = """\
## Plans of exported models next to Megatron's

`make bench-megatron ARGS="FOLDER --write"`, after `bench/megatron/exports.py FOLDER`: {count}
models of two layers, 1,024 wide, in float32 on {device} with {ranks} ranks. Texts have 1 to 1,024
new tokens and up to 2,048 before them, and neither is split; experts have up to 16 new tokens,
because their exports copy matrices for each token. Pins state Megatron's plan: columns, then rows;
attention and caches by heads; embeddings and scores by words.

- *Collectives*: those of the pinned plan; `a` is an all-reduce, `g` an all-gather.
- *Megatron*: the time with its all-reduces alone, one per sum of a residual and one after the
  embedding; *share* is their part of it.
- *Fastest*: the time of the fastest plan over the time of Megatron's plan; *sent*: the same ratio
  of the bytes that a rank sends.
- *Nearest*: the larger of the ratios in time and memory, of the best point of the frontier.

Each cell has a figure for each number of ranks if they differ.
"""

TOKENS, PAST, FEW = (1, 1024), (0, 2048), (1, 16)
_NEW, _HELD, _WORDS_USED = 5, 7, 16384
"""New tokens, tokens before them, and words of a run."""
_ROUNDED = 0.1
"""Tolerance for products that round their inputs to 8 bits: the smallest change turns some."""
_LETTERS = {"all_reduce": "a", "reduce_scatter": "r", "all_gather": "g", "all_to_all": "t"}

Given = int | tuple[int, int]
T = TypeVar("T")

LAYERS, _HEAD = 2, 64
_ONE_SUM = ("cohere", "falcon", "falcon-grouped", "gpt-neox", "gptj", "phi")
"""Families in which a layer adds attention and its other products to the residual at once."""
_PRODUCTS = ("MatMul", "Gemm", "MatMulNBits", "FusedMatMul")
_LOOKUPS = ("Gather", "GatherBlockQuantized")
_PICKS, _STACK = ("Gather", "GatherND"), 3
"""Operators that pick matrices of experts, and the rank of all matrices."""
_CACHE = 4
"""The rank of a cache: batch, heads, tokens, features."""
_ROWS = re.compile(
    r"(o_proj|out_proj|c_proj|down_proj|dense_4h_to_h|fc2|fc_out|out_lin|lin2"
    r"|attention\.dense|attn\.dense|self_attn\.dense|output\.dense|mlp\.dense)\b"
)
"""Modules with products that split their rows."""
_WORDS = re.compile(r"(wte|embed_tokens|word_embeddings|embed_in)\b")
_WHOLE = re.compile(
    r"(router|mlp\.gate|shared_expert_gate|transform\.dense|vocab_transform|lm_head\.dense)$"
)
"""Modules that every rank runs whole."""
_SCOPES = "pkg.torch.onnx.name_scopes"


def megatron_pins(model: onnx.ModelProto, ranks: int) -> list[str]:
    """Return the pins of Megatron's plan of ``model``."""
    weights = {tensor.name: [*tensor.dims] for tensor in model.graph.initializer}
    made = {name: node for node in model.graph.node for name in node.output}
    pins, width = list[str](), 0
    for node in model.graph.node:
        module = module_of(node)
        reads = [name for name in (origin_of(made, held) for held in node.input) if name in weights]
        if node.op_type in _LOOKUPS and _WORDS.search(module):
            width = weights[reads[0]][-1]
            pins.append(f"node:{node.name}=row")
        elif node.op_type in _PICKS and reads and len(weights[reads[0]]) == _STACK:
            features = next(dim for dim in (1, 2) if weights[reads[0]][dim] != width)
            pins.append(f"{reads[0]}=S({features})")
        elif node.op_type in _PRODUCTS and not reads and not module.endswith("experts"):
            pins.append(f"node:{node.name}=heads")
        elif node.op_type in _PRODUCTS and reads and not _WHOLE.search(module):
            pins.append(f"node:{node.name}={'row' if _ROWS.search(module) else 'column'}")
    for held in model.graph.input:
        dims = held.type.tensor_type.shape.dim
        if len(dims) == _CACHE and dims[1].dim_value % ranks == 0:
            pins.append(f"{held.name}=S(1)")
    return pins


def module_of(node: onnx.NodeProto) -> str:
    """Return the innermost module of a node, as its exporter names it."""
    scopes = next((own.value for own in node.metadata_props if own.key == _SCOPES), "")
    names = re.findall(r"'([^']*)'", scopes)
    return names[-2] if len(names) > 1 else node.name.replace("/", ".")


def origin_of(made: Mapping[str, onnx.NodeProto], name: str) -> str:
    """Return the tensor from which the tensor ``name`` differs in form only."""
    while name in made and made[name].op_type in ("Transpose", "Cast", "Identity"):
        name = made[name].input[0]
    return name


@dataclass(frozen=True)
class Plan:
    """The cost of a plan, and its collectives."""

    time_s: float
    collectives_s: float
    memory_bytes: int
    sent_bytes: float
    collectives: Counter[str]

    def without_others(self, count: int, reduce_s: float, reduce_bytes: float) -> Plan:
        """Return the plan with ``count`` all-reduces as its only collectives."""
        collectives_s = count * reduce_s
        time_s = self.time_s - self.collectives_s + collectives_s
        kinds = Counter(all_reduce=count)
        return Plan(time_s, collectives_s, self.memory_bytes, count * reduce_bytes, kinds)

    def kinds(self) -> str:
        """Return the collectives in letters: 5a 4g."""
        return " ".join(f"{self.collectives[kind]}{own}" for kind, own in _LETTERS.items()
                        if self.collectives[kind])  # fmt: skip


def read_plan(point: Point) -> tuple[Plan, float, float]:
    """Return a plan, and the time and the sent bytes of its largest all-reduce."""
    entries = [own for own in point.explain().data.timeline if own.kind == "collective"]
    (ranks,) = point.mesh
    sent = [COLLECTIVES[own.op].algorithms(ranks)[-1][1] * own.bytes for own in entries]
    reduces = [(b, e.time_s) for b, e in zip(sent, entries, strict=True) if e.op == "all_reduce"]
    most_bytes, most_s = max(reduces, default=(0.0, 0.0))
    kinds = Counter(own.op for own in entries)
    cost = point.time_s, point.communication_s, point.memory_bytes
    return Plan(*cost, sum(sent), kinds), most_s, most_bytes


@dataclass(frozen=True)
class Row:
    """Megatron's plan, the pinned plan, the fastest plan, and the distance of the frontier."""

    megatron: Plan
    pinned: Plan
    fastest: Plan
    nearest: float

    @property
    def time_ratio(self) -> float:
        """The time of the fastest plan over the time of Megatron's plan."""
        return self.fastest.time_s / self.megatron.time_s

    def cells(self) -> list[str]:
        """Return the figures of the table."""
        return [
            self.pinned.kinds(),
            f"{1e3 * self.megatron.time_s:.2f}",
            f"{self.megatron.collectives_s / self.megatron.time_s:.0%}",
            f"{self.time_ratio:.3f}",
            f"{self.nearest:.3f}",
            f"{self.fastest.sent_bytes / self.megatron.sent_bytes:.2f}",
        ]


@dataclass(frozen=True)
class Setting:
    """The device, and the parts of the report that flags ask for."""

    device: str
    verbose: bool = False
    run: bool = False


def compare(name: str, path: Path, ranks: int, setting: Setting) -> Row:
    """Return the plans of the model ``name`` on ``ranks`` ranks."""
    proto = onnx.load(path, load_external_data=False)
    model, pins = to.load(path, _sizes(proto)), megatron_pins(proto, ranks)
    found = model.frontier(mesh=(ranks,), device=setting.device, memory="1TiB")
    forced = model.frontier(mesh=(ranks,), device=setting.device, memory="1TiB", pins=pins)
    pinned = forced.fastest
    if setting.verbose:
        print(*pins, sep="\n")
        _show(pinned)
        _show(found.fastest)
    if setting.run:
        for point in (pinned, found.fastest):
            _check(point, path, proto)
    own, reduce_s, reduce_bytes = read_plan(pinned)
    count = LAYERS * (1 if name in _ONE_SUM else 2) + 1
    megatron = own.without_others(count, reduce_s, reduce_bytes)
    nearest = min(
        max(point.time_s / megatron.time_s, point.memory_bytes / megatron.memory_bytes)
        for point in found
    )
    return Row(megatron, own, read_plan(found.fastest)[0], nearest)


def _sizes(model: onnx.ModelProto) -> dict[str, Given]:
    """Return the sizes of symbolic dimensions: one text, of any length."""
    copies = any(len(own.dims) == _STACK for own in model.graph.initializer)
    tokens = FEW if copies else TOKENS
    total = PAST[0] + tokens[0], PAST[1] + tokens[1]
    shapes = (held.type.tensor_type.shape.dim for held in model.graph.input)
    names = {dim.dim_param for dims in shapes for dim in dims if dim.dim_param}
    return {name: _size_of(name, tokens, PAST, total) for name in names}


def _size_of(name: str, tokens: T, past: T, total: T) -> T | int:
    """Return the size of a symbolic dimension, by the names that exporters use."""
    kinds = {"batch": 1, "sequence": tokens, "past": past, "kv_cache_dim": _HEAD}
    return next((size for start, size in kinds.items() if name.startswith(start)), total)


def _check(point: Point, path: Path, model: onnx.ModelProto) -> None:
    """Run a plan on ranks and the model on one device; raise UserError if outputs differ."""
    given, rng = dict[str, np.ndarray](), np.random.default_rng(0)
    for held in model.graph.input:
        kind = held.type.tensor_type
        shape = [
            dim.dim_value or _size_of(dim.dim_param, _NEW, _HELD, _NEW + _HELD)
            for dim in kind.shape.dim
        ]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            given[held.name] = rng.standard_normal(shape, dtype=np.float32)
        else:  # tokens, and a mask that hides none
            most = 2 if "mask" in held.name else _WORDS_USED
            given[held.name] = rng.integers(1, most, shape)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        point.compile(Path(folder) / "plan")
        own = {"atol": _ROUNDED} if "int4" in path.parent.name else {}
        result = to.check(Path(folder) / "plan", path, inputs=given, threads=1, **own)
    if not result.passed:
        raise UserError(f"{path}: outputs differ from one device: {result}")


def _show(point: Point) -> None:
    print(repr(point))
    for own in point.explain().data.timeline:
        if own.kind == "collective":
            print(f"  {own.layer:30} {own.op:14} {own.bytes:>9} {1e6 * own.time_s:6.1f} {own.text}")


def _lines(
    folder: Path, names: Sequence[str], ranks: Sequence[int], setting: Setting
) -> Iterator[str]:
    columns = ["model", "collectives", "Megatron, ms", "share", "fastest", "nearest", "sent"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * 2 + "|---:" * (len(columns) - 2) + "|"
    ratios = []
    for name in names:
        path = folder / name / "model.onnx"
        rows = [compare(name, path, count, setting) for count in ranks]
        ratios += [own.time_ratio for own in rows]
        cells = (dict.fromkeys(own) for own in zip(*(own.cells() for own in rows), strict=True))
        yield f"| {name} | {' | '.join(', '.join(own) for own in cells)} |"
    worst, median = max(ratios), statistics.median(ratios)
    yield f"| all | | | | at most {worst:.3f}, median {median:.3f} | | |"


def main() -> None:
    """Print a line per model as it finishes."""
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="a100")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--run", action="store_true", help="both plans on ranks, checked")
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md")
    given = parser.parse()
    found = sorted(path.parent.name for path in given.folder.glob("*/model.onnx"))
    names, lines = given.names or found, []
    setting = Setting(given.device, verbose=given.verbose, run=given.run)
    for line in _lines(given.folder, names, given.ranks, setting):
        print(line, flush=True)
        lines.append(line)
    if given.write:
        ranks = " and ".join(map(str, given.ranks))
        text = _TEXT.format(count=len(names), device=given.device, ranks=ranks)
        write_section("megatron_exports", f"{text}\n" + "\n".join(lines))


if __name__ == "__main__":
    sys.exit(run_command(main))
