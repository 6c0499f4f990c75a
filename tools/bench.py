"""Times gradient models on onnxruntime beside PyTorch eager (and onnx-ad), after checking every gradient.

    pip install -e ".[bench]"
    python tools/bench.py [--only mlp --only cnn] [--threads 1 --threads 2] [--rounds 30]
    python tools/bench.py --json --history FILE    # appends the measurements to a file outside the repository
    python tools/bench.py --growth                 # draws docs/growth.svg

A step is the loss and its gradient to every parameter (or to the input alone). The weights are inputs of the gradient
model, as in training. Rounds alternate between the libraries; a ratio is the median of the rounds' ratios, so that a
busy spell of the machine falls on both; `best` is that of the fastest rounds. Peak memory is that of a step in a process
of its own, above the process that has loaded the model. On a busy machine, figures of several threads mean nothing.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_models
import bench_peers
import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
Step = Callable[[], Any]
Clock = Callable[[], float]
# The processor's leaves out what other processes take; with several threads it counts those that wait actively.
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": time.process_time}
COLUMNS = ("threads", "parameters", "best", "aim", "input", "aim ", "÷ onnx-ad", "nodes", "memory")
KEYS = ("parameters", "best", "aim", "input", "aim_input", "against_onnx_ad", "nodes", "memory")
SEED = 0
SETTLED, STEPS = 0.05, 3  # of a turn: seconds of steps that are not timed, and the steps that are then


def alternate(steps: dict[str, Step], rounds: int, seconds: float, clock: Clock) -> dict[str, list[float]]:
    """Seconds of each step in each round, the median of its turn; rounds end early once all have taken `seconds`.

    Each turn begins with steps that are not timed, for SETTLED seconds: a loop runs one library alone, while here the
    idle threads of the one before still spin when the next begins, for tens of milliseconds, and its arrays fill the
    caches.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    started = time.perf_counter()
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            while time.perf_counter() - begin < SETTLED:
                step()
            timed = []
            for _ in range(STEPS):
                begin = clock()
                step()
                timed.append(clock() - begin)
            times[name].append(statistics.median(timed))
        if time.perf_counter() - started > seconds:
            break
    return times


def ratio(times: dict[str, list[float]], ours: str, theirs: str) -> float | None:
    """The median of the rounds' ratios, None where one of the two did not run."""
    if ours not in times or theirs not in times:
        return None
    return statistics.median(a / b for a, b in zip(times[ours], times[theirs], strict=True))


