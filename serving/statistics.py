"""Statistics of models under Triton's names, computed from the server's metrics."""

from __future__ import annotations

from typing import Any

from tensoropt.serving.metrics import Sums

__all__ = ["describe_statistics"]

_DURATIONS = {
    "success": "tensoropt_request_seconds",
    "fail": "tensoropt_failed_request_seconds",
    "queue": "tensoropt_queue_seconds",
    "compute_infer": "tensoropt_step_seconds",
}
_PARTS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


def describe_statistics(name: str, version: str, sums: Sums) -> dict[str, Any]:
    """Return the statistics of a model in Triton's form; times are in nanoseconds.

    ``compute_infer`` counts runs and includes input and output. A text counts as one sample.
    """
    samples = sums["tensoropt_batch_samples_sum"] or sums["tensoropt_request_seconds_count"]
    return {
        "name": name,
        "version": version,
        "last_inference": round(sums["tensoropt_last_answer_seconds"] * 1e3),
        "inference_count": round(samples),
        "execution_count": round(sums["tensoropt_step_seconds_count"]),
        "inference_stats": {part: _duration(sums, part) for part in _PARTS},
    }


def _duration(sums: Sums, part: str) -> dict[str, int]:
    series = _DURATIONS.get(part)
    if series is None:
        return {"count": 0, "ns": 0}
    return {"count": round(sums[f"{series}_count"]), "ns": round(sums[f"{series}_sum"] * 1e9)}
