"""How lit runs the .mlir tests: the first line of each is its only RUN line."""

import sys
from pathlib import Path

import lit.formats

# lit puts `config` into this file's names.
config = globals()["config"]
config.name = "tensoropt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(Path(__file__).parents[1] / "build" / "lit")

# The commands of the environment that runs lit, before any others of the same name.
config.environment["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
