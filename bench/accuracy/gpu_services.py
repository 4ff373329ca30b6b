"""The fewest GPUs for a service level: by tensoropt, by AIConfigurator, and by served times.

    python bench/accuracy/gpu_services.py gpu_serving.csv PROGRAM            print the table
    python bench/accuracy/gpu_services.py gpu_serving.csv PROGRAM --write    into the docs too

The file is described in `gpu_serving.py`. PROGRAM is the command of `pip install
aiconfigurator`, in an environment of its own. Both search for replicas on H100 that serve a
rate of requests within limits on the average first and other tokens. A served row has a number
of texts on a number of GPUs, so it has a rate too: the fewest GPUs with replicas of one row are
the third answer. Served first tokens are of clients that all begin together, and have no limit
here.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import print_lines

from accuracy.gpu_serving import LLAMA, Published, read_rows
from tensoropt.compiler.api.model import Model
from tensoropt.compiler.planning.service import ServiceLevel
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Answer", "served"]

_DEVICES = 16
_FIRST_S = 1.0
_REQUESTS = (
    (5, 1024, 256, 0.006),
    (20, 1024, 256, 0.010),
    (20, 1024, 256, 0.020),
    (4, 2048, 512, 0.006),
    (4, 2048, 512, 0.012),
    (8, 2048, 512, 0.025),
    (2, 4096, 512, 0.006),
    (2, 4096, 512, 0.012),
    (4, 4096, 512, 0.020),
)
"""Requests per second, tokens of prompts and answers, and limits on the time per token."""

_TEXT = """\
### The fewest GPUs for a service level

`make bench-gpu-services ARGS="gpu_serving.csv aiconfigurator --write"`: replicas of Llama 3.1 8B in
16 bits on H100 that serve a rate of requests, with a limit on the average time per token and of 1 s
on the first token. tensoropt's are of `--objective service`, AIConfigurator's the first of
`aiconfigurator cli recommend` without separate workers for prompts (0.12.0, its tables of
TensorRT-LLM 1.3.0rc20). The last column has the fewest GPUs by the served times above, as replicas
of one row; their numbers of texts are 8, 16, 32, 64 and 128. They are of TensorRT-LLM 1.0.0rc3,
so AIConfigurator's smaller numbers may be right for the later version.
"""


@dataclass(frozen=True)
class Answer:
    """``replicas`` of ``ranks`` GPUs; the first token takes ``first_s``, each other ``token_s``."""

    replicas: int
    ranks: int
    texts: int
    first_s: float
    token_s: float

    @property
    def devices(self) -> int:
        """The number of GPUs."""
        return self.replicas * self.ranks

    def __str__(self) -> str:
        times = f"{self.texts} texts, {1e3 * self.first_s:.0f} ms, {1e3 * self.token_s:.1f} ms"
        return f"**{self.devices}** = {self.replicas} x {self.ranks}: {times}"


def served(rows: Sequence[Published], level: ServiceLevel) -> Answer | None:
    """Return the fewest GPUs as replicas of one of the served ``rows``, None if all are too slow.

    Of equally many GPUs, those with the least time per token.
    """
    found = []
    for row in rows:
        if (row.isl, row.osl) == (level.prompt, level.answer) and row.time_s <= level.token_s:
            rate = row.batch / (row.first_s + (row.osl - 1) * row.time_s)
            replicas = math.ceil(level.rate / rate)
            found.append(Answer(replicas, row.ranks, row.batch, row.first_s, row.time_s))
    return min(found, key=lambda own: (own.devices, own.token_s), default=None)


def _planned(model: Model, level: ServiceLevel) -> Answer | None:
    best = model.service(level, devices=_DEVICES, device="h100", launch="graph").best
    if best is None:
        return None
    return Answer(best.replicas, best.ranks, best.texts, best.first_s, best.token_s)


def _recommended(program: str, level: ServiceLevel) -> Answer | None:
    """Return AIConfigurator's first recommendation without separate workers for prompts."""
    flags = {
        "model-path": "meta-llama/Meta-Llama-3.1-8B",
        "system": "h100_sxm",
        "backend": "trtllm",
        "database-mode": "SILICON",
        "target-request-rate": level.rate,
        "isl": level.prompt,
        "osl": level.answer,
        "ttft": 1e3 * level.first_s,
        "tpot": 1e3 * level.token_s,
    }
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        given = [text for name, value in flags.items() for text in (f"--{name}", f"{value}")]
        command = [program, "cli", "recommend", *given, "--strict-sla", "--save-dir", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        tables = [*Path(folder).glob("**/agg/best_config_topn.csv")]
        if not tables:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise UserError(f"{program}: expected a table of configurations, got: {last:.200}")
        with tables[0].open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file), None)
    if row is None:
        return None
    counts = (int(float(row[name])) for name in ("replicas_needed", "num_total_gpus", "bs"))
    return Answer(*counts, float(row["ttft"]) * 1e-3, float(row["tpot"]) * 1e-3)


def _table(rows: Sequence[Published], program: str) -> Iterator[str]:
    yield "| requests/s | prompt + answer | limit | tensoropt | AIConfigurator | served |"
    yield "|---:|---:|---:|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        model, devices = Model(LLAMA.build("decoder").save(Path(folder)), {}), []
        for rate, prompt, answer, token_s in _REQUESTS:
            level = ServiceLevel(
                rate=rate, prompt=prompt, answer=answer, first_s=_FIRST_S, token_s=token_s
            )
            answers = _planned(model, level), _recommended(program, level), served(rows, level)
            cells = " | ".join("none" if own is None else str(own) for own in answers)
            yield f"| {rate} | {prompt} + {answer} | {1e3 * token_s:.0f} ms | {cells} |"
            devices.append([0 if own is None else own.devices for own in answers])
    own, other = (sum(row[way] == row[-1] for row in devices) for way in (0, 1))
    yield ""
    yield f"Rows with the served number of GPUs: tensoropt {own}, AIConfigurator {other}."


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("measured", type=Path, help="gpu_serving.csv, of AIConfigurator")
    parser.add_argument("aiconfigurator", metavar="PROGRAM", help="its command")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    lines = _table(read_rows(given.measured, math.inf), given.aiconfigurator)
    print_lines("gpu_services", _TEXT, lines, writes=given.write)


if __name__ == "__main__":
    sys.exit(run_command(main))
