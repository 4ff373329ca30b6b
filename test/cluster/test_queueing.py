"""The simulator compared with formulas of queueing theory."""

import math
import random

import numpy as np
import pytest
from cluster.placement import Machines
from cluster.policies.fifo import Fifo
from cluster.policies.tiresias import Tiresias
from cluster.simulator import simulate
from cluster_cases import FREE, SINGLE, job

COUNT = 6000


def _times(rate, size, policy, devices=1):
    """Return sizes and times in the system of jobs that arrive at a Poisson ``rate``."""
    draw, now, jobs = random.Random(7), 0.0, []
    for index in range(COUNT):
        now += draw.expovariate(rate)
        jobs.append(job(index, now, size(draw), profile=SINGLE))
    outcome = simulate(jobs, Machines(1, devices), policy, FREE)
    work = np.array([held.work for held in jobs])
    return work, np.array([s.finished - s.job.arrival_s for s in outcome.states])


def test_fifo_on_one_device_is_m_m_1():
    """Mean time 1 / (mu - lambda)."""
    _, times = _times(0.6, lambda draw: draw.expovariate(1.0), Fifo())
    assert times.mean() == pytest.approx(1 / (1 - 0.6), rel=0.08)


def test_fifo_on_four_devices_is_m_m_4():
    """Mean wait C / (4 mu - lambda), with Erlang's C."""
    servers, offered = 4, 3.0
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    wait = last / (sum(terms) + last) / (servers - offered)
    _, times = _times(offered, lambda draw: draw.expovariate(1.0), Fifo(), devices=4)
    assert times.mean() == pytest.approx(1 + wait, rel=0.08)


def test_short_jobs_under_tiresias_see_only_the_upper_queue():
    """Jobs of 1 s and, one in ten, of 50 s; the limit is 2 s.

    For short jobs the others are jobs of 2 s, first come first served: their time is Pollaczek and
    Khinchine's wait, and their own second.
    """
    rate, limit = 0.15, 2.0
    policy = Tiresias(limits=(limit,), promote=0)
    work, times = _times(rate, lambda draw: 50.0 if draw.random() < 0.1 else 1.0, policy)
    mean, square = 0.9 + 0.1 * limit, 0.9 + 0.1 * limit**2
    wait = rate * square / (2 * (1 - rate * mean))
    assert times[work == 1.0].mean() == pytest.approx(1 + wait, rel=0.05)
    fifo = _times(rate, lambda draw: 50.0 if draw.random() < 0.1 else 1.0, Fifo())[1]
    assert fifo[work == 1.0].mean() > 10


def test_with_exponential_times_every_order_has_one_mean():
    """Attained service predicts nothing about the remaining work, so no order by it is better."""
    work, first = _times(0.7, lambda draw: draw.expovariate(1.0), Fifo())
    again, second = _times(0.7, lambda draw: draw.expovariate(1.0), Tiresias(limits=(0.5,)))
    assert (work == again).all() and first.sum() != second.sum()
    assert first.mean() == pytest.approx(second.mean(), rel=0.08)
