"""What tensoropt-serve says of what it is given, before anything is started."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tensoropt.serving.cli.serve import main


def test_every_flag_is_on_the_page(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    flags = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help", "--version"}
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    table = page.partition("\n## Flags\n")[2].partition("\n## ")[0]
    assert {*re.findall(r"`(--[a-z-]+)", table)} == flags


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere/"], "nowhere: expected a plan directory, got: no such folder"),
        (["a/plan", "b/plan"], "b/plan: the name 'plan' is taken, expected NAME=PLAN with another"),
        (["=plan"], "=plan: expected NAME=PLAN, with a name that fits into an address"),
        (["a/b=plan"], "a/b=plan: expected NAME=PLAN, with a name that fits into an address"),
        (
            ["a=b", "--prefill", "a=c", "--export-triton", "r"],
            "--prefill: not with --export-triton",
        ),
        (["plan", "--prot", "1"], "unknown argument '--prot', did you mean '--port'?"),
        (["plan", "--queue", "0"], "--queue: expected a whole number from 1, got: '0'"),
        (
            ["plan", "--batch-delay-ms", "-1"],
            "--batch-delay-ms: expected a number from 0, got: '-1'",
        ),
        (["plan", "--dim", "x"], "--dim: expected NAME=SIZE such as batch=8, got: 'x'"),
        (["plan", "--host", "no.such.host.invalid"], "HTTP: cannot listen at no.such.host.invalid"),
        (["plan", "--port", "70000"], "--port: expected a port from 0 to 65535, got: '70000'"),
        ([], "the following arguments are required: [NAME=]PLAN"),
    ],
)
def test_one_line_of_error(arguments, text, capsys):
    port = [] if "--port" in arguments else ["--port", "0"]
    assert main([*arguments, *port]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert text in said
    assert said.count("\n") == 1


def test_a_port_that_is_taken(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["plan", "--port", str(port)]) == 1
    assert f"HTTP: cannot listen at 127.0.0.1, port {port}: " in capsys.readouterr().err
