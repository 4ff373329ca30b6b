"""The refinements of the search, each with the change of the source that takes it out.

The comment of a constant names the row that measures it: ``Ablation: fill``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PROCESSOR_CLOCK", "SWITCHES", "Edit", "Switch"]


@dataclass(frozen=True)
class Edit:
    """``old``, which is in ``file`` exactly once, becomes ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Switch:
    """A refinement in words, and the changes without it."""

    about: str
    edits: tuple[Edit, ...]


PROCESSOR_CLOCK = Edit(
    "compiler/search/engine/token.hpp",
    "  using Clock = std::chrono::steady_clock;",
    """\
  struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
    static time_point now() {
      return time_point(duration(rep(1e9 / CLOCKS_PER_SEC * double(std::clock()))));
    }
  };""",
)
"""The clock of the engine counts processor time, in all versions: machines may be busy."""


def _off(about: str, file: str, old: str, new: str) -> Switch:
    return Switch(about, (Edit(f"compiler/{file}", old, new),))


_TURNS, _PLANS = "search/frontier/turns.py", "search/frontier/plans.py"
_LOOP, _ENGINE = "search/frontier/anytime.py", "search/engine/ft.py"
_SWEEP, _REFINE, _PLAN = (
    "search/engine/sweep.cpp",
    "search/engine/refine.cpp",
    "search/engine/plan.cpp",
)

