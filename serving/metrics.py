"""Prometheus metrics of requests, batches, steps and ranks, by model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    Summary,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_metrics import TextMetrics

__all__ = ["CONTENT_TYPE", "Metrics", "Sums"]

Sums = defaultdict[str, float]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
_SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


# They would add an unused `_created` series to each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "tensoropt_requests", "Answered requests, by status (OK, or gRPC's code).",
            ["model", "protocol", "status"], registry=registry,
        )  # fmt: skip
        self.latency = Histogram(
            "tensoropt_request_seconds", "From a request's headers to its answer.",
            ["model", "protocol"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.steps = Histogram(
            "tensoropt_step_seconds", "One run of all ranks, inputs and outputs included.",
            ["model"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.samples = Histogram(
            "tensoropt_batch_samples", "Samples in a run, without padding.",
            ["model"], buckets=_SAMPLES, registry=registry,
        )  # fmt: skip
        self.queued = Histogram(
            "tensoropt_queue_seconds", "From a request's arrival to the start of its run.",
            ["model"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.tokens = Counter(
            "tensoropt_tokens", "Tokens of texts, by kind: prompt or completion.",
            ["model", "kind"], registry=registry,
        )  # fmt: skip
        self._failed = Summary(
            "tensoropt_failed_request_seconds", "From a request's headers to its refusal.",
            ["model", "protocol"], registry=registry,
        )  # fmt: skip
        self._last = Gauge(
            "tensoropt_last_answer_seconds", "The Unix time of the last answer.",
            ["model"], registry=registry,
        )  # fmt: skip
        self.restarts = Counter(
            "tensoropt_rank_restarts", "Restarts of ranks.",
            ["model"], registry=registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "tensoropt_queue_requests", "Requests waiting for a run, or texts for a slot.",
            ["model"], registry=registry,
        )  # fmt: skip
        self._texts = Gauge(
            "tensoropt_running_texts", "Texts that the ranks continue together.",
            ["model"], registry=registry,
        )  # fmt: skip
        self._proposals = Gauge(
            "tensoropt_proposed_tokens", "Tokens proposed for texts, by result: all or accepted.",
            ["model", "result"], registry=registry,
        )  # fmt: skip
        self.texts = TextMetrics(registry)
        self._ended: dict[str, float] = {}
        self._ready = Gauge(
            "tensoropt_ready", "1 while ranks answer.", ["model"], registry=registry
        )

    def watch(self, model: str, waiting: Callable[[], float], ready: Callable[[], float]) -> None:
        """Read a model's queue length and readiness from these callbacks at each scrape."""
        self._waiting.labels(model).set_function(waiting)
        self._ready.labels(model).set_function(ready)
        self.restarts.labels(model)

    def watch_texts(self, model: str, running: Callable[[], float]) -> None:
        """Read the number of a model's running texts from this callback at each scrape."""
        self._texts.labels(model).set_function(running)

    def watch_proposals(
        self, model: str, proposed: Callable[[], float], accepted: Callable[[], float]
    ) -> None:
        """Read the numbers of a model's proposed tokens from these callbacks at each scrape."""
        self._proposals.labels(model, "all").set_function(proposed)
        self._proposals.labels(model, "accepted").set_function(accepted)

    @contextmanager
    def request(self, model: str, protocol: str) -> Iterator[None]:
        """Count a request and its duration, by its final status."""
        begun, status = perf_counter(), "CANCELLED"
        try:
            yield
            status = "OK"
        except RefusedError as error:
            status = error.reason.code
            raise
        except Exception:
            status = Reason.FAILED.code
            raise
        finally:
            self.requests.labels(model, protocol, status).inc()
            times = self.latency if status == "OK" else self._failed
            times.labels(model, protocol).observe(perf_counter() - begun)
            if status == "OK":
                self._last.labels(model).set_to_current_time()

    @contextmanager
    def step(self, model: str, samples: int) -> Iterator[None]:
        """Count a run of ``samples`` samples and, if it succeeds, its duration.

        The duration excludes the wait for the end of the previous run.
        """
        begun = perf_counter()
        yield
        ended = perf_counter()
        self.steps.labels(model).observe(ended - max(begun, self._ended.get(model, 0.0)))
        self.samples.labels(model).observe(samples)
        self._ended[model] = ended

    def sums(self, models: Collection[str]) -> dict[str, Sums]:
        """Return the sums of counts, and of times in seconds, by model and series name."""
        found: dict[str, Sums] = {model: defaultdict(float) for model in models}
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.labels.get("model") in found:
                    found[sample.labels["model"]][sample.name] += sample.value
        return found

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)
