"""Invariants of every policy, on any jobs."""

import itertools
import math

import pytest
from budgets import examples
from cluster.costs import Costs
from cluster.placement import Machines
from cluster.policies.elastic_tiresias import ElasticTiresias
from cluster.policies.fifo import Fifo
from cluster.policies.known import Known
from cluster.policies.marginal import Marginal
from cluster.policies.tiresias import Tiresias
from cluster.profiles import Profile
from cluster.simulator import simulate
from cluster_cases import FREE, LINEAR, SINGLE, SLOWING, Watched, job, run
from hypothesis import given
from hypothesis import strategies as st

LEAN = Profile("lean", {2: 2.0, 4: 3.9, 8: 7.0}, 4)
POLICIES = {
    "fifo": Fifo,
    "tiresias": lambda: Tiresias((50.0,)),
    "elastic": lambda: ElasticTiresias((50.0,)),
    "marginal": Marginal,
    "known": Known,
}

SUBMITTED = st.tuples(
    st.floats(0, 500), st.floats(0.01, 3000), st.integers(0, 3), st.sampled_from([0, 1, 2])
)
JOBS = st.lists(SUBMITTED, min_size=1, max_size=25)


def _jobs(drawn):
    jobs = []
    for index, (arrival, work, power, kind) in enumerate(drawn):
        profile = (LINEAR, SLOWING, LEAN)[kind]
        request = max(1 << power, profile.minimum)
        jobs.append(job(index, arrival, work, request, profile, profile.minimum))
    return sorted(jobs, key=lambda held: held.arrival_s)


@pytest.mark.parametrize("name", POLICIES)
@examples(40)
@given(JOBS)
def test_each_job_gets_the_service_that_it_needs(name, drawn):
    """Allocations never exceed the devices, and counts are counts of plans.

    The work of a job equals the sum of its allocations, computed here from the allocations alone.
    """
    jobs = _jobs(drawn)
    ends, given_out = run(jobs, POLICIES[name]())
    done = dict.fromkeys(range(len(drawn)), 0.0)
    by_index = {held.index: held for held in jobs}
    moments = [*given_out, (max(ends), {})]
    for (now, counts), (then, _) in itertools.pairwise(moments):
        assert sum(counts.values()) <= 8
        for index, count in counts.items():
            assert count >= by_index[index].minimum and now >= by_index[index].arrival_s
            done[index] += by_index[index].profile.speed[count] * (then - now)
    for held in jobs:
        assert done[held.index] == pytest.approx(held.work, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", POLICIES)
@examples(25)
@given(JOBS, st.floats(0, 20), st.floats(0, 50))
def test_all_jobs_end_whatever_switches_cost(name, drawn, switch, resume):
    jobs, policy = _jobs(drawn), POLICIES[name]()
    outcome = simulate(jobs, Machines(2, 4), policy, Costs("", switch, resume))
    live = switch if policy.elastic else resume
    for state in outcome.states:
        assert state.finished < math.inf and state.devices == 0
        assert state.stalled <= 8 * (state.switches * live + state.resumes * resume) + 1e-6
        assert state.finished - state.job.arrival_s >= state.job.work / 8 * (1 - 1e-9)
    assert outcome.busy <= 8 * outcome.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("name", POLICIES)
@examples(25)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 50)), min_size=1, max_size=20))
def test_no_device_idles_while_a_single_job_waits(name, drawn):
    jobs = [job(n, at, work, profile=SINGLE) for n, (at, work) in enumerate(sorted(drawn))]
    ends, given_out = run(jobs, POLICIES[name](), devices=2)
    for now, counts in given_out:
        there = [n for n, held in enumerate(jobs) if held.arrival_s <= now < ends[n] - 1e-9]
        assert len(counts) >= min(2, len(there))


@pytest.mark.parametrize("name", ["tiresias", "elastic", "marginal"])
def test_no_job_waits_for_ever(name):
    """One device, and a job of 60 s; jobs that would each go first keep arriving for an hour."""
    jobs = [job(0, 0, 60, profile=SINGLE), *(job(n, n, 40, profile=SINGLE) for n in range(1, 90))]
    ends, _ = run(jobs, POLICIES[name](), devices=1)
    assert ends[0] < 3600


def test_events_of_one_moment_are_one_decision():
    policy = Watched(Tiresias())
    simulate([job(n, 5.0, 10, profile=SINGLE) for n in range(4)], Machines(1, 4), policy, FREE)
    assert [now for now, _ in policy.given] == [5.0, 15.0]
