"""Times gradgen on a chain of MatMul, Add, Relu at 5,001 and 10,002 nodes, and the loading of its result.

    python tools/scale.py [--json] [--repeats 3]

Loading is compared with a primal chain that has as many nodes as the derivative: onnxruntime loads n nodes in more than
linear time, so only equal counts say something about the derivative.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import click
import onnx
import onnxruntime
from make_models import chain
from rich.console import Console
from rich.table import Table

import gradgen

SIZES = (5_001, 10_002)


def seconds(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall-clock seconds, the processor's seconds (which other work on the machine stretches less), and the result."""
    start, processor = time.perf_counter(), time.process_time()
    result = call()
    return time.perf_counter() - start, time.process_time() - processor, result


def load(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def differentiate(model: onnx.ModelProto) -> onnx.ModelProto:
    return gradgen.value_and_grad(model, wrt=gradgen.parameters(model), of=["y"], reduce="sum")


def measure(repeats: int) -> list[dict[str, float]]:
    """A row for each size; sizes alternate, so that a busy spell of the machine falls on both; the best time counts."""
    models = [chain(size // 3, loss=False) for size in SIZES]
    times: list[list[tuple[float, float]]] = [[] for _ in SIZES]
    derivatives: list[onnx.ModelProto] = [onnx.ModelProto() for _ in SIZES]
    differentiate(chain(2, loss=False))  # imports and the rule library are loaded once, outside the timing
    for _ in range(repeats):
        for i, model in enumerate(models):
            *elapsed, derivatives[i] = seconds(lambda model=model: differentiate(model))
            times[i].append((elapsed[0], elapsed[1]))
    rows = []
    for model, derivative, elapsed in zip(models, derivatives, times, strict=True):
        nodes, count = len(model.graph.node), len(derivative.graph.node)
        peer = chain(round(count / 3), loss=False)
        rows.append(
            {
                "nodes": nodes,
                "seconds": min(wall for wall, _ in elapsed),
                "processor_seconds": min(processor for _, processor in elapsed),
                "derivative_nodes": count,
                "derivative_per_primal": count / nodes,
                "load_seconds": seconds(lambda derivative=derivative: load(derivative))[0],
                "primal_of_equal_count_load_seconds": seconds(lambda peer=peer: load(peer))[0],
            }
        )
    return rows


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--repeats", default=3, show_default=True, help="Runs of each size; the best counts.")
def main(as_json: bool, repeats: int) -> None:
    rows = measure(repeats)
    ratio = rows[1]["seconds"] / rows[0]["seconds"]
    if as_json:
        print(json.dumps({"rows": rows, "time_ratio": ratio}, indent=2))
        return
    table = Table(title="value_and_grad of a chain of MatMul, Add, Relu")
    for heading in (
        "nodes",
        "seconds",
        "processor, s",
        "derivative nodes",
        "÷ primal",
        "load, s",
        "load of a primal that long, s",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            f"{row['nodes']:,}",
            f"{row['seconds']:.2f}",
            f"{row['processor_seconds']:.2f}",
            f"{row['derivative_nodes']:,}",
            f"{row['derivative_per_primal']:.2f}",
            f"{row['load_seconds']:.2f}",
            f"{row['primal_of_equal_count_load_seconds']:.2f}",
        )
    console = Console()
    console.print(table)
    console.print(f"time at {SIZES[1]:,} ÷ time at {SIZES[0]:,}: {ratio:.2f}")


if __name__ == "__main__":
    main()
