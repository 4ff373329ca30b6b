"""What a person must know of a search beside its points: what was left out, and why it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tensoropt.compiler.report.frontier import Frontier
from tensoropt.compiler.report.points import mesh_name

__all__ = ["interruption", "omissions"]


def omissions(frontier: Frontier) -> Iterator[str]:
    """Yield a line for each reason for which meshes were left out."""
    ordered = sorted(frontier.left_out, key=lambda left: left.reason)
    for reason, group in groupby(ordered, key=lambda left: left.reason):
        names = [mesh_name(left.mesh) for left in group]
        yield f"note: {_listed(names)}: left out, {reason}"


def interruption(epsilon: float | None, *, left_out: bool = False) -> str:
    """Return what a search that was interrupted has printed, by the bound that it proves."""
    bound = "with no bound on what is missing"
    if epsilon is not None:
        bound = f"within {epsilon:.2%} of the exact frontier"
        bound += " of the meshes searched" if left_out else ""
    return f"interrupted: this is what was found so far, {bound}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"mesh {shown}" if len(names) == 1 else f"meshes {shown}"
