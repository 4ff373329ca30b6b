"""Predicted memory of training plans, compared with the tensors of ranks and with resident memory.

    python bench/memory/training.py                    the small models on 4 ranks, 4 plans each
    python bench/memory/training.py gpt2 --devices 2

The tensors of a rank are bound to its graphs: parameters, gradients, moments and running
statistics; their bytes are printed next to the prediction. Constants are counted separately: those
in the graph files, next to the prediction, including constants that ONNX Runtime folds when it
loads a graph. The peak is the resident memory that training added on the largest rank. The
predicted peak counts tensors alone: no sessions, arenas, or buffers of MPI.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


sys.path.insert(0, str(Path(__file__).parents[2] / "test" / "sweeps"))

from graphs.trained import TRAINED
from sweep_train import Case, memory_error
from train_plans import PLANS, plans, write_plan

from tensoropt.compiler.support.units import format_bytes
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.training.job import TrainResult

__all__ = ["measure"]

_STEPS = 3
_LINE = "{:8} {:10}" + " {:>10} {:>10} {:>7}" + " {:>10}" * 4


def measure(case: Case, devices: int, names: Sequence[str] = PLANS) -> dict[str, TrainResult]:
    """Return the result of the ranks of each plan of ``names``, with their memory."""
    found = {}
    for plan in plans(case.path, case.recipe, devices, names):
        run = case.run(write_plan(case.path, plan, case.folder / str(devices)))
        found[plan.name] = run.result
    return found


def _line(model: str, plan: str, result: TrainResult) -> str:
    both = result.held_bytes, result.predicted_bytes
    constants = [held["constants_bytes"] for held in both]
    static = [sum(held.values()) - own for held, own in zip(both, constants, strict=True)]
    sizes = [*static, *constants, result.peak_bytes, result.predicted_peak_bytes]
    texts = ["-" if n is None else format_bytes(n) for n in sizes]
    return _LINE.format(model, plan, *texts[:2], f"{memory_error(result):.2%}", *texts[2:])


def main() -> None:
    """Print a line per plan."""
    given = _parser().parse()
    heads = ("held", "predicted", "off by", "constants", "predicted", "peak", "predicted")
    print(_LINE.format("model", "plan", *heads))
    for name in given.models or TRAINED:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            for plan, result in measure(Case(name, Path(folder), _STEPS), given.devices).items():
                print(_line(name, plan, result), flush=True)


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*TRAINED, []], help="default all")
    parser.add_argument("--devices", type=int, default=4, help="ranks")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
