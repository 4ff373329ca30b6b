"""A family: plans of one training job for several numbers of devices, with the same initial state.

Reading a family is fast, as every job does it at its start: it hashes the graphs of the selected
plan and the header of the initial checkpoint. `Family.check` reads every file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.family.document import (
    FAMILY_FILE,
    INITIAL_FILE,
    plan_file,
    read_family,
)
from tensoropt.runtime.plan.document import read_json
from tensoropt.runtime.plan.files import check_files
from tensoropt.runtime.support.errors import UserError, did_you_mean
from tensoropt.runtime.support.files import sha256_of

if TYPE_CHECKING:
    from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Family", "FamilyPlan"]


@dataclass(frozen=True)
class FamilyPlan:
    """A plan of a family; ``name`` is the name of its folder, ``path``.

    ``time_s`` per step, ``samples_per_s`` and ``process_bytes`` per device are predictions of
    plan.json.
    """

    name: str
    devices: int
    path: Path
    time_s: float
    samples_per_s: float
    process_bytes: int


@dataclass(frozen=True)
class Family:
    """A folder of plans; ``why_not`` has the reason for each number of devices without a plan.

    ``plans`` are sorted by devices, then by time. ``initial`` is the checkpoint that every plan
    starts from. Every plan processes ``samples_per_step``.
    """

    folder: Path
    plans: tuple[FamilyPlan, ...]
    why_not: Mapping[int, str]
    initial: Path
    samples_per_step: int
    model_name: str
    model_sha256: str
    device: str
    limit_bytes: int | None
    files: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, folder: Path | str) -> Family:
        """Return the family in ``folder``; raises `UserError`. Reads only family.json."""
        folder = Path(folder)
        document = read_family(folder)
        for name in document["files"]:
            path = folder / name
            if not path.is_file():
                raise UserError(f"{folder}: {name} is missing, which {FAMILY_FILE} lists")
            if not path.resolve().is_relative_to(folder.resolve()):
                raise UserError(f"{folder}: {name} leads out of the folder, expected a file inside")
        plans = [FamilyPlan(path=folder / entry["name"], **entry) for entry in document["plans"]]
        return cls(
            folder=folder,
            plans=tuple(sorted(plans, key=lambda plan: (plan.devices, plan.time_s))),
            why_not={entry["devices"]: entry["why_not"] for entry in document["left_out"]},
            initial=folder / INITIAL_FILE,
            samples_per_step=document["samples_per_step"],
            model_name=document["model"]["name"],
            model_sha256=document["model"]["sha256"],
            device=document["device"],
            limit_bytes=document["limit_bytes"],
            files=document["files"],
        )

    @property
    def counts(self) -> list[int]:
        """The numbers of devices for which the family has a plan."""
        return sorted({plan.devices for plan in self.plans})

    def plan(self, name: str) -> FamilyPlan:
        """Return a plan by its name; raises `UserError`."""
        for plan in self.plans:
            if plan.name == name:
                return self._whole(plan)
        names = [plan.name for plan in self.plans]
        raise UserError(
            f"{self.folder}: no plan of that name in the family, expected {_choices(names)}, "
            f"got: '{name}'{did_you_mean(name, names)}"
        )

    def for_devices(self, count: int) -> FamilyPlan:
        """Return the fastest plan for ``count`` devices; raises `UserError` with the reason."""
        for plan in self.plans:
            if plan.devices == count:
                return self._whole(plan)
        why = f" ({self.why_not[count]})" if count in self.why_not else ""
        raise UserError(
            f"{self.folder}: no plan for that many devices in the family, "
            f"expected {_choices(self.counts)}, got: {count}{why}"
        )

    def check(self) -> None:
        """Read and hash every file of the family; raises `UserError`.

        Also compares the values that all plans must share.
        """
        from tensoropt.runtime.family.members import check_shared
        from tensoropt.runtime.plan.plan import Plan
        from tensoropt.runtime.training.checkpoint import check_checkpoint
        from tensoropt.runtime.training.integrity import check_tensors
        from tensoropt.runtime.training.plan import TrainingPlan

        for name in self.files:
            self.check_file(name)
        check_tensors(self.initial)
        plans = [TrainingPlan.from_plan(Plan.load(plan.path)) for plan in self.plans]
        check_shared(plans)
        for row, plan in zip(self.plans, plans, strict=True):
            self._check_row(row, plan)
            check_checkpoint(plan, self.initial)

    def _check_row(self, row: FamilyPlan, plan: TrainingPlan) -> None:
        """Raise `UserError` if a plan contradicts its row of family.json."""
        expected = (row.devices, self.samples_per_step, self.model_sha256)
        found = (plan.plan.ranks, plan.samples_per_step, plan.plan.model_sha256)
        names = ("ranks", "samples per step", "model")
        for name, wanted, got in zip(names, expected, found, strict=True):
            if wanted != got:
                raise UserError(
                    f"{row.path}: {name}: expected {wanted}, as {FAMILY_FILE} has it, got: {got}"
                )

    def check_file(self, name: str) -> None:
        """Raise `UserError` unless a file of the family is unchanged since it was written.

        For the initial checkpoint, this reads only the header, which has the digests of the
        tensors: ranks compare these when they load it.
        """
        from tensoropt.runtime.training.integrity import header_digest

        digest = header_digest if name == INITIAL_FILE else sha256_of
        found, expected = digest(self.folder / name), self.files[name]
        if found != expected:
            raise UserError(
                f"{self.folder}: {name} is not the one that the family was written with, "
                f"expected sha256 {expected}, got: {found}"
            )

    def _whole(self, plan: FamilyPlan) -> FamilyPlan:
        """Return ``plan`` after comparing its files, and the header of the initial checkpoint,
        with their digests. A damaged plan is an error: no other plan may replace it."""
        self.check_file(INITIAL_FILE)
        self.check_file(plan_file(plan.name))
        check_files(plan.path, read_json(plan.path / "plan.json")["files"])
        return plan


def _choices(names: Iterable[object]) -> str:
    return "one of " + ", ".join(map(str, names))
