"""A model of texts where the Open Inference Protocol and Prometheus tell of models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from test_completions import Counting

from tensoropt.runtime.support.errors import RankFailedError
from tensoropt.serving.http import app
from tensoropt.serving.http.app import make_app
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.openai.routes import openai_routes
from tensoropt.serving.options import TextLimits
from tensoropt.serving.service import Service
from tensoropt.serving.text_model import TextModel


@pytest.fixture
def session() -> Counting:
    return Counting()


@pytest.fixture
def client(session: Counting) -> Iterator[TestClient]:
    metrics, bodies = Metrics(), Bodies(1 << 16)
    texts = {"m": TextModel("m", session, TextLimits(), metrics)}  # type: ignore[arg-type]
    service = Service({}, metrics, 20.0, texts)
    with TestClient(make_app(service, bodies, openai_routes(service, bodies, 20.0))) as client:
        yield client


def _index(client: TestClient) -> Any:
    return client.post("/v2/repository/index").json()


def test_it_is_one_of_the_models(client: TestClient, session: Counting) -> None:
    ready = "/v2/models/m/ready"
    assert client.get(ready).json() == {"name": "m", "ready": True}
    assert client.get("/v2/models/m/versions/1/ready").status_code == 200
    entry = {"name": "m", "version": "1", "state": "READY", "reason": ""}
    assert _index(client) == [entry]
    metadata = client.get("/v2/models/m").json()
    assert (metadata["name"], metadata["inputs"], metadata["outputs"]) == ("m", [], [])
    session.is_alive = False
    assert client.get(ready).status_code == 503
    assert _index(client) == [
        {**entry, "state": "UNAVAILABLE", "reason": "ranks are being started"}
    ]
    assert client.get("/v2/models/n/ready").status_code == 404


def test_the_log_says_why_it_is_not_ready(
    client: TestClient, session: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Exception] = []
    monkeypatch.setattr(app, "note", noted.append)
    probes = "/v2/health/ready", "/v2/models/m/ready"
    assert [client.get(probe).status_code for probe in probes] == [200, 200]
    session.is_alive = False
    assert [client.get(probe).status_code for probe in probes] == [503, 503]
    assert [str(error) for error in noted] == ["model 'm': ranks are being started"] * 2


def test_it_takes_no_tensors(client: TestClient) -> None:
    answer = client.post("/v2/models/m/infer", json={"inputs": []})
    assert answer.status_code == 400
    assert answer.json()["error"] == (
        "model 'm': takes texts, expected a request to /v1/completions"
    )


def _series(client: TestClient) -> dict[tuple[str, str], float]:
    """Return samples by name and by the label that is not the model's."""
    return {
        (sample.name, sample.labels.get("status") or sample.labels.get("kind") or ""): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.labels.get("model") == "m" and "le" not in sample.labels
    }


def _ask(client: TestClient, **fields: Any) -> int:
    asked = {"model": "m", "prompt": ["ab", "c"], "max_tokens": 4, **fields}
    return client.post("/v1/completions", json=asked).status_code


def test_metrics(client: TestClient, session: Counting) -> None:
    assert _ask(client) == 200
    assert _ask(client, stream=True) == 200
    assert _ask(client, prompt="") == 400
    found = _series(client)
    assert found["tensoropt_requests_total", "OK"] == 2
    assert found["tensoropt_requests_total", "INVALID_ARGUMENT"] == 1
    assert found["tensoropt_request_seconds_count", ""] == 2
    assert found["tensoropt_queue_seconds_count", ""] == 2
    assert found["tensoropt_tokens_total", "prompt"] == 6
    assert found["tensoropt_tokens_total", "completion"] == 16
    assert found["tensoropt_ready", ""] == 1
    session.error = RankFailedError("rank 1 of 2: was killed")  # type: ignore[assignment]
    assert _ask(client) == 503
    assert _series(client)["tensoropt_requests_total", "UNAVAILABLE"] == 1
    (one,) = client.get("/v2/models/m/stats").json()["model_stats"]
    assert one["inference_stats"]["success"]["count"] == one["inference_count"] == 2
    assert one["inference_stats"]["fail"]["count"] == 1


def _dashboard(client: TestClient) -> dict[str, float]:
    """Return vLLM's series by name and reason."""
    return {
        sample.name + sample.labels.get("finished_reason", ""): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.labels.get("model_name") == "m" and "le" not in sample.labels
    }


def test_metrics_of_dashboards(client: TestClient, session: Counting) -> None:
    """The series that the Grafana dashboard in vLLM's repository shows."""
    session.copied = [1, 0]
    assert _ask(client) == 200
    found = _dashboard(client)
    for name in (
        *("time_to_first_token_seconds", "e2e_request_latency_seconds"),
        *("request_queue_time_seconds", "request_prefill_time_seconds"),
        *("request_decode_time_seconds", "request_prompt_tokens", "request_generation_tokens"),
    ):
        assert found[f"vllm:{name}_count"] == 2
    for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
        assert found[f"vllm:{name}_count"] == 6
    assert found["vllm:prompt_tokens_total"] == found["vllm:request_prompt_tokens_sum"] == 3
    assert found["vllm:generation_tokens_total"] == 8
    assert found["vllm:prefix_cache_queries_total"] == 3
    assert found["vllm:prefix_cache_hits_total"] == 1
    assert found["vllm:request_success_totallength"] == 2
    assert found["vllm:kv_cache_usage_perc"] == 0.25
    assert (found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]) == (0, 0)
    session.error = RankFailedError("rank 1 of 2: was killed")  # type: ignore[assignment]
    assert _ask(client) == 503
    assert _dashboard(client)["vllm:request_success_totalerror"] == 2
