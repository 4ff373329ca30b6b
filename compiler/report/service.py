"""Reports on deployments of a service: a table, JSON, CSV, the command, and a manifest."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tensoropt.compiler.exporter.standard.cache_effect import Effect
from tensoropt.compiler.planning.service import Deployment, ServiceLevel
from tensoropt.compiler.report.machine import csv_text, described, json_text
from tensoropt.compiler.report.table import effect_lines, render
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds

__all__ = [
    "ServiceReport",
    "serve_command",
    "service_csv",
    "service_json",
    "service_manifest",
    "service_table",
]

_IMAGE, _PORT = "tensoropt-serve", 8000
_PLAN = "/models/plan"


@dataclass(frozen=True)
class ServiceReport:
    """The frontier of deployments of ``model`` on up to ``devices``, and the best of them.

    ``is_gpu`` if ranks are on GPUs. ``effects`` of 8-bit caches are by model.
    """

    model: str
    device: str
    devices: int
    level: ServiceLevel
    rows: Sequence[Deployment]
    best: Deployment | None
    is_gpu: bool = False
    effects: Mapping[str, Effect] = field(default_factory=dict)

    def require_best(self) -> Deployment:
        """Return the best deployment; raises :class:`UserError` with the nearest times."""
        if self.best is not None:
            return self.best
        where = f"--objective service: up to {self.devices} x {self.device}"
        if not self.rows:
            raise UserError(
                f"{where} cannot serve {self.level.rate:g} requests per second, expected more "
                "devices, a lower rate, or shorter texts"
            )
        first_s = min(row.first_s for row in self.rows)
        token_s = min(row.token_s for row in self.rows)
        raise UserError(
            f"{where}: no deployment has a first token in {_limit(self.level.first_s)} and each "
            f"other in {_limit(self.level.token_s)}; the least are {format_seconds(first_s)} and "
            f"{format_seconds(token_s)}"
        )


def _limit(time_s: float) -> str:
    return "any time" if math.isinf(time_s) else format_seconds(time_s)


def service_table(report: ServiceReport, *, colour: bool = False) -> str:
    """Return a row per deployment, with the best one marked, and the effects of 8-bit caches."""
    level, several = report.level, {row.model for row in report.rows} != {report.model}
    title = (
        f"{report.model} on up to {report.devices} x {report.device}: {level.rate:g} requests per "
        f"second of {level.prompt} + {level.answer} tokens, averages under full load"
    )
    header = ["devices", "replicas", "ranks", "texts", "slots", "memory", "requests/s"]
    header += ["first token", "token", *(["model"] if several else []), ""]
    rows = [
        [
            *map(str, (row.devices, row.replicas, row.ranks, row.texts, row.slots)),
            format_bytes(row.process_bytes),
            f"{row.rate * row.replicas:.3g}",
            format_seconds(row.first_s),
            format_seconds(row.token_s),
            *([row.model] if several else []),
            _mark(report, row),
        ]
        for row in report.rows
    ]
    return f"{render(title, header, rows, colour)}{effect_lines(report.effects)}"


def _mark(report: ServiceReport, row: Deployment) -> str:
    if row == report.best:
        return "fewest devices"
    return "" if row.meets(report.level) else "too slow"


def service_json(report: ServiceReport) -> str:
    """Return the deployments as one JSON object, with a line end; a limit may be null."""
    limits = {name: None if value == math.inf else value for name, value in _level(report)}
    rows = [_row(report, row) for row in report.rows]
    found = {"level": limits, "deployments": rows, **described(report.effects)}
    return json_text(report, found)


def service_csv(report: ServiceReport) -> str:
    """Return a header line, and a line per deployment."""
    rows = [_row(report, row) for row in report.rows]
    return csv_text([*rows[0]] if rows else [], [[*row.values()] for row in rows])


def _level(report: ServiceReport) -> list[tuple[str, float]]:
    return list(asdict(report.level).items())


def _row(report: ServiceReport, row: Deployment) -> dict[str, object]:
    best = row == report.best
    return {"devices": row.devices, **asdict(row), "meets": row.meets(report.level), "best": best}


def _arguments(plan: str, row: Deployment, level: ServiceLevel) -> list[str]:
    sizes = {"slots": row.slots, "context": level.context, "step-tokens": level.part}
    return [plan, *(text for name, size in sizes.items() for text in (f"--{name}", str(size)))]


def serve_command(plan: Path, row: Deployment, level: ServiceLevel) -> str:
    """Return the command that serves one replica."""
    return shlex.join(["tensoropt-serve", *_arguments(f"{plan}", row, level)])


def service_manifest(report: ServiceReport, row: Deployment) -> str:
    """Return a Kubernetes list of a Deployment and a Service, as JSON, which kubectl reads.

    A pod is one replica; its plan is in the claim that has the name of the model.
    """
    name = "".join(c if c.isalnum() else "-" for c in Path(report.model).stem.lower()).strip("-")
    labels = {"app": name}
    health = {"port": _PORT}
    container = {
        "name": "serve",
        "image": _IMAGE,
        "args": [*_arguments(f"{name}={_PLAN}", row, report.level), "--host", "0.0.0.0"],
        "ports": [{"containerPort": _PORT}],
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", **health}},
        "livenessProbe": {"httpGet": {"path": "/v2/health/live", **health}},
        "resources": {"limits": _limits(report, row)},
        "volumeMounts": [
            {"name": "plan", "mountPath": _PLAN, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [
        {"name": "plan", "persistentVolumeClaim": {"claimName": name, "readOnly": True}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": row.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": volumes},
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": labels, "ports": [{"port": _PORT, "targetPort": _PORT}]},
    }
    whole = {"apiVersion": "v1", "kind": "List", "items": [deployment, service]}
    return json.dumps(whole, indent=2) + "\n"


def _limits(report: ServiceReport, row: Deployment) -> dict[str, str]:
    """Return the resources of a pod: GPUs, or the cores and the memory of ranks on a machine."""
    if report.is_gpu:
        return {"nvidia.com/gpu": str(row.ranks)}
    return {"cpu": str(row.ranks), "memory": str(row.ranks * row.process_bytes)}
