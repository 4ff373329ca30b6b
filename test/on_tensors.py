"""A device whose description says nothing of processes: frontiers are those of time and tensors,
as the search has them."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.compiler.cost.device import load_device

__all__ = ["ON_TENSORS"]

ON_TENSORS = replace(load_device("cpu"), process=None)
