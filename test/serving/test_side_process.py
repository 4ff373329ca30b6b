"""The process that reads long bodies: what it gives back, and what ends it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from itertools import count
from typing import Any

import numpy as np
import pytest

from tensoropt.serving.protocol import calls, messages
from tensoropt.serving.protocol.bodies import (
    is_long_to_read,
    is_long_to_write,
    read_body,
    write_body,
)
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Answer
from tensoropt.serving.protocol.tensors import Requested
from tensoropt.serving.side_process import SideProcess


def _body(values: Any, shape: list[int], datatype: str = "FP32") -> bytes:
    entry = {"name": "x", "datatype": datatype, "shape": shape, "data": values}
    return json.dumps({"inputs": [entry], "id": "7"}).encode()


def _in_side(work: Any, *given: Any, max_body: int = 1 << 20, timeout_s: float = 60.0) -> Any:
    async def done() -> Any:
        side = SideProcess(max_body, timeout_s)
        try:
            return await side.run(work, *given)
        finally:
            side.close()

    return asyncio.run(done())


def test_a_long_body_is_read_as_a_short_one() -> None:
    values = np.arange(30_000, dtype=np.float32)
    body = _body(values.tolist(), [30_000])
    assert is_long_to_read(body, None)
    found = _in_side(read_body, body, None)
    np.testing.assert_array_equal(found.inputs["x"], values)
    assert found.id == "7"


def test_what_is_refused_there_is_refused_here() -> None:
    with pytest.raises(RefusedError, match="expected 2 elements") as caught:
        _in_side(read_body, _body([1.0] * 3, [2]), None)
    assert caught.value.reason is Reason.INVALID


def test_a_long_answer_is_written_as_a_short_one() -> None:
    array = np.arange(20_000, dtype=np.float32)
    answer = Answer("m", "1", "", ((Requested("y"), array),))
    assert is_long_to_write(answer)
    assert not is_long_to_write(Answer("m", "1", "", ((Requested("y", is_binary=True), array),)))
    assert _in_side(write_body, answer) == write_body(answer)


def test_strings_in_bytes_take_long() -> None:
    raw = b"\0\0\0\0" * 50_000
    for datatype, is_long in (("BYTES", True), ("FP32", False)):
        entry: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": [50_000]}
        entry["parameters"] = {"binary_data_size": len(raw)}
        head = json.dumps({"inputs": [entry]}).encode()
        assert is_long_to_read(head + raw, str(len(head))) == is_long


def test_a_long_call_is_read_as_a_short_one() -> None:
    values = np.arange(40_000, dtype=np.float32)
    request = messages.ModelInferRequest(model_name="m", id="7")
    entry = request.inputs.add(name="x", datatype="FP32", shape=[40_000])
    entry.contents.fp32_contents.extend(values.tolist())
    assert calls.is_long_to_read(request)
    found = _in_side(calls.read_call_bytes, request.SerializeToString())
    np.testing.assert_array_equal(found.inputs["x"], values)
    raw = messages.ModelInferRequest(model_name="m", raw_input_contents=[values.tobytes()])
    raw.inputs.add(name="x", datatype="FP32", shape=[40_000])
    assert not calls.is_long_to_read(raw)
    raw.inputs[0].datatype = "BYTES"
    assert calls.is_long_to_read(raw)


def test_memory_and_time_are_limited_and_the_next_call_is_answered() -> None:
    async def check() -> None:
        side = SideProcess(1 << 20)
        first = await side.run(os.getpid)
        side._timeout_s = 2.0  # a busy machine takes longer to start the process
        assert first != os.getpid()
        with pytest.raises(RefusedError, match="too much time or memory") as caught:
            await side.run(bytearray, 1 << 34)
        assert caught.value.reason is Reason.LARGE
        with pytest.raises(RefusedError, match="not read within 2 s") as caught:
            async with asyncio.timeout(60):
                await asyncio.gather(side.run(sum, count()), asyncio.sleep(0.1))
        assert caught.value.reason is Reason.LATE
        side._timeout_s = 60.0
        assert await side.run(os.getpid) != first
        side.close()

    asyncio.run(check())


def test_nobody_waits_for_its_end() -> None:
    async def check() -> None:
        side = SideProcess()
        spinning = asyncio.create_task(side.run(sum, count()))
        await asyncio.sleep(1.0)
        spinning.cancel()
        begun = time.monotonic()
        side.close()
        assert time.monotonic() - begun < 10

    asyncio.run(check())
