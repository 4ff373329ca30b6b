"""How much of what a training step sends goes on while it computes, on links of a chosen speed.

    python bench/overlap.py                     five models that split the batch on 2 ranks
    python bench/overlap.py gpt2 --rounds 40
    python bench/overlap.py --share 0.5         links on which it sends half as long as it computes

In a copy of each plan every collective is started where it stands, and waited for where its result
is first read. Steps of both take turns on the same ranks, while the library lets each collective
take as long as on that link, asleep (``TENSOROPT_LINK_BYTES_PER_S``). *sent* is how long nodes of
the plan itself are held by collectives, and *computed* the rest. *hidden* is what the copy takes
less, over what it could take less at most: down to the larger of the two. Each is the fastest of
its turns, so that what else the machine does counts little; with other work on all cores nothing
can be told, as each of some forty collectives then waits for its turn on a core.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from gpu.ranks import on_ranks
from gpu.setting import table
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.lstm import Lstm
from graphs.residual import Residual
from graphs.vit import Vit
from onnx import helper
from sections import write_section
from train_plans import RECIPES, Plan, extremes, trained, write_plan

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest
from tensoropt.runtime.inspection.summary import collectives_of
from tensoropt.runtime.plan.plan import Plan as WrittenPlan
from tensoropt.runtime.support.collectives import DOMAIN, JOINED, PLAIN, STARTS, reads_later

if TYPE_CHECKING:
    from mpi4py import MPI

    from tensoropt.runtime.session.session import RankSession

__all__ = ["MODELS", "hidden_share", "measure", "step_times"]

MODELS: Mapping[str, Model] = {
    "cnn": Residual(batch=16),
    "gpt2": Gpt(
        layers=4, width=192, heads=4, vocabulary=512, sequence=64, batch=8, dtype="float32"
    ),
    "llama": Llama(
        layers=3,
        width=192,
        heads=8,
        groups=4,
        inner=512,
        vocabulary=512,
        sequence=64,
        batch=8,
        dtype="float32",
    ),
    "vit": Vit(batch=8, image=64, classes=64, layers=4, width=192, heads=4, patch=8),
    "lstm": Lstm(width=192, vocabulary=512, sequence=32, batch=16, rows_first=True),
}
_HEAD = ["model", "sent, ms", "computed, ms", "off, ms", "on, ms", "started", "hidden"]
_LATENCY_S = 20e-6
_WARM_UP = 2
_TEXT = """\
## Collectives beside operators

`python bench/overlap.py --write`: training steps that split the batch on {ranks} ranks of one
thread, on links on which a step sends {share:g} times as long as it computes by its prediction.
Collectives sleep as long as they would take there. *on* are the same steps with every collective
started where it stands and waited for where it is read; *hidden* is what they take less, over what
they could take less at most. The fastest of {rounds} turns each.

