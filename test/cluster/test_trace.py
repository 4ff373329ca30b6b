"""Traces: reading, sampling, synthesis, and their jobs."""

import gzip

import pytest
from cluster.jobs import jobs_of, load_of, rounded
from cluster.profiles import Profile
from cluster.trace import SYNTHETIC, Submission, read_trace, sampled, synthesised, write_trace
from cluster_cases import LINEAR, SLOWING

HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_the_synthetic_trace_is_what_its_command_writes(tmp_path):
    write_trace(synthesised(2000, 1), tmp_path / "again.csv.gz")
    again = gzip.decompress((tmp_path / "again.csv.gz").read_bytes())
    assert gzip.decompress(SYNTHETIC.read_bytes()) == again
    assert len(read_trace(SYNTHETIC)) == 2000


def test_jobs_are_read_by_arrival(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "2017-10-09 07:01:55,66.0,2,132,a\n2017-10-09 07:01:05,9,1,9,b\n")
    first, second = read_trace(path)
    assert (first.duration_s, first.devices, second.devices) == (9.0, 1, 2)
    assert second.arrival_s - first.arrival_s == 50


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "2017-10-09 07:01:55,0,1,0,a\n", ":2: expected a positive duration and num_gpus"),
        (HEAD + "yesterday,1,1,0,a\n", ":2: expected timestamp, duration and num_gpus, got: "),
        ("a,b\n1,2\n", ":2: expected timestamp, duration and num_gpus, got: 'timestamp'"),
        (HEAD, ": expected two jobs or more, got: 0"),
    ],
)
def test_what_is_no_job_is_said(tmp_path, text, said):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}{said}")


def test_a_sample_is_drawn_by_its_seed():
    trace = synthesised(100, 3)
    assert sampled(trace, 10, 1) == sampled(trace, 10, 1) != sampled(trace, 10, 2)
    assert sampled(trace, 1000, 1) == trace
    assert sampled(trace, 10, 1) == sorted(sampled(trace, 10, 1), key=lambda job: job.arrival_s)


def test_arrivals_are_scaled_to_the_load():
    trace = synthesised(200, 5)
    jobs = jobs_of(trace, [LINEAR], 64, 0.5, 1)
    asked = sum(job.service_s * job.request for job in jobs if job.index < len(jobs))
    assert asked / (64 * jobs[-1].arrival_s) == pytest.approx(0.5)
    assert load_of(trace, 8) == pytest.approx(8 * load_of(trace, 64))


def test_a_job_keeps_its_time_on_the_devices_that_it_asks_for():
    trace = [Submission(0, 100, 3), Submission(10, 50, 1), Submission(20, 50, 16)]
    jobs = jobs_of(trace, [SLOWING], 8, 1.0, 1)
    assert [job.request for job in jobs] == [4, 1]
    assert [job.service_s for job in jobs] == [100, 50]
    assert [rounded(n) for n in (1, 2, 3, 12, 64)] == [1, 2, 4, 16, 64]


def test_models_are_drawn_among_those_that_fit():
    large = Profile("large", {4: 4.0, 8: 7.0}, 8)
    trace = [Submission(n, 10, 4 if n % 2 else 1) for n in range(60)]
    lean = jobs_of(trace, [LINEAR, large], 8, 1.0, 1)
    assert {job.profile.model for job in lean if job.request == 1} == {"linear"}
    assert {job.profile.model for job in lean if job.request == 4} == {"linear", "large"}
    assert {job.minimum for job in lean if job.profile is large} == {4}
    assert jobs_of(trace, [LINEAR, large], 8, 1.0, 2) != lean


def test_replicas_have_a_minimum_of_their_own():
    needy = Profile("needy", {1: 1.0, 2: 1.9, 4: 3.0}, 2)
    never = Profile("never", {1: 1.0, 2: 1.9, 4: 3.0}, None)
    trace = [Submission(n, 10, 4) for n in range(2)]
    assert {job.minimum for job in jobs_of(trace, [needy], 4, 1.0, 1, lean=False)} == {2}
    assert {job.minimum for job in jobs_of(trace, [never], 4, 1.0, 1, lean=False)} == {4}
    assert {job.minimum for job in jobs_of(trace, [needy], 4, 1.0, 1)} == {1}
