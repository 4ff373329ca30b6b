"""Predicted decoding steps of language models on GPUs, next to published measurements.

    python bench/accuracy/gpu_serving.py gpu_serving.csv            print the tables
    python bench/accuracy/gpu_serving.py gpu_serving.csv --write    into docs/benchmarks.md too

The file has times per token of Llama 3.1 8B on 1 to 8 H100, served by TensorRT-LLM, as
AIConfigurator's repository publishes them (github.com/ai-dynamo/aiconfigurator). With
`--aiconfigurator PROGRAM`, the command of `pip install aiconfigurator` estimates each row too.

A served step also computes prompts of other requests. Rows with at most 64 tokens of prompts per
step are compared, and the share of the prompts is added: of `osl` steps, `batch` have a prompt of
`isl` tokens. A step with a prompt reads the weights once, so it takes the time of the prompt and of
attention to the other texts.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.served import Served
from sections import write_section

from accuracy.gpu_plans import families, fastest_plan, steps_of
from accuracy.step_time import errors_of
from tensoropt.compiler.api.model import Model
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.timeline import Step
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Published", "read_rows", "served_s", "speed_ups"]

LLAMA = Served()
GPT_OSS = Served(
    layers=24, width=2880, heads=64, groups=8, size=64, inner=2880, vocabulary=201088,
    positions=4096, experts=32, bits=4, bias=True,
)  # fmt: skip
GPT_OSS_TOKENS_PER_S = {1: (243, 306), 32: (4109, 4517)}
"""By number of texts, of onnxruntime-genai on an H200, in two versions."""
_GPT_OSS_PAST = 1024
_MOST_PROMPT_TOKENS = 64  # per step
_FAMILIES = {
    "MatMul": "products",
    "com.microsoft.MatMulNBits": "products",
    "com.microsoft.GroupQueryAttention": "attention",
    "com.microsoft.QMoE": "experts",
}
_GOALS = """\
Goals: each doubling of the GPUs within 15% of the measured speed-up, times within 25%, and a mean
error that is not larger than AIConfigurator's."""
_TEXT = """\
## Decoding steps on GPUs, next to published measurements

`make bench-gpu-serving ARGS="gpu_serving.csv --aiconfigurator PROGRAM --write"`: the time per token
of Llama 3.1 8B in float16 on H100 as TensorRT-LLM 1.0.0rc3 served it, from
[AIConfigurator's](https://github.com/ai-dynamo/aiconfigurator) repository, and the fastest plan of
tensoropt for a graph as onnxruntime-genai exports it. Rows with at most 64 tokens of prompts per
step are compared. "Decoding" is the predicted step alone; "with prompts" adds the whole share of
prompts of other requests. Served times should be in between: first tokens took as long as several
prompts, so part of the prompts ran before the tokens that were timed. AIConfigurator 0.12.0
estimates the same row with its tables of TensorRT-LLM 1.3.0rc20 and with prompts (`--estimate-mode
agg`).

tensoropt's ranks communicate over NCCL, TensorRT-LLM by kernels of its own for small tensors:
AIConfigurator has 4.6 us for each of the 64 all-reduces of a step on 8 GPUs, tensoropt 18 us.
"""


@dataclass(frozen=True)
class Published:
    """A published row: requests with ``isl`` tokens of prompt and ``osl`` of answer.

    A token takes ``time_s``, the first one ``first_s``.
    """

    isl: int
    osl: int
    batch: int
    ranks: int
    time_s: float
    first_s: float = field(default=0.0, compare=False)

    @property
    def prompt_tokens(self) -> float:
        """Tokens of prompts per step."""
        return self.batch * self.isl / self.osl


@dataclass(frozen=True)
class Row:
    """A published row with its predictions; ``other_s`` is AIConfigurator's estimate."""

    published: Published
    decoding_s: float
    served_s: float
    other_s: float | None


