"""The page in a real browser. Without one, what of it can be seen in its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from browser import NEEDS_BROWSER, Browser, Page
from stand_in_job import StandInJob

from tensoropt.elastic.api.app import page_and_policy
from tensoropt.elastic.api.server import Serving
from tensoropt.elastic.control import Event, StepRow

Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, serving: Serving, job: StandInJob) -> Iterator[Open]:
    """Open the page, and wait for ``script``; nothing may complain but where a test allows it."""
    pages: list[tuple[Page, bool]] = []

    def opened(script: str, url: str = serving.page, complains: bool = False) -> Page:
        page = browser.open(url)
        pages.append((page, complains))
        page.until(script)
        return page

    yield opened
    for page, complains in pages:
        with page:
            assert bool(page.complaints()) == complains, page.complaints()


def text(page: Page, place: str) -> str:
    return str(page.run(f"document.querySelector('{place}').textContent"))


def points(page: Page, chart: str) -> int:
    path = page.run(f"document.querySelector('#{chart} path').getAttribute('d')")
    return len(re.findall("[MLH]", path))


LOADED = (
    "document.querySelector('#loss path')?.getAttribute('d') && profile.length && events.length"
)


@NEEDS_BROWSER
class TestInABrowser:
    def test_a_job_that_runs(self, opened: Open, job: StandInJob) -> None:
        page = opened(LOADED)
        assert text(page, "h1") == "stand-in"
        assert text(page, "#state") == "training"
        assert text(page, "#line") == (
            "step 5 of 1,000 · loss 0.25 · 100 ms a step · 320 samples/s · 2 devices, plan 2"
        )
        assert [points(page, chart) for chart in ("rate", "loss", "devices")] == [5, 5, 5]
        assert text(page, "#rate-at") == "step 5: 320 samples/s"
        assert text(page, "#ranks tr:nth-child(2)") == "0cpu:010080 ms"
        assert text(page, "#profile tr:nth-child(3)") == "22340 samples/s320 samples/s64 MiBnow"
        assert "started2 devices, plan 2" in text(page, "#events")
        assert page.screenshot().startswith(b"\x89PNG")

    def test_it_goes_on(self, opened: Open, job: StandInJob) -> None:
        page = opened(LOADED)
        job.take_step()
        job.happen("checkpoint", "step 6")
        page.until("document.querySelector('#line').textContent.startsWith('step 6 of')")
        page.until("document.querySelector('#rate-at').textContent.startsWith('step 6')")
        page.until("document.querySelector('#events').textContent.includes('step 6')")

    def test_what_the_job_says_is_text(self, opened: Open, job: StandInJob) -> None:
        job.now = replace(job.now, name="<img src=x onerror=alert(1)>", family="<b>f</b>")
        job.happened.append(Event(2, 1.8e9, 3, "lost", "<script>alert(1)</script>"))
        page = opened(LOADED)
        assert text(page, "h1") == "<img src=x onerror=alert(1)>"
        assert page.run("document.querySelectorAll('img, b, #events script').length") == 0
        assert page.run("document.querySelectorAll('#loss .mark.bad title').length") == 1

    def test_scaling(self, opened: Open, job: StandInJob) -> None:
        page = opened(LOADED)
        page.run("document.querySelectorAll('#profile button')[1].click()")
        assert job.asked == []
        assert text(page, "#profile button.sure") == "Sure?"
        page.run("document.querySelectorAll('#profile button')[1].click()")
        page.until("document.querySelector('#switch-at').textContent.startsWith('stalled')")
        assert text(page, "#switch-at") == "stalled 94 ms, moved 1 MiB"
        assert job.asked == [("scale", 4, None, "live")]
        page.until("document.querySelector('#profile tr:nth-child(4)').textContent.endsWith('now')")

    def test_one_step_and_none(self, opened: Open, job: StandInJob) -> None:
        job.log = [StepRow(1, None, 0.1, 2, 1)]
        page = opened("document.querySelector('#rate circle') !== null")
        assert page.run("document.querySelectorAll('#loss circle').length") == 0
        assert text(page, "#loss-at") == "step 1: no number"
        job.log, job.now = [], replace(job.now, step=0, loss=None, samples_per_s=None)
        page = opened("document.querySelector('#line').textContent.startsWith('step 0 of')")
        page.until("document.querySelector('#rate path') !== null")
        assert points(page, "rate") == 0

    def test_many_steps(self, opened: Open, job: StandInJob) -> None:
        job.log = [StepRow(step, 1.0 / step, 0.1, 2, 1) for step in range(1, 100_001)]
        job.now = replace(job.now, step=100_000, steps=100_000)
        job.end()
        page = opened(LOADED)
        assert 1000 < points(page, "loss") < 2000
        assert text(page, "#loss-at").startswith("step 100,000: ")
        assert text(page, "#state") == "ended"
        assert page.run("document.querySelectorAll('#profile button').length") == 0

    def test_a_crash_that_goes_back(self, opened: Open, job: StandInJob) -> None:
        page = opened(LOADED)
        job.log = [*job.log[:3], StepRow(4, 9.0, 0.1, 1, 2)]
        job.now = replace(job.now, step=4, generation=2, devices=1)
        page.until("document.querySelector('#loss-at').textContent == 'step 4: 9'")
        assert points(page, "devices") == 4

    def test_without_the_token(self, opened: Open, serving: Serving) -> None:
        page = opened("!document.querySelector('#message').hidden", f"{serving.url}/", True)
        assert text(page, "#message span").startswith("This page needs the job's token: ")
        page.run(f"document.querySelector('#message input').value = '{serving.token}'")
        page.run("document.querySelector('#message button').click()")
        page.until(LOADED)

    def test_a_server_that_is_gone(self, browser: Browser, job: StandInJob) -> None:
        from tensoropt.elastic.api.server import serve

        with serve(job) as serving, browser.open(serving.page) as page:
            page.until(LOADED)
            serving.close()
            page.until("!document.querySelector('#message').hidden")
            assert text(page, "#message").strip().startswith("The job does not answer: ")

    def test_what_the_page_may_not_do(self, opened: Open, job: StandInJob) -> None:
        page = opened(LOADED, complains=True)
        page.run(
            "document.body.append(Object.assign(document.createElement('script'), "
            "{textContent: 'globalThis.wrong = 1'}))"
        )
        assert page.run("globalThis.wrong") is None
        asked = "fetch('http://localhost:1/').catch((error) => error.message)"
        assert page.run(asked) == "Failed to fetch"
        assert "Content Security Policy" in "".join(page.complaints())

    def test_dark_and_light(self, opened: Open) -> None:
        page = opened(LOADED)
        colours = set()
        for scheme in ("dark", "light"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            page.call("Emulation.setEmulatedMedia", features=features)
            colours.add(page.run("getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2

    def test_a_narrow_window(self, browser: Browser, serving: Serving, job: StandInJob) -> None:
        with browser.open(serving.page, width=400) as page:
            page.until(LOADED)
            root = "document.documentElement"
            assert page.run(f"{root}.scrollWidth") == page.run(f"{root}.clientWidth") <= 400


def test_nothing_is_fetched_from_elsewhere() -> None:
    page, policy = page_and_policy()
    assert re.findall(r"(?:https?:)?//[\w.]+", page) == ["http://www.w3.org"]
    assert not re.search(r"\b(?:src|on\w+|style)=|innerHTML|outerHTML|insertAdjacent", page)
    assert "unsafe" not in policy
