"""Service levels of text: the load that replicas of a plan take, and the fewest devices for it.

A replica continues ``texts`` texts in each step and reads the prompts of new texts between steps,
in parts. Prompts are read in sequence, each part followed by a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "Deployment",
    "ServiceLevel",
    "StepTimes",
    "best",
    "frontier_of",
    "is_service",
    "loaded",
    "slots_for",
    "texts_tried",
]

_PREFIX = "service:"
_EXAMPLE = f"{_PREFIX}rate=4,prompt=1024,answer=256,first_s=0.5,token_s=0.02"
_WHOLE = ("prompt", "answer", "part")
_REQUIRED = ("rate", "prompt", "answer")
_DEVIATIONS = 2.0
"""Standard deviations of a Poisson number of texts for which there are slots: 98% find one free."""


@dataclass(frozen=True)
class ServiceLevel:
    """The load and the limits of a service.

    ``rate`` requests arrive per second, at random. Each has ``prompt`` tokens, read ``part`` at a
    time, and gets ``answer`` tokens. The first takes at most ``first_s`` seconds on
    average, each other one ``token_s``. Raises :class:`UserError`.
    """

    rate: float
    prompt: int
    answer: int
    first_s: float = math.inf
    token_s: float = math.inf
    part: int = 512

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise UserError(f"service level: {each.name}: expected more than 0, got: {value}")

    @classmethod
    def parse(cls, text: str) -> ServiceLevel:
        """Return the level in the text of ``--objective``; raises :class:`UserError`."""
        where, names = "--objective service", [each.name for each in fields(cls)]
        given: dict[str, float] = {}
        for pair in filter(None, text.removeprefix(_PREFIX).split(",")):
            name, _, value = pair.partition("=")
            check_known(f"{where}: unknown part", name, names)
            try:
                given[name] = int(value) if name in _WHOLE else float(value)
            except ValueError:
                kind = "a whole number" if name in _WHOLE else "a number"
                raise UserError(f"{where}: {name}: expected {kind}, got: '{value}'") from None
        missing = [name for name in _REQUIRED if name not in given]
        if missing:
            raise UserError(f"{where}: expected {', '.join(missing)} as well, such as {_EXAMPLE}")
        return cls(**given)  # type: ignore[arg-type]

    @property
    def context(self) -> int:
        """The tokens of a whole text."""
        return self.prompt + self.answer

    @property
    def parts(self) -> int:
        """The steps in which a prompt is read."""
        return -(-self.prompt // self.part)


@dataclass(frozen=True)
class StepTimes:
    """Times of a replica: of a step that continues all texts, and of reading a whole prompt."""

    step_s: float
    prompt_s: float


@dataclass(frozen=True)
class Deployment:
    """Replicas of a plan under full load.

    A replica has ``ranks`` devices and continues ``texts`` on average, at most ``slots``. With
    ``rate`` requests per second for each replica, the first token takes ``first_s`` and each other
    token ``token_s``, both on average. A device needs ``process_bytes``. ``model`` is the name
    of the file.
    """

    ranks: int
    replicas: int
    texts: int
    slots: int
    process_bytes: int
    rate: float
    first_s: float
    token_s: float
    model: str = ""

    @property
    def devices(self) -> int:
        """The number of devices of all replicas."""
        return self.ranks * self.replicas

    def meets(self, level: ServiceLevel) -> bool:
        """Return whether the times are within the limits."""
        return self.first_s <= level.first_s and self.token_s <= level.token_s


def is_service(objective: str | None) -> bool:
    """Return whether the text of ``--objective`` is a service level."""
    return objective is not None and objective.startswith(_PREFIX)


def texts_tried() -> Iterator[int]:
    """Yield the numbers of texts to try: 1, 2, 4, ... 1024."""
    yield from (2**power for power in range(11))


def slots_for(texts: int) -> int:
    """Return the slots of a replica that continues ``texts`` on average.

    Requests that arrive at random make the number of texts vary by its square root (Poisson).
    """
    return math.ceil(texts + _DEVIATIONS * math.sqrt(texts))


def loaded(
    level: ServiceLevel, times: StepTimes, ranks: int, texts: int, process_bytes: int
) -> Deployment | None:
    """Return the deployment for ``texts`` per replica, None if prompts arrive too fast.

    By Little's law, ``texts`` requests of ``answer`` tokens leave every ``answer`` tokens' time. A
    token takes a step, and its share of the prompts that are read between steps. Prompts wait in a
    queue with equal service times (M/D/1, the formula of Pollaczek and Khinchine).
    """
    token_s = times.step_s + times.prompt_s * texts / level.answer
    rate = texts / (level.answer * token_s)
    read_s = times.prompt_s + level.parts * times.step_s
    used = rate * read_s
    if used >= 1:
        return None
    first_s = read_s * (1 + used / (2 * (1 - used)))
    replicas = math.ceil(level.rate / rate)
    return Deployment(
        ranks, replicas, texts, slots_for(texts), process_bytes, rate, first_s, token_s
    )


def frontier_of(found: Iterable[Deployment]) -> list[Deployment]:
    """Return the deployments that none beats in devices, first token and token time, sorted.

    Quadratic in their number, which is some dozens.
    """
    kept: list[Deployment] = []
    for own in sorted(found, key=_figures):
        if not any(_beats(other, own) for other in kept):
            kept.append(own)
    return kept


def _figures(own: Deployment) -> tuple[float, ...]:
    return own.devices, own.token_s, own.first_s


def _beats(other: Deployment, own: Deployment) -> bool:
    return all(a <= b for a, b in zip(_figures(other), _figures(own), strict=True))


def best(found: Sequence[Deployment], level: ServiceLevel) -> Deployment | None:
    """Return the deployment of fewest devices within the limits, of these the fastest per token."""
    return min((own for own in found if own.meets(level)), key=_figures, default=None)