def read_rows(path: Path, most_prompt_tokens: float = _MOST_PROMPT_TOKENS) -> list[Published]:
    """Return the rows of at most these tokens of prompts per step, by requests and ranks."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            Published(
                int(row["isl"]),
                int(row["osl"]),
                int(float(row["batch_size"])),
                int(float(row["tp_size"])),
                float(row["silicon_tpot_ms"]) * 1e-3,
                float(row["silicon_ttft_ms"]) * 1e-3,
            )
            for row in csv.DictReader(file)
        ]
    kept = [row for row in rows if row.prompt_tokens <= most_prompt_tokens]
    return sorted(kept, key=lambda row: (row.batch, row.isl, row.osl, row.ranks))


def speed_ups(times_s: Mapping[Published, float]) -> dict[Published, float]:
    """Return the factor by which twice the ranks are faster, by the row with fewer ranks."""
    by_kind = {replace(row, time_s=0.0): time_s for row, time_s in times_s.items()}
    found = {}
    for row, time_s in times_s.items():
        twice_s = by_kind.get(replace(row, ranks=2 * row.ranks, time_s=0.0))
        if twice_s is not None:
            found[row] = time_s / twice_s
    return found


@cache
def _graph(model: Served, batch: int, sequence: int, past: int) -> Graph:
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        path = model.build("decoder").save(Path(folder))
        dims = {"batch": batch, "sequence": sequence, "past": past, "total": past}
        (graph,) = Model(path, dims).program(None).graphs.values()
    return graph


@cache
def planned(
    model: Served, device: str, batch: int, sequence: int, past: int, ranks: int
) -> FrontierPoint:
    """Return the fastest plan of a step on a mesh with one axis.

    TensorRT-LLM launches a step as a CUDA graph, onnxruntime-genai by default does not.
    """
    own = load_device(device)
    own = own.with_cuda_graphs() if model == LLAMA else own
    return fastest_plan(_graph(model, batch, sequence, past), ranks, own)


def _decoding(row: Published) -> FrontierPoint:
    """Return the plan of a step in the middle of the answers."""
    return planned(LLAMA, "h100", row.batch, 1, row.isl + row.osl // 2, row.ranks)


def served_s(row: Published) -> float:
    """Return the predicted time per token with the share of other requests' prompts."""
    decoding = _decoding(row)
    attention_s = sum(
        step.time_s for node, step in steps_of(decoding) if _family(node, step) == "attention"
    )
    prompt_s = planned(LLAMA, "h100", 1, row.isl, row.isl, row.ranks).time_s + attention_s
    share = row.batch / row.osl
    return (1 - share) * decoding.time_s + share * prompt_s


def _estimate_s(program: str, row: Published) -> float:
    """Return the time per token that AIConfigurator estimates."""
    sizes = {
        "isl": row.isl, "osl": row.osl, "batch-size": row.batch, "tp-size": row.ranks,
    }  # fmt: skip
    command = [program, "cli", "estimate", "--no-color", "--estimate-mode", "agg"]
    command += ["--model-path", "meta-llama/Meta-Llama-3.1-8B", "--system", "h100_sxm"]
    command += ["--backend", "trtllm"]
    command += [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"TPOT:\s+([\d.]+) ms", done.stdout)
    if found is None:
        raise ValueError(f"{program}: expected 'TPOT: ... ms', got: {done.stdout[-500:]}")
    return 1e-3 * float(found[1])


def _compare(rows: Sequence[Published], program: str | None) -> list[Row]:
    return [
        Row(
            row,
            _decoding(row).time_s,
            served_s(row),
            None if program is None else _estimate_s(program, row),
        )
        for row in rows
    ]


_Series = Mapping[str, Sequence[float]]
"""Predicted seconds by the name of their column."""


def _series(rows: Sequence[Row]) -> _Series:
    found = {
        "decoding": [row.decoding_s for row in rows],
        "with prompts": [row.served_s for row in rows],
    }
    others = [row.other_s for row in rows if row.other_s is not None]
    return found | ({"AIConfigurator": others} if others else {})


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield mean errors, largest errors and rows within 25% of each prediction, by GPUs."""
    names = [*_series(rows)]
    yield f"| GPUs | rows | {' | '.join(f'{name}: mean, largest, within 25%' for name in names)} |"
    yield "|---|---:|" + "---:|" * len(names)
    counts = sorted({row.published.ranks for row in rows})
    for title, kept in [("all", counts), *((str(count), [count]) for count in counts)]:
        own = [row for row in rows if row.published.ranks in kept]
        measured = [row.published.time_s for row in own]
        cells = []
        for times_s in _series(own).values():
            errors = errors_of(times_s, measured)
            good = sum(error <= 0.25 for error in errors)
            cells.append(f"{statistics.mean(errors):.1%}, {max(errors):.1%}, {good}")
        yield f"| {title} | {len(own)} | {' | '.join(cells)} |"


def _doublings(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the speed-ups of doublings, measured and predicted."""
    published = [row.published for row in rows]
    measured = speed_ups({row: row.time_s for row in published})
    names = [*_series(rows)]
    yield f"| doubling | measured | {' | '.join(f'{name}: factor, within 15%' for name in names)} |"
    yield "|---|---:|" + "---:|" * len(names)
    series = {
        name: speed_ups(dict(zip(published, times_s, strict=True)))
        for name, times_s in _series(rows).items()
    }
    for ranks in sorted({row.ranks for row in measured}):
        own = [row for row in measured if row.ranks == ranks]
        cells = []
        for factors in series.values():
            good = sum(abs(factors[row] / measured[row] - 1) <= 0.15 for row in own)
            mean = statistics.mean(factors[row] for row in own)
            cells.append(f"{mean:.2f}, {good} of {len(own)}")
        mean = statistics.mean(measured[row] for row in own)
        yield f"| {ranks} to {2 * ranks} | {mean:.2f} | {' | '.join(cells)} |"


