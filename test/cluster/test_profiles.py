"""Table of speeds: its reader, and the command that writes it."""

import csv

import pytest
from cluster.profiles import TABLE, Profile, read_profiles
from cluster.speedups import MODELS, rows


def test_steps_are_those_that_gain_most_per_device():
    """From 1, the step to 4 gains .8 by each device, the step to 2 only .5; from 4 nothing is
    gained.
    """
    profile = Profile("odd", {1: 1.0, 2: 1.5, 4: 3.4, 8: 3.3}, 1)
    assert profile.steps == {1: (4, pytest.approx(0.8)), 2: (4, pytest.approx(0.95))}
    assert profile.minimum == 1


def test_speeds_are_in_devices_of_the_smallest_count(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(
        "device,model,devices,step_s,memory_bytes,replicas_bytes,replicas_fit\n"
        "box,large,2,1.0,9,20,no\nbox,large,4,0.6,5,9,yes\nother,large,1,1.0,1,1,yes\n"
    )
    (profile,) = read_profiles("box", table)
    assert profile.speed == {2: 2.0, 4: pytest.approx(2 / 0.6)}
    assert (profile.minimum, profile.replicas) == (2, 4)
    with pytest.raises(ValueError, match=r"table\.csv: expected rows of h100, got: none$"):
        read_profiles("h100", table)


@pytest.mark.parametrize("device", MODELS)
def test_the_stored_table_has_every_model(device):
    profiles = read_profiles(device)
    assert [profile.model for profile in profiles] == list(MODELS[device])
    assert any(profile.replicas != profile.minimum for profile in profiles)
    for profile in profiles:
        assert 2 < max(profile.speed.values()) < 64


def test_a_row_is_what_the_frontier_says_now():
    """The cheapest model on one device and on two."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        stored = [row for row in csv.DictReader(file) if row["model"] == "alexnet"]
    made = [{k: str(v) for k, v in vars(row).items()} for row in rows("gtx1080ti", "alexnet", 2)]
    assert made == stored[:2]
