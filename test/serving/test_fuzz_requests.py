"""A sample of malformed requests, and that faults are found."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fuzz_requests import Case, _check_json, fault, run


def test_a_sample_is_answered_or_refused() -> None:
    answers, faults = run(600, seed=3)
    assert not faults, "\n".join(faults)
    assert {"200", "400", "404", "OK", "INVALID_ARGUMENT"} <= answers.keys()


@pytest.mark.parametrize("answer", ["500", "503", "INTERNAL", "UNKNOWN"])
def test_answers_that_are_faults(answer: str) -> None:
    no_clients: Any = None
    assert fault(Case("k", "t", lambda _: answer), no_clients) == (answer, f"was answered {answer}")


@pytest.mark.parametrize("content", [b'{"data": [NaN]}', b"{", json.dumps("\ud800").encode()[:-3]])
def test_what_is_no_json_is_a_fault(content: bytes) -> None:
    headers = {"content-type": "application/json"}
    with pytest.raises(ValueError, match=r"is not JSON|Expecting|Unterminated|Invalid"):
        _check_json(httpx.Response(200, content=content, headers=headers))
