"""Every form in which models pack projections, exported by PyTorch: Megatron's collectives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from megatron.packed_traffic import SIZES, form_pins
from training.planned import STEP, collectives, error, searched

pytest.importorskip("torch", reason="pip install tensoropt[torch]")
from megatron.packed_forms import FIXED, FORMS, export

_UNKNOWN = {("convolved_parts", "dynamo"), ("latent", "script")}
"""Exports that compute the number of heads from symbolic sizes."""
_RANKS = {"dynamo": 4, "script": 2}
_MORE = {
    "one_key": Counter(all_reduce=4, all_gather=2),
    "one_key_last": Counter(all_reduce=4, all_gather=2),
    "latent": Counter(all_reduce=3),
    "convolved_parts": Counter(all_reduce=2, all_gather=2),
    "short_convolution": Counter(all_reduce=2, all_gather=2),
    "short_convolution_of_three": Counter(all_reduce=2, all_gather=2),
}
"""The most collectives in training of forms that send more than two all-reduces.

The gradient of a head that all ranks read is a sum over ranks, in Megatron's plan, too. The
gradient of a convolution of each channel is a convolution that is not split by channels.
"""


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        pytest.param(name, exporter, marks=pytest.mark.slow if place != number % 2 else ())
        for number, name in enumerate(FORMS)
        for place, exporter in enumerate(("dynamo", "script"))
    ],
)
def test_forms_have_the_collectives_of_megatron(name: str, exporter: str, tmp_path: Path) -> None:
    """Results are those of one device; each form takes one exporter here, and both in `slow`."""
    if (name, exporter) == ("tensor_split", "script"):
        pytest.skip("the exporter cuts the projection in a Loop, which runs whole")
    symbolic = exporter == "dynamo" or name not in FIXED
    path = export(name, tmp_path, exporter, symbolic=symbolic)
    sizes = [f"--dim={dim}={size}" for dim, size in SIZES.items()] if symbolic else []
    is_open = symbolic and (name, exporter) not in _UNKNOWN
    pins, ranks = form_pins(onnx.load(path)), _RANKS[exporter]
    open_sizes = [sizes[0], "--dim=tokens=1..8"] if is_open else sizes
    text = searched(path, ranks, pins, *open_sizes)
    assert collectives(text) == {"all_reduce": 1}
    text = searched(path, ranks, pins, *sizes, *STEP)
    assert collectives(text) <= _MORE.get(name, Counter(all_reduce=2))
    assert error(text, ranks) < 1e-4
