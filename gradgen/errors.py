"""The errors that gradgen raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradgen.wording import readable


class GradientError(ValueError):
    """Base of every error that gradgen raises about a model, a rule or a request.

    The message names the thing (op, node, value), where it is and what to do; where there are several
    problems of one kind it lists all of them. Very long names are shortened in it, and control characters written out.
    """

    def __init__(self, message: str = ""):
        super().__init__(readable(str(message)))


class GradientWarning(UserWarning):
    """Something about a gradient that is right but may surprise, such as one that is zero everywhere.

    Its message is written as that of a GradientError.
    """

    def __init__(self, message: str = ""):
        super().__init__(readable(str(message)))


@contextmanager
def only_gradient_errors() -> Iterator[None]:
    """Raises what else is raised inside as a GradientError with the cause attached.

    Models come from anywhere, and there are more ways for one to be wrong than any check knows: an axis that does not
    exist, a stride of 0, a shape that fits no memory. onnx, onnx_ir, numpy and the rules raise what they like there.
    """
    try:
        yield
    except GradientError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:300]
        raise GradientError(
            f"the model cannot be differentiated: {type(error).__name__}{': ' if message else ''}{message}; "
            "onnx.checker.check_model(model, full_check=True) may say what is wrong with it"
        ) from error
