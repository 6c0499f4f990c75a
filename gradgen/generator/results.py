"""How the generated tests of each row came out: a file that `tools/coverage_results.py` writes and COVERAGE.md shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradgen.errors import GradientError
from gradgen.generator.table import TableRow

# The checks of the generated tests, as the ends of their names, and how they are called in the table.
CHECKS = {
    "first_order": "First",
    "float32": "float32",
    "dynamic": "Dynamic",
    "second_order": "Second",
    "jvp": "jvp",
    "forward": "Body",
}


@dataclass(frozen=True)
class Results:
    """The results of one row's tests.

    Attributes:
        digest: of the row that was tested, see `digest`.
        counts: how many samples passed, were skipped and failed, by check.
    """

    digest: str
    counts: Mapping[str, tuple[int, int, int]]


def stem(item: TableRow) -> str:
    """What the names of a row's tests begin with, behind `test_`."""
    row = item.row
    domain = f"{row.domain.split('.')[-1]}_" if row.domain else ""
    return f"{domain}{row.op_type}{f'_{row.since}' if row.since > 1 else ''}"


def digest(item: TableRow) -> str:
    """A digest of what the table says of a row: results of another digest are those of an older table."""
    row = item.row
    rules = [[f.rule, f.when] for f in row.forms] + [[f.rule, ""] for f in (row.forward, row.straight_through) if f]
    rules += [[f.rule, f.when] for f in row.tangents]
    content = [row.domain, row.op_type, row.since, rules, item.dispositions, item.samples, item.settings]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def read_results(path: Path) -> dict[str, Results]:
    """Results by `<family>/<stem>`; none where there is no file.

    Raises:
        GradientError: the file is not what `write_results` writes.
    """
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            key: Results(entry.pop("digest"), {check: (c[0], c[1], c[2]) for check, c in entry.items()})
            for key, entry in data.items()
        }
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise GradientError(f"'{path}' holds no results, run tools/coverage_results.py: {error}") from error


def write_results(results: Mapping[str, Results], path: Path) -> None:
    """Write results, one row a line, sorted."""
    lines = [
        f"  {json.dumps(key)}: {json.dumps({'digest': found.digest, **{k: list(c) for k, c in found.counts.items()}})}"
        for key, found in sorted(results.items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def shown(found: Results | None, item: TableRow, check: str) -> str:
    """The cell of a row and a check: the samples that passed, and how many did not; "?" where the row has changed."""
    if not item.samples:
        return "–"
    if found is None or found.digest != digest(item):
        return "?"
    passed, skipped, failed = found.counts.get(check, (0, 0, 0))
    if not passed and not failed:
        return "–"
    rest = [f"{count} {what}" for count, what in ((skipped, "skipped"), (failed, "failed")) if count]
    return f"{passed} ({', '.join(rest)})" if rest else str(passed)
