"""Every message about a flag of training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Refused = Callable[..., str]

LOSS = ("--train", "--loss", "mse:y,t")
LABELS = ("--train", "--loss", "softmax-cross-entropy:y,labels")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--loss", "mse:y,t"], "--loss belongs to training, expected --train as well"),
        (["--freeze", "a", "--pareto"], "--freeze belongs to training, expected --train"),
        (["--emit", "train"], "--emit train prints the step of training, expected --train"),
        (["--train"], "--train needs --loss, such as softmax-cross-entropy:OUTPUT,LABELS"),
        (["--train", "--loss", "mes:y,t"], "--loss: unknown kind 'mes', valid choices are output"),
        (["--train", "--loss", "mse:y"], "--loss: expected mse:OUTPUT,LABELS, got: 'mse:y'"),
        (["--train", "--loss", "mse:z,t"], "no output 'z'; the model has y"),
        ([*LOSS, "--ignore-index", "0"], "--ignore-index belongs to --loss softmax-cross-entropy"),
        ([*LABELS, "--ignore-index", "x"], "--ignore-index: expected a whole number from -2147"),
        ([*LABELS, "--label-smoothing", "1.5"], "--label-smoothing: expected from 0 to 1, got: 1"),
        ([*LABELS, "--label-smoothing", "a"], "--label-smoothing: expected a number, got: 'a'"),
        ([*LABELS, "--class-weights", "1,a"], "--class-weights: expected a number, got: 'a'"),
        ([*LABELS, "--class-weights", "1,-1"], "--class-weights: expected finite numbers from 0"),
        ([*LABELS, "--class-weights", "1,2"], "--class-weights: expected 16 numbers, as 'y' has 1"),
        ([*LABELS, "--class-weights", "no.npy"], "--class-weights no.npy: no such file"),
        ([*LOSS, "--optimizer", "adamm"], "--optimizer: unknown name 'adamm', valid choices are"),
        ([*LOSS, "--optimizer", "adamm"], "did you mean 'adam'?"),
        ([*LOSS, "--momentum", "0.5"], "--momentum belongs to --optimizer momentum or sgd, got: "),
        (
            [*LOSS, "--optimizer", "sgd", "--betas", "0,0"],
            "--betas belongs to --optimizer adam or adamw, got: --optimizer sgd",
        ),
        ([*LOSS, "--betas", "0.9"], "--betas: expected two numbers such as 0.9,0.999, got: '0.9'"),
        ([*LOSS, "--betas", "0.9,1"], "--betas: expected at least 0 and below 1, got: 1.0"),
        ([*LOSS, "--adam-epsilon", "nan"], "--adam-epsilon: expected above 0 and below 1"),
        ([*LOSS, "--weight-decay", "-1"], "--weight-decay: expected 0 or more, got: -1.0"),
        ([*LOSS, "--weight-decay", "x"], "--weight-decay: expected a number, got: 'x'"),
        ([*LOSS, "--group", "w1"], "--group: expected PATTERN,...:weight-decay=D,rate-factor=F"),
        ([*LOSS, "--group", "w1:decay=0"], "--group: expected PATTERN,...:weight-decay=D,rate"),
        ([*LOSS, "--group", "w1:rate-factor=x"], "--group: expected PATTERN,...:weight-decay=D"),
        ([*LOSS, "--group", "w1:weight-decay=-1"], "--group: expected a weight decay of 0 or more"),
        ([*LOSS, "--group", "w1:rate-factor=inf"], "--group: expected a rate factor of 0 or more"),
        (
            [*LOSS, "--group", "w1:rate-factor=1;w2:rate-factor=2"],
            "--group: expected one group",
        ),
        ([*LOSS, "--group", "z:weight-decay=0"], "--group: 'z' matches no trained weight"),
        ([*LOSS, "--clip-norm", "0"], "--clip-norm: expected above 0, got: 0.0"),
        ([*LOSS, "--micro-batches="], "--micro-batches: expected a whole number from 1 to"),
        ([*LOSS, "--precision", "fp16"], "--precision: unknown type 'fp16', valid choices are fl"),
        ([*LOSS, "--recompute", "block"], "--recompute: unknown choice 'block', valid choices"),
        ([*LOSS, "--compare", "--recompute", "auto"], "with --compare, got: auto"),
        ([*LOSS, "--emit", "train", "--devices", "2"], "--emit train comes before the search"),
        ([*LOSS, "-p", "cse"], "expected it without planning flags"),
    ],
)
def test_what_is_refused(mlp: Path, refused: Refused, flags: list[str], message: str) -> None:
    assert message in refused(mlp, *flags)


def test_an_empty_choice_is_refused(mlp: Path, refused: Refused) -> None:
    assert "--loss: unknown kind ''" in refused(mlp, "--train", "--loss=")
    assert "--recompute: unknown choice ''" in refused(mlp, *LOSS, "--recompute=")


def test_weights_of_classes_from_a_file(mlp: Path, refused: Refused, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((2, 3)))
    message = refused(mlp, *LABELS, "--class-weights", str(tmp_path / "w.npy"))
    assert "w.npy: expected a vector of numbers, got: float64 of shape (2, 3)" in message
    np.save(tmp_path / "w.npy", np.arange(3))
    message = refused(mlp, *LABELS, "--class-weights", str(tmp_path / "w.npy"))
    assert "--class-weights: expected 16 numbers, as 'y' has 16 classes, got: 3" in message
