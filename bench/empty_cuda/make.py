"""Builder of empty CUDA libraries, with which onnxruntime-gpu opens sessions without a GPU.

    python bench/empty_cuda/make.py FOLDER
    LD_LIBRARY_PATH=FOLDER python bench/empty_cuda/placement.py plan/rank0.onnx

Needs a Python with onnxruntime-gpu, nm and cc. The libraries have the functions that the CUDA
provider links to, but these do nothing, so that results are meaningless. Earlier decisions of a
session are ONNX Runtime's own: the available kernels, which `bench/kernels/cuda_kernels.py` lists,
the nodes placed on CUDA, and the copies.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

_RUNTIME = Path(__file__).with_name("cudart.c")
_PROVIDERS = ("cuda", "tensorrt", "shared")

# Libraries of functions without a symbol version, by prefix.
_OWNERS = {
    "curand": "libcurand.so.10",
    "cu": "libcuda.so.1",
    "createNvOnnx": "libnvonnxparser.so.10",
    "createInfer": "libnvinfer.so.10",
    "getInfer": "libnvinfer.so.10",
    "getPluginRegistry": "libnvinfer.so.10",
}


def wanted() -> dict[str, set[str]]:
    """Return the functions that the providers import, by library."""
    spec = find_spec("onnxruntime")
    assert spec is not None, "expected onnxruntime-gpu"
    assert spec.origin is not None, "expected onnxruntime-gpu"
    found: dict[str, set[str]] = defaultdict(set, {"libcurand.so.10": set()})  # needed, not called
    for provider in _PROVIDERS:
        path = Path(spec.origin).parent / "capi" / f"libonnxruntime_providers_{provider}.so"
        for name, library in map(_owner, _undefined(path)):
            if library is not None:
                found[library].add(name)
    return found


def _undefined(path: Path) -> list[str]:
    done = subprocess.run(
        ["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True
    )
    return [line.split()[-1] for line in done.stdout.splitlines()]


def _owner(symbol: str) -> tuple[str, str | None]:
    name, _, version = symbol.partition("@")
    if version:
        return name, version if version.startswith(("libcu", "libnv")) else None
    return name, next((lib for start, lib in _OWNERS.items() if name.startswith(start)), None)


def build(folder: Path, library: str, names: set[str]) -> None:
    """Compile one library; functions without a definition in `cudart.c` return 0."""
    text = _RUNTIME.read_text(encoding="utf-8") if library.startswith("libcudart") else ""
    there = set(re.findall(r"\b(_*cuda\w+)\(", text))
    text += "".join(f"\nlong {name}(void) {{ return 0; }}" for name in sorted(names - there))
    source, versions = folder / "source.c", folder / "versions"
    source.write_text(text + "\n", encoding="utf-8")
    versions.write_text(f"{library} {{ global: *; }};\n", encoding="utf-8")
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
    subprocess.run(["cc", *flags, "-o", folder / library, source], check=True)
    source.unlink()
    versions.unlink()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for library, names in wanted().items():
        build(folder, library, names)


if __name__ == "__main__":
    main()
