"""One rank of `conformance.py`: ``mpiexec -n N python conformance_rank.py FOLDER``.

The ranks share the tests among them to compile, then run all of them together. FOLDER holds the
pickled ``tests``; rank 0 writes a line of JSON per test to ``results`` and, to ``now``, the plan
that is running: that is what failed if the ranks never come back from it.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from node_tests import NodeTest, run, same, session_of
from node_variants import variants
from split_model import Model, Plan, part_of

from tensoropt.runtime.inference.work import wait_idle
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.ops import library_path

__all__ = ["Job", "Verdict", "main"]

_CHUNK = 32  # tests that are compiled before they are run


@dataclass(frozen=True)
class Job:
    """Tests to run on some meshes of one size; ``skipped`` are (test, plan) known to hang."""

    tests: list[NodeTest]
    meshes: tuple[tuple[int, ...], ...]
    skipped: frozenset[tuple[str, str]] = frozenset()
    round_trip: bool = False


@dataclass
class Verdict:
    """What happened to one test: how many checks passed, and why others did not, by plan.

    ``proven`` holds the keys of the strategies in plans that passed, ``doubted`` those in others.
    """

    test: str
    passed: int = 0
    proven: list[str] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


_TRIED: set[str] = set()  # keys of strategies, by all ranks up to the last chunk

Compiled = tuple[str, NodeTest, Plan, Path]
"""The key of a plan within its test, the test as it was cut, the plan, and its folder."""


def main(folder: Path) -> None:
    """Run the job in ``folder`` on the ranks that this process is one of."""
    from tensoropt.runtime.launch.world import world

    comm = world()
    job: Job = pickle.loads((folder / "tests").read_bytes())
    with (folder / "results").open("a") as results:
        for start in range(0, len(job.tests), _CHUNK):
            verdicts = _chunk(job, job.tests[start : start + _CHUNK], comm, folder)
            if comm.rank == 0:
                results.writelines(json.dumps(asdict(v)) + "\n" for v in verdicts)
                results.flush()


def _chunk(job: Job, tests: Sequence[NodeTest], comm: Any, folder: Path) -> list[Verdict]:
    """Compile and run some tests; return their verdicts."""
    scratch = folder / f"chunk{comm.rank}"
    scratch.mkdir()
    mine, compiled = list[Verdict](), list[Compiled]()
    for test in tests[comm.rank :: comm.size]:
        mine.append(Verdict(test.name))
        compiled += _compile(job, test, scratch, mine[-1])
    wait_idle(comm)
    verdicts = {v.test: v for share in comm.allgather(mine) for v in share}
    for key, test, plan, graphs in (one for share in comm.allgather(compiled) for one in share):
        (folder / f"now{comm.rank}").write_text(f"{test.name}\t{key}")
        error = _execute(test, plan, graphs, comm.rank)
        if error is not None:  # the others may wait for this rank in a collective
            (folder / f"error{comm.rank}").write_text(f"rank {comm.rank}: {error}")
        errors = comm.allgather(error)
        _judge(verdicts[test.name], key, plan, errors)
    for verdict in verdicts.values():
        _TRIED.update(verdict.proven, verdict.doubted)
    shutil.rmtree(scratch)
    return list(verdicts.values())


def _compile(job: Job, test: NodeTest, scratch: Path, verdict: Verdict) -> list[Compiled]:
    """Cut a test, as it is and with its small operands as constants, in every way."""
    found = list[Compiled]()
    try:
        for variant, own, model in variants(test, scratch / test.name):
            if job.round_trip:
                _keep(verdict, f"{variant}import and export", _round_trip(own, model))
            for mesh in map(Mesh, job.meshes):
                found += _cut(job, own, model, mesh, variant, verdict)
    except Exception as error:
        verdict.failures["import"] = _line(error)
    return found


def _keep(verdict: Verdict, key: str, error: str | None) -> None:
    if error is None:
        verdict.passed += 1
    else:
        verdict.failures[key] = error


def _round_trip(test: NodeTest, model: Model) -> str | None:
    """Return what is wrong with the model after import and export on one device."""
    target = model.path.with_suffix(".out.onnx")
    model.export(target)
    whole, again = (
        run(session_of(graph, optimised=False, library=str(library_path())), test.inputs)
        for graph in (test.model, str(target))
    )
    return same(replace(test, rtol=_rounding(whole), atol=0.0), again, whole)


def _rounding(values: Sequence[Any]) -> float:
    """Return the tolerance of a fold: none, but for halves, which ONNX Runtime computes wider."""
    halves = [v for v in values if isinstance(v, np.ndarray) and v.dtype.itemsize <= 2]
    return 1e-2 if any(v.dtype.kind in "fV" for v in halves) else 0.0


def _cut(
    job: Job, test: NodeTest, model: Model, mesh: Mesh, variant: str, verdict: Verdict
) -> Iterator[Compiled]:
    """Yield the plans of a test on one mesh that can be compiled."""
    for number, plan in enumerate(model.plans(mesh, _TRIED if len(model.ops) > 1 else set())):
        key, folder = f"{variant}{plan}", model.path.with_suffix(f".{mesh}.{number}")
        if (test.name, key) in job.skipped:
            verdict.failures[key] = "the ranks did not come back"
            verdict.doubted += plan.keys
            continue
        try:
            model.compile(plan, folder)
        except Exception as error:
            verdict.failures[key] = f"compile: {_line(error)}"
            verdict.doubted += plan.keys
            continue
        yield key, test, plan, folder


def _execute(test: NodeTest, plan: Plan, graphs: Path, rank: int) -> str | None:
    """Run what this rank runs; return what is wrong with what it gives."""
    try:
        session = session_of(str(graphs / f"rank{rank}.onnx"), library=str(library_path()))
        layouts = plan.inputs.items()
        feeds = {name: part_of(test.inputs[name], x, plan.mesh, rank) for name, x in layouts}
        pairs = zip(test.wanted, plan.outputs, strict=True)
        wanted = [part_of(value, layout, plan.mesh, rank) for value, layout in pairs]
        return same(test, run(session, feeds), wanted)
    except Exception as error:
        return _line(error)


def _judge(verdict: Verdict, key: str, plan: Plan, errors: Sequence[str | None]) -> None:
    wrong = [f"rank {rank}: {error}" for rank, error in enumerate(errors) if error is not None]
    _keep(verdict, key, wrong[0] if wrong else None)
    (verdict.doubted if wrong else verdict.proven).extend(plan.keys)


def _line(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__} in {where.name}: {text}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
