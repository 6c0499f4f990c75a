"""Times gradient models beside onnxruntime-training, each in a process and an environment of its own, step by step.

    python -m venv training && training/bin/pip install onnxruntime-training==1.19.2 onnx==1.17.0 torch
    python tools/bench_training.py --python training/bin/python [--only mlp] [--threads 1] [--rounds 40]

Both take the same model and the same values; a step is the loss and its gradient to every parameter. The gradients of
both are checked against PyTorch's before anything is timed. Steps alternate, one of each a round; the ratio is the
median of the rounds' ratios, `best` that of the fastest rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bench
import bench_models
import bench_peers
import click
import numpy as np
import onnx
import torch
from rich.console import Console
from rich.table import Table

WORKER = Path(__file__).with_name("bench_training_worker.py")
LIBRARIES = ("gradgen", "training")


class Worker:
    """A process that takes a step of one library when it is told to."""

    def __init__(self, python: str, library: str, folder: Path, threads: int):
        command = [python, str(WORKER), library, str(folder), str(threads)]
        self._log = (folder / f"{library}.log").open("w+")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                                         text=True, bufsize=1)  # fmt: skip

    def answer(self) -> str:
        """The next line that the process prints for us; libraries may print others before it is ready.

        Raises:
            RuntimeError: with the last line of its log, where it has ended.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready" or line[:1].isdigit():
                return line.strip()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        raise RuntimeError(lines[-1] if lines else "the process has ended")

    def step(self) -> float:
        """The seconds of one step."""
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        return float(self.answer())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()


def measure(name: str, threads: int, python: str, rounds: int, seconds: float) -> dict[str, Any]:
    """The ratio of one model, or the reason why onnxruntime-training has none."""
    torch.manual_seed(bench.SEED)
    case = bench_models.CASES[name]
    problem = bench_peers.Problem(case.make(), case.arguments())
    expected = problem.torch_gradients()
    row: dict[str, Any] = {"model": name, "threads": threads}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, ExitStack() as stack:
        folder = Path(scratch)
        onnx.save(problem.primal, folder / "primal.onnx")
        np.savez(folder / "feeds.npz", **problem.feeds)  # type: ignore[arg-type]
        np.savez(folder / "weights.npz", **problem.weights)  # type: ignore[arg-type]
        workers = {}
        for library, executable in zip(LIBRARIES, (sys.executable, python), strict=True):
            workers[library] = Worker(executable, library, folder, threads)
            stack.callback(workers[library].close)
            try:
                workers[library].answer()
            except RuntimeError as error:
                return {**row, "error": f"{library}: {error}"}
            bench.compare(f"{name}, {library}", dict(np.load(folder / f"{library}.npz")), expected)
        times: dict[str, list[float]] = {library: [] for library in LIBRARIES}
        started = time.perf_counter()
        for _ in range(rounds):
            for library, worker in workers.items():
                times[library].append(worker.step())
            if time.perf_counter() - started > seconds:
                break
    row["ratio"] = bench.ratio(times, *LIBRARIES)
    row["best"] = min(times["gradgen"]) / min(times["training"])
    row["seconds"] = {library: statistics.median(values) for library, values in times.items()}
    return row


@click.command(help=__doc__)
@click.option("--python", required=True, help="The Python of the environment that has onnxruntime-training.")
@click.option("--only", multiple=True, type=click.Choice(sorted(bench_models.CASES)), help="A model; may be repeated.")
@click.option("--threads", multiple=True, type=int, default=(1, 2), show_default=True, help="May be repeated.")
@click.option("--rounds", default=60, show_default=True, help="Rounds at most.")
@click.option("--seconds", default=6.0, show_default=True, help="Time at most for the rounds of one model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(python: str, only: tuple[str, ...], threads: tuple[int, ...], rounds: int, seconds: float,
         as_json: bool) -> None:  # fmt: skip
    bench.quiet()
    rows = [measure(n, count, python, rounds, seconds) for count in threads for n in only or bench_models.CASES]
    if as_json:
        print(json.dumps({"machine": bench_peers.machine(), "rows": rows}, indent=2))
        return
    table = Table("model", "threads", "ratio", "best", title="time of a step ÷ onnxruntime-training's")
    for row in rows:
        cells = ["…" + row["error"][-70:], ""] if "error" in row else [f"{row['ratio']:.2f}", f"{row['best']:.2f}"]
        table.add_row(row["model"], str(row["threads"]), *cells)
    for count in threads:
        mean = bench.geometric([r.get("ratio") for r in rows if r["threads"] == count])
        if mean is not None:
            table.add_row("geometric mean", str(count), f"{mean:.2f}", "")
    console = Console()
    console.print(table)
    console.print(", ".join(f"{k} {v}" for k, v in bench_peers.machine().items()))


if __name__ == "__main__":
    main()
