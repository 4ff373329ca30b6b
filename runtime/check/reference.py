"""The reference for checks of a plan: stock ONNX Runtime runs the whole model on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tensoropt.runtime.check.compare import blindness, largest_difference
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.caches import shared_caches, update_in_place
from tensoropt.runtime.session.inputs import Inputs, draws, make_inputs, perturb
from tensoropt.runtime.session.ranks import timed_s
from tensoropt.runtime.session.seeds import add_seeds
from tensoropt.runtime.session.session import RankSession, one_device_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import DRAWS, Job
from tensoropt.runtime.support.rank_options import EXACT

__all__ = ["Reference", "drawn_text", "one_device"]

Change = Callable[[Array, str], Array]


@dataclass
class Reference:
    """Results of the one-device run on ``inputs``: ``outputs`` by name, and seconds per timed step.

    No operator is rewritten to integers. ``blind`` has the names of outputs that make a comparison
    inconclusive. ``seeded`` is the model with the plan's seeds, if it draws random numbers.
    ``rewritten`` are the outputs with the rewrites that the ranks may use, if they may change
    results.
    """

    inputs: Inputs
    provider: Provider
    seeded: bytes | None
    outputs: dict[str, Array]
    blind: frozenset[str]
    times_s: tuple[float, ...] = ()
    rewritten: dict[str, Array] | None = None

    @property
    def job(self) -> Job:
        """The job, with the distributions that inputs are drawn from."""
        return self.inputs.job

    def by_rewrites(self, name: str) -> float | None:
        """Return the largest difference in an output that is due to rewrites, None without any."""
        if self.rewritten is None:
            return None
        return largest_difference(self.rewritten[name], self.outputs[name])

    def rerun_output(self, name: str) -> Array | None:
        """Return an output of a second run with other rounding, None if that run fails.

        The second run is not optimised, and its inputs are off by a few roundings.
        """
        return self._again.get(name)

    @cached_property
    def _again(self) -> dict[str, Array]:
        try:
            session = _open(self.inputs, self.provider, self.seeded, optimised=False)
            _run(session, self.inputs, self.provider, perturb)
        except UserError:  # some models run only when optimised
            return {}
        return session.fetch()


def one_device(job: Job, provider: Provider) -> Reference:
    """Return the one-device run on the first drawn inputs that make every output conclusive.

    If no inputs do, use the inputs with the most conclusive outputs. Raises `UserError` if the
    model runs on none of them.
    """
    best: tuple[Reference, RankSession] | None = None
    refusal: UserError | None = None
    plan = Plan.read(job.plans[0])
    seeded = add_seeds(Path(str(job.model)), plan)
    for inputs in draws(make_inputs(job, plan.inputs, plan.dims)):
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
    reference, session = best
    if plan.is_quantised and job.rounding != EXACT:
        return _rewrite(reference, session)
    return _time_steps(reference, session)


def _reference(
    inputs: Inputs, provider: Provider, seeded: bytes | None
) -> tuple[Reference, RankSession]:
    session = _open(inputs, provider, seeded)
    _run(session, inputs, provider)
    outputs = session.fetch()
    blind = frozenset(name for name, array in outputs.items() if blindness(array, inputs.job))
    return Reference(inputs, provider, seeded, outputs, blind), session


def _open(
    inputs: Inputs,
    provider: Provider,
    seeded: bytes | None,
    *,
    optimised: bool = True,
    rounding: str = EXACT,
) -> RankSession:
    model = Path(str(inputs.job.model))
    return one_device_session(
        model, provider, changed=seeded, optimised=optimised, rounding=rounding
    )


def _time_steps(reference: Reference, session: RankSession) -> Reference:
    """Take the same number of steps as the ranks: random numbers differ from step to step.

    The session ends here, so its memory does not count for the plan.
    """
    runs = reference.job.runs
    if runs:
        reference.times_s = tuple(timed_s(session.run) for _ in range(runs))
        reference.outputs = session.fetch()
    return reference


def _rewrite(reference: Reference, session: RankSession) -> Reference:
    """Add the outputs and times of a session with the rewrites that the ranks may use."""
    reference = _time_steps(reference, session)
    inputs, provider = reference.inputs, reference.provider
    other = _open(inputs, provider, reference.seeded, rounding=inputs.job.rounding)
    _run(other, inputs, provider)
    timed = replace(reference, outputs=other.fetch())
    timed = _time_steps(timed, other)
    return replace(reference, rewritten=timed.outputs, times_s=timed.times_s)


def _run(
    session: RankSession, inputs: Inputs, provider: Provider, change: Change | None = None
) -> None:
    """Run once; caches that ranks update in place are updated in place here, too.

    After the tokens of a sequence, a cache keeps its previous values; a new cache has zeros there.
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
    """Return the distributions of the drawn inputs that differ from the job ``asked``, if any."""
    found = []
    if job.draw != asked.draw:
        found.append(f"floats {DRAWS[job.draw]}")
    if job.int_range != asked.int_range:
        found.append(f"integers 0..{job.int_range[1] - 1}")
    return ", ".join(found) or None
