"""Check everything that needs a GPU, on a machine with one; elsewhere report the reason to skip.

    python bench/gpu/check.py                        all parts, in minutes
    python bench/gpu/check.py --only agree,latency   some of its parts
    python bench/gpu/check.py --write                the report into docs/benchmarks.md too

Parts: ``agree``: plans on 1, 2 and 4 ranks, also in stages, have the outputs of one device, and
training the same losses; ``segments``: a step with collectives in the graph and cut at them;
``latency``: a collective in a graph and called in a loop; ``attention``: results and gradients of
attention next to float64, and times of real shapes; ``fused``: the same of arithmetic that is
fused; ``profile``: predicted and measured time and memory; ``graphs``: steps with and without CUDA
graphs; ``texts``: tokens of a decoder, by the scores of one device; ``switches``: a job that
changes its number of devices. Ranks share a GPU if there are fewer. A part that fails is reported
at the end, with exit status 1. If nothing can be checked, the status is 0.

``--tiny`` uses very small models. To test the check itself, ``--provider cpu`` runs all of it
without a GPU, and ``--stand-in FOLDER`` runs the GPU code on the stand-ins for NCCL and CUDA in
FOLDER.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from collectives import latency, segments
from sections import write_section

from gpu.agreement import inference, training
from gpu.attention import attention
from gpu.chain import KINDS
from gpu.failure import RunError
from gpu.fused import fused
from gpu.machine import facts, missing
from gpu.models import Zoo
from gpu.setting import Part, Setting, table
from gpu.steps import cuda_graphs, prediction
from gpu.switches import switches
from gpu.texts import texts
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["PARTS", "check", "main"]

_HEAD = """\
## On GPUs

`make gpu-check`, or `python bench/gpu/check.py --write`. Ranks that share a GPU take turns on it
unless CUDA MPS runs: their times do not predict separate GPUs.
"""
_DEVICE = "h100"
_TINY_BYTES = 1 << 12
_ROUNDING = 1e-2  # of TF32, as pieces are not fused like the graph


def _agree(setting: Setting) -> Part:
    plans, losses = inference(setting), training(setting)
    text = f"{plans.text}\nTraining with AdamW:\n\n{losses.text}"
    return Part(text, [*plans.failures, *losses.failures])


def _segments(setting: Setting) -> Part:
    turns = (5, 2) if setting.is_quick else (20, 5)
    where = (setting.provider, setting.ranks[0], setting.device)
    found, failures = list[segments.Found](), list[str]()
    for name in (segments.PRODUCTS, *setting.zoo.names):
        setting.say(f"cut at its collectives: {name}")
        try:
            found.append(segments.measured(setting.zoo, name, *where, *turns))
        except RunError as error:
            failures.append(f"{name}: {error}")
    wrong = [(name, held["difference"]) for name, held in found]
    failures += [f"{name}: differs by {error:.2g}" for name, error in wrong if error > _ROUNDING]
    return Part(table(segments.HEAD, segments.rows_of(found, setting.ranks[0])), failures)


def _latency(setting: Setting) -> Part:
    rows, failures = list[list[object]](), list[str]()
    quick = setting.is_quick
    sizes = [size for size in latency.SIZES if not quick or size <= _TINY_BYTES]
    for ranks in setting.ranks:
        setting.say(f"collectives on {ranks} ranks")
        effort = {"budget_bytes": _TINY_BYTES, "rounds": 1} if quick else {}
        found = latency.measured(setting.provider, ranks, KINDS, sizes, **effort)
        rows += latency.rows_of(found, ranks)
        wrong = [f"{held['kind']} of {held['bytes']} B" for held in found if not held["correct"]]
        failures += [f"{what} on {ranks} ranks gives a wrong result" for what in wrong]
    return Part(table(latency.HEAD, rows), failures)


PARTS: Mapping[str, tuple[str, Callable[[Setting], Part]]] = {
    "agree": ("Plans and the model on one device", _agree),
    "segments": ("Milliseconds of a step: collectives in the graph, and between graphs", _segments),
    "latency": ("Microseconds of a collective: in a graph, and called in a loop", _latency),
    "attention": ("Attention: largest difference from float64, and times", attention),
    "fused": ("Fused arithmetic: largest difference from float64, and times", fused),
    "profile": ("Predicted for this machine, and measured", prediction),
    "graphs": ("Steps without and with CUDA graphs", cuda_graphs),
    "texts": ("Texts of a decoder, and the scores of one device", texts),
    "switches": ("A job that changes its devices", switches),
}
"""Title and function of each part."""


def check(setting: Setting, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the report of some parts, and a line per failure; a failing part stops no other.

    Each part is printed when it ends: a check that is interrupted has shown its results so far.
    """
    texts, failures = list[str](), list[str]()
    for name in names:
        title, run = PARTS[name]
        setting.say(f"--- {name}: {title}")
        start = time.monotonic()
        try:
            part = run(setting)
        except Exception as error:
            what = str(error) if isinstance(error, RunError) else repr(error)
            part = Part(f"failed: {what}\n", [what])
        setting.say(f"--- {name}: {time.monotonic() - start:.0f} s, {len(part.failures)} failed")
        text = f"### {title}\n\n{part.text}".replace(f"{setting.folder}/", "")
        print(text, flush=True)
        texts.append(text)
        failures += [f"{name}: {failure}" for failure in part.failures]
    return "\n".join(texts), failures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return the exit status."""
    given = _parser().parse(argv)
    if given.stand_in is not None:
        os.environ["TENSOROPT_STAND_IN"] = str(given.stand_in.resolve())
    host = given.provider == "cpu" or given.stand_in is not None
    why = None if host else missing()
    if why is not None:
        print(f"gpu-check: skipped: {why}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        zoo = Zoo("tiny" if given.tiny else "full", Path(folder))
        held, gpus = facts(given.provider, given.stand_in is not None)
        setting = Setting(given.provider, host, gpus, zoo, given.ranks, _DEVICE, _say)
        facts_table = table(["", ""], list(held.items()))
        print(facts_table, flush=True)
        text, failures = check(setting, given.only)
    if given.write:
        write_section("gpu", f"{_HEAD}\n{facts_table}\n{text}")
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"gpu-check: {len(given.only)} parts, {len(failures)} failures")
    return 1 if failures else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown part '{unknown[0]}', expected some of {','.join(PARTS)}"
        )
    return names


def _ranks(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("--only", type=_names, default=list(PARTS), metavar="PART,...")
    parser.add_argument("--ranks", type=_ranks, default=[2, 4], metavar="N,...")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--provider", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--stand-in", type=Path, metavar="FOLDER")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
