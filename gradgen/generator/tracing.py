"""Runs traced rules on the samples of their rows: what one raises is said when the library is written."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gradgen.api import vjp
from gradgen.engine.registry import Registry
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.generator.table import Problems, TableRow
from gradgen.samples import Sample, build


def check_traced(rows: Sequence[TableRow], rules: Registry, problems: Problems) -> None:
    """Trace each traced rule on its samples until it runs on one; where it runs on none, say what it raises there.

    `rules` holds all rows. Whether the values are right is not looked at: the tests that are written do that.
    """
    for item in rows:
        traced = [form for form in item.row.forms if form.kind == "traced"]
        for form in dict((form.rule, form) for form in traced).values():
            if said := _fault(item, form, rules):
                problems.add(item.where, f"'{form.rule}' cannot be traced: {said}")


def _fault(item: TableRow, form: Form, rules: Registry) -> str:
    """What a rule raises on the samples; empty where it runs on one, or is not asked by any."""
    said = ""
    alone = Registry([replace(item.row, forms=(form,))], parent=rules)
    for index, spec in enumerate(item.samples):
        sample = Sample(item.row.domain, item.row.op_type, item.row.since, index, spec, item.settings)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                built = build(sample, np.float32, rules=alone)
                vjp(built.model, wrt=built.wrt, of=built.of, portable=built.portable, registry=alone)
            return ""
        except GradientError as error:
            said = said or _reason(error, item.row)
        except Exception:  # a sample that fits no op: the tests that are written show it
            continue
    return said


def _reason(error: GradientError, row: Row) -> str:
    """The line of the rule's module and what it raised; empty where the rule was refused in words of gradgen's own."""
    cause = error.__cause__
    if cause is None or isinstance(cause, GradientError):
        return ""
    return place(cause, Path(__import__(row.module, fromlist=["x"]).__file__ or ""))


def place(error: BaseException, path: Path) -> str:
    """An exception in a line: the deepest line that it comes from in the folder of `path`, its type and what it says."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: {error.msg}"
    folder = path.resolve().parent
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve().parent == folder]
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
    return f"{where}{type(error).__name__}: {text}"
