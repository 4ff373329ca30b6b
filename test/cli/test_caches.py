"""Plans of decoders: each cache is left as the next step wants it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from emitted_memory import emitted_memory
from handmade_decoder import write_decoder
from onnx import helper, numpy_helper


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
    assert (
        opt(
            model, "--mesh", "2", "--device", "v100", "--pick", "leanest", "-o", tmp_path / "plan"
        ).status
        == 0
    )
    document = json.loads((tmp_path / "plan" / "plan.json").read_text())
    (row,) = (row for row in document["outputs"] if row["name"] == "present.0.value")
    assert row["layout"] == ["S(1)"]  # or else the edit below changes nothing
    row["layout"] = ["R"]
    (tmp_path / "edited.json").write_text(json.dumps(document))
    done = opt(model, "--strategies", tmp_path / "edited.json", "-o", tmp_path / "again")
    assert done.status == 1
    assert "'present.0.value' takes the place of 'past_key_values.0.value'" in done.err


def renamed(model: Path, changes: dict[str, str]) -> Path:
    """Give inputs and outputs of a model, and sizes of its inputs, other names."""
    proto = onnx.load(model)
    for end in (*proto.graph.input, *proto.graph.output):
        end.name = changes.get(end.name, end.name)
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [changes.get(name, name) for name in names]
    onnx.save(proto, model)
    return model


def test_a_cache_that_is_none_is_named_with_the_reason(opt, tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=3)
    names = {f"present.{layer}.key": f"present.{layer}.keys" for layer in (0, 1)}
    outcome = opt(renamed(model, names), "--mesh", "2", "--epsilon", "1")
    assert outcome.status == 0
    assert (
        "note: 'past_key_values.0.key' (and 1 more like it) is not kept as a cache: no output is "
        "called like it, expected one such as 'present.0.key'\n"
    ) in outcome.err
    assert outcome.err.count("is not kept as a cache") == 1


def test_an_input_that_is_only_called_so_is_no_cache(opt, tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=1)
    names = {
        f"{side}.0.{part}": f"{new}.0.{part[:1]}"
        for side, new in (("past_key_values", "past_values"), ("present", "made"))
        for part in ("key", "value")
    }
    outcome = opt(renamed(model, names), "--mesh", "2", "--epsilon", "1")
    assert outcome.status == 0
    assert "cache" not in outcome.err


def opened(model: Path) -> Path:
    """Leave the size of a head open, as the builder of onnxruntime-genai does."""
    proto = onnx.load(model)
    for end in (*proto.graph.input, *proto.graph.output):
        if end.name.startswith(("past", "present")):
            end.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    onnx.save(proto, model)
    return model


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("none.json", {}, "--dim kv_cache_dim=SIZE\n"),
        (
            "genai_config.json",
            {"model": {"decoder": {"head_size": 8, "hidden_size": 64}}},
            "--dim kv_cache_dim=8, as genai_config.json says\n",
        ),
        (
            "config.json",
            {"hidden_size": 32, "num_attention_heads": 4},
            "--dim kv_cache_dim=8, as config.json says\n",
        ),
    ],
)
def test_heads_of_an_open_size(
    opt, tmp_path: Path, name: str, values: dict[str, object], expected: str
) -> None:
    model = opened(write_decoder(tmp_path / "m.onnx", layers=1, in_place=True))
    (tmp_path / name).write_text(json.dumps(values))
    outcome = opt(model, "--mesh", "2", "--epsilon", "1")
    assert outcome.status == 0
    assert "'kv_cache_dim' is the size of a head" in outcome.err
    assert expected in outcome.err
    assert "kv_cache_dim=8 gives" not in outcome.err
    fixed = opt(model, "--mesh", "2", "--epsilon", "1", "--dim", "kv_cache_dim=8")
    assert "kv_cache_dim" not in fixed.err


def test_an_explanation_calls_caches_caches(opt, tmp_path: Path) -> None:
    """They are no gradients, and attention is not named by its table of angles."""
    model = onnx.load(write_decoder(tmp_path / "m.onnx", layers=1, in_place=True))
    (node,) = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    for name in ("cos_cache", "sin_cache"):
        table = np.ones((64, 4), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(table, name))
        node.input.append(name)
    node.attribute.append(helper.make_attribute("do_rotary", 1))
    onnx.save(model, tmp_path / "rotary.onnx")
    sizes = ["--dim", "batch=2", "--dim", "past=32"]
    done = opt(tmp_path / "rotary.onnx", "--explain", "--devices", "2", *sizes)
    assert done.status == 0
    assert ", caches " in done.out
    assert "gradient" not in done.out
    assert "of cos_cache" not in done.out


def test_a_pin_of_what_cannot_be_split(opt, tmp_path: Path) -> None:
    """Nodes that have a sequence of unknown size are not said to have none."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=True)
    flags = ["--dim", "batch=2", "--dim", "past=32", "--forbid", "node:*=sequence"]
    done = opt(model, "--pareto", "--devices", "2", *flags)
    assert done.status == 1
    assert "nodes have sequence, but none can split it: in '" in done.err
    assert "its size is open (--dim gives it one); expected batch, heads" in done.err
    assert "did you mean" not in done.err


