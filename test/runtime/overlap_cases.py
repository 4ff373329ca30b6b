"""Run on every rank under mpiexec: collectives that are started, and waited for later.

With stand-ins for CUDA they run over NCCL; over MPI each takes the latency that is given. Rank 0
prints a JSON object: what each case found wrong, what wrong graphs say, how runs end that fail with
a transfer under way, and what is told of one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from collective_oracle import data, oracle
from handmade import DOMAIN, collective, model_of, value_info
from mpi4py import MPI
from onnx import helper

from tensoropt.runtime.device.cuda import open_cuda, stand_in
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.ops import library
from tensoropt.runtime.session.session import RankSession, training_session
from tensoropt.runtime.support.collectives import reads_later
from tensoropt.runtime.support.errors import UserError

COMM = MPI.COMM_WORLD
RANK, ALL = COMM.rank, list(range(COMM.size))
PROVIDER = open_cuda(COMM, share_gpus=False) if stand_in() else CPU
SUM = {"group": ALL, "reduction": "sum"}
X = np.full(6, RANK + 1, np.float32)
FOLDED = X + sum(ALL) + len(ALL)
LATE_S = 0.4
LARGE = (600_000,)  # more than MPI reduces at a time
KINDS = [
    ("AllReduce", SUM),
    ("AllReduce", {"group": ALL, "reduction": "max"}),
    *(("AllGather", {"group": ALL, "dim": dim}) for dim in range(3)),
    *(("ReduceScatter", {**SUM, "dim": dim}) for dim in range(3)),
    ("AllToAll", {"group": ALL, "split_dim": 2, "concat_dim": 0}),
    ("AllReduce", {"group": [RANK], "reduction": "sum"}),
    ("AllGather", {"group": ALL[::-1], "dim": 1}),
]


class Chain:
    """Nodes in one chain of tokens, and what waits for them."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._token = 0

    def node(self, op: str, inputs: Sequence[str], output: str) -> None:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"{op}.{output}"))

    def plain(self, op: str, x: str, y: str, **attributes) -> None:
        self.nodes.append(collective(op, x, y, self._token, **attributes))
        self._token += 1

    def start(self, op: str, xs: Sequence[str], name: str, **attributes) -> onnx.NodeProto:
        """Start, and return the node that waits, which gives ``{name}.0``, ``{name}.1``..."""
        given = [f"{name}.handle", *(f"{name}.y{i}" for i in range(len(xs)))]
        started = helper.make_node(
            f"{op}Start",
            [f"t{self._token}", *xs],
            [f"t{self._token + 1}", *given],
            name=f"{name}.{op}Start",
            domain=DOMAIN,
            **attributes,
        )
        self._token += 1
        self.nodes.append(started)
        kept = xs if reads_later(started.op_type) else []
        made = [f"{name}.{i}" for i in range(len(xs))]
        named = {"name": f"{name}.{op}Wait", "domain": DOMAIN}
        return helper.make_node(f"{op}Wait", [*given, *kept], made, **named)

    def session(self, xs: dict[str, np.ndarray], outputs: Sequence[str]) -> RankSession:
        dtype = next(iter(xs.values())).dtype.name
        inputs = [value_info(name, dtype, x.shape) for name, x in xs.items()]
        made = [value_info(name, dtype, None) for name in outputs]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "g.onnx"
            onnx.save(model_of(self.nodes, inputs, made), path)
            session = training_session(path, 1, provider=PROVIDER)  # in the order of nodes
        for name, x in xs.items():
            session.feed(name, x)
        return session


def run_twice(session: RankSession) -> dict[str, np.ndarray]:
    session.run()
    session.run()
    return session.fetch()


def differs(what: str, got: np.ndarray, expected: np.ndarray) -> list[str]:
    same = got.shape == expected.shape and got.dtype == expected.dtype and (got == expected).all()
    return [] if same else [f"rank {RANK}: {what}"]


