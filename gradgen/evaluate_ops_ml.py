# Operators for onnx.reference of the ai.onnx.ml domain: where its own are wrong.
"""Replacements like those of `gradgen.evaluate_ops`, for ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.aionnxml.op_svm_classifier import SVMClassifier as ReferenceSVMClassifier


class SVMClassifier(ReferenceSVMClassifier):
    """A linear classifier of three or more classes labels with the class of the best score.

    The reference takes any model with one `rho` for one of two classes, and linear models have one however many
    classes there are; and it takes labels that are strings for none.
    """

    op_domain = "ai.onnx.ml"

    def _compute_final_scores(self, votes: Any, scores: Any, positive: Any, has_proba: Any, labels: Any) -> tuple:
        labels = labels or list(range(max(2, scores.size)))  # strings are looked up by index, later
        found, final = super()._compute_final_scores(votes, scores, positive, has_proba, labels)
        if votes is None and scores.size > 2:
            found = labels[int(np.argmax(scores))]
        return found, final


REPLACEMENTS: tuple[type[OpRun], ...] = (SVMClassifier,)
