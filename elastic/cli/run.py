"""``tensoropt-job run``: run an elastic job under a coordinator, in the fore- or background."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.elastic.control import JobStatus
from tensoropt.elastic.jobs import JobFolder, check_name, job_folder
from tensoropt.runtime.cli.train import add_training_flags
from tensoropt.runtime.plan.dims import Sizes, parse_ranges
from tensoropt.runtime.support.command import INTERRUPTED
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.kinds import integer, number
from tensoropt.runtime.support.options import add_flags, options_in
from tensoropt.runtime.support.places import Input
from tensoropt.runtime.support.rank_options import RankOptions
from tensoropt.runtime.support.status_line import clear_line, show_line
from tensoropt.runtime.training.data.python import factory_in
from tensoropt.runtime.training.job import TrainJob

if TYPE_CHECKING:
    from tensoropt.elastic.coordinator.coordinator import Coordinator
    from tensoropt.elastic.coordinator.settings import JobSettings
    from tensoropt.elastic.engines.engine import Engine
    from tensoropt.runtime.family.family import Family, FamilyPlan

__all__ = ["add_run"]

_PATHS = ("log", "resume", "export", "model")
_LOOK_S = 0.1

_DESCRIPTION = """\
Train a family of plans (tensoropt-opt MODEL --train ... --objective profile -o FAMILY) until step
--steps, at first with --devices; `tensoropt-job scale` and `migrate` change that while it runs.
The same command again continues a job that was stopped or has failed; after the death of its
coordinator it finds the ranks, or the last state on disk.
Exit status: 0 at the end; 130 after Ctrl-C; 1 if the job failed."""


def add_run(commands: Any) -> None:
    """Add the command to the subparsers ``commands``."""
    parser = commands.add_parser(
        "run",
        help="run a job under a coordinator",
        description=_DESCRIPTION,
    )
    parser.set_defaults(work=_run)
    add = parser.add_argument
    add("family", type=Input(), metavar="FAMILY", help="folder of plans")
    add("--name", type=check_name, metavar="J", help="name of the job (default: FAMILY's name)")
    add("--devices", type=integer(1), required=True, metavar="N", help="initial number of devices")
    add("--plan", metavar="NAME", help="initial plan (default: the fastest for --devices)")
    add("--detach", action="store_true", help="run in the background; return when it trains")
    add("--format", choices=["text", "json"], default="text", help="default: text")
    add_flags(add, TrainJob, "seed")
    add = parser.add_argument_group("engine").add_argument
    add("--engine", choices=["local", "ray"], default="local",
        help="run ranks on this machine, or on its Ray cluster (local)")  # fmt: skip
    add("--ray-address", metavar="A", help="address of the cluster (auto: this machine's cluster)")
    add = parser.add_argument_group("crashes and stragglers").add_argument
    add("--snapshot-every", type=integer(0), default=50, metavar="K",
        help="copy the state in memory every K steps; 0: never (50)")  # fmt: skip
    add("--min-devices", type=integer(1), default=1, metavar="N",
        help="least number of devices after a crash (1)")  # fmt: skip
    add_flags(add, RankOptions, stall_s="restart ranks if no step ends within S seconds")
    add("--grace", type=number(0.0), default=60.0, metavar="S",
        help="how long ranks continue without a coordinator (60)")  # fmt: skip
    add("--replace-stragglers", action="store_true", help="migrate away from a slow rank")
    add = parser.add_argument_group("API").add_argument
    add("--host", default="127.0.0.1", metavar="H", help="address of the API (127.0.0.1)")
    add("--port", type=integer(0), default=0, metavar="P", help="its port (default: a free one)")
    add("--no-token", action="store_true", help="admit every client that can reach it")
    ranks = parser.add_argument_group("ranks").add_argument
    add_flags(ranks, TrainJob, "provider", "threads", "share_gpus", "cuda_graphs", "dims")
    add_training_flags(parser)


def _run(arguments: argparse.Namespace) -> int:
    from tensoropt.runtime.family.family import Family

    for name in ("data", "steps"):
        if not getattr(arguments, name):
            raise UserError(f"run: expected --{name} too")
    family = Family.read(arguments.family.resolve())
    settings = _settings(arguments, family)
    engine = _engine(arguments, family)
    _check(settings, family, engine, parse_ranges(arguments.dims))
    if arguments.detach:
        engine.close()
        return _run_detached(settings)
    return _run_here(arguments, settings, family, engine)


def _settings(arguments: argparse.Namespace, family: Family) -> JobSettings:
    from tensoropt.elastic.coordinator.settings import JobSettings

    name = arguments.name or check_name(family.folder.name)
    training = options_in(arguments, TrainJob)
    for field in ("data", "steps", "stall_s", "dims"):  # of the whole job, and of its plans
        del training[field]
    training |= {field: _absolute(training[field]) for field in _PATHS}
    if training["evaluate_data"] is not None:
        training["evaluate_data"] = _source(training["evaluate_data"])
    checkpoint = _absolute(arguments.checkpoint) or str(job_folder(name) / "checkpoints")
    if training["total_steps"] is None:
        training["total_steps"] = arguments.steps
    return JobSettings(
        name=name,
        family=str(family.folder),
        data=_source(arguments.data),
        steps=arguments.steps,
        devices=arguments.devices,
        plan=arguments.plan,
        min_devices=arguments.min_devices,
        snapshot_every=arguments.snapshot_every or None,
        stall_s=arguments.stall_s,
        grace_s=arguments.grace,
        replace_stragglers=arguments.replace_stragglers,
        training={**training, "checkpoint": checkpoint},
    )


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def _source(data: str) -> str:
    """Return ``--data`` with absolute paths, so that ranks in any folder find it."""
    named = factory_in(data)
    if named is None:
        return str(Path(data).resolve())
    module, factory = named
    return f"{Path(module).resolve()}:{factory}" if module.endswith(".py") else data


def _check(
    settings: JobSettings, family: Family, engine: Engine, dims: Mapping[str, Sizes]
) -> None:
    """Raise `UserError` for mistakes that can be found before the job is created.

    ``dims`` are sizes that the plans must have.
    """
    plan = family.for_devices(settings.devices)
    if settings.plan is not None:
        plan = family.plan(settings.plan)
        if plan.devices != settings.devices:
            raise UserError(
                f"--plan {plan.name}: expected one for {settings.devices} devices, "
                f"got: one for {plan.devices}"
            )
    _check_dims(dims, family)
    _check_data(settings, plan)
    count = len(engine.devices())
    if plan.devices > count:
        raise UserError(f"--devices {plan.devices}: expected at most {count}, the number available")


def _check_dims(dims: Mapping[str, Sizes], family: Family) -> None:
    from tensoropt.runtime.plan.plan import Plan

    for name in [plan.name for plan in family.plans] if dims else []:
        Plan.load_description(family.plan(name).path).settle(dims)


def _check_data(settings: JobSettings, plan: FamilyPlan) -> None:
    """Check data files before the job is created; code that generates data is run by the ranks."""
    from tensoropt.runtime.plan.plan import Plan
    from tensoropt.runtime.training.data.open import open_dataset
    from tensoropt.runtime.training.evaluation import check_evaluation
    from tensoropt.runtime.training.plan import TrainingPlan

    training = TrainingPlan.from_plan(Plan.read(str(plan.path)))
    own = ("evaluate_data", "evaluate_every")
    options = {name: settings.training[name] for name in own}
    check_evaluation(TrainJob(str(plan.path), **options), training)
    if factory_in(settings.data) is not None:
        return
    shuffle = settings.training["shuffle"]
    open_dataset(settings.data, training.plan.inputs, training.batch, shuffle)


def _engine(arguments: argparse.Namespace, family: Family) -> Engine:
    """Return the engine for the ranks. Raises `UserError`."""
    if arguments.engine == "ray":
        return _ray_engine(arguments)
    if arguments.ray_address is not None:
        raise UserError("--ray-address: expected --engine ray with it")
    from tensoropt.elastic.engines.local import LocalEngine

    if arguments.provider == "cuda" and not arguments.share_gpus:
        from tensoropt.runtime.device.cuda import cuda_facts

        return LocalEngine(len(cuda_facts()["gpus"]), "cuda")
    return LocalEngine(max(family.counts, default=1))


def _ray_engine(arguments: argparse.Namespace) -> Engine:
    from tensoropt.elastic.engines.on_ray.cluster import connect

    if arguments.share_gpus:
        raise UserError("--share-gpus: expected --engine local with it")
    connect(arguments.ray_address or "auto")
    from tensoropt.elastic.engines.on_ray.engine import RayEngine

    return RayEngine(arguments.provider, arguments.threads)


def _run_here(
    arguments: argparse.Namespace, settings: JobSettings, family: Family, engine: Engine
) -> int:
    from tensoropt.elastic.api.server import serve
    from tensoropt.elastic.coordinator.coordinator import Coordinator
    from tensoropt.elastic.coordinator.settings import extends

    with JobFolder.create(settings.name, settings.facts(), extends) as folder:
        before = folder.status()
        if before is not None and before.state == "ended" and before.step >= settings.steps:
            return _answer(arguments, before, [])
        coordinator = Coordinator(settings, family, engine, folder)
        token = "" if arguments.no_token else None
        with serve(coordinator, arguments.host, arguments.port, token) as serving:
            folder.write_api(serving.url, serving.token)
            if sys.stderr.isatty():
                print(f"job '{settings.name}': {serving.page}", file=sys.stderr, flush=True)
            try:
                with _stop_on_signals(coordinator) as asked:
                    status = coordinator.run(_show)
            finally:
                clear_line()
                folder.remove_api()
    return _answer(arguments, status, asked)


def _show(status: JobStatus) -> None:
    facts = [f"step {status.step} of {status.steps}"]
    if status.loss is not None:
        facts.append(f"loss {status.loss:.6g}")
    if status.samples_per_s is not None:
        facts.append(f"{status.samples_per_s:.4g} samples/s")
    facts.append(f"{status.devices} device{'s' if status.devices > 1 else ''}")
    show_line(f"{status.state}: {', '.join(facts)}")


@contextmanager
def _stop_on_signals(coordinator: Coordinator) -> Iterator[list[int]]:
    """Stop the job in order at the first signal; the list then contains its number."""
    asked: list[int] = []

    def stop(number: int, _: object) -> None:
        if asked:
            raise SystemExit(128 + number)
        asked.append(number)
        coordinator.stop()

    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in endings}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answer(arguments: argparse.Namespace, status: JobStatus, asked: list[int]) -> int:
    from tensoropt.elastic.records import facts_of

    if status.state == "failed":
        raise UserError(f"job '{status.name}': {status.error}")
    if arguments.format == "json":
        print(json.dumps(facts_of(status)))
    else:
        loss = "" if status.loss is None else f", loss {status.loss:.6g}"
        print(f"job '{status.name}': {status.state} after step {status.step}{loss}")
    if not asked:
        return 0
    return INTERRUPTED if asked[0] == signal.SIGINT else 128 + asked[0]


def _run_detached(settings: JobSettings) -> int:
    """Start the same command in the background; return when the job trains or has failed."""
    arguments = [text for text in sys.argv[1:] if text != "--detach"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tensoropt.elastic.cli.job", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        while process.poll() is None:
            time.sleep(_LOOK_S)
            if _is_training(settings.name, process.pid):
                print(
                    f"job '{settings.name}': runs as process {process.pid}; "
                    f"tensoropt-job page {settings.name} prints its page's address"
                )
                return 0
        said.seek(0)
        last = said.read().decode(errors="replace").strip().splitlines()[-1:]
    if process.returncode:
        text = last[0].removeprefix("error: ") if last else f"ended with {process.returncode}"
        raise UserError(text)
    print(f"job '{settings.name}': has ended already")
    return 0


def _is_training(name: str, pid: int) -> bool:
    try:
        with JobFolder.open(name) as folder:
            status = folder.status()
            is_served = folder.is_alive() and folder.address().pid == pid
    except (UserError, OSError):
        return False
    return (
        is_served and status is not None and status.state in ("training", "preparing", "switching")
    )
