"""Rows and figures of the comparisons with published measurements on GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from accuracy.gpu_choices import Change, by_data_sheet, table
from accuracy.gpu_degrees import fewest, limits
from accuracy.gpu_layers import LAYERS, Measured, host_limited, planned, predicted_s, rows_of
from accuracy.gpu_services import Answer, served
from accuracy.gpu_serving import LLAMA, Published, read_rows, speed_ups
from graphs.served import Served

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.planning.service import ServiceLevel


def test_each_pass_of_a_published_layer_is_a_row() -> None:
    times = {"forward_s": 1.0, "backward_s": 2.0, "update_s": 3.0}
    row = {"micro_batch": 4, "tensor_parallel": 2, **times}
    assert rows_of({"layers": {"OPT-350": {"A100-40": [row]}}}) == [
        Measured("OPT-350", "A100-40", 2, 4, "forward", 1.0),
        Measured("OPT-350", "A100-40", 2, 4, "backward", 2.0),
    ]


def test_a_published_pass_is_predicted() -> None:
    """The backward pass of OPT-350M for one text on an A100; its attention is not fused."""
    found = predicted_s(planned("OPT-350", "A100-40", 1, 1), "backward")
    assert found == pytest.approx(5.91e-3, rel=0.25)


def test_the_host_limits_rows_that_hardly_grow_with_the_micro_batch() -> None:
    rows = [
        Measured("a", "b", 1, batch, "forward", s) for batch, s in ((1, 2.0), (2, 2.9), (4, 5.0))
    ]
    other = Measured("a", "b", 2, 2, "forward", 1.0)
    assert host_limited([*rows, other]) == {rows[0]}


def test_rows_with_few_tokens_of_prompts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "isl,osl,batch_size,tp_size,silicon_ttft_ms,silicon_tpot_ms\n"
        "1024,128,8.0,2.0,100.0,5.0\n"
        "1024,128,8.0,1.0,200.0,8.0\n"
        "1024,128,16.0,1.0,300.0,9.0\n"
    )
    rows = read_rows(path)
    assert rows == [Published(1024, 128, 8, 1, 0.008), Published(1024, 128, 8, 2, 0.005)]
    assert [row.first_s for row in rows] == [0.2, 0.1]
    assert speed_ups({row: row.time_s for row in rows}) == {rows[0]: pytest.approx(1.6)}


def test_parameters_are_those_published() -> None:
    """Sailor counts 12.6 and 78.7 million, with biases that its layers do not read."""
    for name, millions in (("OPT-350", 12.6), ("GPT-Neo-2.7", 78.7)):
        layer = LAYERS[name](1)
        before = layer.sequence * layer.width
        found = (layer.build("x").parameters - before) / 1e6
        assert found == pytest.approx(millions, rel=2e-3)
    assert LLAMA.build("x").parameters / 1e9 == pytest.approx(8.03, abs=0.005)


def test_the_fewest_gpus_by_served_rows() -> None:
    """A replica of 8 texts takes 1 s for a request on one GPU, and half of it on two."""
    slow = Published(100, 11, 8, 1, 0.05, first_s=0.5)
    fast = Published(100, 11, 8, 2, 0.025, first_s=0.25)
    other = Published(200, 11, 64, 1, 0.001, first_s=0.001)
    answers = {
        (8, 0.05): Answer(1, 1, 8, 0.5, 0.05),
        (8.5, 0.05): Answer(1, 2, 8, 0.25, 0.025),
        (33, 0.05): Answer(5, 1, 8, 0.5, 0.05),
        (1, 0.03): Answer(1, 2, 8, 0.25, 0.025),
        (1, 0.01): None,
    }
    for (rate, token_s), wanted in answers.items():
        level = ServiceLevel(rate=rate, prompt=100, answer=11, token_s=token_s)
        assert served([slow, fast, other], level) == wanted
    assert str(Answer(2, 4, 8, 0.25, 0.025)) == "**8** = 2 x 4: 8 texts, 250 ms, 25.0 ms"


def test_the_fewest_gpus_for_a_limit() -> None:
    times_s = {1: 8.0, 2: 2.0}
    assert [*limits(times_s)] == [4.0, 12.0]
    assert [fewest(times_s, limit_s) for limit_s in (1.0, 4.0, 12.0)] == [None, 2, 1]


@pytest.mark.parametrize("experts", [0, 4])
def test_served_decoders_run(experts: int, tmp_path: Path) -> None:
    sizes = {"layers": 2, "width": 64, "heads": 4, "groups": 2, "size": 16, "inner": 96}
    model = Served(
        **sizes, vocabulary=128, positions=16, experts=experts, choices=2, bits=4 if experts else 0,
        bias=experts > 0, dtype="float32",
    )  # fmt: skip
    session = ort.InferenceSession(str(model.build("served").save(tmp_path, seed=0)))
    past = {
        own.name: np.ones((3, 2, 6, 16), np.float32)
        for own in session.get_inputs()
        if own.name.startswith("past")
    }
    ids, mask = np.ones((3, 1), np.int64), np.ones((3, 6), np.int64)
    scores, *presents = session.run(None, {"input_ids": ids, "attention_mask": mask, **past})
    assert scores.shape == (3, 1, 128)
    assert np.isfinite(scores).all()
    assert {held.shape for held in presents} == {(3, 2, 6, 16)}


def test_a_plan_that_takes_longer_is_another_one() -> None:
    found = [Change("a", "h100", 2, old_s, 1.0) for old_s in (0.9, 1.0005, 1.1)]
    assert [change.is_other for change in found] == [False, False, True]
    assert [*table(found)][2] == "| all | 1 of 3 | 10.0% | 10.0% |"


def test_a_data_sheet_has_no_measured_tables() -> None:
    sheet, measured = by_data_sheet("h100"), load_device("h100")
    assert measured.kernels
    assert not sheet.kernels
    assert sheet.peaks == measured.peaks
    with pytest.raises(ValueError, match="v100: expected tables"):
        by_data_sheet("v100")
