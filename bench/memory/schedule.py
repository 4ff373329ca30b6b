"""Peak memory in the given operator order, by `schedule`, and in ONNX Runtime's orders.

    python bench/memory/schedule.py                             models of this repository
    python bench/memory/schedule.py MODEL.onnx ... --flags FLAGS.json
    python bench/memory/schedule.py --write                     docs/benchmarks.md

FLAGS.json maps the ends of paths to more flags, such as "--dim batch=4".

The first table counts bytes as plans predict them, without weights: on one device, also in depth
first order, in which ONNX Runtime sorts nodes by default; and in the fastest plan that a search of
two seconds finds for 4 devices in each order.

The second table runs the plan for one device. It counts nodes that do not run in the order of the
plan, and live bytes by the shapes that ONNX Runtime records: in its default order, in the order of
the file, and in the sessions of this project. It omits models of more than 64 MiB.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
import onnx
import onnxruntime
from graphs.catalog import MODELS
from graphs.trained import TRAINED
from search_graphs import training_spec
from sections import write_section
from zoo import DIMS, provide

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.pipeline.phases import Compilation
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.schedule.schedule import depth_first, in_order, lower_peak
from tensoropt.compiler.schedule.tasks import Tasks, peaks, read_tasks
from tensoropt.dialects import onnx as ops
from tensoropt.dialects.mlir import ir
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import Pipeline, parse_pipeline, set_passed_phase
from tensoropt.passes.search_strategies import SearchReport, SearchStrategiesPass
from tensoropt.runtime.ops import library_path
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.support.flags import Parser, run_command

_NAMES = ("densenet121", "inception_v1", "resnet50", "shufflenet", "gpt2_tiny", "llama_tiny")
_SIZES: Mapping[str, Mapping[str, int]] = {
    "bert_large": {"layers": 2},
    "gpt3_13b": {"layers": 2},
    "llama3_8b": {"layers": 2},
    "mixtral_8x7b": {"layers": 1},
}
_SMALL = 64 << 20
_ITEM = {"float": 4, "double": 8, "float16": 2, "int64": 8, "int32": 4, "bool": 1, "uint8": 1}


@dataclass(frozen=True)
class Case:
    """A model file, its symbolic sizes, and whether to build its training step."""

    name: str
    path: Path
    dims: Mapping[str, int]
    trains: bool = False

    def module(self, *, scheduled: bool) -> ir.Module:
        """Return the program with its rules."""
        module = driver.load(self.path, self.dims, training=self.trains)
        run = Compilation(self.trains)
        run.run(module, "prepare")
        if self.trains:
            step = BuildTrainingStepPass.from_spec(training_spec("adamw"), "none")
            Compilation(True, step).run(module, "train")
        text = ("schedule," if scheduled else "") + "add-rules,mark-caches"
        Pipeline(parse_pipeline(text, module.context)).run(module)
        set_passed_phase(module, "rules")
        return module


def counted(case: Case) -> str:
    """Return a line of the first table."""
    tasks = read_tasks(ops.function(case.module(scheduled=False)))
    given, deep = _peak(tasks), _peak(in_order(tasks, depth_first(tasks, last_first=True)))
    order = lower_peak(tasks)
    best = _peak(in_order(tasks, order))
    moved = sum(place != task for place, task in enumerate(order))
    split = [_on_devices(case.module(scheduled=scheduled)) for scheduled in (False, True)]
    cells = (len(order), moved, *map(_mib, (given, deep, best)), _less(given, best))
    return _line(case.name, *cells, *map(_mib, split), _less(*split))


def _peak(tasks: Tasks) -> int:
    return max(peaks(tasks))


def _on_devices(module: ir.Module) -> int:
    """Return the transient bytes of a rank of the fastest plan found for 4 devices."""
    request = Request(4, pick="fastest", search_time=2)
    Compilation(search=SearchStrategiesPass.from_request(request, SearchReport())).advance(
        module, "partition"
    )
    return program_memory(module).transient_bytes


def ran(case: Case, folder: Path) -> str:
    """Return a line of the second table."""
    module = case.module(scheduled=True)
    request = Request(1, pick="fastest")
    compilation = Compilation(search=SearchStrategiesPass.from_request(request, SearchReport()))
    plan = folder / case.name
    driver.compile_plan(module, case.path, plan, compilation=compilation)
    graph = plan / "rank0.onnx"
    found = [Run(graph, folder / f"{case.name}-{kind}", kind) for kind in ("0", "1", "kept")]
    cells = [cell for run in found for cell in (run.out_of_order(), _mib(run.peak()))]
    return _line(case.name, *cells)


class Run:
    """A run of a graph; ``kind`` is an execution order of ONNX Runtime, or ``kept``."""

    def __init__(self, graph: Path, trace: Path, kind: str) -> None:
        self.given = onnx.load(graph, load_external_data=False).graph
        session = self._session(graph, trace, kind)
        rng = np.random.default_rng(0)
        feeds = {value.name: _values(value, rng) for value in session.get_inputs()}
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
        self.events = [e for e in events if e["name"].endswith("_kernel_time")]
        self.run = onnx.load(f"{trace}.onnx", load_external_data=False).graph

    def _session(self, graph: Path, trace: Path, kind: str) -> Any:
        if kind == "kept":
            return rank_session(graph, 1, trace)._session
        options = onnxruntime.SessionOptions()
        options.execution_order = onnxruntime.ExecutionOrder(int(kind))
        options.enable_profiling = True
        options.profile_file_prefix = str(trace)
        options.optimized_model_filepath = f"{trace}.onnx"
        options.log_severity_level = 4
        options.register_custom_ops_library(str(library_path()))
        return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])

    def _nodes(self) -> Iterator[tuple[onnx.NodeProto, list[int]]]:
        """Yield each node that ran, with the bytes of its results."""
        named: dict[str, list[onnx.NodeProto]] = {}
        for node in self.run.node:
            named.setdefault(node.name, []).append(node)
        for event in self.events:
            nodes = named[event["name"].removesuffix("_kernel_time")]
            shapes = event["args"].get("output_type_shape", [])
            yield (
                nodes.pop(0) if len(nodes) > 1 else nodes[0],
                [
                    math.prod(shape) * _ITEM.get(kind, 4)
                    for one in shapes
                    for kind, shape in one.items()
                ],
            )

    def out_of_order(self) -> int:
        """Return the number of nodes that ran before a node that precedes them in the plan."""
        places = {name: at for at, node in enumerate(self.given.node) for name in node.output}
        order = [max(places.get(name, -1) for name in node.output) for node, _ in self._nodes()]
        known = [place for place in order if place >= 0]
        return sum(place > min(known[at:]) for at, place in enumerate(known))

    def peak(self) -> int:
        """Return the peak of live bytes, including inputs and outputs of the graph."""
        sizes = {value.name: _bytes(value) for value in self.given.input}
        given, steps = list(sizes), []
        for node, held in self._nodes():
            sizes.update(zip(filter(None, node.output), held, strict=False))
            steps.append(({*node.input} & sizes.keys(), {*node.output} & sizes.keys()))
        steps.append(({value.name for value in self.given.output} & sizes.keys(), set()))
        last = {name: at for at, (read, made) in enumerate(steps) for name in (*made, *read)}
        alive = highest = sum(sizes[name] for name in given)
        for at, (read, made) in enumerate(steps):
            alive += sum(sizes[name] for name in made)
            highest = max(highest, alive)
            alive -= sum(sizes[name] for name in read | made if last[name] == at)
        return highest


def _values(value: Any, rng: np.random.Generator) -> np.ndarray:
    kind = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(bool)": np.bool_}
    whole = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    dtype = {**kind, **whole, "tensor(float16)": np.float16}[value.type]
    array = rng.random(value.shape) if value.type not in whole else np.ones(value.shape)
    return array.astype(dtype)


def _bytes(value: onnx.ValueInfoProto) -> int:
    tensor = value.type.tensor_type
    item = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    return math.prod(d.dim_value for d in tensor.shape.dim) * int(item)


def _mib(size: int) -> str:
    return f"{size / 2**20:.3g}"


def _less(before: int, after: int) -> str:
    return f"{(before - after) / before:.1%}"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


_COUNTED = (
    "| model | operations | moved | given, MiB | depth first | `schedule` | less "
    "| 4 devices, given | `schedule` | less |\n" + "|---|" + "---:|" * 9
)
_RAN = (
    "| model | by itself: out of order | MiB | file order: out of order | MiB "
    "| sessions here: out of order | MiB |\n" + "|---|" + "---:|" * 6
)


def cases(given: argparse.Namespace, folder: Path) -> Iterator[Case]:
    """Yield the requested models: files, or models of this repository, training steps last."""
    flags = json.loads(given.flags.read_text()) if given.flags else {}
    for path in given.models:
        more = next((text for end, text in flags.items() if str(path).endswith(end)), "")
        pairs = (text.split("=") for text in shlex.split(more) if text != "--dim")
        yield Case(path.stem, path, {name: int(size) for name, size in pairs})
    if given.models and not given.write:
        return
    for name in _NAMES:
        yield Case(name, provide(name, folder), DIMS.get(name, {}))
    for name, model in MODELS.items():
        if name in _SIZES:
            sized: Any = type(model)(**{**model.__dict__, **_SIZES[name]})
            yield Case(name, sized.build(name).save(folder), {})
    for name, model in TRAINED.items():
        yield Case(f"{name}, trained", model.build(name).save(folder, 0), {}, trains=True)


def main() -> None:
    given = _parser().parse()
    count, run = [_COUNTED], [_RAN]
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
        for case in cases(given, Path(name)):
            _add(count, lambda case=case: counted(case), case.name)
            if not case.trains and _weight(case.path) < _SMALL:
                _add(run, lambda case=case: ran(case, Path(name)), case.name)
    text = "\n\n".join(("\n".join(count), "\n".join(run)))
    if given.write:
        write_section("schedule", f"{_TEXT}\n\n{text}")


def _add(lines: list[str], make: Any, name: str) -> None:
    if len(lines) == 1:
        print(lines[0], flush=True)
    try:
        lines.append(make())
        print(lines[-1], flush=True)
    except Exception as error:  # a failing model must not discard the results of others
        print(f"{name}: {str(error).splitlines()[0]}", flush=True)


def _weight(path: Path) -> int:
    return sum(one.stat().st_size for one in path.parent.glob(f"{path.stem}.*"))


_TEXT = """## Orders of operations and peaks of memory

`python bench/memory/schedule.py --write`, with foreign models and models of this repository.
Predictions of plans, without weights, in MiB: in the given order, depth first (the default order of
ONNX Runtime), and in the order of `schedule`; on 4 devices for the fastest plan. Most peaks are of
one operation, which no order lowers. The second table is of the plans for one device as they ran:
the number of nodes that ran before a predecessor in the plan, and the peak of live bytes by the
shapes of results."""


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="instead of those of this repository")
    parser.add_argument("--flags", type=Path, help="more flags for models, a JSON file")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
