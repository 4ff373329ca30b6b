"""Frontiers for 1, 2, 4, ... devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tensoropt.compiler.api.frontier import Frontier
from tensoropt.compiler.api.pickling import reduced
from tensoropt.compiler.api.program import Program
from tensoropt.compiler.report.frontier import ScalingReport
from tensoropt.compiler.report.table import profile_rows, profile_table
from tensoropt.passes.search_strategies import SearchReport
from tensoropt.runtime.api.html import table_html

if TYPE_CHECKING:
    from tensoropt.compiler.planning.objectives import Row

__all__ = ["Scaling"]


class Scaling(Sequence[Frontier]):
    """The frontiers of a model on 1, 2, 4, ... devices.

    Without ``memory`` they are only their ends if the fastest plan fits the device.

    A frontier is empty if no plan fits, and ``why_not`` then has the reason.
    """

    def __init__(self, name: str, program: Program, rows: Sequence[Row]) -> None:
        self._name, self._program, self._rows = name, program, list(rows)

    def __copy__(self) -> Scaling:
        return self

    def __deepcopy__(self, memo: object) -> Scaling:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, [self._program])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Frontier: ...
    @overload
    def __getitem__(self, index: slice) -> Scaling: ...
    def __getitem__(self, index: int | slice) -> Frontier | Scaling:
        if isinstance(index, slice):
            return Scaling(self._name, self._program, self._rows[index])
        row = self._rows[index]
        report = SearchReport(request=row.request, result=row.result)
        return Frontier.from_points(self._name, self._program, report, row.points)

    def __repr__(self) -> str:
        return profile_table(self._facts()).rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<div>{table_html(*profile_rows(self._facts()))}</div>"

    @property
    def why_not(self) -> dict[int, str]:
        """The reasons why no plan fits, by number of devices."""
        return {row.devices: row.why_not for row in self._rows if not row.points}

    def plot(self, path: str | Path) -> None:
        """Draw time and throughput against devices into a .png or .svg file."""
        from tensoropt.compiler.report.plot import plot_profile

        plot_profile(self._facts(), Path(path))

    def _facts(self) -> ScalingReport:
        request = self._rows[0].request
        rows = [(row.devices, row.point) for row in self._rows]
        error = self._program.plan_error(request)
        return ScalingReport(self._name, request.description.name, rows, error)
