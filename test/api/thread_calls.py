"""Calls of every public method from several threads, in a process of their own: they could end it.

Run as a script with a folder, and the paths of two models and of plans as JSON; it prints `same` if
all threads got the same results.
"""

from __future__ import annotations

import faulthandler
import inspect
import itertools
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as to

THREADS = 3
STEP = to.Training("mse:y,labels", optimizer="sgd", recompute="none")
LEVEL = to.ServiceLevel(rate=1.0, prompt=4, answer=4)
PROMPTS = [[1, 2, 3], [4, 5]]


class World:
    """The objects whose methods are called, made on first use, by any thread."""

    def __init__(self, folder: Path, paths: dict[str, str]) -> None:
        self.folder, self.paths = folder, paths
        self.model = to.load(paths["mlp"], dims={"batch": 8})
        self.decoder = to.load(paths["decoder"])
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._kept: dict[str, Any] = {}

    def place(self, suffix: str = "") -> Path:
        return self.folder / f"{next(self._numbers)}{suffix}"

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._kept:
                self._kept[name] = make()
            return self._kept[name]

    @property
    def frontier(self) -> to.Frontier:
        found: to.Frontier = self.kept("frontier", lambda: self.model.frontier(2, epsilon=0.05))
        return found

    @property
    def plan(self) -> to.Plan:
        return to.Plan(self.paths["plan"])

    @property
    def scaling(self) -> to.Scaling:
        found: to.Scaling = self.kept("scaling", lambda: self.model.profile(2, epsilon=0.05))
        return found

    @property
    def service(self) -> to.Service:
        found: to.Service = self.kept("service", lambda: self.decoder.service(LEVEL, 2, "v100"))
        return found

    @property
    def session(self) -> to.Session:
        found: to.Session = self.kept("session", lambda: self.plan.session(threads=1))
        return found

    @property
    def text(self) -> to.TextSession:
        make = lambda: to.TextSession(self.paths["text"], threads=1)  # noqa: E731
        found: to.TextSession = self.kept("text", make)
        return found

    @property
    def data(self) -> dict[str, Any]:
        drawn = np.random.default_rng(0).standard_normal((8, 128), dtype=np.float32)
        return {"x": drawn, "labels": drawn}

    @property
    def run(self) -> to.TrainingRun:
        found: to.TrainingRun = self.kept("run", self.train)
        return found

    def train(self) -> to.TrainingRun:
        return to.train(self.paths["train"], self.data, 1, threads=1, checkpoint=self.place())

    def close(self) -> None:
        for name in {"session", "text"} & self._kept.keys():
            self._kept[name].close()


def _searched(world: World, **options: Any) -> Any:
    from tensoropt.compiler.api.program import silent
    from tensoropt.compiler.api.request import make_request
    from tensoropt.compiler.support.options import Interface
    from tensoropt.passes.search_strategies import SearchReport

    request = make_request({"devices": 2, "epsilon": 0.05} | options, Interface.PYTHON)
    program, report = world.model.program(None, silent), SearchReport(shows_all=True)
    program.search(request, report)
    return program, request, report


def _again(world: World, name: str) -> object:
    from tensoropt.compiler.api.frontier import Frontier
    from tensoropt.passes.search_strategies import SearchReport

    program, request, report = _searched(world)
    if name == "search":
        return world.model.search(program, request, SearchReport(shows_all=True))
    if name == "from_report":
        return Frontier.from_report("m", program, report)
    return Frontier.from_points("m", program, report, report.result.points)


def _written(world: World, write: Callable[[Path], object], suffix: str) -> object:
    path = world.place(suffix)
    write(path)
    return path.stat().st_size


def _compiled(world: World, compile: Callable[[Path], object]) -> object:
    place = world.place()
    compile(place)
    return to.Plan(place).layouts


def _deployments(world: World) -> object:
    from tensoropt.compiler.api.program import silent
    from tensoropt.compiler.api.request import make_request
    from tensoropt.compiler.support.options import Interface

    request = make_request({"devices": 2, "device": "v100"}, Interface.PYTHON)
    return world.decoder.deployments(LEVEL, request, silent)


