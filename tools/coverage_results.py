"""Runs the generated tests and writes down how they came out, for COVERAGE.md: `python tools/coverage_results.py`.

Only families with rows that have changed since are run, or those that are named. Then `python tools/generate.py` puts
the results into the table.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tools" / "coverage_results.json"


class Recorder:
    """A pytest plugin that counts outcomes by test function."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Counter[str]] = {}

    def pytest_runtest_logreport(self, report) -> None:
        """Count a test where it is decided: in its call, or before."""
        if report.when == "call" or report.when == "setup" and report.outcome != "passed":
            path, _, test = report.nodeid.partition("::")
            key = (Path(path).stem.removeprefix("test_"), test.partition("[")[0].removeprefix("test_"))
            self.counts.setdefault(key, Counter())[report.outcome] += 1


@click.command()
@click.argument("families", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Run every family.")
@click.option("--list", "listed", is_flag=True, help="Run nothing: print the families with rows that have changed.")
@click.option("-n", "--workers", default="auto", show_default=True, help="How many processes.")
def main(families: tuple[str, ...], every: bool, listed: bool, workers: str) -> None:
    """Run the generated tests of FAMILIES and note the results."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # as the generator, which reads the same rules
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    from gradgen.generator import generate
    from gradgen.generator.results import CHECKS, Results, digest, read_results, stem, write_results

    before = read_results(RESULTS)
    rows = {
        f"{family.name}/{stem(item)}": (family.name, item)
        for family in generate.collect(generate.families())
        for item in family.rows
        if item.samples
    }
    stale = {name for key, (name, item) in rows.items() if key not in before or before[key].digest != digest(item)}
    known = {name for name, _ in rows.values()}
    if unknown := set(families) - known:
        raise click.UsageError(
            f"no family {', '.join(sorted(unknown))} has samples: there are {', '.join(sorted(known))}"
        )
    chosen = sorted(families or (known if every else stale))
    if listed or not chosen:
        click.echo(" ".join(sorted(stale)) or "all results are of the rows as they are")
        return
    found = run_tests(chosen, workers)
    results = {key: before[key] for key in rows if key in before}
    failed = 0
    for key, (name, item) in rows.items():
        if name not in chosen:
            continue
        counts = {check: found.get((name, f"{stem(item).lower()}_{check}"), Counter()) for check in CHECKS}
        failed += sum(c["failed"] for c in counts.values())
        triples = {check: (c["passed"], c["skipped"], c["failed"]) for check, c in counts.items() if c}
        results[key] = Results(digest(item), triples)
    write_results(results, RESULTS)
    total = sum(sum(c.values()) for c in found.values())
    click.echo(f"{total} tests of {len(chosen)} families, {failed} failed: run tools/generate.py to show them")
    sys.exit(1 if failed else 0)


def run_tests(chosen: list[str], workers: str) -> dict[tuple[str, str], Counter[str]]:
    """Outcomes by family and test function."""
    import pytest

    recorder = Recorder()
    paths = [str(ROOT / "generated" / "tests" / f"test_{name}.py") for name in chosen]
    pytest.main(["-q", "-p", "no:cacheprovider", "-n", workers, f"--rootdir={ROOT}", *paths], plugins=[recorder])
    return recorder.counts


if __name__ == "__main__":
    main()
