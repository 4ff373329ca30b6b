"""Requests that nobody would send: each gets an answer that the description has."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import jsonschema
import pytest
from budgets import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_in_job import StandInJob

from tensoropt.elastic.api.app import make_app

SCHEMA = make_app(StandInJob()).openapi()
PATHS = {**SCHEMA["paths"], "/v1/nothing": {}, "/": {}}
DESCRIBED = [(path, method.upper()) for path, facts in PATHS.items() for method in facts]
OTHERS = [("/", "GET"), ("/v1/nothing", "GET"), ("/v1/scale", "PUT"), ("/v1/status", "POST")]
NAMES = ("after", "limit", "every", "wait_s", "devices", "other")
TEXTS = st.one_of(
    st.sampled_from(["0", "1", "7", "1,2,4", "-1", "1e9", "nan", "", "0x1", "9" * 5000]),
    st.text("aé\x00\n%/?#&=\u2028", max_size=5),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "devices": st.integers(-1, 100) | VALUES,
        "plan": st.none() | st.text(max_size=300) | VALUES,
        "method": st.sampled_from(["live", "stop-resume"]) | VALUES,
        "to": st.none() | st.lists(st.text(max_size=5), max_size=3) | VALUES,
        "wait_s": st.sampled_from([0, 0.01, 61, -1, True, None, "1"]),
        "other": VALUES,
    },
)
BODIES = st.one_of(
    st.binary(max_size=50), VALUES.map(json.dumps), NEARLY.map(json.dumps), NEARLY.map(json.dumps)
)


@pytest.mark.usefixtures("job")
@settings(
    examples(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    asked=st.sampled_from([*DESCRIBED, *OTHERS]),
    number=TEXTS.filter(lambda text: "/" not in text and text not in ("", ".", "..")),
    query=st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=2),
    body=BODIES,
)
def test_a_request(
    asks: httpx.Client,
    asked: tuple[str, str],
    number: str,
    query: dict[str, str],
    body: str | bytes,
) -> None:
    path, method = asked
    query = {**query, "wait_s": "0.01"} if query.get("wait_s", "").strip().isdigit() else query
    place = f"{path.replace('{number}', quote(number, safe=''))}?{urlencode(query)}"
    headers = {"Content-Type": "application/json"}
    answer = asks.request(method, place, content=body if method == "POST" else None,
        headers=headers)  # fmt: skip
    described = PATHS[path].get(method.lower(), {"responses": {}})["responses"]
    if str(answer.status_code) in described:
        check(answer, described[str(answer.status_code)])
    else:
        assert answer.status_code in (200, 400, 404, 405)
        assert answer.status_code != 200 or path == "/"
    if answer.status_code >= 400:
        assert "\n" not in answer.json()["error"]
    assert answer.status_code != 500


def check(answer: httpx.Response, described: dict[str, Any]) -> None:
    """Compare an answer with what the description says of it."""
    kind = answer.headers["content-type"].partition(";")[0]
    schema = described["content"][kind]["schema"]
    if kind == "application/json":
        jsonschema.validate(answer.json(), {**schema, "components": SCHEMA["components"]})
