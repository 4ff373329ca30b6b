"""Plugin of pytest for ``make sanitize``: tests use the engine at ``TENSOROPT_ENGINE``."""

import importlib.util
import os
import sys

_spec = importlib.util.spec_from_file_location(
    "tensoropt.compiler.search._engine", os.environ["TENSOROPT_ENGINE"]
)
assert _spec is not None and _spec.loader is not None
sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[_spec.name])
