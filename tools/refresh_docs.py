"""Writes into README.md and docs/ what their examples print: `python tools/refresh_docs.py [--check] [FILE...]`.

A block of Python followed by a block of text is run, and the text becomes what it printed; in a block of the console,
the lines after `$ ` are run, and what follows each becomes what it printed. What follows a `<!-- needs: MODULE -->` is
left as it is where that module is not installed. All of a file's examples run in one scratch
folder that holds a copy of examples/ and the blocks that follow a `<!-- file: NAME -->`. Between `<!-- coverage -->`
and `<!-- end -->` the summary of the rule tables is written, and in the row `| gradgen | … |` how many of the torch
cases are refused (tests/test_torch_cases.py shows that all others are right).
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
PYTHON = re.compile(
    r"(?P<head>(?:<!-- needs: (?P<needs>\S+) -->\n)?```python\n(?P<code>.*?)```\n+```text\n)(?P<shown>.*?)(?=```)",
    re.DOTALL,
)
STORED = re.compile(r"<!-- file: (?P<name>\S+) -->\n```\w+\n(?P<content>.*?)```", re.DOTALL)
CONSOLE = re.compile(r"(?P<head>```console\n)(?P<shown>.*?)(?=```)", re.DOTALL)
COVERAGE = re.compile(r"(?P<head><!-- coverage -->\n)(?P<shown>.*?)(?=<!-- end -->)", re.DOTALL)
COMPARISON = re.compile(r"(?P<head>\| gradgen \| )(?P<shown>\d+ \| \d+)(?= \| 0 \| 0 \|)")
# Rounding differs between machines: numbers as small as these are the same where their sizes are alike.
NOISE = re.compile(r"\d\.\d+e-(?!0[0-3])\d+")
ALIKE = 30


def pages() -> list[Path]:
    """The files that hold examples."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refreshed(page: Path, exact: bool = False) -> str:
    """The page's text with the output of its examples as it is now; `exact` takes over what rounding alone changes."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples", folder / "examples")
        for match in STORED.finditer(text):
            (folder / match["name"]).write_text(match["content"], encoding="utf-8")
        text = PYTHON.sub(
            _kept(exact, lambda m: _python(m["code"], folder) if _there(m["needs"]) else m["shown"]), text
        )
        text = CONSOLE.sub(_kept(exact, lambda m: _console(m["shown"], folder)), text)
    text = COMPARISON.sub(_kept(exact, lambda _: comparison()), text)
    return COVERAGE.sub(_kept(exact, lambda _: coverage()), text)


def _kept(exact: bool, make: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    """A replacement that keeps what is shown where it differs from the new text by rounding alone, unless `exact`."""

    def replace(match: re.Match[str]) -> str:
        fresh = make(match)
        return match["head"] + (match["shown"] if not exact and same(fresh, match["shown"]) else fresh)

    return replace


def same(fresh: str, shown: str) -> bool:
    """Whether two outputs differ by rounding alone."""
    pairs = zip(NOISE.findall(fresh), NOISE.findall(shown), strict=False)
    alike = all(1 / ALIKE < float(a) / max(float(b), 1e-300) < ALIKE for a, b in pairs if a != b)
    return alike and NOISE.sub("", fresh) == NOISE.sub("", shown)


def _there(module: str | None) -> bool:
    return module is None or importlib.util.find_spec(module) is not None


def _python(code: str, folder: Path) -> str:
    script = folder / "example.py"  # a file, because onnxscript reads the source of what it compiles
    script.write_text(code, encoding="utf-8")
    return _run([sys.executable, str(script)], folder)


def _console(shown: str, folder: Path) -> str:
    commands = [line for line in shown.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{_run(['bash', '-c', line.removeprefix('$ ')], folder)}" for line in commands)


def _run(command: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if "Traceback" in done.stdout:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def coverage() -> str:
    """A table of the families with the ops that have a rule, the ops that go through a body, and all others."""
    from gradgen.engine.registry import builtin

    families: dict[str, list[str]] = {}
    bodies: list[str] = []
    others: list[str] = []
    rows = builtin().rows()
    for row in rows:
        name = f"{row.domain}::{row.op_type}" if row.domain else row.op_type
        listed = (
            families.setdefault(row.module.rpartition(".")[2], []) if row.forms else bodies if row.forward else others
        )
        if name not in listed:
            listed.append(name)
    ruled = sum(bool(r.forms) for r in rows)
    lines = [f"{len(rows)} rows, {ruled} of them with a rule:", "", "| Family | Ops with a rule |", "|---|---|"]
    lines += [f"| {family} | {' '.join(names)} |" for family, names in sorted(families.items())]
    lines += ["", f"Differentiated through a body of the table: {' '.join(sorted(bodies))}."]
    lines += ["", f"Known to have a zero derivative, or refused with a reason: {' '.join(sorted(others))}."]
    return "\n".join(lines) + "\n"


def comparison() -> str:
    """How many of the torch cases are right and how many refused, as two cells."""
    import gradgen

    sys.path.insert(0, str(ROOT / "tests"))
    from torch_cases import load_cases

    cases = load_cases()
    refused = 0
    for case in [c for c in cases if c.refused]:
        try:
            gradgen.vjp(case.path, wrt=list(case.gradients), of=list(case.cotangents))
        except gradgen.GradientError:
            refused += 1
    return f"{len(cases) - refused} | {refused}"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; print what differs and fail.")
def main(files: tuple[Path, ...], check: bool) -> None:
    """Refresh what the examples of README.md and docs/ print."""
    stale = False
    for page in files or pages():
        before, after = page.read_text(encoding="utf-8"), refreshed(page, exact=not check)
        if before == after:
            continue
        stale = True
        if check:
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), page.name, "now", lineterm="")
            click.echo("\n".join(lines))
        else:
            page.write_text(after, encoding="utf-8")
            click.echo(f"{page.name} is refreshed")
    if check and stale:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
