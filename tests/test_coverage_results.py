# COVERAGE.md's results: how they are counted, kept and shown, and that the kept ones are of rows that exist.
from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradgen.coverage import float_types
from gradgen.engine.registry import registered
from gradgen.errors import GradientError
from gradgen.generator import generate
from gradgen.generator.results import CHECKS, Results, digest, read_results, shown, stem, write_results

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "tools" / "coverage_results.json"


@pytest.fixture(scope="module")
def rows():
    """A row of an op, one of another domain, and one with a version."""
    found = {}
    for name in ("shape", "contrib", "resize"):
        (family,) = generate.collect([(f"gradgen.rules.{name}", ROOT / f"gradgen/rules/{name}.toml")], False, False)
        found |= {stem(item): item for item in family.rows}
    return found


def test_a_result_is_shown_as_long_as_its_row_is_the_same(rows):
    item = rows["Transpose"]
    count = len(item.samples)
    found = Results(digest(item), {"first_order": (count, 0, 0), "jvp": (count - 2, 0, 2), "dynamic": (1, 3, 0)})
    assert shown(found, item, "first_order") == str(count)
    assert shown(found, item, "jvp") == f"{count - 2} (2 failed)"
    assert shown(found, item, "dynamic") == "1 (3 skipped)"
    assert shown(found, item, "forward") == "–"
    for changed in (
        replace(item, samples=item.samples[1:]),
        replace(item, settings={"tolerance": 1e-3}),
        replace(item, row=replace(item.row, forms=())),
    ):
        assert shown(found, changed, "first_order") == "?"
    assert shown(None, item, "first_order") == "?"
    assert shown(found, replace(item, samples=[]), "first_order") == "–"


def test_stems_are_the_names_of_the_generated_tests(rows):
    for family in ("shape", "contrib", "resize"):
        text = (ROOT / "generated" / "tests" / f"test_{family}.py").read_text(encoding="utf-8")
        tested = {line[9:-21] for line in text.splitlines() if line.endswith("_first_order(sample):")}
        assert tested and tested <= {name.lower() for name in rows}
    assert {"Transpose", "microsoft_Gelu", "SpaceToDepth_28"} <= rows.keys()


def test_results_are_kept(tmp_path):
    results = {"b/X": Results("0123", {"first_order": (3, 0, 1)}), "a/Y": Results("4567", {})}
    write_results(results, tmp_path / "r.json")
    assert read_results(tmp_path / "r.json") == results
    assert read_results(tmp_path / "none.json") == {}
    (tmp_path / "r.json").write_text('{"a/Y": [1]}')
    with pytest.raises(GradientError, match="holds no results"):
        read_results(tmp_path / "r.json")


def test_the_kept_results_are_of_rows_that_exist_and_passed():
    families = generate.collect(generate.families())
    known = {f"{f.name}/{stem(item)}": item for f in families for item in f.rows if item.samples}
    kept = read_results(RESULTS)
    assert kept and kept.keys() <= known.keys()
    current = {key: found for key, found in kept.items() if found.digest == digest(known[key])}
    for key, found in current.items():
        assert not any(failed for *_, failed in found.counts.values()), key
        samples = len(known[key].samples)
        assert found.counts["first_order"] == (samples, 0, 0), key
        assert all(sum(counts) == samples for counts in found.counts.values()), key
    assert len(current) > 0.5 * len(known)  # the others are shown as changed


OUTCOMES = """import pytest

@pytest.mark.parametrize("sample", range(4), ids=str)
def test_op_first_order(sample):
    assert sample != 1
    if sample == 2:
        pytest.skip("why")

@pytest.fixture
def broken():
    raise ValueError

def test_op_jvp(broken):
    pass
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_outcomes_are_counted(tmp_path, workers):
    (tmp_path / "generated" / "tests").mkdir(parents=True)
    (tmp_path / "generated" / "tests" / "test_mine.py").write_text(OUTCOMES)
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
import coverage_results
coverage_results.ROOT = __import__("pathlib").Path({str(tmp_path)!r})
for key, counts in sorted(coverage_results.run_tests(["mine"], "{workers}").items()):
    print("counted", key, sorted(counts.items()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert [line for line in done.stdout.splitlines() if line.startswith("counted")] == [
        "counted ('mine', 'op_first_order') [('failed', 1), ('passed', 2), ('skipped', 1)]",
        "counted ('mine', 'op_jvp') [('failed', 1)]",
    ]


def test_float_types_are_the_schemas():
    """From the standard's own tables: Relu has bfloat16 from opset 13 on, Det from 22."""
    rows = registered().rows()
    said = {(r.op_type, r.since): float_types(r, rows) for r in rows if not r.domain}
    every = "f16, bf16, f32, f64"
    assert said["Relu", 1] == said["Det", 1] == every
    assert said["SequenceAt", 1] == "f16, f32, f64"
    assert said["Shape", 1] == "–"  # its derivative is zero
    assert {float_types(r, rows) for r in rows if r.domain == "com.microsoft"} == {"–"}


def test_the_table_shows_every_check():
    lines = (ROOT / "generated" / "COVERAGE.md").read_text(encoding="utf-8").splitlines()
    (head,) = [line for line in lines if line.startswith("| Family |")]
    cells = [cell.strip() for cell in head.strip("|").split("|")]
    assert cells == ["Family", "Op", "From", "Rule", "Samples", *CHECKS.values(), "Order", "Error", "Types", "Inputs"]
