"""Small cases of each policy, computed by hand."""

import itertools

import pytest
from budgets import examples
from cluster.costs import Costs
from cluster.placement import Machines
from cluster.policies.elastic_tiresias import ElasticTiresias
from cluster.policies.fifo import Fifo
from cluster.policies.known import Known
from cluster.policies.marginal import LEVELS, Marginal
from cluster.policies.tiresias import Tiresias
from cluster.profiles import Profile
from cluster.simulator import simulate
from cluster_cases import FREE, LINEAR, SINGLE, SLOWING, job, run
from hypothesis import given
from hypothesis import strategies as st

FIRST = (3250.0,)


def test_fifo_lets_nobody_overtake():
    """The second job waits for all 8 devices, and so does the third, which would fit."""
    jobs = [job(0, 0, 40, request=4), job(1, 1, 80, request=8), job(2, 2, 10, request=4)]
    ends, _ = run(jobs, Fifo())
    assert ends == [10, 20, 22.5]


def test_tiresias_lets_the_next_overtake_who_does_not_fit():
    jobs = [job(0, 0, 40, request=4), job(1, 1, 80, request=8), job(2, 2, 10, request=4)]
    ends, _ = run(jobs, Tiresias())
    assert ends == [10, 20, 4.5]


def test_tiresias_stops_the_lower_queue_for_the_upper():
    """At 3250 device seconds, time 1625 on 2 of 2, job 0 falls, and job 1 takes its devices.

    Job 1 ends before it falls: at 1725. Job 0 then has 750 of its 4000 left.
    """
    jobs = [job(0, 0, 4000, request=2), job(1, 0.5, 200, request=2)]
    ends, given_out = run(jobs, Tiresias(FIRST), devices=2)
    assert ends == [2100, 1725]
    assert (1625, {1: 2}) in given_out
    ends, _ = run(jobs, Tiresias(FIRST), devices=2, costs=Costs("dear", 5, 30))
    assert ends == [2130, 1725]


def test_of_the_lower_queue_who_started_first_goes_first():
    jobs = [job(0, 0, 10000), job(1, 1, 10000)]
    ends, _ = run(jobs, Tiresias(FIRST), devices=1)
    assert ends == [3250 + 3250 + 6750, 20000]


def test_who_was_stopped_and_waited_goes_up_again():
    """After 3250 s job 0 is stopped by jobs that arrive in sequence.

    After waiting 8 times as long it is promoted, and the job that runs then ends first.
    """
    jobs = [job(0, 0, 4000), *(job(n, 1 + 1000 * (n - 1), 1000) for n in range(1, 60))]
    ends, _ = run(jobs, Tiresias(FIRST), devices=1)
    waited = 9 * 3250
    assert waited <= ends[0] - 750 <= waited + 1000
    ends, _ = run(jobs, Tiresias(FIRST, promote=0), devices=1)
    assert ends[0] == 4000 + 59 * 1000


def test_elastic_tiresias_expands_to_where_most_is_gained():
    """Two of 8 devices are requested. Linear gains 1 by each device, the other job .6, .4, .15.

    Thus 4 and then 2 more go to the first job, which has 4, and cannot have 8 in addition to the
    other's 1; the other job grows to 4.
    """
    jobs = [job(0, 0, 1000), job(1, 0, 1000, profile=SLOWING)]
    _, given_out = run(jobs, ElasticTiresias())
    assert given_out[0] == (0, {0: 4, 1: 4})


def test_elastic_tiresias_compacts_when_more_than_ten_wait():
    """All jobs request all 8 devices, and soon fall. Ten may wait for the job that started first.

    With the eleventh it is compacted to one device, and the next seven jobs have one each.
    """
    jobs = [job(n, 1000 + n, 1e6, 8, SLOWING) for n in range(12)]
    _, given_out = run(jobs, ElasticTiresias(limits=(1.0,), promote=0))
    assert (1010.125, {0: 8}) in given_out
    assert (1011.125, dict.fromkeys(range(8), 1)) in given_out


def test_elastic_tiresias_does_not_compact_the_upper_queue():
    old = job(0, 0, 1e6, request=8)
    young = [job(n, 1000 + n, 1e5, request=8) for n in range(1, 12)]
    _, given_out = run([old, *young], ElasticTiresias(limits=(1e9,), promote=0))
    assert (1011, {0: 8}) in given_out


def test_elastic_tiresias_pays_the_stall_of_a_switch():
    """The job is alone on all 8 from 10 on: 10 of 100 are done, 2 s are stalled, 90 take 11.25."""
    jobs = [job(0, 0, 100, minimum=1), job(1, 0, 10, profile=SINGLE)]
    free = [run(jobs, ElasticTiresias(), 2)[0], run(jobs, ElasticTiresias(), 2, Costs("", 2, 9))[0]]
    assert free == [[10 + 90 / 2, 10], [12 + 90 / 2, 10]]


