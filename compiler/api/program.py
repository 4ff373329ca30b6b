"""Programs: models or training steps that are ready for the search."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline.driver import compile_plan
from tensoropt.compiler.pipeline.phases import Compilation
from tensoropt.compiler.pipeline.text import placed_error
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.steps import Graphs, read_graphs
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TRAINING
from tensoropt.passes.base import PassError
from tensoropt.passes.search_strategies import SearchReport, SearchStrategiesPass

if TYPE_CHECKING:
    from tensoropt.compiler.comparison.compare import Compared
    from tensoropt.compiler.planning.objectives import Row
    from tensoropt.compiler.search.frontier.search import FrontierPoint

__all__ = ["Program", "Say", "Source", "silent"]

Say = Callable[[str], None]


def silent(text: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Source:
    """The source of a module: a file, its ``text`` if it is MLIR text, and the weights."""

    path: Path
    text: str | None = None
    weights: Path | None = None

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Add the place in the file to errors of passes."""
        try:
            yield
        except PassError as error:
            raise placed_error(self.path, self.text, error) from error

    def weights_for(self, directory: Path) -> Path:
        """Return the model with the weights of a plan; raises :class:`UserError` for none."""
        if self.weights is None:
            raise UserError(
                f"-o {directory}: a plan contains the weights of the model, "
                f"expected an .onnx input or --weights MODEL.onnx, got: '{self.path}'"
            )
        return self.weights

    def check_weights(self, directory: Path, *, trains: bool) -> None:
        """Raise :class:`UserError` if a plan in ``directory`` cannot have its weights.

        No model has them, or their files are missing.
        """
        ParameterSource(self.weights_for(directory), training=trains).check_present()


class Program:
    """A module with the rules of its operations, which is never changed: plans use copies.

    ``notes`` are lines on it for people. Copies share the MLIR context of the module, and searches
    share tables, so a thread holds ``lock`` while it uses any of them: the lock of the model.
    """

    def __init__(
        self,
        source: Source,
        module: ir.Module,
        compilation: Compilation,
        notes: Sequence[str],
        lock: threading.RLock,
        again: Callable[[], Program],
    ) -> None:
        """Create a program; ``again`` builds it in another process, from the model's file."""
        self.source, self.module, self.compilation = source, module, compilation
        self.notes, self.lock, self._again = tuple(notes), lock, again

    def __reduce__(self) -> tuple[Callable[[], Program], tuple[()]]:
        return self._again, ()

    @property
    def trains(self) -> bool:
        """True if the program is a training step."""
        return TRAINING.on(self.module.operation.attributes)

    @cached_property
    def graphs(self) -> Graphs:
        """The graphs to search, by variant of the training step."""
        return read_graphs(self.module)

    def plan_error(self, request: Request) -> PlanError | None:
        """Return the expected error of predictions for the model's plans.

        ``None`` if the device has not been measured.
        """
        return request.description.plan_error(self.source.weights, training=self.trains)

    def search(self, request: Request, report: SearchReport) -> None:
        """Search, and record the result in ``report``.

        Raises :class:`UserError`. On KeyboardInterrupt, ``report`` has the points found so far.
        """
        search = SearchStrategiesPass.from_request(request, report)
        timed = self.compilation.timed("search")
        with self.lock, self.source.placed(), request.interface.naming(), timed:
            report.graphs = self.graphs
            report.point = search.find_point(self.module)

    def settle(self, report: SearchReport, point: FrontierPoint) -> ir.Module:
        """Return a copy of the module with the strategies of a ``point`` of ``report``."""
        assert report.request is not None
        search = SearchStrategiesPass.from_request(report.request, replace(report, point=point))
        with self.lock, self.source.placed(), report.request.interface.naming():
            module = copy_of(self.module)
            replace(self.compilation, search=search).run(module, "search")
        return module

    def compile(self, module: ir.Module, directory: Path, say: Say = silent) -> None:
        """Write the plan of a settled ``module``, which has passed all phases afterwards."""
        weights = self.source.weights_for(directory)
        with self.lock, self.source.placed():
            compile_plan(module, weights, directory, say, self.compilation)

    def profile(self, request: Request, say: Say = silent) -> Iterator[Row]:
        """Yield the fitting points for 1, 2, 4, ... devices, see :func:`objectives.profile`.

        The thread that iterates holds `lock`.
        """
        from tensoropt.compiler.planning.objectives import profile

        with self.source.placed(), request.interface.naming():
            request.check_one_kind()
            yield from profile(self.graphs, request, say)

    @contextmanager
    def family(
        self, directory: Path, request: Request, say: Say, *, with_leanest: bool = False
    ) -> Iterator[Callable[[Row], None]]:
        """Yield the function that adds a row of a profile to the family in ``directory``.

        The folder appears only if the block succeeds.
        """
        from tensoropt.compiler.pipeline.family import FamilyWriter, family_folder

        if len({way.micro_batches for way in self.graphs}) > 1:
            raise UserError("--micro-batches: expected one number for all plans of a family")
        naming = request.interface.naming()
        with self.source.placed(), naming, family_folder(directory) as folder:
            given = (folder, self.module, self.source.weights_for(directory), self.compilation, say)
            writer = FamilyWriter(*given, with_leanest=with_leanest)
            yield writer.add
            writer.finish(request)

    def compare(
        self, request: Request, searches: Sequence[str], say: Say = silent
    ) -> list[Compared]:
        """Return the result of each of ``searches``, see :func:`objectives.compare`."""
        from tensoropt.compiler.planning.objectives import compare

        with self.lock, self.source.placed():
            return compare(self.graphs, request, searches, say)
