"""Two tiers of tests, by measured times.

``test/durations.txt`` lists the test functions that take long, with the mean seconds of a case;
``make durations`` measures them again. The quick tier (`make test`) leaves them out. A file with
none but listed functions keeps the first case of its cheapest, up to `KEPT_S`. A test that alone
catches a bug that users met is marked `quick`, whatever it takes. `make full` runs the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["KEPT_S", "QUICK_S", "Times", "read_times", "tier_of", "write_times"]

TIMES = Path(__file__).with_name("durations.txt")
QUICK_S = 0.4  # a case that takes longer is not quick; `make durations` prints the sum that remains
KEPT_S = 6.0  # a slower case is not worth its time, even if it is the only one of its file
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
    quick = quick_cases(cases, read_times())
    own = [(taken, nodeid in quick) for nodeid, taken in cases.items()]
    return ", ".join(
        f"{name}: {sum(is_quick == wanted for _, is_quick in own)} cases, "
        f"{sum(taken for taken, is_quick in own if is_quick == wanted):.0f} s"
        for name, wanted in (("quick", True), ("rest", False))
    )


def quick_cases(nodeids: Iterable[str], times: Mapping[str, float]) -> set[str]:
    """Return the cases of the quick tier, without those that are marked."""
    files = defaultdict[str, list[str]](list)
    for nodeid in nodeids:
        files[nodeid.split("::", 1)[0]].append(nodeid)
    quick = set[str]()
    for own in files.values():
        fast = {case for case in own if function_of(case) not in times}
        first = min(own, key=lambda case: times.get(function_of(case), 0.0))
        quick |= fast or {case for case in [first] if times[function_of(case)] <= KEPT_S}
    return quick


def tier_of(items: Sequence[pytest.Item], tier: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the items of ``tier`` ("quick" or "rest"), and the others.

    A test marked `sampled` runs in both: with some of its cases, then with all.
    """
    quick = quick_cases([item.nodeid for item in items], read_times())
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_quick = item.nodeid in quick or item.get_closest_marker("quick") is not None
        is_chosen = is_quick == (tier == "quick") or item.get_closest_marker("sampled") is not None
        (chosen if is_chosen else others).append(item)
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