def every_kind(dtype: str) -> list[str]:
    """All under way at once, waited for in another order; results are read on, or go out."""
    chain, waits, wrong = Chain(), list[onnx.NodeProto](), list[str]()
    for number, (op, attributes) in enumerate(KINDS):
        waits.append(chain.start(op, ["x"], f"c{number}", **attributes))
    chain.nodes += waits[::-1]
    for number in range(0, len(KINDS), 2):
        chain.node("Abs", [f"c{number}.0"], f"a{number}")
    names = [f"{'c' if n % 2 else 'a'}{n}{'.0' if n % 2 else ''}" for n in range(len(KINDS))]
    got = run_twice(chain.session({"x": data(dtype, RANK)}, names))
    for (op, attributes), name in zip(KINDS, names, strict=True):
        parts = [data(dtype, rank) for rank in attributes["group"]]
        expected = oracle(op, attributes, parts, attributes["group"].index(RANK))
        expected = np.abs(expected) if name.startswith("a") else expected
        wrong += differs(f"{op} {dtype} {attributes}", got[name], expected)
    return wrong


def combined() -> list[str]:
    """Small and large tensors as one, with another transfer under way, and a plain one behind."""
    wrong = []
    shapes = [(4, 8), (8, 4, 4), (2 * COMM.size, 70_000), (12,)]
    for op in ("AllReduce", "AllGather", "ReduceScatter"):
        parts = [[np.resize(data("int64", r), s) + r for r in ALL] for s in shapes]
        attributes = {"group": ALL} if op == "AllGather" else dict(SUM)
        if op != "AllReduce":
            attributes["dims"] = [0] * len(shapes)
        xs = {f"x{i}": part[RANK] for i, part in enumerate(parts)}
        chain = Chain()
        wait = chain.start(f"Combined{op}", list(xs), "c", **attributes)
        other = chain.start("AllReduce", ["x0"], "d", **SUM)
        chain.plain("AllReduce", "x3", "plain", **SUM)
        chain.nodes += [other, wait]
        names = [*(f"c.{i}" for i in range(len(xs))), "d.0", "plain"]
        got = run_twice(chain.session(xs, names))
        for i, part in enumerate(parts):
            expected = oracle(op, {"reduction": "sum", "dim": 0}, part, RANK)
            wrong += differs(f"{i} of combined {op}", got[f"c.{i}"], expected)
        wrong += differs(f"beside {op}", got["d.0"], sum(parts[0]))
        wrong += differs(f"behind {op}", got["plain"], sum(parts[3]))
    return wrong


def in_place() -> list[str]:
    """What nobody else reads may be reduced where it lies, what somebody reads may not."""
    xs = {"x": np.resize(data("float32", RANK), LARGE)}
    chain = Chain()
    chain.node("Neg", ["x"], "alone")
    chain.node("Neg", ["x"], "read")
    waits = [chain.start("AllReduce", [name], name, **SUM) for name in ("alone", "read")]
    chain.node("Abs", ["read"], "between")
    chain.nodes += waits
    for name in ("alone", "read"):
        chain.node("Abs", [f"{name}.0"], f"{name}.abs")
    got = run_twice(chain.session(xs, ["alone.abs", "read.abs", "between"]))
    total = sum(np.resize(data("float32", rank), LARGE) for rank in ALL)
    wrong = differs("reader between", got["between"], np.abs(xs["x"]))
    for name in ("alone.abs", "read.abs"):
        wrong += differs(name, got[name], np.abs(total))
    return wrong


def error_of(session: RankSession) -> str:
    try:
        session.run()
    except UserError as error:
        return str(error)
    return "no error"


def wrong_graphs() -> dict[str, str]:
    x = {"x": np.ones(4 * COMM.size, np.float32)}
    found = {}
    for name in ("kind", "handle", "without x", "other x", "several", "disagree"):
        chain = Chain()
        op = "AllGather" if name in ("without x", "other x") else "AllReduce"
        attributes = {"group": ALL, "dim": 0} if op == "AllGather" else dict(SUM)
        if name == "disagree" and RANK:
            attributes["reduction"] = "max"
        chain.node("Neg", ["x"], "n")
        wait = chain.start(op, ["x", "n"] if name == "several" else ["x"], "c", **attributes)
        if name == "kind":
            wait.op_type = "CombinedAllReduceWait"
        if name == "handle":
            wait.input[0] = "t0"
        if name == "without x":
            del wait.input[2]
        if name == "other x":
            wait.input[2] = "n"
        chain.nodes.append(wait)
        found[name] = error_of(chain.session(x, ["c.0"]))
    return found


