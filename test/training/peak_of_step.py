"""Run by itself: python peak_of_step.py POLICY prints the MiB that one step takes at its peak."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from steps import Step, spec_of
from test_recompute import feeds, stacked

from tensoropt.runtime.ops import library_path


def resident_mib() -> float:
    """Return the most that this program has held so far.

    Not by getrusage, which counts what the process held before it became this program.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Build and run one step of twelve layers that make 2 to 4 MiB per op."""
    model = stacked(12, batch=8, rows=256, width=256)
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of("output:l", recompute=sys.argv[1])
        step = Step(model, spec, Path(folder), library_path())
        given, before = feeds(model), resident_mib()
        assert np.isfinite(step.run(given, learning_rate=0.0)["loss"])
    print(resident_mib() - before)


if __name__ == "__main__":
    main()
