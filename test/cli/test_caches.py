"""Plans of decoders: each cache is left as the next step wants it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from handmade_decoder import write_decoder


@pytest.mark.parametrize("in_place", [False, True])
def test_caches_come_back_as_they_were_given(opt, tmp_path: Path, *, in_place: bool) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=in_place)
    folder = tmp_path / "plan"
    assert opt(model, "--mesh", "2", "--epsilon", "0.1", "-o", folder).status == 0
    document = json.loads((folder / "plan.json").read_text())
    lay = {t["name"]: t["layout"] for t in document["inputs"] + document["outputs"]}
    assert document["caches"] == [
        {
            "past": f"past_key_values.0.{part}",
            "present": f"present.0.{part}",
            "dim": 2,
            "in_place": in_place,
        }
        for part in ("key", "value")
    ]
    for cache in document["caches"]:
        assert lay[cache["past"]] == lay[cache["present"]]


def test_a_cache_that_moves_is_refused(opt, tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=1)
    assert opt(model, "--mesh", "2", "--pick", "memory", "-o", tmp_path / "plan").status == 0
    document = json.loads((tmp_path / "plan" / "plan.json").read_text())
    (row,) = (row for row in document["outputs"] if row["name"] == "present.0.value")
    assert row["layout"] == ["S(1)"]  # or else the edit below changes nothing
    row["layout"] = ["R"]
    (tmp_path / "edited.json").write_text(json.dumps(document))
    done = opt(model, "--strategies", tmp_path / "edited.json", "-o", tmp_path / "again")
    assert done.status == 1
    assert "'present.0.value' takes the place of 'past_key_values.0.value'" in done.err
