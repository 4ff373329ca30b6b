"""The search methods by name; the code of one is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from tensoropt.compiler.search.methods.result import Case, Found, Limits

__all__ = ["COMPARED", "METHODS", "Method", "load_method", "run_method", "takers"]


@dataclass(frozen=True)
class Method:
    """Where a method is (``module:function``), and what it can be told.

    ``takes`` names the fields of :class:`Limits` that it heeds. One that ``needs_model`` reads the
    graph and the layouts behind the options, not only their costs.
    """

    entry: str
    summary: str
    takes: frozenset[str] = frozenset()
    needs_model: bool = False


METHODS: Mapping[str, Method] = {
    "ft": Method(
        "tracking:search",
        "the whole frontier, exact or within a bound",
        frozenset({"epsilon", "time_limit_s", "search_memory_bytes"}),
    ),
    "pase": Method("pase:search", "the least time, exact, by dynamic programming (PaSE)"),
    "pase-bfs": Method("pase:search_breadth_first", "PaSE in breadth-first order, to compare"),
    "autoddl": Method(
        "autoddl:search", "coordinate descent with restarts (AutoDDL)", frozenset({"seed"})
    ),
    "data-parallel": Method("data_parallel:search", "every op splits the batch", needs_model=True),
    "expert": Method(
        "expert:search", "Megatron for transformers, one weird trick for CNNs", needs_model=True
    ),
    "ilp": Method(
        "ilp:search",
        "integer programming (Alpa), by HiGHS",
        frozenset({"time_limit_s", "memory_bytes"}),
    ),
    "mcmc": Method("mcmc:search", "Metropolis search (FlexFlow)", frozenset({"seed"})),
    "exhaustive": Method("exhaustive:search", "every assignment there is, of tiny problems"),
    "random": Method("random_search:search", "one random assignment", frozenset({"seed"})),
}

COMPARED = ("ft", "data-parallel", "expert", "autoddl", "mcmc", "random")
"""What ``--compare`` runs unless told."""


def load_method(name: str) -> Callable[[Case, Limits], Found]:
    """Import the code of the method ``name`` of :data:`METHODS` and return what runs it.

    Raises :class:`UserError` for an unknown name.
    """
    check_known("--search: unknown search", name, METHODS)
    module, function = METHODS[name].entry.split(":")
    loaded: Callable[[Case, Limits], Found] = getattr(
        importlib.import_module(f"{__package__}.{module}"), function
    )
    return loaded


def run_method(name: str, case: Case, limits: Limits) -> Found:
    """Return what the method ``name`` of :data:`METHODS` finds.

    Raises :class:`UserError` for an unknown name, for tables without the model that the method
    needs, and for what it refuses itself.
    """
    run = load_method(name)
    if METHODS[name].needs_model and case.tables is None:
        others = ", ".join(other for other, method in METHODS.items() if not method.needs_model)
        raise UserError(
            f"--search {name}: tables do not say which ops they stand for, "
            f"expected a model, or one of {others}"
        )
    return run(case, limits)


def takers(field: str) -> list[str]:
    """Return the names of the methods that heed ``field`` of :class:`Limits`."""
    return [name for name, method in METHODS.items() if field in method.takes]
