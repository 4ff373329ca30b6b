"""Plans from Python: `tensoropt.Plan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tensoropt.runtime.api.display import Shown
from tensoropt.runtime.api.html import facts_html, table_html
from tensoropt.runtime.check.results import CheckResult
from tensoropt.runtime.plan.plan import Plan as Checked
from tensoropt.runtime.support.expected import ExpectedErrorEntry, margin
from tensoropt.runtime.support.job import CheckArguments, Job
from tensoropt.runtime.support.options import shows_options
from tensoropt.runtime.support.rank_options import SessionArguments, SessionOptions
from tensoropt.runtime.support.tables import milliseconds, size_text

if TYPE_CHECKING:
    from tensoropt.runtime.inspection.differences import Difference
    from tensoropt.runtime.pool.session import Session

__all__ = ["Plan", "Predicted", "diff"]


@dataclass(frozen=True)
class Predicted:
    """Predicted cost of a plan, per device and step; times in seconds.

    ``process_bytes`` is the memory of a device's process if known, else ``memory_bytes``, the
    memory of its tensors: static memory and peak transient memory. ``hidden_s`` is the part of
    the communication that overlaps with operators. ``expected_error`` has the expected errors of
    time and memory, None for a device without measurements.
    """

    time_s: float
    compute_s: float
    communication_s: float
    hidden_s: float
    process_bytes: int
    memory_bytes: int
    static_bytes: int
    transient_bytes: int
    expected_error: ExpectedErrorEntry | None


class Plan:
    """The plan in a ``folder``: a graph per rank, the weights, and a description.

    A plan is for ``ranks`` devices in a ``mesh``, and was compiled from the file ``model``.
    ``inputs``, ``outputs`` and ``parameters`` have a name, a dtype, a shape (with names for
    symbolic dimensions) and a layout. Opening a plan validates it and raises :class:`UserError`.
    A copy is the plan itself. A pickled plan is its folder, which unpickling opens again.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._copy_fields(Checked.load(Path(folder)))

    @classmethod
    def open_written(cls, folder: str | Path, explained: Callable[[], Shown[Any]]) -> Plan:
        """Return a plan that was just written, without validation; ``explained`` explains it."""
        plan = cls.__new__(cls)
        plan._copy_fields(Checked.read(folder))
        plan._explained = explained
        return plan

    def _copy_fields(self, checked: Checked) -> None:
        self._plan = checked
        self._explained: Callable[[], Shown[Any]] | None = None
        self.folder, self.mesh, self.ranks = checked.folder, checked.mesh, checked.ranks
        self.model = checked.model_name
        self.inputs, self.outputs = checked.inputs, checked.outputs
        self.parameters = checked.parameters

    def __copy__(self) -> Plan:
        return self

    def __deepcopy__(self, memo: object) -> Plan:
        return self

    def __reduce__(self) -> tuple[type[Plan], tuple[Path]]:
        return Plan, (self.folder.absolute(),)

    def __fspath__(self) -> str:
        """Return the folder: a plan is accepted as a path."""
        return str(self.folder)

    def __repr__(self) -> str:
        of = f"a training step of {self.model}" if self.trains else self.model
        predicted = self.predicted
        return (
            f"<Plan {self.folder}: {of} on {self.ranks} ranks, predicted "
            f"{milliseconds(predicted.time_s)}, {size_text(predicted.process_bytes)} per device>"
        )

    def _repr_html_(self) -> str:
        predicted = self.predicted
        error = predicted.expected_error
        time, memory = margin(error and error["time"]), margin(error and error["memory"])
        facts = [
            ("model", self.model),
            ("for", "training" if self.trains else "inference"),
            ("ranks", f"{self.ranks}, mesh {'x'.join(map(str, self.mesh))}"),
            ("time of a step, predicted", f"{milliseconds(predicted.time_s)}{time}"),
            ("memory per device, predicted", f"{size_text(predicted.process_bytes)}{memory}"),
        ]
        tables = facts_html(f"plan {self.folder}", facts), self._ends_html()
        return f"<div>{''.join(tables)}</div>"

    def _ends_html(self) -> str:
        layouts = self.layouts
        rows = [
            [
                kind,
                tensor.name,
                tensor.dtype,
                "x".join(map(str, tensor.shape)),
                ", ".join(layouts[tensor.name]),
            ]
            for kind, tensors in (("input", self.inputs), ("output", self.outputs))
            for tensor in tensors
        ]
        return table_html("inputs and outputs", ["", "name", "type", "shape", "layout"], rows)

    @property
    def trains(self) -> bool:
        """True if the plan is for training."""
        return "training" in self._plan.document

    @property
    def predicted(self) -> Predicted:
        """The predicted cost of the plan."""
        entry: Mapping[str, Any] = self._plan.document["predicted"]
        entry = {"hidden_s": 0.0, **entry, "process_bytes": self._plan.process_bytes}
        return Predicted(**{name: entry[name] for name in Predicted.__dataclass_fields__})

    @property
    def layouts(self) -> dict[str, tuple[str, ...]]:
        """Layouts of inputs, parameters, state and outputs: by name, a placement per mesh axis.

        R is replicated, S(d) is split along dimension d, P is a partial result.
        """
        document = self._plan.document
        rows = [*document["inputs"], *document["parameters"], *document["outputs"]]
        rows += document["training"]["state"] if "training" in document else []
        return {row["name"]: tuple(row["layout"]) for row in rows}

    @shows_options(SessionOptions, SessionArguments)
    def session(self, **options: Unpack[SessionArguments]) -> Session:
        """Start the plan's ranks and return their session, with the ``options`` of `Session`."""
        from tensoropt.runtime.pool.session import Session

        return Session(self.folder, **options)

    def explain(self) -> Shown[Any]:
        """Return a summary: costs, layouts and collectives, with identical layers merged.

        For a plan that was just compiled, the summary adds the reasons, the largest costs in time
        and memory, and the changes towards the next point of the frontier.
        """
        if self._explained is not None:
            return self._explained()
        from tensoropt.runtime.inspection.summary import summarise
        from tensoropt.runtime.inspection.text import summary_text

        summary = summarise(self._plan)
        return Shown(summary, summary_text(summary))

    def diff(self, other: str | PathLike[str]) -> Shown[Difference]:
        """Return the differences from this plan to ``other``, a plan or a plan folder."""
        return diff(self, other)

    @shows_options(Job, CheckArguments)
    def check(self, model: str | PathLike[str], **options: Unpack[CheckArguments]) -> CheckResult:
        """Run the plan and, on one device, ``model``, and compare every output.

        ``options`` are the options of :func:`tensoropt.check`.
        """
        from tensoropt.runtime.api.check import check

        return check(self, model, **options)


def diff(before: str | PathLike[str], after: str | PathLike[str]) -> Shown[Difference]:
    """Return the differences between two plans or plan folders."""
    from tensoropt.runtime.inspection.differences import diff
    from tensoropt.runtime.inspection.text import difference_text

    found = diff(Checked.load_description(Path(before)), Checked.load_description(Path(after)))
    return Shown(found, difference_text(found))
