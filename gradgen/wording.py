"""Words in messages: advice in those of Python or of another caller, and names of any length and content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

PYTHON = {
    "sum": 'reduce="sum"',
    "element": ', or reduce="element" for that of an element which an input chooses',
    "cotangent": ", or use vjp with a cotangent",
    "stored": "name initializers in wrt",
    "initializers": "the trainable initializers are wrt=gradgen.parameters(model)",
    "inputs": "leave wrt out for all float inputs",
}
LONGEST = 300  # characters of a name: it may have megabytes, and nodes that are derived from one repeat it
_WORDS: ContextVar[Mapping[str, str]] = ContextVar("words", default=PYTHON)


def words(advice: str) -> str:
    """How a piece of advice, a key of `PYTHON`, is worded for the caller."""
    return _WORDS.get()[advice]


@contextmanager
def worded(own: Mapping[str, str]) -> Iterator[None]:
    """Inside, messages say `own` in place of what `PYTHON` has under the same keys; an empty text leaves it out."""
    token = _WORDS.set({**_WORDS.get(), **own})
    try:
        yield
    finally:
        _WORDS.reset(token)


def shortened(name: str) -> str:
    """A name as it is, or of a very long one the beginning and the end."""
    return name if len(name) <= LONGEST else f"{name[:150]}...{name[-100:]}"


def readable(message: str) -> str:
    """A message with very long words shortened and control characters written out."""
    text = re.sub(rf"\S{{{LONGEST + 1},}}", lambda word: shortened(word[0]), message)
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
