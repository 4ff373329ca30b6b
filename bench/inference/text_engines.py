"""An engine that continues tokens, for bench/inference/text.py.

    python bench/inference/text_engines.py ENGINE FOLDER THREADS

Reads requests from stdin, a JSON object per line with `prompt` and `count`, and answers each with
an object: `tokens`, `first_s` (until the first token) and `rest_s`. ENGINE is `torch` (transformers
on FOLDER/hf), `vllm` (vLLM for CPUs on FOLDER/hf), `genai` (onnxruntime-genai on FOLDER), `genai:N`
(its engine for several requests, with N texts at once), `llama` (llama.cpp on the weights of
FOLDER/hf) or `ort` (one session on FOLDER/model.onnx, with its caches through numpy).

    mpiexec -n RANKS python bench/inference/text_engines.py ranks PLAN THREADS REQUEST

answers one request: it runs the graphs of a plan's ranks in a loop and nothing else. It does not
choose tokens, and reads the same token again.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Engine = Callable[[list[int], int], Iterator[int]]


def torch_engine(folder: Path, threads: int) -> Engine:
    """Return transformers: the model with its own cache, step by step."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder / "hf").eval()

    @torch.inference_mode()
    def run(prompt: list[int], count: int) -> Iterator[int]:
        ids, past = torch.tensor([prompt]), None
        for _ in range(count):
            out = model(input_ids=ids, past_key_values=past, use_cache=True, logits_to_keep=1)
            ids, past = out.logits[:, -1:].argmax(-1), out.past_key_values
            yield int(ids)

    return run


def genai_engine(folder: Path, threads: int) -> Engine:
    """Return onnxruntime-genai with its own greedy search."""
    genai, model = _genai_model(folder, threads)

    def run(prompt: list[int], count: int) -> Iterator[int]:
        params = genai.GeneratorParams(model)
        length = len(prompt) + count
        params.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = genai.Generator(model, params)
        generator.append_tokens(np.array([prompt], np.int32))
        for _ in range(count):
            generator.generate_next_token()
            yield int(generator.get_next_tokens()[0])

    return run


def genai_texts_engine(folder: Path, threads: int, texts: int) -> Engine:
    """Return onnxruntime-genai's engine, which batches ``texts``: a prompt and parts of it."""
    genai, model = _genai_model(
        folder, threads, {"engine": {"static_batching": {"max_batch_size": texts}}}
    )
    engine = genai.Engine(model)
    buffer = engine.create_event_buffer(4 * texts)

    def begin(prompt: list[int], count: int) -> Any:
        size = genai.RequestOptions()
        size.set_max_session_tokens(len(prompt) + count)
        request = engine.create_request(options=size)
        turn = genai.TurnOptions(request)
        turn.set_do_sample(False)
        turn.set_min_generated_tokens(count)
        turn.set_max_generated_tokens(count)
        request.begin_turn(np.array(prompt, np.int32), turn)
        return request

    def run(prompt: list[int], count: int) -> Iterator[int]:
        requests = [begin(prompt[n:], count) for n in range(texts)]
        while engine.has_pending_requests():
            for event in engine.run(buffer):
                if event.request is requests[0] and event.token is not None:
                    yield int(event.token)
        for request in requests:
            request.close()

    return run


def _genai_model(folder: Path, threads: int, settings: dict[str, Any] | None = None) -> Any:
    """Return the module of onnxruntime-genai and a model, with ``settings`` of its own."""
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        onnxruntime.preload_dlls()
    import onnxruntime_genai as genai

    config = genai.Config(str(folder))
    options = {"intra_op_num_threads": threads}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    if settings is not None:
        config.overlay(json.dumps(settings))
    return genai, genai.Model(config)


def llama_engine(folder: Path, threads: int) -> Engine:
    """Return llama.cpp with float32 weights and caches."""
    from gguf_models import write_gguf
    from llama_cpp import GGML_TYPE_F32, Llama

    types = {"type_k": GGML_TYPE_F32, "type_v": GGML_TYPE_F32}
    cores = {"n_threads": threads, "n_threads_batch": threads}
    model = Llama(str(write_gguf(folder)), n_ctx=0, verbose=False, **types, **cores)

    def run(prompt: list[int], count: int) -> Iterator[int]:
        made = model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0)
        model.reset()  # without the prefix of the last text
        yield from itertools.islice(made, count)

    return run