def _times(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each row, with the relative deviations of its predictions."""
    names = [*_series(rows)]
    yield f"| texts | prompt | answer | GPUs | served | {' | '.join(names)} |"
    yield "|---:|---:|---:|---:|---:|" + "---:|" * len(names)
    for row in rows:
        own = row.published
        cells = [
            f"{1e3 * times_s[0]:.2f} ms ({times_s[0] / own.time_s - 1:+.0%})"
            for times_s in _series([row]).values()
        ]
        sizes = f"{own.batch} | {own.isl} | {own.osl} | {own.ranks}"
        yield f"| {sizes} | {1e3 * own.time_s:.2f} ms | {' | '.join(cells)} |"


def _family(node: Op, step: Step) -> str:
    return "collectives" if step.kind == "collective" else _FAMILIES.get(node.info.name, "other")


def _decoding_experts(batch: int) -> FrontierPoint:
    return planned(GPT_OSS, "h200", batch, 1, _GPT_OSS_PAST, 1)


def _experts() -> Iterator[str]:
    """Yield tokens per second of gpt-oss-20b."""
    yield "| texts | published | predicted | off |"
    yield "|---:|---:|---:|---:|"
    for batch, (low, high) in GPT_OSS_TOKENS_PER_S.items():
        own = batch / _decoding_experts(batch).time_s
        off = f"{own / high - 1:+.0%} to {own / low - 1:+.0%}"
        yield f"| {batch} | {low:,} to {high:,} tokens/s | {own:,.0f} tokens/s | {off} |"


def _points(rows: Sequence[Row]) -> dict[str, FrontierPoint]:
    """Return the plans of the first requests on each number of GPUs, and of gpt-oss-20b."""
    kind = _requests(rows[0].published)
    points = {
        f"Llama 3.1 8B, {kind[0]} texts, {row.published.ranks} GPUs": _decoding(row.published)
        for row in rows
        if _requests(row.published) == kind
    }
    for batch in GPT_OSS_TOKENS_PER_S:
        points[f"gpt-oss-20b, texts: {batch}"] = _decoding_experts(batch)
    return points


def _requests(row: Published) -> tuple[int, int, int]:
    return row.batch, row.isl, row.osl


def _text(rows: Sequence[Row]) -> str:
    times = {
        title: [(_family(node, step), step.time_s) for node, step in steps_of(point)]
        for title, point in _points(rows).items()
    }
    parts = (
        (_GOALS, _summary(rows)),
        ("Speed-up by twice the GPUs, mean over the rows:", _doublings(rows)),
        ("All rows:", _times(rows)),
        (
            "gpt-oss-20b in 4 bits on one H200, as onnxruntime-genai runs it, after 1,024 tokens:",
            _experts(),
        ),
        ("Predicted time by family of operators:", families(times)),
    )
    return "\n\n".join(f"{title}\n\n" + "\n".join(lines) for title, lines in parts)


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("measured", type=Path, help="gpu_serving.csv, of AIConfigurator")
    parser.add_argument("--aiconfigurator", metavar="PROGRAM", help="its command")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    text = _text(_compare(read_rows(given.measured), given.aiconfigurator))
    print(text)
    if given.write:
        write_section("gpu_serving", f"{_TEXT}\n{text}")


if __name__ == "__main__":
    sys.exit(run_command(main))
