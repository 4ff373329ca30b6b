"""One server for the tests of a file, of a job that each test has for itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from stand_in_job import StandInJob

from tensoropt.elastic.api.server import Serving, serve


class Current:
    """The job of the test that runs."""

    job = StandInJob()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)


@pytest.fixture(scope="module")
def current() -> Current:
    return Current()


@pytest.fixture(scope="module")
def serving(current: Current) -> Iterator[Serving]:
    with serve(current) as found:
        yield found


@pytest.fixture
def job(current: Current) -> StandInJob:
    current.job = StandInJob()
    return current.job


@pytest.fixture
def asks(serving: Serving, job: StandInJob) -> Iterator[httpx.Client]:
    """What asks without our client."""
    headers = {"Authorization": f"Bearer {serving.token}"}
    with httpx.Client(base_url=serving.url, headers=headers, trust_env=False) as client:
        yield client
