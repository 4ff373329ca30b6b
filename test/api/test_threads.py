"""Calls from several threads: every public method, and the first load of the dialects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import decoder_plans
import pytest
import thread_calls

import tensoropt as to
import tensoropt.compiler.api.model as model_module
from tensoropt.compiler.cli.opt import main as plan_model
from tensoropt.compiler.sharding.rule.files import has_user_rule, load_rules
from tensoropt.runtime.support.files import file_mode

_FIRST = """
import faulthandler, sys, threading
faulthandler.enable()
import tensoropt as to
sys.setswitchinterval(1e-5)
start = threading.Barrier(4)
def plan():
    start.wait()
    to.load(sys.argv[1], dims={"batch": 8}).frontier(2, epsilon=0.05)
threads = [threading.Thread(target=plan) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("planned")
"""


def _ended_well(*arguments: str) -> str:
    root = Path(__file__).parent
    paths = os.pathsep.join([str(root), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def paths(
    mlp: Path, plan: to.Plan, model: to.Model, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The models and plans that the calls need."""
    folder = tmp_path_factory.mktemp("calls")
    step = model.frontier(2, epsilon=0.05, train=thread_calls.STEP)
    trains = step.leanest.compile(folder / "train")
    decoder = decoder_plans.small_decoder(folder, 64)
    text = decoder_plans.plan_of(decoder)
    searched = folder / "searched.mlir"
    flags = ["--dim", "batch=8", "--devices", "2", "--epsilon", "0.05", "--emit", "search"]
    assert plan_model([str(mlp), *flags, "-o", str(searched)]) == 0
    named = {"mlp": mlp, "plan": plan.folder, "train": trains.folder, "decoder": decoder}
    named |= {"text": text, "searched": searched}
    return {name: str(path) for name, path in named.items()}


def test_every_public_method_has_a_call(mlp: Path) -> None:
    class Named(thread_calls.World):
        def __init__(self) -> None:
            self.paths = dict.fromkeys(("mlp", "plan"), "")

        model = decoder = plan = place = property(lambda self: None)  # type: ignore[assignment]

    assert thread_calls.list_calls(Named()).keys() == thread_calls.public_names()


def test_threads_call_every_public_method(paths: dict[str, str], tmp_path: Path) -> None:
    script = str(Path(thread_calls.__file__))
    assert _ended_well(script, str(tmp_path), json.dumps(paths)).endswith("same\n")


def test_threads_read_and_prepare_a_model_once(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(name: str) -> None:
        own = getattr(model_module, name)

        def call(*given: object, **options: object) -> object:
            made.append(name)
            time.sleep(0.02)  # the other threads arrive meanwhile
            return own(*given, **options)

        monkeypatch.setattr(model_module, name, call)

    counted("loaded")
    counted("trained")
    model = to.load(mlp, dims={"batch": 8})
    with ThreadPoolExecutor(3) as threads:
        step = thread_calls.STEP.step()
        programs = {*threads.map(lambda _: model.program(step), range(3))}
    assert len(programs) == 1
    assert made == ["loaded", "loaded", "trained"]  # for inference, and for training


def test_a_umask_is_read_without_a_change() -> None:
    with ThreadPoolExecutor(4) as threads:
        modes = {*threads.map(lambda _: file_mode(), range(500))}
    mask = os.umask(0)
    os.umask(mask)
    assert modes == {0o666 & ~mask}


def test_rules_of_an_earlier_model_stay(mlp: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rule = 'op = "own.RowSum"\nmap = "(i, j) -> (i)"\nfactors = ["i", "j sum"]\n'
    rules.write_text(f"[[rule]]\n{rule}")
    to.load(mlp, dims={"batch": 8}, rules=rules)
    to.load(mlp, dims={"batch": 8})
    assert has_user_rule("own.RowSum")
    load_rules(None)
    assert not has_user_rule("own.RowSum")


def test_threads_load_the_first_models_at_once(mlp: Path) -> None:
    for _ in range(4):
        assert _ended_well("-c", _FIRST, str(mlp)) == "planned\n"