"""


def hidden_share(off_s: float, sent_s: float, on_s: float) -> float:
    """Return the share hidden of what could be: 1 where a step takes as long as its longer part."""
    return (off_s - on_s) / min(sent_s, off_s - sent_s)


def step_times(comm: MPI.Comm, plans: Mapping[str, str], rounds: int) -> dict[str, list[float]]:
    """Return, of the fastest step of each plan, its seconds and those in which nodes were held."""
    from tensoropt.runtime.ops import library

    steps = {way: _step(comm, WrittenPlan.read(path)) for way, path in plans.items()}
    found = {way: list[tuple[float, float]]() for way in steps}
    for _ in range(_WARM_UP + rounds):
        for way, sessions in steps.items():
            comm.Barrier()
            start, held = time.perf_counter(), library.collectives_s()
            for session in sessions:
                session.run()
            took = time.perf_counter() - start
            found[way].append((took, library.collectives_s() - held))
    return {way: list(min(times[_WARM_UP:])) for way, times in found.items()}


def _step(comm: MPI.Comm, plan: WrittenPlan) -> list[RankSession]:
    from tensoropt.runtime.profile.feeds import drawn_input
    from tensoropt.runtime.session.session import training_session

    graph = plan.graph(comm.rank)
    sessions = []
    for path in (graph, graph.with_name(f"rank{comm.rank}.update.onnx")):
        session = training_session(path, 1, transient_bytes=plan.transient_bytes)
        for number, (name, kind, shape) in enumerate(session.signature()):
            session.feed(name, drawn_input(name, kind, shape, number))
        sessions.append(session)
    return sessions


def measure(name: str, ranks: int, share: float, rounds: int, folder: Path) -> dict[str, Any]:
    """Return what `step_times` says of both plans of a model, and the number of starts in one."""
    path = MODELS[name].build(name).save(folder, seed=0)
    plan = _plan(name, path, ranks, folder)
    plans = {"off": plan, "on": _parted_plan(plan, ranks)}
    bytes_per_s = _speed(plan, ranks, share)
    link = {"TENSOROPT_LINK_LATENCY_S": _LATENCY_S, "TENSOROPT_LINK_BYTES_PER_S": bytes_per_s}
    os.environ.update({variable: str(value) for variable, value in link.items()})
    arguments = {"plans": {way: str(plan) for way, plan in plans.items()}, "rounds": rounds}
    times = on_ranks("overlap:step_times", ranks, 600.0, **arguments)
    sent = collectives_of(WrittenPlan.read(plans["on"]))
    return {**times, "started": sum(one.kind in STARTS for one in sent), "collectives": len(sent)}


def _plan(name: str, path: Path, ranks: int, folder: Path) -> Path:
    request = replace(extremes(ranks), search="data-parallel")
    result = driver.frontier(trained(path, RECIPES[name], "none"), request)
    plan = Plan("off", RECIPES[name], request, result, fastest(result.points))
    return write_plan(path, plan, folder)


def _speed(plan: Path, ranks: int, share: float) -> float:
    """Return the speed of a link on which a step sends ``share`` times as long as it computes."""
    written = WrittenPlan.read(plan)
    sent = sum(one.bytes or 0 for one in collectives_of(written))
    computed_s = written.document["predicted"]["compute_s"]
    return float(2 * (ranks - 1) / ranks * sent / (share * computed_s))


def _parted_plan(plan: Path, ranks: int) -> Path:
    """Copy a plan, with starts and waits in the place of collectives; return its directory."""
    copy = plan.with_name("on")
    shutil.copytree(plan, copy)
    for rank in range(ranks):
        path = copy / f"rank{rank}.onnx"
        model = onnx.load(path, load_external_data=False)
        nodes = list(_parted(model.graph.node))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, path)
    return copy


def _parted(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield starts for collectives, and their waits before the first reader, or at the end."""
    waits: dict[str, onnx.NodeProto] = {}
    for node in nodes:
        while wait := next((waits[name] for name in node.input if name in waits), None):
            yield wait
            waits = {name: other for name, other in waits.items() if other is not wait}
        if node.domain == DOMAIN and node.op_type in (*PLAIN, *JOINED):
            start, wait = _pair(node)
            waits |= dict.fromkeys(wait.output, wait)
            yield start
        else:
            yield node
    yield from {id(wait): wait for wait in waits.values()}.values()


def _pair(whole: onnx.NodeProto) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """Return the start and the wait that do what a collective does."""
    is_joined = whole.op_type in JOINED  # whose token comes first
    (token, *xs) = whole.input if is_joined else whole.input[::-1]
    (given, *zs) = whole.output if is_joined else whole.output[::-1]
    start = onnx.NodeProto()
    start.CopyFrom(whole)
    start.op_type, start.name = f"{whole.op_type}Start", f"{whole.name}Start"
    ys = [f"{whole.name}.handle", *(f"{z}.started" for z in zs)]
    del start.input[:], start.output[:]
    start.input.extend([token, *xs])
    start.output.extend([given, *ys])
    read = [*ys, *(xs if reads_later(start.op_type) else [])]
    named = {"name": f"{whole.name}Wait", "domain": DOMAIN}
    return start, helper.make_node(f"{whole.op_type}Wait", read, zs, **named)


def main() -> None:
    """Print a line per model."""
    given = _parser().parse_args()
    rows = []
    for name in given.models or MODELS:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            found = measure(name, given.ranks, given.share, given.rounds, Path(folder))
        (off_s, sent_s), (on_s, _) = found["off"], found["on"]
        times = [f"{1e3 * s:.1f}" for s in (sent_s, off_s - sent_s, off_s, on_s)]
        started = f"{found['started']} of {found['collectives']}"
        rows.append([name, *times, started, f"{hidden_share(off_s, sent_s, on_s):.0%}"])
        print(*rows[-1], sep="  ", flush=True)
    asked = {"ranks": given.ranks, "share": given.share, "rounds": given.rounds}
    text = _TEXT.format(**asked) + table(_HEAD, rows)
    print(text)
    if given.write:
        write_section("overlap", text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
