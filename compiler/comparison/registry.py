"""The search methods by name. A method is a function from a case and limits to points.

The code of a method is imported on first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from tensoropt.compiler.comparison.case import Case, Limits
    from tensoropt.compiler.search.frontier.options import Solve
    from tensoropt.compiler.search.problem.problem import TableFrontier
    from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = [
    "COMPARED",
    "METHODS",
    "Method",
    "load_method",
    "run_method",
    "solver",
    "takers",
]


@dataclass(frozen=True)
class Method:
    """The place of a method (``module:function``), and its options.

    ``takes`` names the options that it heeds. A method that ``needs_model`` reads the graph and the
    layouts of the options, not only their costs.
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
"""The methods of ``--compare`` without names."""


def load_method(name: str) -> Callable[[Case, Limits], TableFrontier]:
    """Import the method ``name`` of :data:`METHODS` and return its function.

    Raises :class:`UserError` for an unknown name.
    """
    check_known("--search: unknown search", name, METHODS)
    module, function = METHODS[name].entry.split(":")
    loaded: Callable[[Case, Limits], TableFrontier] = getattr(
        importlib.import_module(f"{__package__}.{module}"), function
    )
    return loaded


def run_method(name: str, case: Case, limits: Limits) -> TableFrontier:
    """Return the points that the method ``name`` of :data:`METHODS` finds.

    Raises :class:`UserError` for an unknown name, for tables without the model that the method
    needs, and if the method refuses the case.
    """
    run = load_method(name)
    if METHODS[name].needs_model and case.tables is None:
        others = ", ".join(other for other, method in METHODS.items() if not method.needs_model)
        raise UserError(
            f"--search {name}: tables do not say which ops they stand for, "
            f"expected a model, or one of {others}"
        )
    return run(case, limits)


def solver(name: str, seed: int = 0, memory_bytes: float | None = None) -> Solve | None:
    """Return the method ``name`` as a solver for the loop over meshes; ``None`` for ``ft``.

    ``seed`` and ``memory_bytes`` are as in :class:`Limits`. An unknown name raises
    :class:`UserError`.
    """
    from tensoropt.compiler.comparison.case import Case, Limits

    run = load_method(name)
    if name == "ft":
        return None

    def solve(tables: MeshTables, time_limit_s: float | None) -> TableFrontier:
        limits = Limits(seed, time_limit_s=time_limit_s, memory_bytes=memory_bytes)
        return run(Case(tables.problem, tables), limits)

    return solve


def takers(option: str) -> list[str]:
    """Return the names of the methods that heed ``option``."""
    return [name for name, method in METHODS.items() if option in method.takes]
