"""Write a model of the papers: NAME.onnx, and NAME.data, a hole of the weights' size.

python bench/graphs gpt3_175b --layers 12 --batch 8 -o models/
python bench/graphs llama3_8b --set sequence=8192 --set dtype=float32 -o models/
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from graphs.catalog import MODELS, Model
from tensoropt.runtime.support.flags import Parser, run_command


def sized(model: Model, texts: list[str]) -> Model:
    """Return ``model`` with the sizes in ``layers=12`` texts; raise ValueError for another name."""
    fields = {field.name: field for field in dataclasses.fields(model)}  # type: ignore[arg-type]
    sizes: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in fields:
            raise ValueError(f"no size '{name}', expected one of {', '.join(fields)}")
        sizes[name] = _converted(name, getattr(model, name), value)
    return dataclasses.replace(model, **sizes)  # type: ignore[type-var]


def _converted(name: str, like: object, text: str) -> object:
    """Return ``text`` as a value of the type of ``like``."""
    if isinstance(like, bool):
        if text not in ("true", "false"):
            raise ValueError(f"{name}: expected true or false, got: '{text}'")
        return text == "true"
    try:
        return type(like)(text)  # type: ignore[call-arg]
    except ValueError:
        raise ValueError(f"{name}: expected {type(like).__name__}, got: '{text}'") from None


def main() -> int:
    parser = _parser()
    given = parser.parse()
    texts = [f"{n}={getattr(given, n)}" for n in ("layers", "batch") if getattr(given, n)]
    try:
        model = sized(MODELS[given.name], [*texts, *given.set])
    except ValueError as error:
        parser.error(f"{given.name}: {error}")
    graph = model.build(given.name)
    path = graph.save(given.output, given.seed)
    print(f"{path}: {graph.parameters} parameters")
    return 0


def _parser() -> Parser:
    parser = Parser(prog="graphs", description=__doc__)
    parser.add_argument("name", choices=MODELS, help="the model")
    parser.add_argument("--layers", type=int, help="the number of layers")
    parser.add_argument("--batch", type=int, help="the number of samples")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other size"
    )
    parser.add_argument("--seed", type=int, help="random weights instead of a hole")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write to")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
