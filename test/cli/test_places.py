"""Outputs of commands never replace inputs, other outputs or files with another content."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tensoropt.compiler.cli.instance import build_parser as instance_parser
from tensoropt.elastic.cli.job import build_parser as job_parser
from tensoropt.runtime.cli.run import build_parser as run_parser
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, place_of
from tensoropt.runtime.support.places import Input, Output
from tensoropt.serving.cli.serve import build_parser as serve_parser
from test.cli.conftest import Opt

DOCS = Path(__file__).parents[2] / "docs"
_TEXTS = {
    "tensoropt-opt": "--dim --format -p --emit --mlir-print-ir-after --mesh --stages --batches "
    "--schedule --memory --objective --search --seed --epsilon --resolution --search-time "
    "--search-memory --pick --overlap --launch --pin --forbid --compare --target --loss "
    "--optimizer --momentum --betas --adam-epsilon --weight-decay --clip-norm --micro-batches "
    "--precision --recompute --freeze --freeze-rows --unfreeze --ignore-index --label-smoothing "
    "--group",
    "tensoropt-profile": "--dim --name --loss --optimizer --momentum --betas --adam-epsilon "
    "--weight-decay --clip-norm --micro-batches --precision --recompute --freeze --freeze-rows "
    "--unfreeze --ignore-index --label-smoothing --group",
    "tensoropt-run": "--dim --generate --stop",
    "tensoropt-serve": "--dim --host --api-key",
    "tensoropt-job run": "--dim --plan --ray-address --host",
    "tensoropt-job scale": "job --url --plan",
    "tensoropt-job migrate": "job --url",
    "tensoropt-job stop": "job --url",
    "tensoropt-job profile": "job --url",
    "tensoropt-job status": "job --url",
    "tensoropt-job events": "job --url",
    "tensoropt-job log": "job --url",
    "tensoropt-job output": "job --url",
    "tensoropt-job page": "job",
    "instance": "--search --epsilon --seed --search-time",
}
"""Flags of commands with a text that names no file. Any other flag with a text has a place."""


def _all_parsers() -> Iterator[Parser]:
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    parsers = [build() for build in importlib.import_module("flag_tables").PARSERS]
    for parser in [*parsers, instance_parser()]:
        yield parser
        yield from parser.commands.values()


def _names(action: argparse.Action) -> set[str]:
    return {*action.option_strings} or {action.dest}


def _is_text(action: argparse.Action) -> bool:
    """Return whether any text is a value: no switch, number or choice."""
    takes = action.nargs != 0 and not action.choices
    return takes and action.type in (None, str, Path)


@pytest.mark.parametrize("parser", [*_all_parsers()], ids=lambda parser: parser.prog)
def test_each_flag_with_a_text_is_a_place_or_names_no_file(parser: Parser) -> None:
    texts = _TEXTS.get(parser.prog, "").split()
    for _, actions in parser.groups:
        for action in actions:
            is_listed = bool(_names(action) & {*texts})
            assert is_listed is (_is_text(action) and place_of(action) is None), _names(action)


@pytest.mark.parametrize("parser", [*_all_parsers()], ids=lambda parser: parser.prog)
def test_each_output_has_a_form_or_is_a_folder(parser: Parser) -> None:
    for _, actions in parser.groups:
        for place in map(place_of, actions):
            assert place is None or isinstance(place, Input | Output)
            assert not isinstance(place, Output) or place.form or place.folder


@pytest.fixture
def own(mlp: Path, tmp_path: Path) -> Path:
    """A model in a file of its own."""
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp.read_bytes())
    return path


@pytest.mark.parametrize(
    "flags", ["-o", "--emit import -o", "-p cse -o", "--dtensor", "--report", "--plot",
              "--netron", "--annotations", "--int8-caches", "--kubernetes"],
)  # fmt: skip
@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_no_output_of_opt_is_the_model(
    refused: Callable[..., str], own: Path, flags: str, link: Callable[..., None] | None
) -> None:
    before, target = own.read_bytes(), own
    if link is not None:
        target = own.with_name("link.onnx")
        link(own, target)
    flag = flags.split()[-1]
    message = refused(own, *flags.split(), target)
    assert message == f"{flag} {target}: is an input ({own}), expected another name"
    assert own.read_bytes() == before


@pytest.mark.parametrize("flag", ["--rules", "--pins", "--weights", "--also", "--device"])
def test_no_output_of_opt_is_another_input(
    refused: Callable[..., str], own: Path, tmp_path: Path, flag: str
) -> None:
    path = tmp_path / "other.svg"
    path.write_text("<svg/>")
    named = f"a100:2,{path}:2" if flag == "--device" else path
    message = refused(own, flag, named, "--plot", path)
    assert message == f"--plot {path}: is an input ({flag} {path}), expected another name"


def test_a_plan_does_not_replace_the_folder_with_its_strategies(
    refused: Callable[..., str], own: Path, tmp_path: Path
) -> None:
    (plan := tmp_path / "plan").mkdir()
    (plan / "plan.json").touch()
    message = refused(own, "--strategies", plan / "plan.json", "-o", plan)
    assert message == (
        f"-o {plan}: contains an input (--strategies {plan / 'plan.json'}), expected another name"
    )


def _save_outside(model: Path, path: Path, location: str) -> None:
    """Save the model with its weights in the file ``location``."""
    proto = onnx.load(model)
    for weight in proto.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight), weight.name))
    onnx.save(proto, path, save_as_external_data=True, location=location, size_threshold=0)


@pytest.mark.parametrize("flag", ["--netron", "--annotations"])
def test_no_output_is_a_file_of_weights(
    refused: Callable[..., str], tmp_path: Path, mlp: Path, flag: str
) -> None:
    weights, model = tmp_path / "w.onnx", tmp_path / "m.onnx"
    _save_outside(mlp, model, "w.onnx")
    weights.write_bytes(b"\x08\x0a" + weights.read_bytes()[2:])
    message = refused(model, flag, weights)
    assert (
        message
        == f"{flag} {weights}: replaces weights of an input ({model}), expected another name"
    )


def test_no_two_outputs_are_one_file(
    refused: Callable[..., str], own: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new.onnx"
    message = refused(own, "--netron", path, "--annotations", tmp_path / "." / "new.onnx")
    assert message == f"--netron {path}: is the output of --annotations, expected another name"


def test_no_output_lies_in_a_plan_that_is_replaced(
    refused: Callable[..., str], own: Path, tmp_path: Path
) -> None:
    (plan := tmp_path / "plan").mkdir()
    message = refused(own, "-o", plan, "--plot", plan / "a.svg")
    assert message == (
        f"--plot {plan / 'a.svg'}: lies in -o {plan}, which is replaced, expected another folder"
    )


def test_mlir_text_is_not_written_to_a_new_model(
    refused: Callable[..., str], own: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new.onnx"
    expected = f"-o: expected a file ending in .mlir, got: '{path}'"
    assert refused(own, "-o", path) == expected
    assert refused(own, "--emit", "import", "-o", path) == expected
    assert not path.exists()


@pytest.mark.parametrize(
    ("flags", "noun"),
    [("--emit import -o", "MLIR text"), ("--dtensor", "placements"), ("--report", "a page"),
     ("--plot", "a picture"), ("--netron", "an ONNX model"), ("--annotations", "an ONNX model"),
     ("--kubernetes", "a manifest")],
)  # fmt: skip
def test_a_file_with_another_content_is_not_replaced(
    refused: Callable[..., str], own: Path, tmp_path: Path, flags: str, noun: str
) -> None:
    path = tmp_path / "letter"
    path.write_text("Dear reader,\n")
    flag = flags.split()[-1]
    assert refused(own, *flags.split(), path) == (
        f"{flag} {path}: expected a new file or {noun}, got: a file with another content, which "
        "is not replaced"
    )
    assert path.read_text() == "Dear reader,\n"


def test_outputs_replace_their_own_kind_and_empty_files(
    opt: Opt, own: Path, tmp_path: Path
) -> None:
    names = {"--dtensor": "d.json", "--report": "r.html", "--plot": "p.svg", "--netron": "n.onnx",
             "--annotations": "a.onnx"}  # fmt: skip
    flags = [text for flag, name in names.items() for text in (flag, str(tmp_path / name))]
    for name in names.values():
        (tmp_path / name).touch()
    for _ in range(2):
        assert opt(own, "--mesh", "2", *flags).status == 0
    text = tmp_path / "m.mlir"
    for _ in range(2):
        assert opt(own, "--emit", "import", "-o", text).status == 0
    assert text.read_text().startswith("#loc")
    assert opt(own, "--emit", "import", "-o", "/dev/null").status == 0


def _refusal(parser: Parser, *argv: str | Path) -> str:
    with pytest.raises(UserError) as caught:
        parser.parse([str(text) for text in argv])
    return str(caught.value)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "d.npz", x=np.zeros(4))
    return tmp_path / "d.npz"


def test_no_output_of_run_is_an_input(own: Path, data: Path) -> None:
    train = "plan", "--train", "--data", data
    is_data = f"is an input (--data {data}), expected another name"
    assert _refusal(run_parser(), *train, "--log", data) == f"--log {data}: {is_data}"
    assert _refusal(run_parser(), "plan", "--inputs", data, "--outputs", data) == (
        f"--outputs {data}: is an input (--inputs {data}), expected another name"
    )
    assert _refusal(run_parser(), "plan", "--export", own, "--model", own) == (
        f"--export {own}: is an input (--model {own}), expected another name"
    )
    code = own.with_name("code.py")
    code.touch()
    message = _refusal(run_parser(), *train[:-1], f"{code}:make", "--log", code)
    assert message == f"--log {code}: is an input (--data {code}), expected another name"
    saved = own.parent
    run_parser().parse(["plan", "--train", "--resume", str(saved), "--checkpoint", str(saved)])
    assert _refusal(run_parser(), saved, "--checkpoint", saved) == (
        f"--checkpoint {saved}: is an input ({saved}), expected another name"
    )


def test_the_data_of_an_export_is_not_the_data_of_its_model(mlp: Path, tmp_path: Path) -> None:
    model, trained = tmp_path / "m.onnx", tmp_path / "new.onnx"
    _save_outside(mlp, model, "./new.onnx.data")
    assert _refusal(run_parser(), "plan", "--export", trained, "--model", model) == (
        f"--export {trained}: replaces weights of an input (--model {model}), expected another name"
    )


def test_an_export_is_not_part_of_a_plan(own: Path) -> None:
    plan, target = own.parent, own.with_name("rank.onnx")
    target.write_bytes(own.read_bytes())
    assert _refusal(run_parser(), plan, "--export", target) == (
        f"--export {target}: is part of an input ({plan}), expected another name"
    )


def test_logs_and_arrays_replace_their_own_kind_only(tmp_path: Path, data: Path) -> None:
    archive, log = tmp_path / "a.zip", tmp_path / "log"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("letter.txt", "Dear reader,\n")
    for flag, noun in (("--log", "a log of steps"), ("--outputs", "an archive of arrays")):
        assert _refusal(run_parser(), "plan", flag, archive) == (
            f"{flag} {archive}: expected a new file or {noun}, got: a file with another content, "
            "which is not replaced"
        )
    log.write_text('{"step": 1, "loss": 2.0}\n')
    run_parser().parse(["plan", "--log", str(log), "--outputs", str(data)])
    assert _refusal(run_parser(), "plan", "--log", "a.parquet") == (
        "--log: expected a file ending in .jsonl, got: 'a.parquet'"
    )


def test_no_output_of_job_and_serve_is_an_input(data: Path, tmp_path: Path) -> None:
    job = "run", "family", "--devices", "1", "--data", data
    assert _refusal(job_parser(), *job, "--log", data).startswith(f"--log {data}: is an input (")
    assert _refusal(serve_parser(), f"a={tmp_path}", "--export-triton", tmp_path) == (
        f"--export-triton {tmp_path}: is an input ({tmp_path}), expected another name"
    )
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    serve = "plan", "--address-file", keys
    assert _refusal(serve_parser(), *serve, "--api-key-file", keys).endswith(
        f"is an input (--api-key-file {keys}), expected another name"
    )
    assert "expected a new file or addresses of a server" in _refusal(serve_parser(), *serve)
