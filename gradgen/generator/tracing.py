"""Runs traced rules on the samples of their rows: what one raises is said when the library is written."""

from __future__ import annotations

import functools
import importlib
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradgen.api import vjp
from gradgen.engine.registry import Registry, form_function
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.generator.table import Problems, TableRow
from gradgen.samples import Sample, build
from gradgen.transforms.forward_mode import jvp


def check_traced(rows: Sequence[TableRow], rules: Registry, problems: Problems) -> None:
    """Trace each traced rule on its samples until one gets through; where none does, say what the first is told.

    That is what the rule raises, a GradientError as anything else, or what is wrong with what it returns. A rule that no
    sample reaches, since its condition holds in none, is passed over. `rules` holds all rows. Whether the values are right
    is not looked at: the tests that are written do that.
    """
    for item in rows:
        row = item.row
        listed = [("forms", form) for form in row.forms] + [("tangents", form) for form in row.tangents]
        listed += [("forward", row.forward)] if row.forward is not None and row.through_body else []
        for field, form in {form.rule: (field, form) for field, form in listed if form.kind == "traced"}.values():
            if said := _fault(item, field, form, rules):
                problems.add(item.where, f"'{form.rule}' cannot be traced: {said}")


def _fault(item: TableRow, field: str, form: Form, rules: Registry) -> str:
    """What the first sample that reaches a rule is told; empty where the rule gets through on one, or none reaches it."""
    said = ""
    calls: list[str] = []
    noted = _noting(form, calls)
    changed: dict[str, Any] = {field: noted if field == "forward" else (noted,)}
    row = replace(item.row, **changed)
    alone, way = Registry([row], parent=rules), jvp if field == "tangents" else vjp
    for index, spec in enumerate(item.samples):
        calls.clear()
        sample = Sample(item.row.domain, item.row.op_type, item.row.since, index, spec, item.settings)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                built = build(sample, np.float32, rules=alone)
                way(built.model, wrt=built.wrt, of=built.of, portable=built.portable, registry=alone)
            if calls:
                return ""
        except GradientError as error:
            said = said or _reason(error, row, bool(calls))
        except Exception:  # a sample that fits no op: the tests that are written show it
            continue
    return said


def _noting(form: Form, calls: list[str]) -> Form:
    """A traced form that adds its name to `calls` when it is traced."""
    rule = form_function(form)

    @functools.wraps(rule.fn)
    def traced(*values: Any, **attributes: Any) -> Any:
        calls.append(form.rule)
        return rule.fn(*values, **attributes)

    return replace(form, function=replace(rule, fn=traced))


def _reason(error: GradientError, row: Row, called: bool) -> str:
    """What a sample is told, where it comes from the rule's module or, as the rule was `called`, from what it returns."""
    path = Path(importlib.import_module(row.module).__file__ or "")
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    if inside := [e for e in chain if _frames(e, path)]:
        return place(inside[0], path)
    if error.__cause__ is not None and not isinstance(error.__cause__, GradientError):
        return place(error.__cause__, path)
    return " ".join(str(error).split()) if called else ""


def place(error: BaseException, path: Path) -> str:
    """An exception in a line: the deepest line that it comes from in the folder of `path`, its type and what it says."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: {error.msg}"
    frames = _frames(error, path)
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
    return f"{where}{type(error).__name__}: {text}"


def _frames(error: BaseException, path: Path) -> list[traceback.FrameSummary]:
    """Where an exception has come through modules in the folder of `path`."""
    folder = path.resolve().parent
    return [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve().parent == folder]
