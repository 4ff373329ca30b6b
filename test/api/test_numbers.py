"""Arguments as people have them: NumPy's numbers, lists, and PyTorch's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as to
from tensoropt.compiler.api.request import make_request
from tensoropt.compiler.support.options import Interface
from tensoropt.runtime.support.dtypes import as_array


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"devices": np.int64(2)}, {"devices": 2}),
        ({"devices": np.array(2)}, {"devices": 2}),
        ({"mesh": np.array([2, 4])}, {"mesh": "2x4"}),
        ({"mesh": [np.int32(2), np.int32(4)]}, {"mesh": "2x4"}),
        ({"devices": 4, "stages": np.int8(2)}, {"stages": 2}),
        ({"memory": np.int64(2**30)}, {"memory_bytes": 2**30}),
        ({"memory": np.float32(1024)}, {"memory_bytes": 1024}),
        ({"epsilon": np.float64(0.05)}, {"epsilon": 0.05}),
        ({"search_time": np.float32(0.5)}, {"search_time": 0.5}),
        ({"device": Path("v100")}, {"device": "v100"}),
        ({"device": ("v100",)}, {"device": "v100"}),
        ({"pins": np.array(["w=R"])}, {"pins": ("w=R",)}),
    ],
)
def test_options_take_numbers_and_lists_of_any_kind(
    options: dict[str, Any], expected: dict[str, Any]
) -> None:
    request = make_request(options, Interface.PYTHON)
    assert {name: getattr(request, name) for name in expected} == expected


def test_sizes_take_numbers_and_lists_of_any_kind(mlp: Path) -> None:
    model = to.load(mlp, dims={"batch": np.int64(8)})
    assert model.dims == {"batch": 8}
    for sizes in ([1, 8], np.array([1, 8]), (np.int64(1), np.int64(8))):
        assert to.load(mlp, dims={"batch": sizes}).dims == {"batch": range(1, 9)}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"optimizer": "AdamW"}, "adamw"),
        ({"optimizer": "Adam"}, "adam"),
        ({"optimizer": "SGD"}, "sgd"),
        ({"optimizer": "SGD", "momentum": 0.0}, "sgd"),
        ({"optimizer": "SGD", "momentum": np.float32(0.9)}, "momentum"),
    ],
)
def test_optimizers_have_the_names_of_pytorch(options: dict[str, Any], name: str) -> None:
    assert to.Training("mse:y,labels", **options).step().spec.optimizer.name == name


def test_an_unknown_optimizer_is_refused_as_it_was_written() -> None:
    with pytest.raises(to.UserError, match="unknown name 'AdamX', valid choices are sgd, mom"):
        to.Training("mse:y,labels", optimizer="AdamX")
    with pytest.raises(to.UserError, match=r"--loss: expected a text such as mse:.*, got: list"):
        to.Training(["mse:y,labels"])  # type: ignore[arg-type]


def test_rows_may_be_one_number_or_an_array() -> None:
    rows = {"a": np.int64(0), "b": np.array([1, 2]), "c": (3,)}
    step = to.Training("mse:y,labels", freeze_rows=rows).step()
    assert step.spec.freeze_rows == (("a", (0,)), ("b", (1, 2)), ("c", (3,)))


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        ([[1.0, 2.0]], "float32", "float32"),
        ([[1, 2]], "float16", "float16"),
        (((1, 2),), "int32", "int32"),
        ([True], "bool", "bool"),
        ([2**40], "int32", "int64"),
        ([1.5], "int64", "float64"),
        ([-1], "uint8", "int64"),
        (np.ones(2), "float32", "float64"),
        (["t"], "float32", "<U1"),
    ],
)
def test_lists_get_the_type_of_the_input_if_it_fits(given: Any, dtype: str, expected: str) -> None:
    array = as_array(given, np.dtype(dtype))
    assert array.dtype == np.dtype(expected)
    assert array.tolist() == np.asarray(given).tolist()


def test_a_session_takes_lists_and_cannot_be_entered_when_it_is_closed(plan: to.Plan) -> None:
    with plan.session(threads=1) as session:
        found = session.run({"x": [[1.0] * 128] * 8})["y"]
        expected = session.run({"x": np.ones((8, 128), np.float32)})["y"]
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(to.UserError, match="the session is closed, expected a new one"):
        session.__enter__()
