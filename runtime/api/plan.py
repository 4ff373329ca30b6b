"""A plan in people's hands: what `tensoropt.Plan` is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from tensoropt.runtime.api.html import facts_html, table_html
from tensoropt.runtime.api.shown import Shown
from tensoropt.runtime.plan.plan import Plan as Checked
from tensoropt.runtime.support.expected import ExpectedErrorEntry, margin
from tensoropt.runtime.support.job import CheckResult
from tensoropt.runtime.support.tables import milliseconds, size_text

if TYPE_CHECKING:
    from tensoropt.runtime.api.check import CheckOptions
    from tensoropt.runtime.inspection.differences import Difference
    from tensoropt.runtime.pool.session import Session

__all__ = ["Plan", "Predicted", "SessionOptions", "diff"]


@dataclass(frozen=True)
class Predicted:
    """What a plan is predicted to cost, per device and step; times in seconds.

    ``process_bytes`` is what the process of a device takes, where that is known; else it is
    ``memory_bytes``, its tensors: those that stay and the most that comes and goes.
    ``hidden_s`` is what of the communication goes on while operators run. ``expected_error`` says
    how far off time and memory are to be expected, None where nobody
    measured the device.
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


class SessionOptions(TypedDict, total=False):
    """The arguments of :class:`Session` but for its plan."""

    provider: str
    threads: int | None
    dims: Mapping[str, int] | None
    share_gpus: bool
    cuda_graphs: bool
    custom_ops: Sequence[str]
    timeout_s: float | None
    ready_s: float | None


class Plan:
    """The plan in a ``folder``: a graph per rank, their weights, and what they are.

    It is for ``ranks`` devices in a ``mesh``, and was made from the file called ``model``.
    ``inputs``, ``outputs`` and ``parameters`` have a name, a dtype, a shape (a name stands for a
    size that is open) and a layout. Opening a plan checks all of it; raises :class:`UserError`.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._of(Checked.load(Path(folder)))

    @classmethod
    def written(cls, folder: str | Path, explained: Callable[[], Shown[Any]]) -> Plan:
        """Return a plan that was just written and is not checked again; ``explained`` knows it."""
        made = cls.__new__(cls)
        made._of(Checked.read(folder))
        made._explained = explained
        return made

    def _of(self, checked: Checked) -> None:
        self._plan = checked
        self._explained: Callable[[], Shown[Any]] | None = None
        self.folder, self.mesh, self.ranks = checked.folder, checked.mesh, checked.ranks
        self.model = checked.model_name
        self.inputs, self.outputs = checked.inputs, checked.outputs
        self.parameters = checked.parameters

    def __fspath__(self) -> str:
        """Return the folder: a plan can be given wherever that is wanted."""
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
        """Whether it is for training."""
        return "training" in self._plan.document

    @property
    def predicted(self) -> Predicted:
        """What it is predicted to cost."""
        entry: Mapping[str, Any] = self._plan.document["predicted"]
        entry = {"hidden_s": 0.0, **entry, "process_bytes": self._plan.process_bytes}
        return Predicted(**{name: entry[name] for name in Predicted.__dataclass_fields__})

    @property
    def layouts(self) -> dict[str, tuple[str, ...]]:
        """How inputs, parameters, state and outputs lie: by name, a placement per mesh axis.

        R is a whole tensor on each device, S(d) a piece along dimension d, P a partial result.
        """
        document = self._plan.document
        rows = [*document["inputs"], *document["parameters"], *document["outputs"]]
        rows += document["training"]["state"] if "training" in document else []
        return {row["name"]: tuple(row["layout"]) for row in rows}

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Start its ranks, and return what feeds them; ``options`` are those of `Session`."""
        from tensoropt.runtime.pool.session import Session

        return Session(self.folder, **options)

    def explain(self) -> Shown[Any]:
        """Return what it does: costs, layouts and collectives, layers that are alike once.

        Of a plan that was just compiled also why, what takes time and memory, and what the next
        point of its frontier would change.
        """
        if self._explained is not None:
            return self._explained()
        from tensoropt.runtime.inspection.summary import summarise
        from tensoropt.runtime.inspection.text import summary_text

        summary = summarise(self._plan)
        return Shown(summary, summary_text(summary))

    def diff(self, other: str | PathLike[str]) -> Shown[Difference]:
        """Return what ``other``, a plan or the folder of one, does otherwise."""
        return diff(self, other)

    def check(self, model: str | PathLike[str], **options: Unpack[CheckOptions]) -> CheckResult:
        """Run it beside ``model`` on one device, and compare every output.

        ``options`` are those of :func:`tensoropt.check`.
        """
        from tensoropt.runtime.api.check import check

        return check(self, model, **options)


def diff(before: str | PathLike[str], after: str | PathLike[str]) -> Shown[Difference]:
    """Return what one plan does otherwise than another; each may be a folder."""
    from tensoropt.runtime.inspection.differences import diff
    from tensoropt.runtime.inspection.text import difference_text

    found = diff(Checked.described(Path(before)), Checked.described(Path(after)))
    return Shown(found, difference_text(found))
