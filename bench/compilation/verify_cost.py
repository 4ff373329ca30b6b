"""Cost of verifying the IR after every pass, on a graph of 10,000 nodes.

    python bench/compilation/verify_cost.py                    GPT-3 175B with 400 layers
    python bench/compilation/verify_cost.py --layers 40

Prints processor seconds of each pass, of MLIR's verifier after it, and of the verifier of `topt`.
Strategies are not searched: every tensor is replicated, on 8x8.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from graphs.catalog import MODELS

from tensoropt.compiler.pipeline.driver import load
from tensoropt.compiler.pipeline.phases import PHASES
from tensoropt.dialects import onnx, verifier
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, set_mesh
from tensoropt.passes.pipeline import parse_pipeline
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

_MODEL, _MESH = "gpt3_175b", Mesh((8, 8))


@dataclass(frozen=True)
class Cost:
    """Processor seconds of a step and of the two verifiers after it."""

    step: str
    seconds: float
    mlir: float
    topt: float


def costs(path: Path) -> tuple[int, list[Cost]]:
    """Return the number of operations, and the cost of every step from import to partition."""
    module, seconds = _timed(lambda: load(path, {}))
    steps = [_cost("import", seconds, module)]
    for text in _passes("prepare"):
        steps.append(_run(module, text))
    operations = len(onnx.function(module).regions[0].blocks[0].operations)
    _, seconds = _timed(lambda: annotate_whole(module))
    steps.append(_cost("(strategies)", seconds, module))
    for text in (*_passes("reshard"), *_passes("partition")):
        steps.append(_run(module, text))
    return operations, steps


def annotate_whole(module: ir.Module) -> None:
    """Give every operation, argument and result the replicated layout."""
    whole, main = Layout.replicated(_MESH), onnx.function(module)
    with module.context, ir.Location.unknown():
        set_mesh(module, _MESH)
        keys.DEVICE.set(module.operation.attributes, "h200")
        for view in main.regions[0].blocks[0]:
            op = view.operation
            if onnx.is_onnx(op) and op.name != onnx.NO_VALUE:
                sides = [whole] * len(onnx.read_by(op)), [whole] * len(op.results)
                keys.STRATEGY.set(op.attributes, sides)
        for side in ("arg_attrs", "res_attrs"):
            held = [{item.name: item.attr for item in own} for own in main.attributes[side]]
            laid = [ir.DictAttr.get({**own, **keys.LAYOUT.item(whole)}) for own in held]
            main.attributes[side] = ir.ArrayAttr.get(laid)


def _passes(phase: str) -> list[str]:
    return PHASES[phase].split(",")


def _run(module: ir.Module, text: str) -> Cost:
    [one] = parse_pipeline(text, module.context)
    with module.context, ir.Location.unknown():
        _, seconds = _timed(lambda: one.run(module))
    return _cost(text, seconds, module)


def _cost(step: str, seconds: float, module: ir.Module) -> Cost:
    _, mlir = _timed(module.operation.verify)
    _, topt = _timed(lambda: verifier.verify(module))
    return Cost(step, seconds, mlir, topt)


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return action(), time.process_time() - started


def table(steps: list[Cost]) -> str:
    """Return a line per step, and the totals with the share of each column."""
    rows = [f"{'':16}{'pass s':>9}{'mlir s':>9}{'topt s':>9}"]
    total = Cost("whole", *(sum(getattr(c, n) for c in steps) for n in ("seconds", "mlir", "topt")))
    for one in (*steps, total):
        rows.append(f"{one.step:16}{one.seconds:9.3f}{one.mlir:9.3f}{one.topt:9.3f}")
    whole = total.seconds + total.mlir + total.topt
    rows.append(
        f"{'share':16}{total.seconds / whole:9.1%}{total.mlir / whole:9.1%}"
        f"{total.topt / whole:9.1%}"
    )
    return "\n".join(rows)


def main() -> None:
    """Build the model, run it through the phases and print the table."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=400)
    layers = parser.parse().layers
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        model: Any = replace(MODELS[_MODEL], layers=layers)  # type: ignore[type-var]
        path = model.build(f"{_MODEL}_{layers}").save(Path(folder))
        operations, steps = costs(path)
    print(f"{operations} operations\n{table(steps)}")


if __name__ == "__main__":
    sys.exit(run_command(main))