_OF_LOOP = {
    "messages": _off(
        "lines by messages where exact elimination is more work",
        "search/frontier/candidate.py",
        "return turn_sums(problem) < elimination_sums(problem)",
        "return False",
    ),
    "moments": _off(
        "lines about the memory of programs",
        "search/frontier/candidate.py",
        "return not self.has_refined and self.known.cuts is not None",
        "return False",
    ),
    "far-programs": _off(
        "lines about programs that need far more memory than tables charge",
        _LOOP,
        "FAR = 0.05",
        "FAR = math.inf",
    ),
    "mixtures": _off(
        "mixtures of the plans next to a corner",
        "search/frontier/ascents.py",
        "if state.fruitless == FRUITLESS and all(map(math.isfinite, corner)):",
        "if state.fruitless < 0:",
    ),
    "tolerances": _off(
        "runs within 5%, 2%, 1% before the requested bound",
        _TURNS,
        "candidate.tolerance = max(options.epsilon, LADDER[0])",
        "candidate.tolerance = options.epsilon",
    ),
    "slices": _off(
        "a run has a part of the time left",
        _TURNS,
        "return worst, 1.0 if whole else max(SLICE, 1 / rivals)",
        "return worst, 1.0",
    ),
    "even-slices": _off(
        "the part is even if there are few rivals",
        _TURNS,
        "max(SLICE, 1 / rivals)",
        "SLICE",
    ),
    "worth": _off("no run that has too little time", _TURNS, "WORTH = 0.3", "WORTH = 0.0"),
    "worst-first": _off(
        "the candidate with the worst bound is next",
        _TURNS,
        "worst = max(worth, key=urgencies.__getitem__)",
        "worst = worth[0]",
    ),
    "leaner-first": _off(
        "leaner alternatives first where the fastest one does not fit",
        _TURNS,
        "self._sort_by_memory(worth)",
        "pass",
    ),
    "deeper-later": _off(
        "deeper meshes wait until the others are within 3%",
        _TURNS,
        "if not candidate.is_deep or not self.plans.costed:",
        "if not candidate.results:",
    ),
    "expected-time": _off(
        "a deeper mesh is begun only if it is expected to end in time",
        _TURNS,
        "(self._expected_s(candidate) if candidate.is_deep else 0)",
        "0",
    ),
    "promise": _off(
        "the order of the meshes",
        "search/frontier/search.py",
        "for mesh in sorted(distinct, key=by_promise):",
        "for mesh in distinct:",
    ),
    "equal-meshes": _off(
        "one of the meshes that only reorder axes",
        "search/frontier/options.py",
        "if names_axes:\n        return list(meshes)",
        "if device:\n        return list(meshes)",
    ),
    "memo": _off(
        "alternatives of a step share strategies and tables",
        "search/frontier/search.py",
        "mesh, device, memo)",
        "mesh, device, Memo(mesh, device))",
    ),
    "lessons": _off(
        "programs refine the tables",
        _TURNS,
        "if not candidate.learns():\n            return False",
        "if candidate:\n            return False",
    ),
    "rounds": _off("at most five runs of one tolerance", _TURNS, "ROUNDS = 5", "ROUNDS = 10**9"),
    "small-rounds": _off(
        "at most 400 runs of a small problem", _TURNS, "SMALL_ROUNDS = 400", "SMALL_ROUNDS = 10**9"
    ),
    "finer": _off(
        "finer tables if programs are not within the bound",
        _TURNS,
        "elif candidate.learns() and gap > asked > 0 and tolerance > FINEST:",
        "elif gap < 0:",
    ),
    "by-far": _off(
        "points of tables that charge too much are costed even if a program is slightly better",
        _PLANS,
        "1.0 if self._learns(candidate) else BY_FAR",
        "1.0",
    ),
    "beaten": _off(
        "points that another program beats are not costed",
        _PLANS,
        "if not _beats(self.programs, (point.time, least * point.memory)):",
        "if point is not None:",
    ),
    "ends-first": _off(
        "the ends of a frontier are costed first",
        _PLANS,
        "enumerate(_ends_first(len(points)))",
        "enumerate(range(len(points)))",
    ),
    "large": _off(
        "fewer points of large programs are costed",
        "search/frontier/candidate.py",
        "LARGE = 10_000",
        "LARGE = 10**9",
    ),
    "other-meshes": _off(
        "programs of other meshes bound the search of a mesh", _LOOP, "in known],", "in known[:0]],"
    ),
    "known-lines": _off(
        "lines of earlier runs",
        _LOOP,
        "lines=candidate.proven_lines,",
        "lines=candidate.proven_lines[:0],",
    ),
    "all-claims": _off(
        "every run proves something, not only the last",
        "search/frontier/candidate.py",
        "for found in self.results\n",
        "for found in self.results[-1:]\n",
    ),
    "collection": _off(
        "no collection of garbage while tables are made",
        "search/frontier/search.py",
        "    with without_collection():",
        "    if options:",
    ),
}
_OF_TABLES = {
    "equal-options": _off(
        "equal ops share their strategies",
        "program/costs.py",
        "enumerate(option_classes(self.graph))",
        "enumerate(range(len(self.graph.nodes)))",
    ),
    "equal-nodes": _off(
        "equal ops share their tables",
        "search/problem/cost_tables.py",
        "key = cost_classes(self.graph)[index], self.is_fused(node)",
        "key = index",
    ),
    "equal-edges": _off(
        "equal edges share their tables",
        "search/problem/edge_tables.py",
        "key = (info.sizes, info.item_bytes, Same(sources), Same(targets), constant, fixed)",
        "key = object()",
    ),
    "equal-clusters": _off(
        "equal clusters share their tables",
        "search/problem/training_tables.py",
        '("cluster", cluster.kind, marks)',
        '("leader", cluster.leader, marks)',
    ),
    "equal-step-edges": _off(
        "equal edges of a training step share their tables",
        "search/problem/step_problem.py",
        "self.tables.step_edges.get((info, *made, *target.columns), make)",
        "make()",
    ),
    "second-copies": _off(
        "a second copy for all readers but the last",
        "search/problem/model_problem.py",
        "elif len(readers) == 2:",
        "elif readers:",
    ),
    "constants-of-two": _off(
        "constants with two readers are charged as they are read",
        "search/problem/constant_reads.py",
        "MOST_WAYS = 100",
        "MOST_WAYS = 0",
    ),
    "small-steps": _off(
        "small steps are charged as programs",
        "search/problem/small_step.py",
        "_CHOICES = 14",
        "_CHOICES = 0",
    ),
    "pairs-of-parts": _off(
        "sums of two live tensors", "search/problem/sums.py", "MOST_PARTS = 2", "MOST_PARTS = 1"
    ),
    "kinds-of-sums": _off(
        "at most six sums of a kind per moment",
        "search/problem/sums.py",
        "MOST_ALIKE = 6",
        "MOST_ALIKE = 10**9",
    ),
    "one-sum-of-a-kind": _off(
        "more than one sum of a kind per moment",
        "search/problem/sums.py",
        "MOST_ALIKE = 6",
        "MOST_ALIKE = 1",
    ),
    "whole-scalars": _off(
        "small parameters with several uses are never split",
        "program/constants.py",
        "_WHOLE_BELOW = 0.01",
        "_WHOLE_BELOW = 0.0",
    ),
}
_OF_ENGINE = {
    "direct": _off("small problems are eliminated with lists at once", _ENGINE, "= 1e6,", "= 0.0,"),
    "box-effort": _off("gaps that take too long are divided", _ENGINE, "= 2e7,", "= 1e18,"),
    "lines-first": _off("large problems are bounded by lines first", _ENGINE, "= 1e7,", "= 1e18,"),
    "same-arrays": _off(
        "tables of the same arrays are passed once", _ENGINE, "if key not in known:", "if table:"
    ),
    "dominance": _off(
        "dominated options are dropped before the search",
        "search/engine/module.cpp",
        "screen([&] { return ends.enough.expired() || screening.expired(); });",
        "",
    ),
    "probe": _off(
        "dominance is tested on eight options first",
        "search/engine/dominance.cpp",
        "kProbe = 8;",
        "kProbe = SIZE_MAX;",
    ),
    "equal-dominance": _off(
        "equal nodes are tested for dominance once",
        "search/engine/dominance.cpp",
        "if (alive.empty()) alive",
        "alive",
    ),
    "equal-content": _off(
        "tables of equal content are stored once",
        "search/engine/intake.cpp",
        "first[t] = it == end ? t : it->second;",
        "first[t] = t;",
    ),
    "balanced-order": _off(
        "an order that meets more equal parts, for numbers",
        _PLAN,
        "if (best.distinct_work >= kWorthwhile || always)",
        "if (always)",
    ),
    "balanced-lists": _off(
        "an order that meets more equal parts, for lists",
        _PLAN,
        "if (2 * std::set(colours.begin(), colours.end()).size() <= colours.size())",
        "if (colours.empty())",
    ),
    "equal-lists": _off(
        "lists are shared between equal places",
        _PLAN,
        "const std::vector<std::uint64_t> colours = colours_of(model, kReach);",
        "std::vector<std::uint64_t> colours = colours_of(model, kReach);\n"
        "  for (std::size_t n = 0; n < colours.size(); ++n) colours[n] = n + 1;",
    ),
    "reach": _off(
        "lists are shared if all is equal four edges away", _PLAN, "kReach = 4;", "kReach = 1;"
    ),
    "equal-steps": _off(
        "equal elimination steps over numbers are computed once",
        _PLAN,
        "return std::vector<std::uint64_t>(model.nodes.size(), 0);",
        "std::vector<std::uint64_t> all(model.nodes.size());\n"
        "  for (std::size_t n = 0; n < all.size(); ++n) all[n] = n + 1;\n  return all;",
    ),
    "smallest-table": _off(
        "a table is first added to the smallest that contains its variables",
        _PLAN,
        "std::size_t j = i + 1;",
        "std::size_t j = bucket.size();",
    ),
    "worthwhile": _off(
        "no other order or threads for little work",
        "search/engine/plan.hpp",
        "kWorthwhile = 1e6;",
        "kWorthwhile = 0;",
    ),
    "smaller": _off(
        "smaller models are used if they are at least a tenth smaller",
        "search/engine/plan.hpp",
        "kSmaller = 0.9;",
        "kSmaller = 1.0;",
    ),
    "stages": _off(
        "all gaps are below 5%, 2%, 1% first",
        _SWEEP,
        "if (epsilon > options_.epsilon) stages.push_back(epsilon);",
        "if (epsilon < 0) stages.push_back(epsilon);",
    ),
    "fill": _off(
        "gaps are filled first",
        _SWEEP,
        "if (epsilon > 0 || token_.limited()) fill_gaps();",
        "if (epsilon < 0) fill_gaps();",
    ),
    "fill-reach": _off(
        "with options of up to 15 points beyond", _SWEEP, "kFillReach = 15;", "kFillReach = 1;"
    ),
    "points-divide": _off(
        "points of other meshes divide gaps",
        _SWEEP,
        "if (first && (epsilon > 0 || token_.limited())) take_in_known();",
        "if (first && epsilon < 0) take_in_known();",
    ),
    "few-points": _off(
        "at most 32 points of other meshes", _SWEEP, "kKnown = 32;", "kKnown = 1 << 20;"
    ),
    "quick": _off(
        "a short first try if few points suffice",
        _SWEEP,
        "std::pow(kCoarse / options_.epsilon, 3)",
        "1",
    ),
    "again": _off(
        "a second try with lists once a bound is known",
        _SWEEP,
        "|| !search_directly(kAgain * options_.direct_sums)",
        "|| true",
    ),
    "lines": _off("up to twelve lines", _SWEEP, "kLines = 12;", "kLines = 1;"),
    "late-lines": _off(
        "four lines even if time is up", _SWEEP, "kLateLines = 4;", "kLateLines = 0;"
    ),
    "lean-bound": _off(
        "the leanest point is bounded by levels",
        _SWEEP,
        "if (i == 0) lean = bounded_leanest(fixed, known, token);",
        "if (i == 0) lean = {fixed + levels_[0]};",
    ),
    "late-levels": _off(
        "four levels even if time is up", _SWEEP, "kLateLevels = 4;", "kLateLevels = 0;"
    ),
    "exact-ends": _off(
        "exact extremes of large problems",
        _SWEEP,
        "if (!is_covered() && !token_.expired())",
        "if (token_.left_s() < 0)",
    ),
    "ends-in-time": _off(
        "exact extremes only within half of the time",
        _SWEEP,
        "const bool best = kEnds * token_.left_s() > kEndsWork * each.count();",
        "const bool best = each.count() < 0;",
    ),
    "leanest-again": _off(
        "the leanest point is searched again",
        _SWEEP,
        "if (leanest_error() > target_) find_leanest();",
        "if (leanest_error() < 0) find_leanest();",
    ),
    "batches": _off("four gaps per batch", _SWEEP, "kBatch = 4;", "kBatch = 1;"),
    "split-levels": _off(
        "ranges of levels that are too wide are split",
        _REFINE,
        "kSplitAt = 0.125;",
        "kSplitAt = 1e18;",
    ),
    "products": _off(
        "steps that are matrix products",
        "search/engine/product.cpp",
        "for (std::size_t i = 0; i < step.inputs.size(); ++i) {",
        "if (!step.inputs.empty()) return {};\n"
        "  for (std::size_t i = 0; i < step.inputs.size(); ++i) {",
    ),
    "sorted-cells": _off(
        "cells of few sums are sorted",
        "search/engine/merge.cpp",
        "kSortBelow = 96;",
        "kSortBelow = 0;",
    ),
    "reused-blocks": _off(
        "large blocks are reused",
        "search/engine/memory.cpp",
        "if (void* block = pool().find(size)) return block;",
        "pool().shrink(0);",
    ),
    "huge-pages": _off(
        "large blocks have huge pages",
        "search/engine/memory.cpp",
        "if (size >= kHugePage) madvise(at, size, MADV_HUGEPAGE);",
        "",
    ),
    "join-rounds": _off(
        "collectives are joined in four rounds",
        "program/walk/joins.cpp",
        "kRounds = 4;",
        "kRounds = 1;",
    ),
    "overlap-rounds": _off(
        "eight rounds of fewer starts", "program/walk/overlap.cpp", "kRounds = 8;", "kRounds = 1;"
    ),
    "overlap-sweeps": _off(
        "eight rounds of wider windows", "program/walk/overlap.cpp", "kSweeps = 8;", "kSweeps = 1;"
    ),
    "overlap-drops": _off(
        "three rounds of dropped windows", "program/walk/overlap.cpp", "kDrops = 3;", "kDrops = 1;"
    ),
    "overlap-halves": _off(
        "smaller fused collectives are tried",
        "program/walk/overlap.cpp",
        "kHalves = 4;",
        "kHalves = 0;",
    ),
}

SWITCHES: Mapping[str, Switch] = {
    "nothing": Switch("the noise of the measurement", ()),
    **_OF_LOOP,
    **_OF_TABLES,
    **_OF_ENGINE,
}
"""By the name of a row."""
