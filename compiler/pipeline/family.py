"""Families: the plans of a training job for several numbers of devices, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.exporter.plan.writer import (
    PLAN_FILE,
    check_own,
    filled_folder,
    listed_files,
    plan_files,
    write_document,
)
from tensoropt.compiler.pipeline.export import export_initial, fill_training_plan
from tensoropt.compiler.pipeline.phases import Compilation
from tensoropt.compiler.planning.memory_limit import limit_name, remedy
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.version import TOOL
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects.mlir import ir
from tensoropt.passes.search_strategies import settle
from tensoropt.runtime.family.document import (
    FAMILY_FILE,
    FAMILY_SCHEMA,
    INITIAL_FILE,
    SCHEMA,
    LeftOutEntry,
    PlanEntry,
    plan_file,
)
from tensoropt.runtime.family.members import check_shared
from tensoropt.runtime.plan.document import document_sha256, schema_error
from tensoropt.runtime.support.files import sha256_of
from tensoropt.runtime.training.checkpoint import Progress, metadata_of
from tensoropt.runtime.training.integrity import header_digest, seal
from tensoropt.runtime.training.plan import TrainingPlan

if TYPE_CHECKING:
    from tensoropt.compiler.planning.objectives import Row
    from tensoropt.compiler.planning.request import Request
    from tensoropt.compiler.search.frontier.search import FrontierPoint

__all__ = ["FamilyWriter", "check_family_replaceable", "family_folder"]

Say = Callable[[str], None]


@contextmanager
def family_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder to fill with a family; it becomes ``directory`` on success.

    An existing family is replaced in one step; anything else is refused and not changed.
    """
    check_family_replaceable(directory)
    with filled_folder(directory, "family") as folder:
        yield folder


def check_family_replaceable(directory: Path) -> None:
    """Raise :class:`UserError` unless ``directory`` is missing, empty, or only has a family."""
    check_own(directory, "family", _family_files)


def _family_files(directory: Path) -> set[str]:
    listed = listed_files(directory, FAMILY_FILE)
    plans = [path.parent for path in map(Path, listed) if path.name == PLAN_FILE]
    inside = {(plan / name).as_posix() for plan in plans for name in plan_files(directory / plan)}
    return listed | inside


@dataclass
class FamilyWriter:
    """Writer of a family in ``folder``: `add` the result for each number of devices, then `finish`.

    ``module`` has the rules of its operations and is not changed; ``weights`` is the model that it
    was imported from. ``with_leanest`` also adds the leanest plan for each number of devices.
    """

    folder: Path
    module: ir.Module
    weights: Path
    compilation: Compilation
    say: Say
    with_leanest: bool = False
    plans: list[PlanEntry] = field(default_factory=list)
    left_out: list[LeftOutEntry] = field(default_factory=list)
    _written: list[TrainingPlan] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Write the plans for one number of devices, or record why none fits."""
        if not row.points:
            self.left_out.append({"devices": row.devices, "why_not": row.why_not})
            return
        for name, point in _chosen(row, with_leanest=self.with_leanest):
            self.say(f"plan {name}")
            self._add(name, row, point)

    def finish(self, request: Request) -> None:
        """Write family.json; raises :class:`DoesNotFitError` if the family has no plan."""
        if not self.plans:
            last = self.left_out[-1]
            raise DoesNotFitError(
                f"{limit_name(request)}: nothing fits up to {last['devices']} devices, where "
                f"{last['why_not']}; {remedy(request)}"
            )
        check_shared(self._written)
        document = self._document(request)
        document["sha256"] = document_sha256(document)
        error = schema_error(document, FAMILY_SCHEMA)
        if error is not None:
            raise UserError(f"{FAMILY_FILE}: {error}")
        write_document(self.folder / FAMILY_FILE, document)

    def _add(self, name: str, row: Row, point: FrontierPoint) -> None:
        assert row.result is not None, "a point is one of a result"
        module, folder = copy_of(self.module), self.folder / name
        settle(module, point, row.request, row.result)
        self.compilation.advance(module, "partition", self.say)
        folder.mkdir()
        plan = fill_training_plan(module, self.weights, folder, self.say, with_state=False)
        if not self._written:
            metadata = metadata_of(plan, Progress(), moments=False)
            initial = self.folder / INITIAL_FILE
            export_initial(module, self.weights, initial, metadata)
            seal(initial)
        self._written.append(plan)
        self.plans.append(_entry(name, plan, point))

    def _document(self, request: Request) -> dict[str, object]:
        first = self._written[0]
        names = [plan_file(entry["name"]) for entry in self.plans]
        digests = {name: sha256_of(self.folder / name) for name in names}
        return {
            "schema": SCHEMA,
            "tool": TOOL,
            "model": dict(first.plan.document["model"]),
            "device": request.description.name,
            "limit_bytes": request.limit_bytes,
            "samples_per_step": first.samples_per_step,
            "plans": self.plans,
            "left_out": self.left_out,
            "files": {INITIAL_FILE: header_digest(self.folder / INITIAL_FILE), **digests},
        }


def _chosen(row: Row, *, with_leanest: bool) -> Iterator[tuple[str, FrontierPoint]]:
    """Yield the names of the plans to write with their points; the fastest and the leanest may be
    the same point, which comes once."""
    from tensoropt.compiler.search.frontier.points import leanest

    assert row.point is not None, "a row with points has a fastest one"
    yield str(row.devices), row.point
    lean = leanest(row.points)
    if with_leanest and lean.index != row.point.index:
        yield f"{row.devices}-lean", lean


def _entry(name: str, plan: TrainingPlan, point: FrontierPoint) -> PlanEntry:
    """Return the entry of a plan in family.json."""
    return {
        "name": name,
        "devices": plan.plan.ranks,
        "time_s": point.time_s,
        "samples_per_s": plan.samples_per_step / point.time_s,
        "process_bytes": plan.plan.process_bytes,
    }
