"""Peak memory and time of the gradient of a 24-layer transformer, with and without `checkpoint=`.

    python tools/checkpoint_memory.py [--layers 24] [--rounds 5] [--json]

Peak memory is that of steps in a process of its own: the highest resident size above that of the process that has
loaded the model. A time is the processor's, the best of the rounds, on one thread. Every gradient is compared with that
of the model that keeps everything. onnxruntime's options are its defaults.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime
from peak_memory import peak_of
from rich.console import Console
from rich.table import Table
from scale_models import transformer

import gradgen

BATCH, TOKENS, WIDTH, HEADS = 4, 128, 128, 4
# What is kept: everything, what gradgen chooses, the output of each layer, of every fourth layer.
REQUESTS: dict[str, list[str] | str | None] = {
    "everything is kept": None,
    "auto": "auto",
    "each layer's output": ["layer*.out"],
    "every fourth layer's": ["layer*3.out", "layer*7.out", "layer1*1.out"],
}


def step_of(path: str) -> Any:
    """A step: the loss and its gradient to every weight."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((BATCH, TOKENS, WIDTH)).astype(np.float32)
    return lambda: session.run(None, {"x": x})


def worker(path: str, expected: str, rounds: int) -> None:
    """Print the figures of one model; its results go to `expected`, or are compared with what is there."""
    step = step_of(path)
    peak, best = peak_of(step, rounds), float("inf")
    for _ in range(rounds):
        start = time.process_time()
        found = step()
        best = min(best, time.process_time() - start)
    if not Path(expected).is_file():
        np.savez(expected, *found)
    want = list(np.load(expected).values())
    largest = max(float(np.abs(w).max()) for w in want)
    error = max(float(np.abs(w - f).max()) for w, f in zip(want, found, strict=True)) / largest
    print(json.dumps({"peak": peak, "seconds": best, "error": error}))


def measure(layers: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each batch, static and dynamic, and each request."""
    rows: list[dict[str, Any]] = []
    for batch in (BATCH, "N"):
        model = transformer(layers, batch, TOKENS, WIDTH, HEADS, spelled=False)
        wrt, plain = gradgen.parameters(model), {}
        with tempfile.TemporaryDirectory() as folder:
            for label, request in REQUESTS.items():
                gradient = gradgen.value_and_grad(model, wrt=wrt, of=["loss"], checkpoint=request)
                path = str(Path(folder) / "gradient.onnx")
                onnx.save(gradient, path)
                command = [sys.executable, __file__, "--work", path, str(Path(folder) / "expected.npz")]
                command += ["--rounds", str(rounds)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                kind = "static" if batch == BATCH else "dynamic"
                again = sum(n.name.endswith("/again") for n in gradient.graph.node)
                row = {"batch": kind, "kept": label, "nodes": len(gradient.graph.node), "again": again}
                row |= json.loads(done.stdout)
                plain = row if request is None else plain
                rows.append(row | {"memory": row["peak"] / plain["peak"], "time": row["seconds"] / plain["seconds"]})
    return rows


@click.command(help=__doc__)
@click.option("--layers", default=24, show_default=True, help="Layers of the transformer.")
@click.option("--rounds", default=5, show_default=True, help="Steps of each model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--work", nargs=2, hidden=True)
def main(layers: int, rounds: int, as_json: bool, work: tuple[str, str] | None) -> None:
    if work:
        worker(*work, rounds)
        return
    rows = measure(layers, rounds)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title=f"gradient of a transformer of {layers} layers")
    for heading in ("batch", "kept", "nodes", "anew", "peak, MB", "÷ all kept", "time ÷ all kept", "error"):
        table.add_column(heading, justify="left" if heading in ("batch", "kept") else "right")
    for r in rows:
        table.add_row(r["batch"], r["kept"], f"{r['nodes']:,}", str(r["again"]), f"{r['peak'] / 1e6:.0f}",
                      f"{r['memory']:.2f}", f"{r['time']:.2f}", f"{r['error']:.0e}")  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
