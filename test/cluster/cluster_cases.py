"""Jobs and profiles with results computed by hand."""

from cluster.costs import Costs
from cluster.jobs import Job
from cluster.placement import Machines
from cluster.profiles import Profile
from cluster.simulator import simulate

__all__ = ["FREE", "LINEAR", "SINGLE", "SLOWING", "Watched", "job", "run"]

FREE = Costs("free", 0.0, 0.0)
SINGLE = Profile("single", {1: 1.0}, 1)
LINEAR = Profile("linear", {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, 1)
SLOWING = Profile("slowing", {1: 1.0, 2: 1.6, 4: 2.4, 8: 3.0}, 1)


def job(index, arrival, work, request=1, profile=LINEAR, minimum=1, most=64):
    return Job(index, arrival, request, work, profile, minimum, most)


class Watched:
    """A policy that records its allocations and their times."""

    def __init__(self, policy):
        self.policy, self.elastic, self.given = policy, policy.elastic, []

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def allocate(self, devices, now):
        wanted = dict(self.policy.allocate(devices, now))
        self.given.append((now, {state.job.index: count for state, count in wanted.items()}))
        return wanted


def run(jobs, policy, devices=8, costs=FREE):
    """Return the ends of the jobs in order, and the recorded allocations; on one machine."""
    watched = Watched(policy)
    outcome = simulate(jobs, Machines(1, devices), watched, costs)
    return [state.finished for state in outcome.states], watched.given
