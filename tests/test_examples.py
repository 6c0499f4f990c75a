# The examples and the documentation: scripts do what they say, pages show what they print, links lead somewhere.
"""Tests of examples/, README.md, CONTRIBUTING.md and docs/."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

ROOT = Path(__file__).parent.parent
for folder in ("examples", "tools"):
    sys.path.insert(0, str(ROOT / folder))

import custom_rule  # noqa: E402
import draw  # noqa: E402
import fit_oscillator  # noqa: E402
import refresh_docs  # noqa: E402
import saliency  # noqa: E402
import train_digits  # noqa: E402

SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
PAGES = [*refresh_docs.pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_runs_and_is_short(script):
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout
    assert not done.stderr
    assert len(script.read_text().splitlines()) < 60


def test_training_learns_the_sample():
    before, after, accuracy = train_digits.train()
    assert before > 1.5 and after < 0.1 * before and accuracy == 1


def test_saliency_is_gradient_times_input():
    sample = np.load(ROOT / "examples" / "digits_sample.npz")
    image, label = sample["image"][:1], sample["label"][:1]
    found = saliency.saliency(image, label)
    session = onnxruntime.InferenceSession(ROOT / "examples" / "digits_cnn.onnx", providers=["CPUExecutionProvider"])

    def logit(row: int, column: int, by: float) -> float:
        moved = image.copy()
        moved[0, 0, row, column] += by
        return float(session.run(["logits"], {"image": moved, "label": label})[0][0, label[0]])

    for row, column in [(1, 3), (3, 3), (4, 4)]:
        quotient = (logit(row, column, 1e-3) - logit(row, column, -1e-3)) / 2e-3
        assert found[0, row, column] == pytest.approx(quotient * image[0, 0, row, column], rel=0.02, abs=0.02)


def test_fit_finds_the_parameters():
    t = np.linspace(0, 6, 60)
    found, loss = fit_oscillator.fit(t, 1.5 * np.exp(-0.3 * t) * np.cos(2 * t), start=[1.0, 0.1, 1.7])
    np.testing.assert_allclose(found, [1.5, 0.3, 2.0], rtol=1e-3)
    assert loss < 1e-6


def test_the_custom_rule_goes_straight_through():
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.testing.assert_array_equal(custom_rule.gradient(x, np.array([0.3, -0.6, 1.7], np.float32)), [5, 7, 0])


@pytest.mark.parametrize("page", refresh_docs.pages(), ids=lambda p: p.stem)
def test_a_page_shows_what_its_examples_print(page):
    assert page.read_text(encoding="utf-8") == refresh_docs.refreshed(page), "run `python tools/refresh_docs.py`"


def test_the_picture_is_drawn_from_the_present_result():
    assert draw.TARGET.read_text(encoding="utf-8") == draw.picture(), "run `python tools/draw.py`"


@pytest.mark.parametrize("page", [ROOT / "docs" / "rules.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem)
def test_a_rule_that_is_quoted_is_a_rule(page):
    rules = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "gradgen" / "rules").glob("*.py"))
    quoted = re.findall(r"^ *```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert quoted
    for code in quoted:
        assert textwrap.dedent(code).strip() in rules, code


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(other), f"{page.name} links to {target}"


def test_nothing_names_this_machine():
    for page in [*PAGES, *SCRIPTS]:
        assert not re.search(r"/(home|root|tmp|work)/", page.read_text(encoding="utf-8")), page


def test_only_rounding_is_passed_over():
    assert refresh_docs.same("error 1.2e-12, 5.0e-06", "error 5.0e-12, 9.9e-07")
    assert not refresh_docs.same("differ by 2.35e-01", "differ by 2.04e-01")
    assert not refresh_docs.same("error 1.2e-12", "error 5.0e-09")
    assert not refresh_docs.same("norm 1.2e-12 ok", "norm 1.2e-12 wrong")