def _compiled_text(world: World) -> object:
    from tensoropt.compiler.api.program import silent

    model = to.load(world.paths["searched"], weights=world.paths["mlp"])
    return _compiled(world, lambda place: model.compile(place, silent))


def _submitted(world: World) -> object:
    pieces: list[Any] = []
    is_done = threading.Event()

    def deliver(piece: Any) -> None:
        pieces.append(piece)
        if piece is None or isinstance(piece, BaseException) or getattr(piece, "finish", None):
            is_done.set()

    world.text.submit([PROMPTS[0]], deliver, max_tokens=2, temperature=0)
    return is_done.wait(60)


def _cancelled(world: World) -> None:
    request = world.text.submit([PROMPTS[0]], lambda piece: None, max_tokens=20)
    world.text.cancel(request)


def _refused(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except to.UserError as error:
        return str(error)


def _restarted(make: Callable[[], Any]) -> bool:
    with make() as session:
        session.restart()
        return bool(session.is_alive)


def _closed(make: Callable[[], Any]) -> bool:
    session = make()
    session.close()
    session.close(0.1)
    return bool(session.is_alive)


def _list_text(world: World) -> dict[str, Callable[[], object]]:
    """Return the calls of a text session."""

    def text(name: str) -> object:
        return type(getattr(world.text, name))

    attributes = ("running", "waiting", "copied", "proposed", "accepted", "cache_use", "silent_s")
    shown = {f"TextSession.{name}": (lambda name=name: text(name)) for name in attributes}
    greedy = {"max_tokens": 4, "temperature": 0}
    return shown | {
        "TextSession.context": lambda: world.text.context,
        "TextSession.is_alive": lambda: world.text.is_alive,
        "TextSession.check_open": lambda: world.text.check_open(),
        "TextSession.generate": lambda: world.text.generate(PROMPTS, **greedy),
        "TextSession.stream": lambda: sorted(
            (piece.number, piece.token) for piece in world.text.stream(PROMPTS, **greedy)
        ),
        "TextSession.submit": lambda: _submitted(world),
        "TextSession.cancel": lambda: _cancelled(world),
        "TextSession.chat": lambda: _refused(
            lambda: world.text.chat([{"role": "user", "content": "t1"}], **greedy)
        ),
        "TextSession.chat_template": lambda: world.text.chat_template,
        "TextSession.tokens_of_chat": lambda: _refused(
            lambda: world.text.tokens_of_chat([{"role": "user", "content": "t1"}])
        ),
        "TextSession.tokens_of": lambda: world.text.tokens_of([1, 2]),
        "TextSession.bytes_of": lambda: world.text.bytes_of(1),
        "TextSession.has_template_variable": lambda: _refused(
            lambda: world.text.has_template_variable("tools")
        ),
        "TextSession.text_of": lambda: world.text.text_of([1, 2]),
        "TextSession.split": lambda: world.text.split([1, 2]),
        "TextSession.room": lambda: world.text.room([1, 2]),
        "TextSession.check_grammar": lambda: _refused(
            lambda: world.text.check_grammar('start: "t1"')
        ),
        "TextSession.restart": lambda: _restarted(
            lambda: to.TextSession(world.paths["text"], threads=1)
        ),
        "TextSession.close": lambda: _closed(
            lambda: to.TextSession(world.paths["text"], threads=1)
        ),
    }


def _list_session(world: World) -> dict[str, Callable[[], object]]:
    """Return the calls of a session."""
    rows = {"x": np.ones((8, 128), np.float32)}
    return {
        "Session.inputs": lambda: world.session.inputs,
        "Session.outputs": lambda: world.session.outputs,
        "Session.is_alive": lambda: world.session.is_alive,
        "Session.silent_s": lambda: type(world.session.silent_s),
        "Session.cuda_graphs": lambda: world.session.cuda_graphs,
        "Session.pids": lambda: len(world.session.pids),
        "Session.check_open": lambda: world.session.check_open(),
        "Session.run": lambda: float(world.session.run(rows)["y"].sum()),
        "Session.run_many": lambda: [
            float(found["y"].sum()) for found in world.session.run_many([rows] * 3)
        ],
        "Session.step_times_s": lambda: _steps(world, rows),
        "Session.empty": lambda: world.session.empty({"x": (8, 128)})["x"].shape,
        "Session.restart": lambda: _restarted(lambda: world.plan.session(threads=1)),
        "Session.close": lambda: _closed(lambda: world.plan.session(threads=1)),
    }


def _steps(world: World, rows: dict[str, Any]) -> int:
    world.session.run(rows)
    return len(world.session.step_times_s(2))


def _list_model(world: World) -> dict[str, Callable[[], object]]:
    """Return the calls of a model."""
    from tensoropt.compiler.api.program import silent

    model, place = world.model, world.place
    return {
        "Model.name": lambda: model.name,
        "Model.inputs": lambda: model.inputs,
        "Model.outputs": lambda: model.outputs,
        "Model.frontier": lambda: [
            model.frontier(2, epsilon=0.05),
            model.frontier(2, epsilon=0.05, train=STEP),
        ],
        "Model.fewest_devices": lambda: model.fewest_devices("1GiB", epsilon=0.05),
        "Model.profile": lambda: model.profile(2, epsilon=0.05),
        "Model.family": lambda: model.family(place(), STEP, 2),
        "Model.search": lambda: _again(world, "search"),
        "Model.service": lambda: world.decoder.service(LEVEL, 2, "v100"),
        "Model.deployments": lambda: _deployments(world),
        "Model.forms": lambda: len(model.forms([world.decoder])),
        "Model.with_sizes": lambda: model.with_sizes({"batch": 16}).frontier(2, epsilon=0.05),
        "Model.read": lambda: str(model.read(trains=True).operation.name),
        "Model.program": lambda: model.program(None, silent).notes,
        "Model.is_searched": lambda: model.is_searched(),
        "Model.check_searchable": lambda: model.check_searchable(),
        "Model.check_weights": lambda: model.check_weights(place()),
        "Model.builds_steps": lambda: model.builds_steps(trains=False),
        "Model.compile": lambda: _compiled_text(world),
    }


def _list_frontier(world: World) -> dict[str, Callable[[], object]]:
    """Return the calls of a frontier and of its points."""

    def of(name: str) -> object:
        value = getattr(world.frontier, name)
        return len(value.points) if name == "facts" else value

    attributes = "fastest leanest knee request model devices device epsilon is_interrupted"
    shown = {
        f"Frontier.{name}": (lambda name=name: repr(of(name)))
        for name in (*attributes.split(), "whole", "search_notes", "lacking", "notes", "added")
    }
    points = {
        f"Point.{name}": (lambda name=name: getattr(world.frontier.knee, name))
        for name in ("model", "marks", "notes")
    }

    def written(write: str, suffix: str) -> object:
        own = world.frontier if hasattr(to.Frontier, write) else world.frontier.knee
        return _written(world, getattr(own, write), suffix)

    def leanest(method: str) -> Callable[[Path], object]:
        from tensoropt.compiler.api.program import silent

        point = world.frontier.leanest
        return point.compile if method == "compile" else lambda at: point.write(at, silent)

    return (
        shown
        | points
        | {
            "Frontier.from_report": lambda: _again(world, "from_report"),
            "Frontier.from_points": lambda: _again(world, "from_points"),
            "Frontier.of_forms": lambda: to.Frontier.of_forms({"m": lambda: world.frontier}),
            "Frontier.pick": lambda: repr(world.frontier.pick(0)),
            "Frontier.fits": lambda: repr(world.frontier.fits("1TiB")),
            "Frontier.limit": lambda: repr(world.frontier.limit(None)),
            "Frontier.program_notes": lambda: world.frontier.program_notes,
            "Frontier.note_further": lambda: world.frontier.note_further({}),
            "Frontier.facts": lambda: len(world.frontier.facts().points),
            "Frontier.to_pandas": lambda: str(world.frontier.to_pandas()),
            "Frontier.plot": lambda: written("plot", ".svg"),
            "Frontier.report": lambda: written("report", ".html"),
            "Point.explain": lambda: world.frontier.knee.explain(),
            "Point.netron": lambda: written("netron", ".onnx"),
            "Point.annotate": lambda: written("annotate", ".onnx"),
            "Point.dtensor": lambda: json.dumps(world.frontier.knee.dtensor()),
            "Point.compile": lambda: _compiled(world, leanest("compile")),
            "Point.write": lambda: _compiled(world, leanest("write")),
            "Scaling.why_not": lambda: world.scaling.why_not,
            "Scaling.plot": lambda: _written(world, world.scaling.plot, ".svg"),
            "Service.best": lambda: world.service.best,
            "Service.compile": lambda: _compiled(world, world.service.compile),
            "Deployment.devices": lambda: world.service[0].devices,
            "Deployment.meets": lambda: world.service[0].meets(LEVEL),
            "ServiceLevel.parse": lambda: to.ServiceLevel.parse("rate=1,prompt=4,answer=4"),
            "ServiceLevel.context": lambda: LEVEL.context,
            "ServiceLevel.parts": lambda: LEVEL.parts,
            "Training.step": lambda: STEP.step().optimizer,
        }
    )


def _list_plan(world: World) -> dict[str, Callable[[], object]]:
    """Return the calls of a plan, and the functions."""
    inputs = {"x": np.ones((8, 128), np.float32)}
    plan, model = world.plan, world.paths["mlp"]
    return {
        "Plan.open_written": lambda: to.Plan.open_written(plan.folder, plan.explain).ranks,
        "Plan.trains": lambda: plan.trains,
        "Plan.predicted": lambda: plan.predicted,
        "Plan.layouts": lambda: plan.layouts,
        "Plan.session": lambda: _closed(lambda: plan.session(threads=1)),
        "Plan.explain": lambda: plan.explain(),
        "Plan.diff": lambda: plan.diff(plan),
        "Plan.check": lambda: plan.check(model, inputs=inputs, threads=1).passed,
        "TrainingRun.step": lambda: world.run.step,
        "TrainingRun.checkpoint": lambda: world.run.checkpoint is not None,
        "check": lambda: to.check(plan, model, inputs=inputs, threads=1).passed,
        "diff": lambda: to.diff(plan, plan),
        "load": lambda: to.load(model, dims={"batch": 8}).frontier(2, epsilon=0.05),
        "train": lambda: world.train().losses,
        "state_dict": lambda: _state(world),
    }


def _state(world: World) -> object:
    import torch

    module = torch.nn.Module()
    for name in ("w1", "w2"):
        module.register_parameter(name, torch.nn.Parameter(torch.zeros(128, 128)))
    state = to.state_dict(world.run.checkpoint or "", world.paths["mlp"], module)
    return {name: float(own.sum()) for name, own in state.items()}


def list_calls(world: World) -> dict[str, Callable[[], object]]:
    """Return a call of each public function and method, by name."""
    lists = (_list_model, _list_frontier, _list_plan, _list_session, _list_text)
    return {name: call for own in lists for name, call in own(world).items()}


def public_names() -> set[str]:
    """Return the names of all public functions, and of methods and properties of classes."""
    return {name for own in to.__all__ for name in _names(own, getattr(to, own))}


def _names(name: str, value: object) -> Iterator[str]:
    if inspect.isfunction(value):
        yield name
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    for base in value.__mro__:
        if base.__module__.startswith("tensoropt."):
            for each, member in vars(base).items():
                is_own = isinstance(member, property | cached_property | classmethod)
                if not each.startswith("_") and (is_own or inspect.isroutine(member)):
                    yield f"{name}.{each}"


def main() -> None:
    """Call everything from several threads in orders of their own, and compare the results."""
    folder, paths = Path(sys.argv[1]), json.loads(sys.argv[2])
    faulthandler.enable()
    faulthandler.dump_traceback_later(900, exit=True)
    sys.setswitchinterval(1e-5)
    world = World(folder, paths)
    calls = list_calls(world)
    barrier = threading.Barrier(THREADS)

    def call_all(thread: int) -> dict[str, str]:
        names = sorted(calls)
        random.Random(thread).shuffle(names)
        barrier.wait()
        return {name: repr(calls[name]()) for name in names}

    with ThreadPoolExecutor(THREADS) as threads:
        found = [*threads.map(call_all, range(THREADS))]
    world.close()
    for name in sorted(calls):
        results = {own[name] for own in found}
        assert len(results) == 1, f"{name}: {results}"
    print("same")


if __name__ == "__main__":
    main()
