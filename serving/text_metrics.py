"""Metrics of texts under the names of vLLM, which its dashboards expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tensoropt.runtime.text.session import Piece

__all__ = ["RequestTimes", "TextMetrics"]

_LABELS = ("model_name",)
_FIRST_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_TOKENS = tuple(base * 10**power for power in range(6) for base in (1, 2, 5))


class TextMetrics:
    """Times and counts of texts, by model; each text of a request counts as a request."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(f"vllm:{name}", text, _LABELS, buckets=buckets, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"vllm:{name}", text, _LABELS, registry=registry)

        self._running = gauge("num_requests_running", "Texts that ranks continue.")
        self._waiting = gauge("num_requests_waiting", "Texts that wait for a slot.")
        self._cache = gauge("kv_cache_usage_perc", "Tokens in caches; 1 is every slot, full.")
        self.prompt_tokens = Counter(
            "vllm:prompt_tokens", "Tokens of prompts.", _LABELS, registry=registry
        )
        self.looked_up = Counter(
            "vllm:prefix_cache_queries", "Tokens of prompts that were looked up in caches.",
            _LABELS, registry=registry,
        )  # fmt: skip
        self.copied = Counter(
            "vllm:prefix_cache_hits", "Tokens of prompts that were copied from caches.",
            _LABELS, registry=registry,
        )  # fmt: skip
        self.generated = Counter(
            "vllm:generation_tokens", "Generated tokens.", _LABELS, registry=registry
        )
        self.ended = Counter(
            "vllm:request_success", "Texts that ended, by reason: stop, length, abort or error.",
            [*_LABELS, "finished_reason"], registry=registry,
        )  # fmt: skip
        self.first = histogram("time_to_first_token_seconds", "To the first token.", _FIRST_S)
        # Older versions have the second name.
        self.between = [
            histogram(name, "Between two tokens of a text.", _TOKEN_S)
            for name in ("inter_token_latency_seconds", "time_per_output_token_seconds")
        ]
        self.whole = histogram("e2e_request_latency_seconds", "To the last token.", _REQUEST_S)
        self.queued = histogram("request_queue_time_seconds", "To the admission.", _REQUEST_S)
        self.prefill = histogram(
            "request_prefill_time_seconds", "From the admission to the first token.", _REQUEST_S
        )
        self.decode = histogram(
            "request_decode_time_seconds", "From the first token to the last.", _REQUEST_S
        )
        self.given = histogram("request_prompt_tokens", "Tokens of a prompt.", _TOKENS)
        self.made = histogram("request_generation_tokens", "Generated tokens of a text.", _TOKENS)

    def watch(
        self,
        model: str,
        running: Callable[[], float],
        waiting: Callable[[], float],
        cache_use: Callable[[], float],
    ) -> None:
        """Read a model's texts and the use of its caches from these callbacks at each scrape."""
        self._running.labels(model).set_function(running)
        self._waiting.labels(model).set_function(waiting)
        self._cache.labels(model).set_function(cache_use)

    @contextmanager
    def request(self, model: str, prompts: Sequence[Sequence[int]]) -> Iterator[RequestTimes]:
        """Count the texts of a request, and those that have not ended at the end."""
        times, reason = RequestTimes(self, model, list(map(len, prompts))), "abort"
        self.prompt_tokens.labels(model).inc(sum(map(len, prompts)))
        try:
            yield times
        except Exception:
            reason = "error"
            raise
        finally:
            self.ended.labels(model, reason).inc(times.left)


class RequestTimes:
    """The times of the texts of one request."""

    def __init__(self, metrics: TextMetrics, model: str, given: Sequence[int]) -> None:
        self._metrics, self._model, self._given = metrics, model, given
        self._begun, self._firsts = perf_counter(), dict[int, float]()
        self._lasts, self._counts = dict[int, float](), dict.fromkeys(range(len(given)), 0)
        self.waited_s = 0.0

    @property
    def left(self) -> int:
        """Number of texts that have not ended."""
        return len(self._counts)

    def add(self, piece: Piece) -> None:
        """Note the next token of a text."""
        metrics, now, number = self._metrics, perf_counter(), piece.number
        metrics.generated.labels(self._model).inc()
        if number in self._lasts:
            for histogram in metrics.between:
                histogram.labels(self._model).observe(now - self._lasts[number])
        else:
            self._firsts[number] = now
            metrics.looked_up.labels(self._model).inc(self._given[number])
            metrics.copied.labels(self._model).inc(piece.copied)
            metrics.first.labels(self._model).observe(now - self._begun)
        self._lasts[number] = now
        self._counts[number] += 1
        if piece.finish is not None:
            self._end(number, piece.finish, now)

    def _end(self, number: int, finish: str, now: float) -> None:
        first = self._firsts[number]
        metrics = self._metrics
        metrics.ended.labels(self._model, finish).inc()
        for histogram, value in (
            (metrics.whole, now - self._begun),
            (metrics.queued, self.waited_s),
            (metrics.prefill, max(0.0, first - self._begun - self.waited_s)),
            (metrics.decode, now - first),
            (metrics.given, self._given[number]),
            (metrics.made, self._counts.pop(number)),
        ):
            histogram.labels(self._model).observe(value)