def compare(name: str, found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Refuse to time gradients that differ from PyTorch's by more than rounding in float32."""
    for key, value in expected.items():
        error = float(np.abs(found[key] - value).max()) / (float(np.abs(value).max()) + 1e-6)
        if found[key].shape != value.shape or not error < 2e-3:
            raise click.ClickException(f"{name}: the gradient to '{key}' is off by {error:.1e} of its largest element")


def measure(name: str, threads: int, rounds: int, seconds: float, memory: bool, clock: Clock) -> dict[str, Any]:
    """The figures of one model on so many threads."""
    case = bench_models.CASES[name]
    torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    module, arguments = case.make(), case.arguments()
    problem = bench_peers.Problem(module, arguments)
    row: dict[str, Any] = {"model": name, "threads": threads, "aim": case.parameters, "aim_input": case.inputs}
    expected = problem.torch_gradients()
    try:
        ours, counts = problem.gradgen(threads)
    except Exception as error:
        return {**row, "error": str(error).splitlines()[0]}
    compare(name, ours(), expected)
    steps: dict[str, Step] = {"gradgen": ours, "torch": problem.torch_step()}
    row |= counts
    peer, reason = problem.onnx_ad(threads)
    if peer is not None:
        try:
            compare(f"{name}, onnx-ad", peer(), expected)
            steps["onnx_ad"] = peer
        except click.ClickException as error:  # its ScatterND is racy on several threads: what is wrong is not timed
            reason = error.message
    if "onnx_ad" not in steps:
        row["onnx_ad_error"] = reason
    times = alternate(steps, rounds, seconds, clock)
    row["parameters"], row["against_onnx_ad"] = ratio(times, "gradgen", "torch"), ratio(times, "gradgen", "onnx_ad")
    # Of the best rounds: what a machine without other work would show.
    row["best"] = min(times["gradgen"]) / min(times["torch"])
    row["seconds"] = {key: statistics.median(value) for key, value in times.items()}
    if case.inputs is not None:
        ours, _ = problem.gradgen(threads, to_input=True)
        compare(f"{name}, input", ours(), problem.torch_gradients(to_input=True))
        inputs = {"gradgen": ours, "torch": problem.torch_step(to_input=True)}
        times = alternate(inputs, rounds, seconds / 2, clock)
        row["input"] = ratio(times, "gradgen", "torch")
    if memory:
        peaks = [peak(name, threads, library) for library in ("gradgen", "torch")]
        row["peak_bytes"] = dict(zip(("gradgen", "torch"), peaks, strict=True))
        row["memory"] = peaks[0] / peaks[1]
    return row


def peak(name: str, threads: int, library: str) -> int:
    """The peak resident size of steps above that of the loaded process, in a process of its own."""
    command = [sys.executable, str(ROOT / "tools" / "bench_peers.py"), name, str(threads), library]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return max(int(done.stdout.split()[-1]), 1)


def quiet() -> None:
    """Leave out what the exporter and the libraries tell at every step."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def geometric(values: list[float | None]) -> float | None:
    known = [v for v in values if v]
    return statistics.geometric_mean(known) if known else None


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The table, with a geometric mean of the models that all have to reach together: all but the graph network."""
    table = Table(title="time of a step ÷ PyTorch eager's")
    table.add_column("model")
    for heading in COLUMNS:
        table.add_column(heading, justify="right")

    def text(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    for row in rows:
        if "error" in row:
            table.add_row(row["model"], str(row["threads"]), row["error"][:60])
            continue
        table.add_row(row["model"], str(row["threads"]), *(text(row.get(k)) for k in KEYS))
    for threads in sorted({r["threads"] for r in rows}):
        chosen = [r for r in rows if r["threads"] == threads and r["model"] != "gnn"]
        means = {k: geometric([r.get(k) for r in chosen]) for k in ("parameters", "best", "input", "against_onnx_ad")}
        cells = [text({**means, "aim": 0.9}.get(k)) for k in KEYS[:6]]
        table.add_row("geometric mean, no gnn", str(threads), *cells)
    console.print(table)


@click.command(help=__doc__)
@click.option("--only", multiple=True, type=click.Choice(sorted(bench_models.CASES)), help="A model; may be repeated.")
@click.option("--threads", multiple=True, type=int, default=(1, 2), show_default=True, help="May be repeated.")
@click.option("--rounds", default=40, show_default=True, help="Rounds at most.")
@click.option("--seconds", default=6.0, show_default=True, help="Time at most for the rounds of one model.")
@click.option("--clock", type=click.Choice(list(CLOCKS)), default="wall", show_default=True,
              help="The processor's, with one thread, on a machine that does other work too.")  # fmt: skip
@click.option("--memory/--no-memory", default=True, help="Measure peak memory too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--history", type=click.Path(path_type=Path), help="Append the measurements to this file, as JSON lines.")
@click.option("--growth", is_flag=True, help="Measure how the ratio grows with sizes, and draw docs/growth.svg.")
def main(only: tuple[str, ...], threads: tuple[int, ...], rounds: int, seconds: float, clock: str, memory: bool,
         as_json: bool, history: Path | None, growth: bool) -> None:  # fmt: skip
    quiet()
    if history is not None and history.resolve().is_relative_to(ROOT):
        raise click.UsageError("--history: measurements of one machine do not belong into the repository")
    console = Console(stderr=as_json)
    if growth:
        import bench_growth

        rows = bench_growth.draw(ROOT / "docs" / "growth.svg", rounds, seconds, CLOCKS[clock])
    else:
        rows = []
        for count in threads:
            for name in only or bench_models.CASES:
                rows.append(measure(name, count, rounds, seconds, memory, CLOCKS[clock]))
                console.print(
                    f"[dim]{name}, threads {count}: {rows[-1].get('error') or format(rows[-1]['parameters'], '.2f')}[/dim]"
                )
        show(rows, console)
    record = {"machine": bench_peers.machine(), "clock": clock, "growth" if growth else "rows": rows}
    if as_json:
        print(json.dumps(record, indent=2))
    else:
        console.print(", ".join(f"{k} {v}" for k, v in record["machine"].items()))
    if history is not None:
        with history.open("a") as file:
            file.write(json.dumps({"time": time.time(), **record}) + "\n")


if __name__ == "__main__":
    main()
