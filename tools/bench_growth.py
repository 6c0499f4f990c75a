"""How the ratio to PyTorch eager grows with batch, width, depth and sequence: the picture that tools/bench.py draws."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench
import bench_models
import bench_peers
import torch
from torch import Tensor, nn

THREADS = 1
Arguments = dict[str, Tensor]


def _mlp(batch: int, widths: Sequence[int]) -> tuple[nn.Module, Arguments]:
    label = torch.randint(0, widths[-1], (batch,))
    return bench_models.Mlp(tuple(widths)), {"x": torch.randn(batch, widths[0]), "label": label}


def _encoder(length: int) -> tuple[nn.Module, Arguments]:
    return bench_models.Encoder(64, 1), {"x": torch.randn(4, length, 64), "label": torch.randint(0, 10, (4,))}


AXES: dict[str, tuple[tuple[int, ...], Callable[[int], tuple[nn.Module, Arguments]]]] = {
    "batch of an MLP": ((1, 4, 16, 64, 256), lambda n: _mlp(n, (784, 512, 256, 10))),
    "width of an MLP, batch 64": ((64, 128, 256, 512, 1024, 2048), lambda n: _mlp(64, (n, n, n, 10))),
    "depth of an MLP, width 64": ((2, 5, 10, 20, 50, 100, 200), lambda n: _mlp(64, (64,) * n + (10,))),
    "sequence of a transformer": ((16, 64, 256, 1024), _encoder),
}


def measure(rounds: int, seconds: float, clock: Callable[[], float]) -> list[dict[str, Any]]:
    """Rows of axis, size, and the ratio of gradgen's step to PyTorch's, with the middle half of the rounds' ratios."""
    torch.set_num_threads(THREADS)
    rows = []
    for axis, (sizes, make) in AXES.items():
        for size in sizes:
            torch.manual_seed(bench.SEED)
            module, arguments = make(size)
            for parameter in module.parameters():  # equal layers would be merged by the exporter
                nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
            problem = bench_peers.Problem(module, arguments)
            step, _ = problem.gradgen(THREADS)
            bench.compare(f"{axis} {size}", step(), problem.torch_gradients())
            steps = {"gradgen": step, "torch": problem.torch_step()}
            times = bench.alternate(steps, rounds, seconds / 3, clock)
            ratios = [a / b for a, b in zip(times["gradgen"], times["torch"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            rows.append({"axis": axis, "size": size, "ratio": middle, "low": low, "high": high})
    return rows


def draw(path: Path, rounds: int, seconds: float, clock: Callable[[], float]) -> list[dict[str, Any]]:
    """Measure, and write the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gradgen"
    from matplotlib import pyplot

    rows = measure(rounds, seconds, clock)
    figure, panels = pyplot.subplots(1, len(AXES), figsize=(13, 3), sharey=True, layout="constrained")
    for panel, axis in zip(panels, AXES, strict=True):
        chosen = [r for r in rows if r["axis"] == axis]
        sizes = [r["size"] for r in chosen]
        panel.fill_between(sizes, [r["low"] for r in chosen], [r["high"] for r in chosen], alpha=0.25, linewidth=0)
        panel.plot(sizes, [r["ratio"] for r in chosen], marker="o")
        panel.axhline(1, color="black", linewidth=0.7, linestyle=":")
        panel.set(xscale="log", title=axis, ylim=(0, max(1.2, *(1.2 * r["ratio"] for r in rows))))
        panel.set_xticks(sizes, [str(s) for s in sizes])
        panel.minorticks_off()
    panels[0].set_ylabel("time ÷ PyTorch eager's")
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    return rows
