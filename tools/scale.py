"""Times gradgen on graphs of about 5,000 and 10,000 nodes, and the loading of its results in onnxruntime.

    python tools/scale.py [--only chain] [--repeats 3] [--no-load] [--json]

The graphs: a chain of MatMul, Add, Relu; a transformer of 100 and 200 layers with LayerNormalization and Gelu spelled
out, 50 nodes a layer; and a wide graph, in which 1,000 branches read one value. The gradient is that to every weight.

A row gives the best of the repeats. Wall-clock time says what a user waits, the processor's time what the work costs on
a machine that others use too. Loading is compared with a primal chain that has as many nodes as the derivative:
onnxruntime loads n nodes in more than linear time, so only equal counts say something about the derivative.
"""

import functools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import click
import onnx
import onnxruntime
from make_models import chain
from rich.console import Console
from rich.table import Table
from scale_models import fan, transformer

import gradgen

# The model for a size, the name of its output, and the two sizes.
CASES: dict[str, tuple[Callable[[int], onnx.ModelProto], str, tuple[int, int]]] = {
    "chain": (lambda steps: chain(steps, loss=False), "y", (1_667, 3_334)),
    "transformer": (transformer, "loss", (100, 200)),
    "fan": (fan, "y", (5, 10)),
}
COLUMNS = {
    "graph": "",
    "nodes": ",",
    "seconds": ".2f",
    "processor_seconds": ".2f",
    "derivative_nodes": ",",
    "derivative_per_primal": ".2f",
    "load_seconds": ".2f",
    "chain_load_seconds": ".2f",
    "load_ratio": ".2f",
}


def seconds(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall-clock seconds, the processor's seconds, and the result."""
    start, processor = time.perf_counter(), time.process_time()
    result = call()
    return time.perf_counter() - start, time.process_time() - processor, result


def load(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def measure(name: str, repeats: int, loading: bool) -> list[dict[str, Any]]:
    """A row for each size; sizes alternate, so that a busy spell of the machine falls on both."""
    make, output, sizes = CASES[name]
    models = [(model, gradgen.parameters(model)) for model in map(make, sizes)]

    def differentiate(model: onnx.ModelProto, wrt: list[str]) -> onnx.ModelProto:
        return gradgen.value_and_grad(model, wrt=wrt, of=[output], reduce="sum")

    # Imports, the rule library and the specialised rules are made once, outside the timing.
    differentiate(small := make(1), gradgen.parameters(small))
    times: list[list[tuple[float, float]]] = [[] for _ in sizes]
    derivatives: list[onnx.ModelProto] = [onnx.ModelProto() for _ in sizes]
    for _ in range(repeats):
        for i, (model, wrt) in enumerate(models):
            wall, processor, derivatives[i] = seconds(functools.partial(differentiate, model, wrt))
            times[i].append((wall, processor))
    rows = []
    for (model, _), derivative, elapsed in zip(models, derivatives, times, strict=True):
        nodes, count = len(model.graph.node), len(derivative.graph.node)
        row: dict[str, Any] = {
            "graph": name,
            "nodes": nodes,
            "seconds": min(wall for wall, _ in elapsed),
            "processor_seconds": min(processor for _, processor in elapsed),
            "derivative_nodes": count,
            "derivative_per_primal": count / nodes,
        }
        rows.append(row | (loads(derivative, repeats) if loading else {}))
    return rows


def loads(derivative: onnx.ModelProto, repeats: int) -> dict[str, float]:
    """The processor's seconds of loading a derivative, and a primal chain that has as many nodes."""
    peer = chain(round(len(derivative.graph.node) / 3), loss=False)
    # onnxruntime loads on one thread; the processor's time leaves other work on the machine out.
    times = [[seconds(lambda model=model: load(model))[1] for model in (derivative, peer)] for _ in range(repeats)]
    ours, theirs = (min(column) for column in zip(*times, strict=True))
    return {"load_seconds": ours, "chain_load_seconds": theirs, "load_ratio": ours / theirs}


def ratios(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float, float]]:
    """For each graph the larger size's time ÷ the smaller one's, on the wall clock and on the processor."""
    for small, large in zip(rows[::2], rows[1::2], strict=True):
        yield large["graph"], *(large[key] / small[key] for key in ("seconds", "processor_seconds"))


@click.command(help=__doc__)
@click.option("--only", multiple=True, type=click.Choice(list(CASES)), help="A graph; may be repeated.")
@click.option("--repeats", default=3, show_default=True, help="Runs of each size; the best counts.")
@click.option("--load/--no-load", "loading", default=True, help="Time the loading in onnxruntime too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(only: tuple[str, ...], repeats: int, loading: bool, as_json: bool) -> None:
    warnings.simplefilter("ignore", gradgen.GradientWarning)
    rows = [row for name in only or CASES for row in measure(name, repeats, loading)]
    found = [dict(zip(("graph", "wall", "processor"), r, strict=True)) for r in ratios(rows)]
    if as_json:
        print(json.dumps({"rows": rows, "ratios": found}, indent=2))
        return
    table = Table(title="value_and_grad to every weight")
    for column in COLUMNS:
        table.add_column(column.replace("_", " "), justify="right" if COLUMNS[column] else "left")
    for row in rows:
        table.add_row(*(format(row[c], spec) if c in row else "" for c, spec in COLUMNS.items()))
    console = Console()
    console.print(table)
    for name, wall, processor in ratios(rows):
        console.print(f"{name}: time at 10,000 nodes ÷ time at 5,000: {wall:.2f}, on the processor {processor:.2f}")


if __name__ == "__main__":
    main()
