"""OpenAI's completions API, over a session that needs no ranks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from openai.types import completion_create_params

from tensoropt.runtime.support.errors import RankFailedError, TensoroptError, UserError
from tensoropt.runtime.text.engine import Deliver, Piece
from tensoropt.runtime.text.sampling import Likely, Sampling, SamplingArguments
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.openai.routes import openai_routes
from tensoropt.serving.options import TextLimits
from tensoropt.serving.service import Service
from tensoropt.serving.text_model import TextModel

URL = "/v1/completions"


class Counting:
    """Continues by counting on from the length of the prompt; text is the same as tokens."""

    def __init__(self) -> None:
        self.is_alive, self.error, self.context = True, None, 1 << 14
        self.slots, self.running, self.waiting, self.cache_use = 16, 0, 0, 0.25
        self.proposed, self.accepted = 0, 0
        self.copied: list[int] = []  # tokens of each prompt of a request
        self.asked: list[dict[str, Any]] = []
        self.chat_template = "{{ messages }}"
        self.template_variables: set[str] = set()
        self.variables: list[dict[str, Any]] = []
        self.grammars: list[str] = []
        self.closed = threading.Event()

    def tokens_of(self, prompt: str | Sequence[int]) -> list[int]:
        if not prompt:
            raise UserError("prompt: is empty")
        return list(map(ord, prompt)) if isinstance(prompt, str) else list(prompt)

    def tokens_of_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        self.variables.append(dict(variables or {}))
        if messages[-1]["role"] != "user":
            raise UserError("chat template: expected a user")
        return self.tokens_of("".join(message["content"] for message in messages))

    def has_template_variable(self, name: str) -> bool:
        return name in self.template_variables

    def check_grammar(self, grammar: str) -> None:
        self.grammars.append(grammar)
        if "wrong" in grammar:
            raise UserError("grammar: wrong")

    def text_of(self, tokens: Sequence[int]) -> str:
        return "".join(f" {token}" for token in tokens)

    def bytes_of(self, token: int) -> bytes:
        return self.text_of([token]).encode()

    def split(self, tokens: Sequence[int], text: str | None = None) -> list[str]:
        return [self.text_of([token]) for token in tokens] if text is None else [*text]

    def room(self, tokens: Sequence[int]) -> int:
        return 5

    def submit(
        self, prompts: Sequence[Sequence[int]], deliver: Deliver, **how: Any
    ) -> SimpleNamespace:
        self.asked.append(how)
        request = SimpleNamespace(cancelled=threading.Event(), waited_s=0.0)

        def work() -> None:
            try:
                for piece in self.pieces(prompts, request.cancelled, **how):
                    deliver(piece)
                deliver(None)
            except TensoroptError as error:
                deliver(error)

        threading.Thread(target=work).start()
        return request

    def cancel(self, request: SimpleNamespace) -> None:
        request.cancelled.set()

    def pieces(
        self, prompts: Sequence[Sequence[int]], cancelled: threading.Event, **how: Any
    ) -> Iterator[Piece]:
        try:
            for count in range(how["max_tokens"]):
                if cancelled.is_set():
                    return
                for number, prompt in enumerate(prompts):
                    if self.error is not None and count == 1:
                        raise self.error
                    token, last = len(prompt) + count, count + 1 == how["max_tokens"]
                    likely = None
                    if (most := how.get("logprobs")) is not None:
                        others = [(token + n, -1.0 - n) for n in range(most)]
                        likely = [(token, -float(number)), *others]
                    finish = "length" if last else None
                    before = () if count else self.probabilities(prompt, how.get("prompt_logprobs"))
                    copied = self.copied[number] if self.copied and not count else 0
                    yield Piece(number, token, f" {token}", finish, likely, before, copied)
        finally:
            self.closed.set()

    def probabilities(self, prompt: Sequence[int], count: int | None) -> list[Likely]:
        if count is None:
            return []
        return [[(token, -9.0), *((n, -1.0 - n) for n in range(count))] for token in prompt[1:]]

    def restart(self) -> None:
        self.is_alive = True

    @property
    def silent_s(self) -> float:
        return 0.0

    def close(self, grace_s: float) -> None:
        self.is_alive = False


class Short(Counting):
    """Has a context of few tokens, and refuses what `TextSession` refuses."""

    def submit(
        self, prompts: Sequence[Sequence[int]], deliver: Deliver, **how: Any
    ) -> SimpleNamespace:
        Sampling(**{name: how[name] for name in get_type_hints(SamplingArguments) if name in how})
        most = min(how["max_tokens"], self.room([]))
        return super().submit(prompts, deliver, **{**how, "max_tokens": most})


@pytest.fixture
def session() -> Counting:
    return Counting()


def _service(model: TextModel) -> Service:
    return Service({}, Metrics(), 20.0, {model.name: model})


@pytest.fixture
def client(session: Counting) -> Iterator[TestClient]:
    app = FastAPI()
    model = TextModel("m", session, TextLimits(queue=4, max_prompts=3), Metrics())
    for routes in openai_routes(_service(model), Bodies(1 << 16), 20.0):
        app.include_router(routes)
    with TestClient(app) as client:
        yield client


def asked(client: TestClient, **fields: Any) -> Any:
    return client.post(URL, json={"model": "m", "prompt": "abc", "max_tokens": 3, **fields})


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {**counts, "total_tokens": prompt + completion, **details}


def test_a_completion(client: TestClient, session: Counting) -> None:
    answer = asked(client, stop="x", seed=4, temperature=0.5, top_p=0.9).json()
    assert answer["object"] == "text_completion"
    assert answer["model"] == "m"
    (choice,) = answer["choices"]
    assert choice == {"index": 0, "text": " 3 4 5", "logprobs": None, "finish_reason": "length"}
    assert answer["usage"] == usage(3, 3)
    how = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 4}
    (found,) = session.asked
    assert {name: found[name] for name in how} == how


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        (["ab", "a"], [" 2 3 4", " 1 2 3"]),
        ([7, 8], [" 2 3 4"]),
        ([[7], [8, 9]], [" 1 2 3", " 2 3 4"]),
    ],
)
def test_prompts_of_all_kinds(client: TestClient, prompt: Any, texts: list[str]) -> None:
    choices = asked(client, prompt=prompt).json()["choices"]
    assert [choice["text"] for choice in choices] == texts


def test_a_stream(client: TestClient) -> None:
    answer = asked(client, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert [choice["text"] for choice in choices] == [" 3", " 4", " 5"]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]


def test_a_stream_with_usage(client: TestClient) -> None:
    answer = asked(client, stream=True, stream_options={"include_usage": True}, prompt=["ab", "c"])
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    *parts, last = map(json.loads, lines[:-1])
    assert {part["usage"] for part in parts} == {None}
    assert (last["choices"], last["usage"]) == ([], usage(3, 6))


def test_a_stream_with_usage_in_each_part(client: TestClient) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = asked(client, stream=True, stream_options=options)
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    found = [json.loads(line)["usage"] for line in lines[:-1]]
    assert found == [usage(3, 1), usage(3, 2), usage(3, 3), usage(3, 3)]


def test_defaults_of_clients_of_vllm(client: TestClient, session: Counting) -> None:
    defaults = {
        "use_beam_search": False,
        "length_penalty": 1.0,
        "include_stop_str_in_output": False,
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "allowed_token_ids": None,
        "bad_words": [],
        "priority": 0,
        "prompt_logprobs": None,
        "truncate_prompt_tokens": None,
        "return_token_ids": None,
        "return_tokens_as_token_ids": False,
        "min_tokens": 0,
    }
    assert asked(client, **defaults).json()["choices"][0]["text"] == " 3 4 5"
    assert session.asked[0]["min_tokens"] == 0
    asked(client, min_tokens=2)
    assert session.asked[1]["min_tokens"] == 2


@pytest.mark.parametrize(
    ("how", "copied", "expected"),
    [
        ({"prompt": ["abcd"], "n": 3}, [3, 2, 4], (4, 9, 2)),
        ({"prompt": ["abcd", "efg"]}, [3, 2], (7, 6, 5)),
    ],
)
def test_copied_tokens_of_prompts(
    client: TestClient,
    session: Counting,
    how: dict[str, Any],
    copied: list[int],
    expected: tuple[int, int, int],
) -> None:
    """Tokens that one text of a prompt has read, and its others copied, are not cached."""
    session.copied = copied
    assert asked(client, **how).json()["usage"] == usage(*expected)
    answer = asked(client, stream=True, stream_options={"include_usage": True}, **how)
    last = answer.text.split("\n\n")[-3].removeprefix("data: ")
    assert json.loads(last)["usage"] == usage(*expected)


def test_every_field_may_be_null(client: TestClient) -> None:
    names = get_type_hints(completion_create_params.CompletionCreateParamsBase)
    answer = asked(client, **dict.fromkeys(names.keys() - {"model", "prompt"}))
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 16


def test_seeds_differ_unless_they_are_given(client: TestClient, session: Counting) -> None:
    asked(client), asked(client)
    assert len({how["seed"] for how in session.asked}) == 2


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ({"model": "n"}, 404, "model 'n': not a text model here"),
        ({"prompt": ""}, 400, "prompt: is empty"),
        ({"prompt": []}, 400, "prompt: is empty"),
        ({"prompt": 5}, 400, "prompt"),
        ({"prompt": ["a"] * 4}, 400, "prompt: expected at most 3 (--max-prompts), got: 4"),
        ({"prompt": [1] * 20_000}, 400, "prompt: expected at most 16384 tokens, got: 20000"),
        ({"n": 4}, 400, "n: expected at most 3 texts (--max-prompts), got: 1 x 4"),
        ({"prompt": ["a", "b"], "n": 2}, 400, "got: 2 x 2"),
        ({"n": 2, "best_of": 1}, 400, "best_of: expected at least n"),
        ({"best_of": 2, "stream": True}, 400, "best_of: expected n"),
        ({"logprobs": 21}, 400, "logprobs: Input should be less than or equal to 20"),
        ({"max_tokens": 0}, 400, "max_tokens: expected at least 1 without echo"),
        ({"logit_bias": {"a": 1}}, 400, "logit_bias.a"),
        ({"logit_bias": {"1": 101}}, 400, "logit_bias.1: Input should be less than or equal"),
        ({"presence_penalty": 3}, 400, "presence_penalty: Input should be less than or equal to 2"),
        (
            {"repetition_penalty": 0},
            400,
            "repetition_penalty: Input should be greater than or equal to 0.01",
        ),
        ({"min_p": 2}, 400, "min_p"),
        ({"stop": ["a"] * 65}, 400, "stop"),
        ({"temperature": -1}, 400, "temperature"),
        ({"max_tokens": "5"}, 400, "max_tokens"),
        ({"min_tokens": 4}, 400, "min_tokens: expected at most max_tokens, 3, got: 4"),
        (
            {"min_tokens": 1, "response_format": {"type": "json_object"}},
            400,
            "min_tokens: not with a format of the text",
        ),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            400,
            "continuous_usage_stats: expected include_usage to be true",
        ),
        ({"skip_special_tokens": False}, 400, "skip_special_tokens: Input should be True"),
        ({"use_beam_search": True}, 400, "use_beam_search: Input should be False"),
        ({"bad_words": ["a"]}, 400, "bad_words"),
        ({"length_penalty": 1.5}, 400, "length_penalty"),
        ({"other": 1}, 400, "other: Extra inputs are not permitted"),
        ({"prompt": "a" * (1 << 17)}, 413, "expected at most 65536 bytes"),
    ],
)
def test_refused(client: TestClient, fields: dict[str, Any], status: int, why: str) -> None:
    answer = asked(client, **fields)
    assert answer.status_code == status
    assert why in answer.json()["error"]["message"]


def test_a_lone_surrogate(client: TestClient) -> None:
    answer = client.post(URL, content=json.dumps({"model": "m", "prompt": "\ud800"}))
    assert answer.status_code == 400
    assert "body: Invalid JSON: " in answer.json()["error"]["message"]


def test_ranks_that_end(client: TestClient, session: Counting) -> None:
    session.error = RankFailedError("rank 1 of 2: was killed")
    answer = asked(client)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "server_error")
    lines = asked(client, stream=True).text.split("\n\n")
    assert "was killed" in json.loads(lines[1].removeprefix("data: "))["error"]["message"]
    session.error = None
    assert asked(client).status_code == 200


def test_whoever_leaves_ends_the_text() -> None:
    async def leave() -> None:
        session = Counting()
        pieces = TextModel("m", session, TextLimits(queue=1), Metrics()).pieces(
            [[1]], max_tokens=1 << 30
        )
        await anext(pieces)
        await pieces.aclose()
        assert await asyncio.to_thread(session.closed.wait, 20)

    asyncio.run(leave())


def test_grammars_and_chats_of_many_clients_leave_threads_to_others() -> None:
    """The event loop has a few threads, and these calls wait for each other."""
    gate = threading.Event()

    class Slow(Counting):
        def check_grammar(self, grammar: str) -> None:
            assert gate.wait(20)

        def tokens_of_chat(self, *_: object) -> list[int]:
            assert gate.wait(20)
            return [1]

    async def ask() -> None:
        model = TextModel("m", Slow(), TextLimits(), Metrics())
        tasks = [asyncio.create_task(model.check_grammar("a")) for _ in range(40)]
        tasks += [asyncio.create_task(model.tokens_of_chat([])) for _ in range(40)]
        await asyncio.sleep(0.01)
        try:
            assert await asyncio.wait_for(model.tokens_of("abc"), 10)
        finally:
            gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(ask())


def test_several_choices(client: TestClient) -> None:
    answer = asked(client, prompt=["ab"], n=2, echo=True).json()
    found = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert found == [(0, "ab 2 3 4"), (1, "ab 2 3 4")]
    assert answer["usage"] == usage(2, 6)


def test_the_likeliest_of_several(client: TestClient) -> None:
    """Of the texts of this session, the first of a request has the likeliest tokens."""
    answer = asked(client, best_of=3, logprobs=1).json()
    (choice,) = answer["choices"]
    assert choice["index"] == 0
    assert choice["logprobs"]["token_logprobs"] == [0.0] * 3
    assert answer["usage"]["completion_tokens"] == 9


def test_probabilities(client: TestClient) -> None:
    wanted = {
        "tokens": [" 3", " 4", " 5"],
        "token_logprobs": [0.0] * 3,
        "top_logprobs": [{f" {n}": 0.0, f" {n + 1}": -2.0} for n in (3, 4, 5)],
        "text_offset": [0, 2, 4],
    }
    assert asked(client, logprobs=2).json()["choices"][0]["logprobs"] == wanted
    lines = asked(client, logprobs=2, stream=True).text.split("\n\n")[:-2]
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    for name, values in wanted.items():
        assert [value for part in parts for value in part["logprobs"][name]] == values


def echoed(texts: Sequence[str], tokens: Sequence[int], count: int) -> dict[str, Any]:
    """Return the wanted probabilities of a prompt."""
    tops = [{**{f" {n}": -1.0 - n for n in range(count)}, f" {t}": -9.0} for t in tokens[1:]]
    return {
        "tokens": [f" {token}" for token in tokens],
        "token_logprobs": [None, *(-9.0 for _ in tokens[1:])],
        "top_logprobs": [None, *tops],
        "text_offset": [len("".join(texts[:n])) for n in range(len(tokens))],
    }


@pytest.mark.parametrize(
    ("prompt", "texts", "tokens"),
    [("abc", [*"abc"], [97, 98, 99]), ([7, 8], [" 7", " 8"], [7, 8]), ("a", ["a"], [97])],
)
def test_an_echo_alone(
    client: TestClient, prompt: Any, texts: list[str], tokens: list[int]
) -> None:
    """The token that ranks choose is left out."""
    answer = asked(client, prompt=prompt, echo=True, max_tokens=0, logprobs=2, n=2).json()
    for index in (0, 1):
        wanted = {"text": "".join(texts), "logprobs": echoed(texts, tokens, 2)}
        assert answer["choices"][index] == {"index": index, "finish_reason": "length", **wanted}
    assert answer["usage"]["completion_tokens"] == 0
    (choice,) = asked(client, prompt=prompt, echo=True, max_tokens=0).json()["choices"]
    assert (choice["text"], choice["logprobs"]) == ("".join(texts), None)


def test_an_echo_with_probabilities(client: TestClient) -> None:
    before = echoed([*"ab"], [97, 98], 1)
    (whole,) = asked(client, prompt="ab", echo=True, logprobs=1).json()["choices"]
    assert whole["text"] == "ab 2 3 4"
    assert {name: values[:2] for name, values in whole["logprobs"].items()} == before
    assert whole["logprobs"]["token_logprobs"][2:] == [0.0] * 3
    assert whole["logprobs"]["text_offset"][2:] == [2, 4, 6]
    lines = asked(client, prompt="ab", echo=True, logprobs=1, stream=True).text.split("\n\n")[:-2]
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for part in parts for value in part["logprobs"][name]] == values
    alone = asked(client, prompt="ab", echo=True, max_tokens=0, stream=True).text
    (line,) = alone.split("\n\n")[:-2]
    assert json.loads(line.removeprefix("data: "))["choices"][0]["text"] == "ab"


def test_a_stream_of_choices(client: TestClient) -> None:
    lines = asked(client, prompt="ab", n=2, stream=True, echo=True).text.split("\n\n")[:-2]
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    for index in (0, 1):
        assert "".join(p["text"] for p in parts if p["index"] == index) == "ab 2 3 4"


def test_options_reach_the_ranks(client: TestClient, session: Counting) -> None:
    asked(client, logit_bias={"5": -100}, top_k=-1, min_p=0.1, stop_token_ids=[3], ignore_eos=True)
    (how,) = session.asked
    wanted = {"biases": [(5, -100.0)], "top_k": None, "min_p": 0.1, "stop_tokens": [3]}
    assert how.items() >= {**wanted, "ignores_end": True}.items()
