"""A job that changes its number of devices: its stall, and the path of its state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from elasticity.runs import elastic_job, environment, wait_until
from elasticity.subjects import Recipe, Subject, prepare

from gpu.models import SIZES
from gpu.setting import Part, Setting, table
from tensoropt.elastic.api.client import Client
from tensoropt.elastic.control import RefusedError, SwitchResult
from tensoropt.runtime.support.errors import UserError

__all__ = ["switches"]

_STEPS = 10**6  # more than it takes
_SETTLED = 3  # steps before the next switch
_HEAD = ["devices", "method", "moved", "by", "stall", "stop", "move", "start", "first step"]

Row = list[object]


def switches(setting: Setting) -> Part:
    """Switch a job that trains GPT-2 with AdamW, from memory to memory and by a checkpoint."""
    folder = setting.folder / "switches"
    folder.mkdir()
    os.environ["TENSOROPT_JOBS"] = str(folder / "jobs")
    ranks = setting.ranks[0]
    setting.say(f"a family of plans for 1 to {ranks} devices")
    subject = _subject(setting, folder, ranks)
    rows, failures = list[Row](), list[str]()
    given, options = environment(subject, folder / "reads"), _options(setting)
    with elastic_job(subject, "gpu-check", _STEPS, 1, given, **options) as (client, _):
        for devices, method in ((ranks, "live"), (1, "live"), (ranks, "stop-resume")):
            setting.say(f"to {devices} devices, {method}")
            try:
                found = _switched(client, devices, method)
            except (RefusedError, UserError, TimeoutError) as error:
                failures.append(f"to {devices} devices, {method}: {error}")
                continue
            rows.append(_row(found))
            failures += _wrong(setting, found)
        why = [f"{event.text}\n" for event in client.events() if event.kind == "prepared"]
    return Part(f"{table(_HEAD, rows)}\n{''.join(why)}", failures)


def _subject(setting: Setting, folder: Path, ranks: int) -> Subject:
    model = SIZES[setting.zoo.size]["gpt2"]
    assert model is not None
    return prepare("gpt2", Recipe(model, "adamw", 64, 1e-4), folder, ranks)


def _options(setting: Setting) -> Mapping[str, str | int | bool]:
    if setting.provider == "cpu":
        return {"threads": 1}
    shared = {"share_gpus": True} if setting.gpus < setting.ranks[0] else {}
    return {"provider": setting.provider, **shared}


def _switched(client: Client, devices: int, method: str) -> SwitchResult:
    start = client.status().step
    wait_until(lambda: client.status().step >= start + _SETTLED)
    return client.scale(devices, method=method)


def _wrong(setting: Setting, found: SwitchResult) -> Iterator[str]:
    """Yield an error if state leaves the device although there is only one GPU."""
    on_one = setting.provider == "cuda" and (setting.host or setting.gpus == 1)
    if on_one and found.method == "live" and found.moved_by != "device":
        yield f"to {found.to_devices} devices: state went by the {found.moved_by}, not the device"


def _row(found: SwitchResult) -> Row:
    times = [found.phases_s[phase] for phase in ("stop", "move", "start", "first_step")]
    return [
        f"{found.from_devices} to {found.to_devices}",
        found.method,
        f"{found.moved_bytes / 2**20:.1f} MiB",
        found.moved_by,
        *(f"{1e3 * time_s:.1f} ms" for time_s in (found.stall_s, *times)),
    ]
