"""A failing case made small: outputs, nodes and splits are dropped as long as it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx

from fuzz.builder import info_of
from fuzz.graphs import Case
from fuzz.inside import pruned, values_of
from fuzz.plans import Choice, Finding, try_plans

__all__ = ["minimise"]

_OTHER_PLANS = 4  # which are tried as well: dropping a node draws other strategies
_SECONDS = 60.0

Try = Callable[[Case], Finding | None]


def minimise(case: Case, found: Finding, seconds: float = _SECONDS) -> tuple[Case, Finding]:
    """Return a smaller case that fails in the same phase, and how it fails.

    Quadratic in the number of nodes at worst; ends after ``seconds`` with what there is.
    """
    end = time.monotonic() + seconds

    def attempt(smaller: Case) -> Finding | None:
        return None if time.monotonic() > end else _same(smaller, found)

    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            again = _tried(attempt, candidate)
            if again is not None:
                case, found, smaller = candidate, again, True
                break
    return case, _fewer_splits(case, found)


def _tried(attempt: Try, candidate: Case) -> Finding | None:
    try:
        return attempt(candidate)
    except Exception:  # it does not run any more
        return None


def _same(case: Case, found: Finding) -> Finding | None:
    """Return how ``case`` fails, if it does in the phase of ``found``."""
    for choice in _near(found.choice):
        again = try_plans(case, [] if choice is None else [choice])
        if again is not None and again.phase == found.phase:
            return again
    return None


def _near(choice: Choice | None) -> Iterator[Choice | None]:
    yield choice
    if choice is not None:
        for seed in range(_OTHER_PLANS):
            yield replace(choice, seed=seed, whole=frozenset())


def _smaller(case: Case) -> Iterator[Case]:
    """Yield the case without something: most of it first."""
    for place in range(len(case.model.graph.output)):
        if len(case.model.graph.output) > 1:
            yield _with_output(case, place)
    names = [n for node in case.model.graph.node for n in node.output if n]
    values = values_of(case, names)
    for place in reversed(range(len(case.model.graph.node))):
        made = case.model.graph.node[place].output
        if case.model.graph.node[place].op_type != "Constant":
            yield _without_node(case, place, {n: values[n] for n in made if n})


def _with_output(case: Case, place: int) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept = case.model.graph.output[place]
    del model.graph.output[:]
    model.graph.output.append(kept)
    return pruned(replace(case, model=model))


def _without_node(case: Case, place: int, made: dict[str, object]) -> Case:
    """Return the case with the results of a node as inputs in its place."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.node[place]
    for name, array in made.items():
        model.graph.input.append(info_of(name, array))
    ends = [v for v in model.graph.output if v.name not in made]
    del model.graph.output[:]
    model.graph.output.extend(ends)
    return pruned(replace(case, model=model, feeds={**case.feeds, **made}))


def _fewer_splits(case: Case, found: Finding) -> Finding:
    """Return the failure with as many ops whole as can be."""
    if found.choice is None:
        return found
    for place in range(len(case.model.graph.node)):
        choice = replace(found.choice, whole=found.choice.whole | {place})
        again = try_plans(case, [choice])
        if again is not None and again.phase == found.phase:
            found = again
    return found
