"""Digests in checkpoints: any damage is found before a value of it is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sealed import save_sealed

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.integrity import DamagedError, check_tensors, header_digest

TENSORS = {
    "w": np.arange(600, dtype=np.float32).reshape(20, 30),
    "größe": np.ones((3, 5), np.float16),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(7, np.int64),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealed") / "c.safetensors"
    save_sealed(TENSORS, path, {"progress": '{"step": 20}', "note": "ü"})
    return path


def test_a_whole_file_is_accepted_and_read_by_others(whole: Path) -> None:
    check_tensors(whole)
    assert len(header_digest(whole)) == 64
    for name, array in load_file(whole).items():
        assert np.array_equal(array, TENSORS[name])


def damaged(whole: Path, data: bytes) -> Path:
    path = whole.with_name("damaged.safetensors")
    path.write_bytes(data)
    return path


@examples(200)
@given(data=st.data())
def test_any_change_is_refused(whole: Path, data: st.DataObject) -> None:
    found = bytearray(whole.read_bytes())
    start = data.draw(st.integers(0, len(found) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "zero", "grow"]))
    if kind == "flip":
        found[start] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del found[start:]
    elif kind == "grow":
        found += b"\0"
    else:
        end = start + data.draw(st.integers(1, 64))
        found[start:end] = bytes(len(found[start:end]))
    if found == whole.read_bytes():
        return
    path = damaged(whole, bytes(found))
    with pytest.raises(DamagedError) as error:
        check_tensors(path)
    assert str(error.value).startswith(f"{path}: damaged: ")
    assert "\n" not in str(error.value)


def test_a_flipped_bit_names_its_tensor(whole: Path) -> None:
    found = bytearray(whole.read_bytes())
    found[found.index(TENSORS["größe"].tobytes())] ^= 1
    with pytest.raises(DamagedError, match="damaged: tensor 'größe' has changed since it was"):
        check_tensors(damaged(whole, bytes(found)))


@pytest.mark.parametrize("plan", ["data1", "zero2"])
def test_no_rank_trains_from_a_damaged_checkpoint(train, plans, tmp_path, plan: str) -> None:
    train(plans["zero2"], 2, checkpoint=str(tmp_path / "c"))
    (tmp_path / "log.jsonl").unlink()
    path = tmp_path / "c" / "step-00000002.safetensors"
    found = bytearray(path.read_bytes())
    found[-1] ^= 64
    path.write_bytes(found)
    with pytest.raises(UserError, match=f"{path}: damaged: tensor '"):
        train(plans[plan], 1, resume=str(path))


def test_no_model_is_exported_from_a_damaged_checkpoint(
    train, plans, classifier, tmp_path: Path
) -> None:
    from tensoropt.runtime.training.export import export_model

    train(plans["data1"], 1, checkpoint=str(tmp_path / "c"))
    path = tmp_path / "c" / "step-00000001.safetensors"
    found = bytearray(path.read_bytes())
    found[-1] ^= 1
    path.write_bytes(found)
    with pytest.raises(DamagedError):
        export_model(classifier.model, path, tmp_path / "o.onnx")
    assert not (tmp_path / "o.onnx").exists()


def test_a_copy_is_as_good(whole: Path, tmp_path: Path) -> None:
    shutil.copy(whole, tmp_path / "copy")
    assert header_digest(tmp_path / "copy") == header_digest(whole)
