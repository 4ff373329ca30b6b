"""Damage the standard's node tests, and compile them: a plan or one line of error, nothing else.

Each case is a node test with one to three things changed: an attribute, a literal operand, the type
of an input, an operand too many or too few. A case that raises, that ends the process or that takes
longer than its time is a failure. Ends in ``N cases, M failed``; exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

import numpy as np
import onnx
from node_tests import NodeTest, collect
from onnx import numpy_helper

__all__ = ["Case", "Failure", "compile_all", "damaged", "main"]

_SECONDS = 20  # for one case
_MEMORY = 6 << 30  # bytes of address space more than at the start
_LITERAL = 64  # elements of an operand that is written into the model
_BIG, _SMALL = 2**63 - 1, -(2**63)
_INTS = (0, -1, 1, 2, -2, 3, 7, 2**31 - 1, 2**31, 2**40, 2**62, _BIG, _SMALL, _SMALL + 1)
_FLOATS = (0.0, -1.0, 0.5, 1e30, -1e30, 1e-30, float("nan"), float("inf"), float("-inf"))
_TEXTS = (
    "",
    "x",
    ".",
    "....",
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "linear",
    "é",
    "a" * 999,
)

Attribute = onnx.AttributeProto


@dataclass(frozen=True)
class Case:
    """A damaged model and what was done to it."""

    name: str
    model: bytes


@dataclass(frozen=True)
class Failure:
    """A case that neither compiled nor was refused in one line."""

    case: Case
    what: str


def damaged(count: int, seed: int) -> Iterator[Case]:
    """Yield ``count`` cases, the same for the same seed."""
    rng, tests = random.Random(seed), _tests()
    for index in range(count):
        test = rng.choice(tests)
        model = _with_literals(test, rng)
        said = [_damage(model, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        yield Case(f"{index} {test.name}: {'; '.join(said)}", model.SerializeToString())


@cache
def _tests() -> list[NodeTest]:
    return collect()


def _with_literals(test: NodeTest, rng: random.Random) -> onnx.ModelProto:
    """Return the model with small integer inputs written into it, mostly."""
    model = onnx.ModelProto.FromString(test.model)
    for name, value in test.inputs.items():
        small = isinstance(value, np.ndarray) and value.size <= _LITERAL
        if small and value.dtype.kind in "iub" and rng.random() < 0.8:
            kept = [held for held in model.graph.input if held.name != name]
            del model.graph.input[:]
            model.graph.input.extend(kept)
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def _damage(model: onnx.ModelProto, rng: random.Random) -> str:
    """Change one thing; return what."""
    node = rng.choice(model.graph.node)
    ways: list[Callable[[], str]] = [lambda: _operand(node, rng)]
    ways += [lambda: _attribute(node, rng)] * 6
    if model.graph.input:
        ways += [lambda: _input(rng.choice(model.graph.input), rng)] * 2
    if model.graph.initializer:
        ways += [lambda: _literal(rng.choice(model.graph.initializer), rng)] * 4
    return rng.choice(ways)()


def _operand(node: onnx.NodeProto, rng: random.Random) -> str:
    names = list(node.input)
    how = rng.choice(("drop", "omit", "twice", "swap"))
    if how == "drop":
        names = names[:-1]
    elif how == "omit" and names:
        names[rng.randrange(len(names))] = ""
    elif how == "twice":
        names += names[-1:]
    else:
        rng.shuffle(names)
    del node.input[:]
    node.input.extend(names)
    return f"operands {names}"


def _attribute(node: onnx.NodeProto, rng: random.Random) -> str:
    """Change, remove or add an attribute of ``node``."""
    kinds = _schema(node)
    held = {a.name: a for a in node.attribute if a.type not in (Attribute.GRAPH,)}
    name = rng.choice(sorted({*held, *kinds})) if (held or kinds) else "axis"
    old = held.get(name)
    kept = [a for a in node.attribute if a.name != name]
    new = _changed(name, old, kinds.get(name, Attribute.INT), rng)
    if new is None and old is not None and old.type == Attribute.GRAPH:
        return "nothing"
    del node.attribute[:]
    node.attribute.extend(kept)
    if new is None:
        return f"{name} removed"
    node.attribute.append(new)
    return f"{name} = {_shown(new)}"


def _shown(held: onnx.AttributeProto) -> str:
    return (
        "a tensor"
        if held.type == Attribute.TENSOR
        else str(onnx.helper.get_attribute_value(held))[:60]
    )


@cache
def _kinds(domain: str, op_type: str) -> dict[str, int]:
    try:
        found = onnx.defs.get_schema(op_type, domain=domain)
    except onnx.defs.SchemaError:
        return {}
    return {name: int(a.type.value) for name, a in found.attributes.items()}


def _schema(node: onnx.NodeProto) -> dict[str, int]:
    return _kinds(node.domain, node.op_type)


def _changed(name: str, old: Any, kind: int, rng: random.Random) -> onnx.AttributeProto | None:
    """Return another value of an attribute, perhaps of another kind; ``None`` removes it."""
    dice = rng.random()
    if dice < 0.05:
        return None
    if dice < 0.1:
        kind = rng.choice((Attribute.INT, Attribute.FLOAT, Attribute.STRING, Attribute.INTS))
        old = None
    kind, made = old.type if old is not None else kind, Attribute(name=name)
    made.type = kind
    if kind == Attribute.INT:
        made.i = _number(old.i if old is not None else 0, rng)
    elif kind == Attribute.FLOAT:
        made.f = rng.choice(_FLOATS)
    elif kind == Attribute.STRING:
        made.s = _text(old.s.decode() if old is not None else "", rng).encode()
    elif kind == Attribute.INTS:
        made.ints.extend(_numbers(list(old.ints) if old is not None else [1, 1], rng))
    elif kind == Attribute.FLOATS:
        made.floats.extend(rng.choices(_FLOATS, k=rng.randrange(5)))
    elif kind == Attribute.STRINGS:
        texts = [text.decode() for text in old.strings] if old is not None else ["Relu"]
        made.strings.extend(_text(text, rng).encode() for text in texts[: rng.randrange(4)])
    elif kind == Attribute.TENSOR:
        made.t.CopyFrom(
            old.t if old is not None else onnx.TensorProto(data_type=1, dims=[1], float_data=[1.0])
        )
        _literal(made.t, rng)
    else:
        return None
    return made


def _number(old: int, rng: random.Random) -> int:
    new = rng.choice((*_INTS, old + 1, old - 1, -old, old * 1000))
    return min(max(new, _SMALL), _BIG)


def _numbers(old: list[int], rng: random.Random) -> list[int]:
    how = rng.randrange(6)
    if how == 0:
        return old[:-1]
    if how == 1:
        return [*old, rng.choice(_INTS)]
    if how == 2:
        return [0] * len(old)
    if how == 3:
        return rng.sample(old, len(old))
    if not old:
        return [rng.choice(_INTS)]
    at = rng.randrange(len(old))
    return [*old[:at], _number(old[at], rng), *old[at + 1 :]]


def _text(old: str, rng: random.Random) -> str:
    if not old or rng.random() < 0.4:
        return rng.choice(_TEXTS)
    at = rng.randrange(len(old))
    middle = rng.choice(("", ".", "..", "...", "....", ",", "->", "i", " ", old[at] * 2))
    return old[:at] + middle + old[at + rng.randrange(2) :]


def _literal(tensor: onnx.TensorProto, rng: random.Random) -> str:
    """Change a number of a tensor, or its shape."""
    try:
        value = np.array(numpy_helper.to_array(tensor))
    except ValueError:  # damaged before
        return "nothing"
    how = rng.randrange(8)
    if how == 0:
        value = value.reshape(-1)[:-1] if value.size else value
    elif how == 1:
        value = np.concatenate([value.reshape(-1)] * 2)
    elif how == 2:
        value = value.reshape(()) if value.size == 1 else value[None]
    elif value.size and value.dtype.kind in "iu":
        limits = np.iinfo(value.dtype)
        at = rng.randrange(value.size)
        new = _number(int(value.reshape(-1)[at]), rng)
        value.reshape(-1)[at] = min(max(new, limits.min), limits.max)
    elif value.size and value.dtype.kind == "f":
        value.reshape(-1)[rng.randrange(value.size)] = rng.choice(_FLOATS)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return f"literal {tensor.name} = {value.reshape(-1)[:8].tolist()} of {value.shape}"


def _input(info: onnx.ValueInfoProto, rng: random.Random) -> str:
    """Change a size, the rank or the element type of an input."""
    held = info.type.tensor_type
    dims = held.shape.dim
    how = rng.randrange(8)
    if how == 0 and len(dims):
        del dims[-1]
    elif how == 1:
        dims.add(dim_value=rng.choice((0, 1, 2, 3)))
    elif how == 2:
        held.elem_type = rng.choice((1, 6, 7, 9, 10, 11))
    elif len(dims):
        dim = dims[rng.randrange(len(dims))]
        new = rng.choice((0, 1, dim.dim_value + 1, dim.dim_value * 2, 5, 2**31, 2**62, _BIG, -1))
        dim.dim_value = min(new, _BIG)
    return f"input {info.name} = {held.elem_type} {[d.dim_value for d in dims]}"


def compile_all(cases: Sequence[Case]) -> Iterator[Failure | None]:
    """Compile each case; yield what failed, or ``None``. A child does it, a new one if it dies."""
    done = 0
    while done < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _child(cases[done:], writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            for what in _received(pipe):
                yield Failure(cases[done], what) if what else None
                done += 1
        _, status = os.waitpid(child, 0)
        if done < len(cases):
            yield Failure(cases[done], _ended(status))
            done += 1


def _ended(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"the process ended with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    hung = number == signal.SIGALRM
    return (
        f"not done in {_SECONDS} s"
        if hung
        else f"the process ended by {signal.Signals(number).name}"
    )


def _received(pipe: Any) -> Iterator[str]:
    while True:
        try:
            yield pickle.load(pipe)
        except EOFError:
            return


def _child(cases: Sequence[Case], writer: int) -> None:
    """Compile the cases, write what is wrong with each, and end."""
    try:
        faulthandler.disable()  # what ends this process is told in a line
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        with os.fdopen(writer, "wb") as pipe, tempfile.TemporaryDirectory() as name:
            for case in cases:
                signal.alarm(_SECONDS)
                pipe.write(pickle.dumps(_compile(case, Path(name))))
                pipe.flush()
    finally:
        os._exit(0)


def _compile(case: Case, folder: Path) -> str:
    """Return what is wrong with the outcome, nothing if it is right."""
    from tensoropt.compiler.cli.opt import main as compiler

    path = folder / "model.onnx"
    path.write_bytes(case.model)
    out, err = io.StringIO(), io.StringIO()
    flags = ["--devices", "2", "--pick", "leanest", "-o", str(folder / "plan")]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = compiler([str(path), *flags])
    except BaseException:
        return traceback.format_exc()
    said = [line for line in err.getvalue().splitlines() if not line.startswith("note: ")]
    if status == 0:
        return ""
    fine = status in (1, 3) and len(said) == 1 and said[0].startswith("error: ")
    return "" if fine else f"status {status}: {err.getvalue()}"


def main(argv: Sequence[str] | None = None) -> int:
    """Compile the cases, print what fails, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="which cases")
    parser.add_argument("--keep", type=Path, help="folder for the models that failed")
    args = parser.parse_args(argv)
    failed, cases = 0, list(damaged(args.count, args.seed))
    for case, failure in zip(cases, compile_all(cases), strict=True):
        if failure is None:
            continue
        print(f"{failure.case.name}\n    {failure.what.strip()}", flush=True)
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
            (args.keep / f"{case.name.split()[0]}.onnx").write_bytes(case.model)
        failed += 1
    print(f"{args.count} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