def vllm_engine(folder: Path, threads: int) -> Engine:
    """Return vLLM's engine for CPUs, in this process, in float32."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "OMP_NUM_THREADS": str(threads),
    }
    from vllm import EngineArgs, LLMEngine, SamplingParams, TokensPrompt

    settings = EngineArgs(
        model=str(folder / "hf"), dtype="float32", enable_prefix_caching=False, max_num_seqs=1
    )
    engine, numbers = LLMEngine.from_engine_args(settings), itertools.count()

    def run(prompt: list[int], count: int) -> Iterator[int]:
        greedy = SamplingParams(
            temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False
        )
        engine.add_request(str(next(numbers)), TokensPrompt(prompt_token_ids=prompt), greedy)
        known = 0
        while engine.has_unfinished_requests():
            for made in engine.step():
                tokens = made.outputs[0].token_ids
                yield from tokens[known:]
                known = len(tokens)

    return run


def _known_inputs(new: list[int], total: int) -> dict[str, Any]:
    """Return the inputs of a model except caches, if ``total`` tokens end with ``new``."""
    return {
        "input_ids": np.array([new], np.int64),
        "attention_mask": np.ones((1, total), np.int64),
        "position_ids": np.arange(total - len(new), total)[None],
    }


def ort_engine(folder: Path, threads: int) -> Engine:
    """Return a plain session of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    where = str(folder / "model.onnx")
    session = onnxruntime.InferenceSession(where, options, providers=["CPUExecutionProvider"])
    inputs = {tensor.name: tensor.shape for tensor in session.get_inputs()}
    outputs = [tensor.name for tensor in session.get_outputs()]
    config = json.loads((folder / "hf" / "config.json").read_text())
    heads = config.get("num_attention_heads") or config["n_head"]
    size = (config.get("hidden_size") or config["n_embd"]) // heads

    def run(prompt: list[int], count: int) -> Iterator[int]:
        empty = {
            name: np.zeros((1, shape[1], 0, size), np.float32)
            for name, shape in inputs.items()
            if name.startswith("past")
        }
        feeds: dict[str, Any] = dict(empty)
        new, total = prompt, 0
        for _ in range(count):
            total += len(new)
            known = _known_inputs(new, total)
            feeds.update((name, array) for name, array in known.items() if name in inputs)
            made = dict(zip(outputs, session.run(None, feeds), strict=True))
            feeds = {name: made[name.replace("past_key_values", "present")] for name in empty}
            new = [int(made["logits"][0, -1].argmax())]
            yield new[0]

    return run


def rank_engine(folder: Path, threads: int) -> Engine:
    """Return one rank's graph in a plain loop that passes ONNX Runtime's values on."""
    import onnxruntime

    from tensoropt.runtime.launch.world import world
    from tensoropt.runtime.ops import library_path
    from tensoropt.runtime.plan.plan import Plan
    from tensoropt.runtime.text.decoder import decoder_of

    comm, plan = world(), Plan.load(folder)
    decoder = decoder_of(plan)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.register_custom_ops_library(str(library_path()))
    session = onnxruntime.InferenceSession(plan.graph(comm.rank), options)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    is_in_place = all(cache.in_place for cache in decoder.caches)
    presents = {cache.present.name: cache.past.name for cache in decoder.caches}

    def empty(room: int) -> dict[str, Any]:
        found = {}
        for cache in decoder.caches:
            shape = cache.shape(1, room if cache.in_place else 0, {})
            found[cache.past.name] = np.zeros(cache.past.layout.local_shape(shape), np.float32)
        return {name: value(array) for name, array in found.items()}

    def step(feeds: dict[str, Any]) -> dict[str, Any]:
        binding = session.io_binding()
        for name, one in feeds.items():
            binding.bind_ortvalue_input(name, one)
        for tensor in session.get_outputs():
            past = presents.get(tensor.name)
            if past is not None and is_in_place:
                binding.bind_ortvalue_output(tensor.name, feeds[past])
            else:
                binding.bind_output(tensor.name)
        session.run_with_iobinding(binding)
        if is_in_place:
            return {past: feeds[past] for past in presents.values()}
        names = [tensor.name for tensor in session.get_outputs()]
        made = dict(zip(names, binding.get_outputs(), strict=True))
        return {past: made[present] for present, past in presents.items()}

    def run(prompt: list[int], count: int) -> Iterator[int]:
        feeds, new, total = empty(len(prompt) + count), prompt, 0
        comm.Barrier()
        for _ in range(count):
            total += len(new)
            known = _known_inputs(new, total)
            feeds.update((name, value(known[name])) for name in decoder.inputs)
            feeds = step(feeds)
            new = [1]
            yield 1

    return run


ENGINES = {
    "torch": torch_engine,
    "genai": genai_engine,
    "llama": llama_engine,
    "vllm": vllm_engine,
    "ort": ort_engine,
    "ranks": rank_engine,
}


def timed(run: Engine, prompt: list[int], count: int) -> dict[str, Any]:
    """Return the tokens of an engine, and its times."""
    start = time.perf_counter()
    made = run(prompt, count)
    tokens = [next(made)]
    first = time.perf_counter()
    tokens += made
    end = time.perf_counter()
    return {"tokens": tokens, "first_s": first - start, "rest_s": end - first}


def main(name: str, folder: Path, threads: int, requests: list[str]) -> None:
    """Answer a request, or the requests on stdin until it ends."""
    kind, _, texts = name.partition(":")
    run = (
        genai_texts_engine(folder, threads, int(texts)) if texts else ENGINES[kind](folder, threads)
    )
    if requests:
        answers = [
            timed(run, **json.loads(requests[0])) for _ in range(2)
        ]  # the first is a warm-up
        if os.environ.get("PMI_RANK", "0") == "0":
            print(json.dumps(answers[-1]), flush=True)
        return
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(timed(run, request["prompt"], request["count"])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
