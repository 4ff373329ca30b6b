"""Every path, every message, and who may ask."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest
from stand_in_job import StandInJob

from tensoropt.elastic.api import guard
from tensoropt.elastic.api.app import make_app, thinned
from tensoropt.elastic.api.server import Serving, serve
from tensoropt.elastic.control import RefusedError, StepRow
from tensoropt.elastic.records import facts_of
from tensoropt.runtime.support import http_connection
from tensoropt.runtime.support.errors import UserError

JSON = {"Content-Type": "application/json"}
SWITCH = {
    "from": 2,
    "to": 4,
    "step": 5,
    "method": "live",
    "prepared_s": 6.0,
    "stall_s": 0.094,
    "moved_bytes": 1 << 20,
    "moved_by": "memory",
    "phases_s": {"publish": 0.03, "take": 0.05},
}


def error_of(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    return str(answer.json()["error"])


def test_what_can_be_read(asks: httpx.Client, job: StandInJob) -> None:
    assert asks.get("/v1/status").json() == facts_of(job.now)
    events = asks.get("/v1/events").json()["events"]
    assert [event["text"] for event in events] == ["2 devices, plan 2"]
    assert asks.get("/v1/events", params={"after": 1}).json() == {"events": []}
    rows = asks.get("/v1/steps", params={"after": 2, "limit": 2}).json()["steps"]
    assert [row["step"] for row in rows] == [4, 5]
    assert asks.get("/v1/output").text == "rank 0: hello\n"
    rows = asks.get("/v1/profile", params={"devices": "2,3"}).json()["rows"]
    assert [row["why_not"] for row in rows] == [None, "no plan in the family"]


def test_a_loss_that_is_no_number(asks: httpx.Client, job: StandInJob) -> None:
    job.log.append(StepRow(6, float("nan"), 0.1, 2, 1))
    answer = asks.get("/v1/steps", params={"after": 5})
    assert json.loads(answer.text, parse_constant=pytest.fail)["steps"][0]["loss"] is None


def test_events_are_waited_for(asks: httpx.Client, job: StandInJob) -> None:
    threading.Timer(0.2, job.happen, ("checkpoint", "step 5")).start()
    start = time.monotonic()
    events = asks.get("/v1/events", params={"after": 1, "wait_s": 30}).json()["events"]
    assert [event["kind"] for event in events] == ["checkpoint"]
    assert 0.15 < time.monotonic() - start < 10
    assert asks.get("/v1/events", params={"after": 2, "wait_s": 0.1}).json()["events"] == []


def test_a_switch_that_is_done(asks: httpx.Client, job: StandInJob) -> None:
    answer = asks.post("/v1/scale", json={"devices": 4, "plan": "4b", "wait_s": 10})
    assert answer.status_code == 200
    number = answer.json()["number"]
    assert answer.json() == {"number": number, "state": "done", "result": SWITCH, "error": None}
    asks.post("/v1/migrate", json={"to": ["cpu:2", "cpu:3"], "method": "stop-resume"})
    assert job.asked == [
        ("scale", 4, "4b", "live"),
        ("migrate", ["cpu:2", "cpu:3"], "stop-resume"),
    ]


def test_a_switch_that_is_under_way(asks: httpx.Client, job: StandInJob) -> None:
    job.switches_at_once = False
    answer = asks.post("/v1/scale", json={"devices": 4})
    under_way = {"number": answer.json()["number"], "state": "under way", "result": None}
    under_way["error"] = None
    assert (answer.status_code, answer.json()) == (202, under_way)
    path = f"/v1/switches/{under_way['number']}"
    assert asks.get(path).json() == under_way
    threading.Timer(0.2, job.finish).start()
    state = asks.get(path, params={"wait_s": 30}).json()
    assert state == {**under_way, "state": "done", "result": SWITCH}


def test_a_refusal_that_comes_a_little_later(asks: httpx.Client, job: StandInJob) -> None:
    job.switches_at_once = False
    refusal = RefusedError("a switch is under way", is_conflict=True)
    threading.Timer(0.05, job.finish, (refusal,)).start()
    answer = asks.post("/v1/scale", json={"devices": 4})
    assert (answer.status_code, error_of(answer)) == (409, "a switch is under way")


def test_a_switch_that_failed(asks: httpx.Client, job: StandInJob) -> None:
    job.switches_at_once = False
    number = asks.post("/v1/scale", json={"devices": 4}).json()["number"]
    job.finish(RuntimeError("rank 3\ndied"))
    state = asks.get(f"/v1/switches/{number}").json()
    assert (state["state"], state["error"]) == ("refused", "RuntimeError: rank 3 died")


def test_two_switches_at_once(asks: httpx.Client, job: StandInJob) -> None:
    job.switches_at_once = False
    answers: list[int] = []

    def scale() -> None:
        answers.append(asks.post("/v1/scale", json={"devices": 4, "wait_s": 5}).status_code)

    threads = [threading.Thread(target=scale) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(answers) < 3:
        time.sleep(0.01)
    assert answers == [409, 409, 409]
    job.finish()
    for thread in threads:
        thread.join()
    assert answers[3] == 200


def test_a_refusal(asks: httpx.Client, job: StandInJob) -> None:
    answer = asks.post("/v1/scale", json={"devices": 100})
    assert (answer.status_code, error_of(answer)) == (
        400,
        "family families/mlp: no plan for 100 devices",
    )
    job.switches_at_once = False
    asks.post("/v1/scale", json={"devices": 4})
    answer = asks.post("/v1/migrate", json={})
    assert (answer.status_code, error_of(answer)) == (409, "a switch is under way")


def test_stopping(asks: httpx.Client, job: StandInJob) -> None:
    answer = asks.post("/v1/stop", json={})
    assert (answer.status_code, answer.json()) == (202, {"ended": False})
    threading.Timer(0.2, job.stopped.set_result, (None,)).start()
    answer = asks.post("/v1/stop", json={"wait_s": 30})
    assert (answer.status_code, answer.json()) == (200, {"ended": True})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/v2", None, 404, "GET /v2: unknown, expected one of /openapi.json"),
        ("GET", "/v1/status/", None, 404, "GET /v1/status/: unknown, expected one of"),
        ("PUT", "/v1/scale", None, 405, "PUT /v1/scale: expected POST"),
        ("GET", "/v1/steps?after=-1", None, 422, "after: expected at least 0, got: '-1'"),
        ("GET", "/v1/steps?after=x", None, 422, "after: expected a whole number, got: 'x'"),
        ("GET", "/v1/steps?limit=100001", None, 422, "limit: expected at most 100000, got:"),
        ("GET", "/v1/events?wait_s=nan", None, 422, "wait_s: expected a finite number, got: 'nan'"),
        ("GET", "/v1/events?wait_s=x", None, 422, "wait_s: expected a number, got: 'x'"),
        ("GET", "/v1/profile?devices=0", None, 422, "devices: expected text like ^[1-9]"),
        ("GET", "/v1/switches/x", None, 422, "number: expected a whole number, got: 'x'"),
        ("GET", "/v1/switches/999", None, 400, "switch 999: unknown, expected one of 1 to"),
        ("POST", "/v1/scale", "{}", 422, "devices: expected one, got: nothing"),
        ("POST", "/v1/scale", "", 422, "body: expected one, got: nothing"),
        ("POST", "/v1/scale", "[1]", 422, "body: expected an object, got: [1]"),
        ("POST", "/v1/scale", "{", 422, "body: expected JSON, got: Expecting property name"),
        ("POST", "/v1/scale", b"\xff", 400, "body: expected JSON"),
        ("POST", "/v1/scale", "[" * 60_000, 400, "body: expected JSON"),
        ("POST", "/v1/scale", "[" * 70_000, 413, "body: expected at most 65536 bytes, got: 70000"),
        (
            "POST",
            "/v1/scale",
            '{"devices": "4"}',
            422,
            "devices: expected a whole number, got: '4'",
        ),
        ("POST", "/v1/scale", '{"devices": 0}', 422, "devices: expected at least 1, got: 0"),
        ("POST", "/v1/scale", '{"devices": 1, "wait": 1}', 422, "wait: unknown, did you mean"),
        ("POST", "/v1/scale", '{"devices": 1, "plan": 1}', 422, "plan: expected text, got: 1"),
        (
            "POST",
            "/v1/scale",
            '{"devices": 1, "method": "alive"}',
            422,
            "method: expected 'live' or 'stop-resume', got: 'alive'",
        ),
        ("POST", "/v1/migrate", '{"to": []}', 422, "to: expected at least 1 of them, got: []"),
        ("POST", "/v1/migrate", '{"to": "a"}', 422, "to: expected a list, got: 'a'"),
        ("POST", "/v1/stop", '{"wait_s": 61}', 422, "wait_s: expected at most 60.0, got: 61"),
    ],
)
def test_a_mistake(
    asks: httpx.Client, method: str, path: str, body: Any, status: int, message: str
) -> None:
    answer = asks.request(method, path, content=body, headers=JSON)
    assert answer.status_code == status
    assert message in error_of(answer)


def test_a_job_that_fails_to_answer_goes_on(
    asks: httpx.Client, job: StandInJob, capsys: pytest.CaptureFixture[str]
) -> None:
    job.failure = ValueError("wrong\ninside")
    answer = asks.get("/v1/status")
    assert (answer.status_code, error_of(answer)) == (500, "ValueError: wrong inside")
    said = ""
    while not said:  # after the answer
        said = capsys.readouterr().err
    assert said == "error: API: ValueError: wrong inside\n"
    job.failure = None
    assert asks.get("/v1/status").status_code == 200


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "token: expected the header 'Authorization: Bearer TOKEN'"),
        ("Basic abc", "token: expected the header 'Authorization: Bearer TOKEN'"),
        ("Bearer", "token: wrong"),
        ("Bearer wrong", "token: wrong"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/status", "/v1/nothing", "/v1/scale"])
def test_without_the_token(serving: Serving, header: str | None, message: str, path: str) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = httpx.post(serving.url + path, headers=headers, json={}, trust_env=False)
    assert (answer.status_code, error_of(answer)) == (401, message)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_token_is_no_query(serving: Serving) -> None:
    answer = httpx.get(f"{serving.url}/v1/status?token={serving.token}", trust_env=False)
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:80", 200), ("evil.example:80", 403)],
)
def test_a_name_that_leads_here(asks: httpx.Client, host: str, status: int) -> None:
    for path in ("/", "/openapi.json", "/v1/status"):
        answer = asks.get(path, headers={"Host": host})
        assert answer.status_code == status
    if status == 403:
        expected = "Host: expected one of 127.0.0.1, [::1], localhost, got: 'evil.example'"
        assert error_of(answer) == expected


def test_what_another_sites_page_could_send(asks: httpx.Client, job: StandInJob) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        headers = {"Content-Type": kind} if kind else {}
        answer = asks.post("/v1/scale", content='{"devices": 4}', headers=headers)
        assert answer.status_code == 415
        assert error_of(answer) == f"Content-Type: expected application/json, got: '{kind}'"
    answer = asks.options("/v1/scale", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert job.asked == []


def test_a_body_in_pieces_that_never_ends(serving: Serving, job: StandInJob) -> None:
    address = serving.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=10) as connection:
        head = "POST /v1/scale HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        token = f"Authorization: Bearer {serving.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall((head + token).encode())
        for _ in range(65):  # one more than the limit, after which the server closes
            connection.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        answer = ""
        while not answer.endswith("}"):
            answer += connection.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 413 ")
    assert '{"error": "body: expected at most 65536 bytes, got: more"}' in answer
    assert job.asked == []


def test_nothing_that_is_not_http_ends_the_server(asks: httpx.Client, serving: Serving) -> None:
    host, port = serving.url.removeprefix("http://").split(":")
    for junk in (b"\x16\x03\x01", b"GET / HTTP/1.1\r\n", b"A" * 100_000, b"\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(junk)
    assert asks.get("/v1/status").status_code == 200


def test_connections_that_send_nothing_keep_nobody_out(
    serving: Serving, asks: httpx.Client
) -> None:
    """A thousand half-sent requests, without a token, are closed one by one for new ones."""
    host, port = serving.url.removeprefix("http://").split(":")
    opened = []
    try:
        for _ in range(700):
            opened.append(socket.create_connection((host, int(port)), timeout=5))
            opened[-1].sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n")
        assert asks.get("/v1/status").status_code == 200
        assert asks.get("/v1/status").status_code == 200
    finally:
        for each in opened:
            each.close()


_PAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
_STATUS = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        _PAGE + b"Content-Length: 100\r\n\r\n{",
        _PAGE + b"Transfer-Encoding: chunked\r\n\r\n",
        _STATUS + b"Content-Length: 100\r\n\r\n{",
        (_PAGE + b"\r\n") * 400,
        (_STATUS + b"\r\n") * 400,
    ],
    ids=["a body for the page", "in pieces", "no token", "many pages", "many without a token"],
)
def test_requests_without_the_token_keep_nobody_out(
    serving: Serving, asks: httpx.Client, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    """Each connection gets one answer at once, even if nobody takes it."""
    host, port = serving.url.removeprefix("http://").split(":")
    opened = []
    try:
        for _ in range(250):
            opened.append(socket.create_connection((host, int(port)), timeout=5))
            opened[-1].sendall(sent)
        assert asks.get("/v1/status").status_code == 200
    finally:
        for each in opened:
            each.close()
    assert asks.get("/v1/status").status_code == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/v1/status", 401)])
def test_an_answer_without_the_token_is_the_last(serving: Serving, path: str, status: int) -> None:
    answer = httpx.get(serving.url + path, trust_env=False)
    assert (answer.status_code, answer.headers["connection"]) == (status, "close")


def test_the_page_takes_no_body(serving: Serving) -> None:
    answer = httpx.request("GET", serving.url, content=b"x", trust_env=False)
    assert (answer.status_code, error_of(answer)) == (413, "body: expected none outside /v1")


def test_headers_that_do_not_come_in_time(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEADERS_S", 0.3)
    host, port = serving.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as half:
        half.sendall(b"GET /v1/status HTT")
        with suppress(ConnectionResetError):
            assert half.recv(1) == b""


def test_what_is_no_http_is_refused_in_json(serving: Serving) -> None:
    host, port = serving.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(b"\x16\x03\x01 no request\r\n\r\n")
        answer = client.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body) == {"error": "Invalid HTTP request received."}


def test_too_many_requests_at_once(asks: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_MOST_REQUESTS", 0)
    answer = asks.get("/v1/status")
    assert answer.status_code == 503
    assert answer.json() == {"error": "0 requests are under way already, try again"}


def test_no_token_where_none_is_wanted(job: StandInJob) -> None:
    with serve(job, token="") as serving:
        assert httpx.get(f"{serving.url}/v1/status", trust_env=False).status_code == 200
        assert serving.page == f"{serving.url}/"


def test_all_addresses(job: StandInJob) -> None:
    with pytest.raises(UserError, match=r"host 0.0.0.0: expected a token, or permitted host names"):
        serve(job, "0.0.0.0", token="")
    with serve(job, "0.0.0.0") as serving:
        port = serving.url.rpartition(":")[2]
        headers = {"Authorization": f"Bearer {serving.token}", "Host": "any.example"}
        url = f"http://127.0.0.1:{port}/v1/status"
        assert httpx.get(url, headers=headers, trust_env=False).status_code == 200


def test_addresses_of_version_6(job: StandInJob) -> None:
    with serve(job, "::1") as serving:
        assert serving.url.startswith("http://[::1]:")
        headers = {"Authorization": f"Bearer {serving.token}"}
        answer = httpx.get(f"{serving.url}/v1/status", headers=headers, trust_env=False)
        assert answer.status_code == 200


def test_a_port_that_is_taken(job: StandInJob, serving: Serving) -> None:
    port = int(serving.url.rpartition(":")[2])
    with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1, port {port}: .*in use"):
        serve(job, port=port)
    with pytest.raises(UserError, match=r"cannot listen at nowhere.invalid, port 0: "):
        serve(job, host="nowhere.invalid")


def test_closing_answers_what_waits(job: StandInJob) -> None:
    serving = serve(job)
    answers: list[Any] = []

    def wait() -> None:
        headers = {"Authorization": f"Bearer {serving.token}"}
        url = f"{serving.url}/v1/events?after=1&wait_s=30"
        answers.append(httpx.get(url, headers=headers, trust_env=False, timeout=40).json())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    start = time.monotonic()
    serving.close()
    thread.join()
    assert answers == [{"events": []}]
    assert time.monotonic() - start < 10
    serving.close()


def test_nothing_is_kept_by_others(asks: httpx.Client) -> None:
    for path in ("/", "/openapi.json", "/v1/status", "/v1/nothing"):
        headers = asks.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    policy = asks.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_means_of_steps() -> None:
    rows = [StepRow(step, float(step), 0.1 * step, 2, 1) for step in range(1, 8)]
    rows[3] = StepRow(4, None, 0.4, 4, 2)
    means = list(thinned(rows, 3))
    assert [row.step for row in means] == [3, 6, 7]
    assert [row.loss for row in means] == [2.0, 5.5, 7.0]
    assert means[1].time_s == pytest.approx(0.5)
    assert (means[1].devices, means[1].generation) == (2, 1)
    assert list(thinned(rows, 1)) == rows


def test_the_description_is_whole(asks: httpx.Client) -> None:
    found = asks.get("/openapi.json").json()
    assert found == make_app(StandInJob()).openapi()
    for path, methods in found["paths"].items():
        for method, facts in methods.items():
            assert facts["summary"], path
            assert {"401", "500"} <= set(facts["responses"]), path
            assert ("requestBody" in facts) == (method == "post")
            assert facts["security"] == [{"HTTPBearer": []}]
    assert asks.get("/docs").status_code == 404
