"""How lit runs the .mlir tests: the first line of each is its only RUN line."""

import sys
from pathlib import Path

# What lit sends its workers must be a module's.
sys.path.insert(0, str(Path(__file__).parent))

from forked_commands import ForkedCommands

# lit puts `config` into this file's names.
config = globals()["config"]
config.name = "tensoropt"
config.test_format = ForkedCommands()
config.suffixes = [".mlir"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(Path(__file__).parents[1] / "build" / "lit")
