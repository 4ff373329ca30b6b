"""Collectives of packed projections next to Megatron-LM's, by the form that models pack them in.

    python bench/megatron/packed_traffic.py FOLDER              all forms of `packed_forms.py`
    python bench/megatron/packed_traffic.py FOLDER split_three  one of them
    python bench/megatron/packed_traffic.py FOLDER --write      docs/benchmarks.md

Pins state Megatron's plan: the packed projection splits its columns, attention its heads, and the
product after it its rows; the product before it runs whole. Megatron then sends one all-reduce in
inference, of the rows, and in training a second one, of the gradient of the columns' operand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import print_lines

import tensoropt as to
from megatron.compare import module_of, origin_of, read_plan
from tensoropt.compiler.api.frontier import Point
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, run_command

_TEXT = """\
## Collectives of packed projections

`make bench-packed ARGS="FOLDER --write"`, after `bench/megatron/packed_forms.py FOLDER`: {count}
forms of packed projections, exported by PyTorch's newer exporter (`dynamo`) and the older one
(`script`). Pins state Megatron's plan, on {ranks} ranks, with one figure if they agree; `a` is an
all-reduce, `g` an all-gather. Megatron sends 1a in inference and 2a in training.
"""

SIZES = {"batch": 2, "tokens": 5}
"""Sizes of the symbolic dimensions, as in the export."""
TOKENS = (1, 8)
"""Tokens in inference."""
_PRODUCTS = ("MatMul", "Gemm", "Conv")
_CUTS = ("Split", "Slice", "Gather", "Squeeze")
"""Operators that take a part of a weight."""
_KINDS = {"lead": "replicate", "rows": "row"}
"""The split of a product, by its module."""


def form_pins(model: onnx.ModelProto) -> list[str]:
    """Return the pins of Megatron's plan of a form."""
    weights = {own.name: [*own.dims] for own in model.graph.initializer if len(own.dims) > 1}
    made = {name: node for node in model.graph.node for name in node.output}
    pins = ["x=R", "y=R"]
    for node in model.graph.node:
        groups = next((own.i for own in node.attribute if own.name == "group"), 1)
        if node.op_type not in _PRODUCTS or groups > 1:
            continue
        module, read = module_of(node), [origin_of(made, name) for name in node.input]
        cut = [own for name in read if (own := _cut_from(made, name)) in weights]
        if not weights.keys().isdisjoint(read):
            kinds = (own for name, own in _KINDS.items() if name in module)
            pins.append(f"node:{node.name}={next(kinds, 'column')}")
        elif cut:  # its columns are the larger dimension
            pins.append(f"{cut[0]}=S({weights[cut[0]].index(max(weights[cut[0]]))})")
        else:
            pins.append(f"node:{node.name}=heads")
    return list(dict.fromkeys(pins))


def _cut_from(made: Mapping[str, onnx.NodeProto], name: str) -> str:
    """Return the tensor that the tensor ``name`` is a part of, by default itself."""
    while (name := origin_of(made, name)) in made and made[name].op_type in _CUTS:
        name = made[name].input[0]
    return name


def plan_form(path: Path, ranks: int, *, trains: bool) -> Point:
    """Return the fastest plan of an exported form under Megatron's pins."""
    proto = onnx.load(path)
    dims = (dim for own in proto.graph.input for dim in own.type.tensor_type.shape.dim)
    sizes = SIZES if trains else {**SIZES, "tokens": TOKENS}
    given = {dim.dim_param: sizes[dim.dim_param] for dim in dims if dim.dim_param}
    step = to.Training("mse:y,labels", optimizer="sgd", recompute="none") if trains else None
    model, pins = to.load(path, given), form_pins(proto)
    return model.frontier(
        mesh=(ranks,), device="a100", memory="1TiB", pins=pins, train=step, epsilon=0.05
    ).fastest


def _cell(path: Path, ranks: int, *, trains: bool) -> str:
    try:
        return read_plan(plan_form(path, ranks, trains=trains))[0].kinds()
    except UserError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return "none"


def _lines(folder: Path, names: Sequence[str], ranks: Sequence[int]) -> Iterator[str]:
    yield "| form | exporter | inference | training |"
    yield "|---|---|---|---|"
    for path in sorted(folder.glob("*.onnx")):
        name, exporter, _ = path.name.split(".")
        if names and name not in names:
            continue
        cells = [
            ", ".join(dict.fromkeys(_cell(path, count, trains=trains) for count in ranks))
            for trains in (False, True)
        ]
        yield f"| {name} | {exporter} | {' | '.join(cells)} |"


def main() -> None:
    """Print a line per form as it finishes."""
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md")
    given = parser.parse()
    count = len({path.name.split(".")[0] for path in given.folder.glob("*.onnx")})
    text = _TEXT.format(count=count, ranks=" and ".join(map(str, given.ranks)))
    lines = _lines(given.folder, given.names, given.ranks)
    print_lines("packed_forms", text, lines, writes=given.write)


if __name__ == "__main__":
    sys.exit(run_command(main))
