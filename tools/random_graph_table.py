"""Differentiates random graphs and prints how they came out: `python tools/random_graph_table.py --count 2000`."""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


@click.command()
@click.option("--count", default=2000, show_default=True, help="How many graphs.")
@click.option("--first", default=0, show_default=True, help="The seed of the first; each has its own.")
@click.option("--save", type=click.Path(path_type=Path), help="A folder for the models that come out wrong.")
@click.option("--only", multiple=True, help="Draw these ops alone.")
def main(count: int, first: int, save: Path | None, only: tuple[str, ...]) -> None:
    """Draw graphs, rare ops more often, and count the verdicts and the ops on differentiated paths."""
    import onnx
    from random_graph_checks import judge
    from random_graph_parts import STOPPING
    from random_graphs import all_ops, draw_ops, grow

    warnings.simplefilter("ignore")
    verdicts: Counter[str] = Counter()
    paths: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for seed in range(first, first + count):
        ops = draw_ops(random.Random(-seed - 1), paths, list(only) or None)
        graph = grow(random.Random(seed), ops)
        verdict = judge(graph)
        verdicts[verdict.kind] += 1
        paths.update(verdict.paths if verdict.kind == "right" else ())
        if verdict.kind == "refused":
            refusals[verdict.reason] += 1
        if verdict.kind != "right":
            reason = " ".join(verdict.reason.split())[:400]
            click.echo(f"{seed}: {verdict.kind}: {reason} grow(random.Random({seed}), {ops})")
            if save and verdict.kind == "wrong":
                save.mkdir(parents=True, exist_ok=True)
                onnx.save(graph.model(graph.feeds()), save / f"{seed}.onnx")
    for kind in ("right", "wrong", "refused", "discarded"):
        click.echo(f"{kind:10} {verdicts[kind]:6} {verdicts[kind] / count:8.2%}")
    for reason, times in refusals.most_common():
        click.echo(f"refused {times} times: {reason[:400]}")
    click.echo("nodes on a differentiated path, by op:")
    ruled = [op for op in all_ops() if op not in STOPPING]
    for op in sorted(ruled, key=lambda op: paths[op]):
        click.echo(f"{paths[op]:6} {op}")
    sys.exit(1 if verdicts["wrong"] else 0)


if __name__ == "__main__":
    main()
