"""Runs gradient models on engines beside onnxruntime and prints how they came out: `python tools/portability.py`.

    pip install -e ".[openvino,mlir]" && npm install onnxruntime-web

What is not installed is left out. Each cell is the largest difference from onnxruntime's gradients in units of the largest
one, or what the engine refused.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


@click.command()
@click.option("--only", multiple=True, help="An engine; may be repeated.")
def main(only: tuple[str, ...]) -> None:
    """Print a table of models, plain and portable, by engines."""
    from portable_engines import ENGINES, error, feeds_for, gradient, primals

    names = [n for n in ENGINES if not only or n in only]
    for package in ("onnxruntime", "openvino", "iree-base-compiler"):
        try:
            click.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            click.echo(f"{package} is not installed")
    click.echo("\n| " + " | ".join(["Gradient of", "Form", *names]) + " |\n" + "|---" * (2 + len(names)) + "|")
    for name, primal in primals().items():
        for portable in (False, True):
            model = gradient(primal, portable)
            feeds = feeds_for(model)
            cells = []
            for engine in names:
                try:
                    cells.append(f"{error(ENGINES[engine](model, feeds), model, feeds):.0e}")
                except Exception as refusal:  # each engine raises its own
                    cells.append(f"refused: {reason(str(refusal))}")
            click.echo(f"| {name} | {'portable' if portable else 'plain'} | " + " | ".join(cells) + " |")


def reason(message: str) -> str:
    """The operator that a message names, or its first line."""
    absent = re.findall(r"operations: (.*)|onnx\.(\w+)\"", message)
    # Behind an operator that OpenVINO lacks no type is known, and all that needs one fails too.
    refused = re.findall(r"^-- (\w+)-\d+ with a message:\n(.*?)(?=^-- |^Summary|\Z)", message, re.S | re.M)
    failed = [op for op, why in refused if "input type dynamic" not in why]
    listed = [part for parts in absent for part in parts if part] + failed
    found = list(dict.fromkeys(re.sub(r"-\d+", "", part).strip() for part in listed))
    return ", ".join(found) if found else message.strip().splitlines()[0][:80]


if __name__ == "__main__":
    main()
