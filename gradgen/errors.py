"""The errors that gradgen raises."""

from __future__ import annotations


class GradientError(ValueError):
    """Base of every error that gradgen raises about a model, a rule or a request.

    The message names the thing (op, node, value), where it is and what to do; where there are several
    problems of one kind it lists all of them.
    """


class GradientWarning(UserWarning):
    """Something about a gradient that is right but may surprise, such as one that is zero everywhere."""