@pytest.mark.parametrize("pick", ["fastest", "leanest"])
def test_a_cache_that_is_updated_in_place_counts_once(opt, tmp_path: Path, pick: str) -> None:
    """As the graphs on disk have it: what comes and goes has no second copy of it."""
    model = write_decoder(tmp_path / "m.onnx", layers=2, in_place=True)
    sizes = ["--dim", "batch=2", "--dim", "sequence=1", "--dim", "past=512", "--dim", "total=512"]
    folder = tmp_path / "plan"
    assert opt(model, "--mesh", "2", "--pick", pick, *sizes, "-o", folder).status == 0
    document = json.loads((folder / "plan.json").read_text())
    caches, predicted = document["caches"], document["predicted"]
    assert [(cache["dim"], cache["in_place"]) for cache in caches] == [(None, True)] * 4
    pasts, presents = ({cache[side] for cache in caches} for side in ("past", "present"))
    assert presents < {tensor["name"] for tensor in document["outputs"]}
    found = emitted_memory(folder / "rank0.onnx", pasts, presents)
    assert predicted["static_bytes"] == pytest.approx(found.static_bytes, rel=0.01)
    assert predicted["transient_bytes"] == pytest.approx(found.transient_bytes, rel=0.05)
    part = 4 * (2 * 4 * 512 * 8) // 2  # of one cache on one rank
    assert 4 * part <= predicted["static_bytes"] < 8 * part
    assert predicted["transient_bytes"] < part / 2


def test_a_cache_with_no_room_is_named(opt, tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=2, in_place=True)
    for past, total, known in ((32, 33, True), (32, 32, False), (0, 1, False)):
        sizes = {"batch": 2, "sequence": 1, "past": past, "total": total}
        given = [word for name, size in sizes.items() for word in ("--dim", f"{name}={size}")]
        done = opt(model, "--mesh", "2", "--epsilon", "1", *given)
        assert done.status == 0
        assert (
            "note: 'past_key_values.0.key' (and 3 more like it) is copied in every step, as it has "
            "32 tokens and 'present.0.key' 33: with 33 for both, it is updated in place\n"
            in done.err
        ) is known
        assert ("copied in every step" in done.err) is known


@pytest.mark.parametrize("in_place", [False, True])
def test_notes_leave_numbers_of_tokens_open(opt, tmp_path: Path, *, in_place: bool) -> None:
    """Text needs steps and caches of any number of tokens, so a note names a range."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=in_place)
    one, size = ["--devices", "1"], ["--dim", "batch=8"]
    whole = "without a size 'batch' counts as 1 and is not split: --dim batch=8 gives it one\n"
    length = "'past' counts as 1: --dim past=1..N plans for texts of up to N tokens\n"
    assert opt(model, *one).err == f"note: {whole}note: {length}"
    assert opt(model, *one, *size).err == f"note: {length}"
    assert opt(model, *one, *size, "--dim", "past=1..32").err == ""
