"""Checks of what a public call was given: what it cannot use is refused in words, before anything is done with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from gradgen.errors import GradientError

LONGEST_PATH = 200  # characters of a path in a message


def name_list(role: str, asked: Any) -> list[str]:
    """The names that a call was given: one name, or several; raises GradientError for anything else."""
    names = [asked] if isinstance(asked, str) or not isinstance(asked, Iterable) else list(asked)
    if strangers := [n for n in names if not isinstance(n, str)]:
        kinds = ", ".join(f"{n!r} ({type(n).__name__})" for n in strangers[:3])
        raise GradientError(f"{role}: a name or a list of names is asked for, not {kinds}")
    return names


def named_arrays(role: str, given: Any, keys: str = "input names", or_else: str = "") -> dict[str, Any]:
    """A mapping from names to what numpy makes an array of, as a dict; raises GradientError for anything else.

    `keys` says whose names, `or_else` what else the argument may be, for the message.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise GradientError(f"{role} is a mapping from {keys} to arrays{or_else}, not {_a(given)}")
    if strangers := [k for k in given if not isinstance(k, str)]:
        raise GradientError(f"{role} is a mapping from {keys} to arrays, and {strangers[0]!r} is no name")
    for name, value in given.items():
        try:
            kind = np.asarray(value).dtype
        except Exception as error:  # whatever a caller's object raises when it is asked for its content
            raise GradientError(f"{role}: the content of '{name}' is no array: {error}") from error
        if kind.kind == "O" and not isinstance(value, np.ndarray):  # an array of objects holds strings
            raise GradientError(f"{role}: the content of '{name}' is no array, but {_a(value)}")
    return dict(given)


def check_switches(**given: Any) -> None:
    """Refuse what is neither True nor False, by the argument's name, with a GradientError."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise GradientError(f"{name} is True or False, not {value!r}")


def check_threads(threads: Any) -> None:
    """Refuse what is no number of threads, with a GradientError; 0 and None leave it to onnxruntime."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, Integral) or threads < 0):
        raise GradientError(f"threads is a whole number from 1 on, or 0 or None for one for each core, not {threads!r}")


def check_cache(cache: Any) -> None:
    """Refuse what is neither True, False nor a folder, with a GradientError."""
    if not isinstance(cache, bool | np.bool_) and not is_path(cache):
        raise GradientError(f"cache is True, False or a folder, not {cache!r}")


def is_path(given: Any) -> bool:
    """Whether it can name a file."""
    return isinstance(given, str) or (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str))


def existing_file(given: Any) -> Path:
    """The path of a model's file; raises GradientError where there is none, and for the text of a model."""
    text = os.fspath(given)
    if "\n" in text or len(text) > LONGEST_PATH:
        line = " ".join(text.split())
        label = f"{line[:40]}…" if len(line) > 40 else line
        if "{" in text:
            raise GradientError(
                f"'{label}' is the text of a model and no path: onnx.parser.parse_model makes a model of it"
            )
        if not _is_file(text):
            raise GradientError(f"there is no file '{label}' (a name of {len(text)} characters)")
    if not _is_file(text):
        raise GradientError(f"there is no file '{Path(text)}'")
    return Path(text)


def _is_file(text: str) -> bool:
    try:
        return os.path.isfile(text)
    except (OSError, ValueError):  # a name that no file system takes
        return False


def _a(value: Any) -> str:
    """The type of a value with its article."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
