"""A model over a session that fails: who gets an error, and how it comes back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from fake_sessions import BAD, DEADLY, FakeSession, served, until

from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Infer
from tensoropt.serving.protocol.tensors import Requested


def _request(value: float = 1.0, samples: int = 1, **more) -> Infer:
    return Infer({"x": np.full((samples, 3), value, np.float32)}, **more)


async def _ask(service, request):
    async def read():
        return request

    return await service.infer("double", "", read, "http")


async def _refused(service, request) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await _ask(service, request)
    return caught.value


def test_an_answer():
    async def check():
        async with served(FakeSession()) as service:
            answer = await _ask(service, _request(id="7"))
            assert (answer.model, answer.version, answer.id) == ("double", "1", "7")
            ((requested, y),) = answer.outputs
            assert requested == Requested("y")
            np.testing.assert_array_equal(y, np.full((1, 3), 2.0))

    asyncio.run(check())


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Infer({}), "input 'x' is missing"),
        (
            Infer({"xs": np.ones((1, 3), np.float32)}),
            "input 'xs': the model has none, did you mean",
        ),
        (Infer({"x": np.ones((1, 3))}), "input 'x': expected datatype FP32, got: FP64"),
        (_request(outputs=(Requested("z"),)), "output 'z': the model has none"),
        (_request(samples=5), "samples: expected 1 to 4, got: 5"),
        (_request(samples=0), "samples: expected 1 to 4, got: 0"),
        (Infer({"x": np.ones(3, np.float32)}), "expected shape [4, 3], got: [3]"),
        (Infer({"x": np.ones((1, 4), np.float32)}), "expected shape [4, 3], got: [1, 4]"),
        (_request(BAD), "index out of bounds"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(request_, text):
    async def check():
        session = FakeSession()
        async with served(session) as service:
            error = await _refused(service, request_)
            assert error.reason is Reason.INVALID
            assert text in str(error)
            assert (await _ask(service, _request())).model == "double"

    asyncio.run(check())


def test_ranks_that_end_take_only_their_run_with_them():
    async def check():
        session = FakeSession()
        session.gate.clear(), session.restart_gate.clear()
        async with served(session, queue=50) as service:
            deadly = [asyncio.create_task(_ask(service, _request(DEADLY))) for _ in range(4)]
            await until(lambda: session.begun == 1)
            later = [asyncio.create_task(_ask(service, _request(3.0))) for _ in range(3)]
            await asyncio.sleep(0)
            session.gate.set()
            for error in await asyncio.gather(*deadly, return_exceptions=True):
                assert isinstance(error, RefusedError)
                assert error.reason is Reason.UNAVAILABLE
                assert "rank 1 was ended" in str(error)
            assert not service.is_ready
            session.restart_gate.set()
            for answer in await asyncio.gather(*later):
                np.testing.assert_array_equal(answer.outputs[0][1], np.full((1, 3), 6.0))
            assert service.is_ready
            assert session.restarts == 1
            assert b'rank_restarts_total{model="double"} 1.0' in service.metrics.text()

    asyncio.run(check())


def test_a_full_run_is_handed_on_ahead_and_may_fall_with_the_one_before():
    async def check():
        session = FakeSession()
        session.gate.clear()
        async with served(session) as service:
            values = (DEADLY, 3.0, 4.0)
            asked = []
            for value in values:
                asked.append(asyncio.create_task(_ask(service, _request(value, samples=4))))
                await asyncio.sleep(0.01)
            session.gate.set()
            first, ahead, last = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, RefusedError)
            assert isinstance(ahead, RefusedError) or ahead.outputs[0][1][0, 0] == 6.0
            assert last.outputs[0][1][0, 0] == 8.0

    asyncio.run(check())


def test_ranks_that_end_while_idle_come_back(monkeypatch):
    monkeypatch.setattr("tensoropt.serving.model.LOOK_S", 0.01)

    async def check():
        session = FakeSession()
        async with served(session) as service:
            await asyncio.sleep(0)
            session.is_alive = False
            while not session.restarts:
                await asyncio.sleep(0.01)
            assert (await _ask(service, _request())).model == "double"

    asyncio.run(check())


def test_ranks_are_started_again_until_they_stay(monkeypatch, caplog):
    pauses = []
    sleep = asyncio.sleep

    async def slept(pause):
        pauses.append(pause)
        await sleep(0)

    async def check():
        session = FakeSession()
        session.failing_restarts = 6
        async with served(session) as service:
            await _refused(service, _request(DEADLY))
            monkeypatch.setattr("tensoropt.serving.model.asyncio.sleep", slept)
            assert (await _ask(service, _request())).model == "double"

    asyncio.run(check())
    assert [pause for pause in pauses if pause][:6] == [1, 2, 4, 8, 16, 30]
    assert "model 'double': no memory for ranks" in caplog.text


def test_an_answer_that_takes_too_long():
    async def check():
        session = FakeSession()
        session.gate.clear()
        async with served(session, timeout_s=0.05) as service:
            error = await _refused(service, _request())
            assert error.reason is Reason.LATE
            assert str(error) == "no answer within 0.05 s (--timeout)"

    asyncio.run(check())


def test_a_full_queue_refuses_before_anything_is_read():
    async def check():
        session = FakeSession()
        session.gate.clear()
        async with served(session, queue=1) as service:
            running = []
            for _ in range(3):  # two runs, one that waits
                running.append(asyncio.create_task(_ask(service, _request(samples=4))))
                await asyncio.sleep(0.01)

            async def read():
                raise AssertionError("nothing is to be read")

            with pytest.raises(RefusedError, match="too many requests: 1 wait already"):
                await service.infer("double", "", read, "http")
            session.gate.set()
            await asyncio.gather(*running)
            text = service.metrics.text()
            assert b'{model="double",protocol="http",status="UNAVAILABLE"} 1.0' in text
            assert b'{model="double",protocol="http",status="OK"} 3.0' in text

    asyncio.run(check())


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("duble", "", "model 'duble': not served here, did you mean 'double'?"),
        ("double", "2", "model 'double': expected version 1, got: '2'"),
    ],
)
def test_models_that_are_not_there(name, version, text):
    async def check():
        async with served(FakeSession()) as service:
            with pytest.raises(RefusedError) as caught:
                service.model(name, version)
            assert caught.value.reason is Reason.UNKNOWN
            assert str(caught.value) == text

    asyncio.run(check())