def test_what_is_done_in_a_stall_is_nothing():
    """Stalls of 2 s at 10, 20 and 30: 10 are done, then 8 s on two, 8 on one, and 33 on two."""
    jobs = [job(0, 0, 100), job(1, 0, 10, profile=SINGLE), job(2, 20, 10, profile=SINGLE)]
    ends, _ = run(jobs, ElasticTiresias(), 2, Costs("", 2, 9))
    assert ends == [65, 10, 30]


def test_marginal_starts_a_job_where_it_is_worth_it():
    """A job that is alone gets all devices that help it immediately, without a switch."""
    flat = Profile("flat", {1: 1.0, 2: 1.9, 4: 1.9}, 1)
    ends, given_out = run([job(0, 0, 190, request=4, profile=flat)], Marginal())
    assert ends == [100] and given_out[0][1] == {0: 2}


def test_marginal_shrinks_who_uses_its_devices_worst():
    """The second job arrives when the first two have all devices: the lower gain gives."""
    jobs = [job(0, 0, 1e4), job(1, 0, 1e4, profile=SLOWING), job(2, 10, 10, profile=SINGLE)]
    _, given_out = run(jobs, Marginal())
    assert given_out[0][1] == {0: 4, 1: 4}
    assert given_out[1][1] == {0: 4, 1: 2, 2: 1}


def test_marginal_moves_devices_only_to_where_they_do_clearly_more():
    """The second job arrives when the first has both devices, and gains less by its second device.

    It starts, as young jobs have priority, and when the third has ended the device returns.
    """
    close = Profile("close", {1: 1.0, 2: 1.7}, 1)
    jobs = [job(0, 0, 1e4, profile=SLOWING), job(1, 0, 1e4), job(2, 1, 1, profile=close)]
    _, given_out = run(jobs, Marginal(), devices=4)
    assert [counts for _, counts in given_out[:3]] == [
        {0: 2, 1: 2},
        {0: 1, 1: 2, 2: 1},
        {0: 2, 1: 2},
    ]
    held = [job(0, 0, 100, profile=SLOWING), job(1, 1, 100, profile=close)]
    _, kept = run(held, Marginal(), devices=3)
    assert kept[1][1] == {0: 2, 1: 1}
    _, moved = run(held, Marginal(keep=1.0), devices=3)
    assert moved[1][1] == {0: 1, 1: 2}


def test_marginal_has_a_minimum_below_what_replicas_need():
    """Lean plans on one device let two jobs run together that need two each as replicas."""
    needy = Profile("needy", {1: 1.0, 2: 1.9}, 2)
    jobs = [job(n, 0, 19, request=2, profile=needy, minimum=1) for n in range(2)]
    assert run(jobs, Marginal(), devices=2)[1][0][1] == {0: 1, 1: 1}
    jobs = [job(n, 0, 19, request=2, profile=needy, minimum=2) for n in range(2)]
    assert run(jobs, Marginal(), devices=2)[1][0][1] == {0: 2}


@examples(60)
@given(
    st.lists(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), min_size=1, max_size=3),
    st.integers(1, 7),
)
def test_marginal_gives_the_best_allocation_where_steps_are_single(gains, devices):
    """The sum of speeds is the largest of all allocations, for concave speeds."""
    jobs = []
    for index, falling in enumerate(gains):
        total = itertools.accumulate([1.0, *sorted(falling, reverse=True)])
        profile = Profile(str(index), dict(enumerate(total, 1)), 1)
        jobs.append(job(index, 0, 1e9, profile=profile))
    _, given_out = run_first(jobs, Marginal(), devices)
    found = sum(jobs[index].profile.speed[count] for index, count in given_out.items())
    choices = [[0, *held.profile.speed] for held in jobs]
    best = max(
        sum(held.profile.speed.get(n, 0.0) for held, n in zip(jobs, counts, strict=True))
        for counts in itertools.product(*choices)
        if sum(counts) <= devices
    )
    assert found == pytest.approx(best)


def run_first(jobs, policy, devices):
    """Return the first allocation of a policy."""
    from cluster.jobs import State

    states = [State(held, held.work) for held in jobs]
    for state in states:
        policy.arrived(state, 0.0)
    wanted = policy.allocate(devices, 0.0)
    return states, {state.job.index: count for state, count in wanted.items()}


def test_known_prefers_who_ends_first():
    jobs = [job(0, 0, LEVELS[3] * 2, profile=SINGLE), job(1, 5, 10, profile=SINGLE)]
    ends, _ = run(jobs, Known(), devices=1)
    assert ends == [LEVELS[3] * 2 + 10, 15]


def test_a_policy_that_leaves_jobs_waiting_is_told():
    with pytest.raises(RuntimeError, match=r"^the policy leaves 1 jobs waiting, 0 first$"):
        simulate([job(0, 0, 1, request=4)], Machines(1, 2), Fifo(), FREE)


def test_linear_speed_is_that_of_all_devices():
    ends, _ = run([job(0, 0, 80, profile=LINEAR)], Marginal())
    assert ends == [10]
