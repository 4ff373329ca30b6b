"""The one-device run that a plan is checked against: stock ONNX Runtime on the whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tensoropt.runtime.check.compare import blindness
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.caches import shared_caches, update_in_place
from tensoropt.runtime.session.inputs import Inputs, draws, make_inputs, rounded_otherwise
from tensoropt.runtime.session.ranks import timed_s
from tensoropt.runtime.session.seeds import seeded_model
from tensoropt.runtime.session.session import RankSession, one_device_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import DRAWS, Job

__all__ = ["Reference", "drawn_text", "one_device"]

Change = Callable[[Array, str], Array]


@dataclass
class Reference:
    """What one device makes of ``inputs``: ``outputs`` by name, and the seconds of timed steps.

    ``blind`` are the names of the outputs with which a comparison shows nothing; ``seeded`` is the
    model with the plan's seeds, where it draws numbers.
    """

    inputs: Inputs
    provider: Provider
    seeded: bytes | None
    outputs: dict[str, Array]
    blind: frozenset[str]
    times_s: tuple[float, ...] = ()

    @property
    def job(self) -> Job:
        """The job, with what inputs are drawn from."""
        return self.inputs.job

    def again(self, name: str) -> Array | None:
        """Return an output of a second run, rounded otherwise; ``None`` where there is none.

        Not optimised, and with inputs that are off by a few roundings.
        """
        return self._again.get(name)

    @cached_property
    def _again(self) -> dict[str, Array]:
        try:
            session = _opened(self.inputs, self.provider, self.seeded, optimised=False)
            _run(session, self.inputs, self.provider, rounded_otherwise)
        except UserError:  # there are models that run only as they are optimised
            return {}
        return session.fetch()


def one_device(job: Job, provider: Provider) -> Reference:
    """Return the one-device run on the first drawn inputs that let every output show something.

    Where none does, on those that let most. Raises `UserError` where the model runs on none.
    """
    best: tuple[Reference, RankSession] | None = None
    refusal: UserError | None = None
    plan = Plan.read(job.plans[0])
    seeded = seeded_model(Path(str(job.model)), plan)
    for inputs in draws(make_inputs(job, plan.inputs)):
        if best is not None and inputs.job.int_range != best[0].job.int_range:
            break  # smaller integers are for tables too small for the usual ones
        try:
            found = _reference(inputs, provider, seeded)
        except UserError as error:
            refusal = refusal or error
            continue
        if best is None or len(found[0].blind) < len(best[0].blind):
            best = found
        if not best[0].blind:
            break
    if best is None:
        hint = " (inputs are drawn, see --int-range and --inputs)" if job.inputs is None else ""
        raise UserError(f"the one-device run failed: {refusal}{hint}") from None
    return _timed(*best)


def _reference(
    inputs: Inputs, provider: Provider, seeded: bytes | None
) -> tuple[Reference, RankSession]:
    session = _opened(inputs, provider, seeded)
    _run(session, inputs, provider)
    outputs = session.fetch()
    blind = frozenset(name for name, array in outputs.items() if blindness(array, inputs.job))
    return Reference(inputs, provider, seeded, outputs, blind), session


def _opened(
    inputs: Inputs, provider: Provider, seeded: bytes | None, *, optimised: bool = True
) -> RankSession:
    model = Path(str(inputs.job.model))
    return one_device_session(model, provider, changed=seeded, optimised=optimised)


def _timed(reference: Reference, session: RankSession) -> Reference:
    """Take as many steps as the ranks will: a model that draws numbers draws others in each.

    The session ends here, so its memory is no part of the plan's.
    """
    runs = reference.job.runs
    if runs:
        reference.times_s = tuple(timed_s(session.run) for _ in range(runs))
        reference.outputs = session.fetch()
    return reference


def _run(
    session: RankSession, inputs: Inputs, provider: Provider, change: Change | None = None
) -> None:
    """Run once; caches that ranks update in place are updated in place here, too.

    Behind the tokens of a sequence, such a cache keeps its values. One that is made anew has zeros.
    """
    caches = shared_caches(Plan.read(inputs.job.plans[0]), session, inputs.shapes)
    shared = {cache.past.name: cache for cache in caches}
    for name in inputs.tensors:
        drawn = inputs.array(name)
        array = drawn if change is None else change(drawn, name)
        if name in shared:
            memory = provider.empty(caches[shared[name]], array.dtype)
            update_in_place(session, shared[name], memory, array)
        else:
            session.feed(name, array)
    session.run()


def drawn_text(job: Job, asked: Job) -> str | None:
    """Return from what inputs were drawn where not as the job ``asked``."""
    found = []
    if job.draw != asked.draw:
        found.append(f"floats {DRAWS[job.draw]}")
    if job.int_range != asked.int_range:
        found.append(f"integers 0..{job.int_range[1] - 1}")
    return ", ".join(found) or None