def folding() -> RankSession:
    """Return a session in which a node fails beside a transfer, unless it is given 6 as a shape."""
    chain = Chain()
    wait = chain.start("AllReduce", ["x"], "c", **SUM)
    chain.node("Reshape", ["x", "shape"], "folded")
    chain.nodes.append(wait)
    chain.node("Add", ["folded", "c.0"], "y")
    inputs = [value_info("x", "float32", [6]), value_info("shape", "int64", [1])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.onnx"
        onnx.save(model_of(chain.nodes, inputs, [value_info("y", "float32", None)]), path)
        session = training_session(path, 1, provider=PROVIDER)
    session.feed("x", X)
    return session


def failing_between() -> dict[str, object]:
    """A node that fails while a transfer is under way: the run ends behind it, and can be again."""
    session, found = folding(), dict[str, object]()
    for name, size in (("right", 6), ("wrong", 5), ("again", 6)):
        session.feed("shape", np.array([size]))
        begin = time.monotonic()
        found[name] = error_of(session)
        found[f"{name} s"] = time.monotonic() - begin
    return found | {"wrong values": differs("again", session.fetch()["y"], FOLDED)}


def left_behind() -> dict[str, object]:
    """What a program leaves under way that does not settle: it is ended by the next run, an error,
    or with the session."""
    session = folding()
    fail_unsettled(session)
    session.feed("shape", np.array([6]))
    found: dict[str, object] = {"next": error_of(session), "one more": error_of(session)}
    fail_unsettled(session)
    del session
    session = folding()
    session.feed("shape", np.array([6]))
    found["new session"] = error_of(session)
    return found | {"wrong values": differs("new session", session.fetch()["y"], FOLDED)}


def fail_unsettled(session: RankSession) -> None:
    session.feed("shape", np.array([5]))
    with suppress(Exception):  # ONNX Runtime's exceptions share no base class
        session._session.run_with_iobinding(session._binding)


def told() -> dict[str, object]:
    """What is told of a transfer behind which long products hide: where a rank is, and times."""
    chain = Chain()
    wait = chain.start("AllReduce", ["x"], "c", **SUM)
    for number in range(4):
        chain.node("MatMul", ["x", f"p{number}" if number else "x"], f"p{number + 1}")
    chain.node("Identity", ["p4"], "y")
    chain.nodes.append(wait)
    session = chain.session({"x": np.zeros((900, 900), np.float32)}, ["y", "c.0"])
    session.run()
    library.record(True)
    before = library.collectives_s()
    session.run()
    held = library.collectives_s() - before
    recorded = library.recorded_times()
    library.record(False)
    return {"where": library.where(), "held_s": held, "recorded": recorded}


def waiting() -> float:
    """Return the processor time of a rank whose transfer waits for another rank."""
    chain = Chain()
    chain.nodes.append(chain.start("AllReduce", ["x"], "c", **SUM))
    session = chain.session({"x": np.ones(4, np.float32)}, ["c.0"])
    session.run()
    COMM.Barrier()
    if RANK:
        time.sleep(LATE_S)
    before = time.process_time()
    session.run()
    return time.process_time() - before


def main() -> None:
    if len(sys.argv) > 1:
        os.environ["TENSOROPT_LINK_LATENCY_S"] = sys.argv[1]
    wrong = [*every_kind("float32"), *every_kind("int8"), *combined(), *in_place()]
    errors = wrong_graphs()
    failing = failing_between()
    # Late transfers of a run that does not settle write where its memory was.
    left = {} if os.environ.get("TENSOROPT_STAND_IN_LATE") == "1" else left_behind()
    facts = {"errors": errors, "failing": failing, "left": left, "told": told()}
    facts["waiting_s"] = waiting()
    wrongs = COMM.gather(wrong)
    if RANK == 0:
        json.dump({"wrong": [one for own in wrongs for one in own], **facts}, sys.stdout)


main()
