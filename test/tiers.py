"""Two tiers of tests, by measured times.

``test/durations.txt`` lists the test functions that take long, with the mean seconds of a case;
``make durations`` measures them again. The quick tier (`make test`) leaves them out, except the
cheapest function of a file without others: every file keeps a test in the quick tier. A test that
alone catches a bug that users met is marked `quick`, whatever it takes. `make full` runs the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

__all__ = ["QUICK_S", "Times", "read_times", "tier_of", "write_times"]

TIMES = Path(__file__).with_name("durations.txt")
QUICK_S = 0.4  # a case that takes longer is not quick; `make durations` prints the sum that remains
_HEAD = "# Mean seconds of a case, and the test function. Written by `make durations`.\n"


def function_of(nodeid: str) -> str:
    """Return the node id without the parameters of the case."""
    return nodeid.split("[", 1)[0]


def read_times() -> dict[str, float]:
    """Return the mean seconds of a case of each listed function."""
    lines = TIMES.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    return {function: float(seconds) for seconds, function in rows}


def write_times(cases: dict[str, float]) -> str:
    """Write the file from the seconds of every case; return a summary of both tiers."""
    seconds = defaultdict[str, list[float]](list)
    for nodeid, taken in cases.items():
        seconds[function_of(nodeid)].append(taken)
    means = {function: sum(own) / len(own) for function, own in seconds.items()}
    rows = [f"{mean:.1f} {name}\n" for name, mean in sorted(means.items()) if mean > QUICK_S]
    TIMES.write_text(_HEAD + "".join(rows), encoding="utf-8")
    quick = quick_functions(means, means)
    own = [(taken, function_of(nodeid) in quick) for nodeid, taken in cases.items()]
    return ", ".join(
        f"{name}: {sum(is_quick == wanted for _, is_quick in own)} cases, "
        f"{sum(taken for taken, is_quick in own if is_quick == wanted):.0f} s"
        for name, wanted in (("quick", True), ("rest", False))
    )


def quick_functions(functions: Iterable[str], times: dict[str, float]) -> set[str]:
    """Return the functions of the quick tier."""
    files = defaultdict[str, list[str]](list)
    for function in functions:
        files[function.split("::", 1)[0]].append(function)
    quick = set()
    for own in files.values():
        fast = {name for name in own if times.get(name, 0.0) <= QUICK_S}
        quick |= fast or {min(own, key=lambda name: (times[name], name))}
    return quick


def tier_of(items: Sequence[pytest.Item], tier: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the items of ``tier`` ("quick" or "rest"), and the others."""
    quick = quick_functions({function_of(item.nodeid) for item in items}, read_times())
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_quick = function_of(item.nodeid) in quick or item.get_closest_marker("quick") is not None
        (chosen if is_quick == (tier == "quick") else others).append(item)
    return chosen, others


class Times:
    """A plugin that adds up the seconds of every case, and writes the file at the end."""

    def __init__(self) -> None:
        self.cases = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add setup, call and teardown, which xdist reports to the controlling process."""
        if not report.skipped:
            self.cases[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the file and print the summary."""
        terminalreporter.write_line(write_times(dict(self.cases)))
