"""Drawing of the tasks of the stages of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensoropt.compiler.report.explanation import StagedStep
from tensoropt.compiler.report.plot_axes import COLOURS, second_scale
from tensoropt.compiler.support.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_stages", "stages_inches"]

_LANE, _REST = 0.22, 0.9  # inches, of a stage, and of the title and the axis


def stages_inches(staged: StagedStep) -> float:
    """Return the height of :func:`draw_stages`."""
    return _REST + _LANE * len(staged.stages)


def draw_stages(axes: Axes, staged: StagedStep) -> None:
    """Draw the tasks of each stage by time; empty places are bubbles.

    Labels have the memory of a stage and the bytes that it sends for each micro-batch.
    """
    scale = second_scale([staged.end_s])
    for number, (work, name) in enumerate(staged.works.items()):
        for stage in range(len(staged.stages)):
            own = [t for t in staged.tasks if t.stage == stage and t.work == work]
            starts = scale.convert(task.start_s for task in own)
            ends = scale.convert(task.end_s for task in own)
            axes.broken_barh(
                [(start, end - start) for start, end in zip(starts, ends, strict=True)],
                (stage - 0.4, 0.8),
                color=COLOURS[number],
                label=name if stage == 0 else None,
                linewidth=0,
            )
    axes.set_yticks(
        range(len(staged.stages)),
        [
            f"{stage}{f' ({row.device})' if row.device else ''}: {format_bytes(row.memory_bytes)}, "
            f"sends {format_bytes(row.sent_bytes)}"
            for stage, row in enumerate(staged.stages)
        ],
        fontsize=7,
    )
    axes.invert_yaxis()
    axes.set_xlim(0, scale.convert([staged.end_s])[0])
    axes.set_xlabel(f"time of the tasks of each stage ({scale.unit})")
    axes.set_title(
        staged.about,
        fontsize=9,
        loc="left",
    )
    axes.legend(fontsize=7, ncols=3, bbox_to_anchor=(1.0, 1.0), loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
