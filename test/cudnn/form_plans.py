"""Plans of cuDNN for GPUs that this machine does not have, by the library of attention."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from described_gpus import description

from tensoropt.runtime.support.cudnn_attention import AttentionForm

__all__ = ["Plans"]

_LIBRARIES = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libnvrtc.so.13")
_TYPES = {"float32": 1, "float16": 10, "bfloat16": 16}
_ALL, _FROM_FIRST, _TO_LAST = range(3)
_INTEGERS = (
    "gradient",
    "type",
    "batch",
    "heads",
    "key_heads",
    "queries",
    "keys",
    "key_rows",
    "size",
    "value_size",
    "band",
    "window",
    "bias_batch",
    "bias_heads",
    "bias_queries",
    "lengths",
    "lse",
    "dbias",
)


class _Form(ctypes.Structure):
    """`Form` of runtime/ops/cudnn/interface.hpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _INTEGERS),
        *((name, ctypes.c_float) for name in ("scale", "cap")),
    )


def _c_form(form: AttentionForm) -> _Form:
    """Return the form that a node has; with an offset, its queries are the last of all keys."""
    bias = form.bias_sizes or (0, 0, 0)
    keys = form.keys
    if form.causal and not form.offset:
        keys = min(form.keys, form.queries)
    return _Form(
        gradient=form.gradient,
        type=_TYPES[form.dtype],
        batch=form.batch,
        heads=form.heads,
        key_heads=form.key_heads,
        queries=form.queries,
        keys=keys,
        key_rows=form.keys,
        size=form.size,
        value_size=form.value_size,
        band=(_TO_LAST if form.offset else _FROM_FIRST) if form.causal else _ALL,
        window=form.window,
        bias_batch=bias[0],
        bias_heads=bias[1],
        bias_queries=bias[2],
        lengths=form.lengths,
        lse=1,
        dbias=form.trains_bias,
        scale=0.125,
        cap=form.softcap,
    )


class Plans:
    """The library of attention in a folder of ``make cudnn-check``, for described GPUs."""

    def __init__(self, folder: Path) -> None:
        driver = folder / "libcuda.so.1"
        source = Path(__file__).with_name("driver.c")
        name = f"-Wl,-soname,{driver.name}"
        subprocess.run(["cc", "-shared", "-fPIC", name, source, "-o", driver], check=True)
        packages = folder / "packages" / "nvidia"
        # cuDNN finds its parts next to itself, and others by name if they are loaded before.
        for path in (
            driver,
            *(packages / "cu13" / "lib" / file for file in _LIBRARIES),
            packages / "cudnn" / "lib" / "libcudnn.so.9",
        ):
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(folder / "native" / "runtime" / "ops" / "libtensoropt_cudnn.so"))
        self._make = library.tensoropt_cudnn_plan
        self._make.restype = ctypes.c_char_p

    def workspace_bytes(self, form: AttentionForm, architecture: int) -> int | str:
        """Return the workspace of a plan, or cuDNN's error."""
        plan, workspace = ctypes.c_void_p(), ctypes.c_size_t()
        results = ctypes.byref(plan), ctypes.byref(workspace)
        error = self._make(ctypes.byref(_c_form(form)), description(architecture), *results)
        return workspace.value if error is None else error.decode()
