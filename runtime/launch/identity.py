"""The identity of a job, which all its ranks share under any launcher."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from tensoropt.runtime.support.job import Launched

__all__ = ["identity"]

_OWN = {
    "launcher_pid",
    "log",
    "outputs",
    "plan",
    "plans",
    "stall_s",
    "started_at",
    "threads",
    "timeout_s",
}
"""Fields that may differ between ranks; plans are compared by content, not by path."""


def identity(job: Launched) -> str:
    """Return a job's identity in the library's format: "plan=HASH,command=HASH"."""
    values = asdict(job)
    plans = [*values.get("plans", ()), *([values["plan"]] if "plan" in values else ())]
    command = {name: value for name, value in values.items() if name not in _OWN}
    rest = json.dumps({"kind": job.kind, **command}, sort_keys=True)
    return f"plan={_hash(*map(_document, plans))},command={_hash(rest.encode())}"


def _document(plan: str) -> bytes:
    """Return plan.json, which has the hashes of all other files; empty if it is missing."""
    try:
        return (Path(plan) / "plan.json").read_bytes()
    except OSError:
        return b""


def _hash(*texts: bytes) -> str:
    parts = (hashlib.sha256(text).digest() for text in texts)
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]
