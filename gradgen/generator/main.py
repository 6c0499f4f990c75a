"""The generator's command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gradgen.errors import GradientError
from gradgen.generator import generate
from gradgen.generator.results import read_results

ROOT = Path(__file__).resolve().parents[2]


@click.command(name="generate", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rules", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A module of rules of your own."
)
@click.option("--table", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its table.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write: a new or empty folder, or a generated library. In a clone of gradgen the default is generated/.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail if the generated files differ.")
@click.option(
    "--allow-open", is_flag=True, help="Accept rules whose ops have no row yet, while a family is being written."
)
def command(rules: Path | None, table: Path | None, out: Path | None, check: bool, allow_open: bool) -> None:
    """Write registry, function library, tests and coverage from rules and tables.

    Without --rules and --table from gradgen's own, with them from yours. A rule is compiled, checked against the op's
    schema, and run on numbers to see whether it is linear in its cotangents; whether its values are right is told by the
    tests that are written.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        # onnxscript orders the outputs of If and Loop by Python sets: only a fixed seed gives the same text every time.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    if (rules is None) != (table is None) or (rules is not None and out is None):
        raise click.UsageError("--rules, --table and --out go together")
    if out is None:
        out = _own_folder()
    results = None
    try:
        if rules is not None and table is not None:
            found = generate.collect([(generate.load_module(rules).__name__, table)], with_library=False, closed=False)
            _refuse_shadow(found, rules, out)
        else:
            found = generate.collect(generate.families(), closed=not allow_open)
            results = read_results(ROOT / "tools" / "coverage_results.json")
        files = generate.render(found, results)
        if check:
            wrong = generate.differences(files, out)
            if wrong:
                raise GradientError(f"generated files differ, run this without --check: {', '.join(wrong)}")
            click.echo(f"{len(files)} generated files are up to date")
            return
        generate.write(files, out)
    except (GradientError, OSError) as error:
        click.echo(f"gradgen: {error}", err=True)
        raise SystemExit(2) from None
    rows = [row for family in found for row in family.rows]
    click.echo(
        f"wrote {len(files)} files to {os.path.relpath(out)}: {len(rows)} {'row' if len(rows) == 1 else 'rows'}, "
        f"{sum(bool(r.row.forms) for r in rows)} with a rule"
    )


def _refuse_shadow(found: list[generate.Family], rules: Path, out: Path) -> None:
    """Refuse a folder that Python would import in place of the module in which the traced rules stay."""
    forms = [form for family in found for item in family.rows for form in item.row.forms]
    if any(form.kind != "compiled" for form in forms) and out.resolve() == rules.resolve().with_suffix(""):
        raise GradientError(
            f"--out {out} would hide {rules.name}, from which the library imports its traced rules: give it another name"
        )


def _own_folder() -> Path:
    """The folder of gradgen's own library in a clone; elsewhere nothing is written without being asked for."""
    project = ROOT / "pyproject.toml"
    if not (ROOT / "generated").is_dir() or not project.is_file() or "onnx-gradgen" not in project.read_text("utf-8"):
        raise click.UsageError("this is no clone of gradgen: pass --rules, --table and --out for a library of your own")
    return ROOT / "generated"


def main() -> None:
    """Run the command."""
    command()
