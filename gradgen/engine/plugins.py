"""Rules that installed packages bring: the entry points of the group `gradgen.rules`, loaded when a rule is looked up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from gradgen.engine.registry import Registry, builtin, once
from gradgen.errors import GradientError

GROUP = "gradgen.rules"
SWITCH = "GRADGEN_PLUGINS"  # set to "off", no package is asked

_collecting: ContextVar[Registry | None] = ContextVar("gradgen_collecting", default=None)


def collecting() -> Registry | None:
    """The registry of the plugin that this thread is loading, or None."""
    return _collecting.get()


@contextmanager
def _collect(registry: Registry) -> Iterator[None]:
    token = _collecting.set(registry)
    try:
        yield
    finally:
        _collecting.reset(token)


@once
def installed() -> Registry:
    """The rules of all installed packages in one registry, over the built-in one.

    Raises:
        GradientError: names the package that does not load, or both packages that have a row for one op.
    """
    found = Registry(parent=builtin(), origin="plugins")
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "none"):
        return found
    owners: dict[tuple[str, str, int], str] = {}
    bodies: dict[str, tuple[str, Any]] = {}
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda e: (_package(e), e.name)):
        package = _package(entry)
        plugin = load(entry)
        for row in plugin.own_rows():
            key = (row.domain, row.op_type, row.since)
            if key in owners:
                raise GradientError(
                    f"the packages '{owners[key]}' and '{package}' both have a row for {row.domain or 'ai.onnx'}::"
                    f"{row.op_type}, version {row.since}: uninstall one, or hand its registry to single calls"
                )
            owners[key] = package
            found.add(row)
        for name, body in plugin.helpers().items():
            if name in bodies and bodies[name][1] != body:
                raise GradientError(
                    f"the packages '{bodies[name][0]}' and '{package}' both have a function '{name}': rename it in one, and "
                    "generate its library again"
                )
            bodies[name] = (package, body)
            found.add_body(name, body)
    return found


def load(entry: metadata.EntryPoint) -> Registry:
    """The registry that an entry point stands for.

    It names a Registry, a package or a folder that the generator wrote, a module whose decorators register rules, or a
    function of no arguments that returns one of these.

    Raises:
        GradientError: one line that names the package.
    """
    own = Registry(parent=builtin(), origin=_package(entry))
    try:
        with _collect(own):
            return _registry(entry.load(), own)
    except Exception as error:  # a package of somebody else's may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise GradientError(
            f"the package '{_package(entry)}' does not load as a plugin (entry point '{entry.name}' of {GROUP}): {reason}; "
            f"repair or uninstall it, or set {SWITCH}=off"
        ) from error


def _registry(value: Any, own: Registry) -> Registry:
    """What an entry point's value stands for; `own` holds what was registered while it was loaded."""
    if callable(value) and not isinstance(value, type):
        value = value()
    if isinstance(value, Registry):
        return value
    if isinstance(value, str | os.PathLike):
        return Registry.load(value)
    if isinstance(value, ModuleType):
        folders = [Path(p) for p in getattr(value, "__path__", ())]
        generated = next((f for f in folders if (f / "registry.py").is_file()), None)
        return own if generated is None else Registry.load(generated)
    raise GradientError(
        f"it gives a {type(value).__name__}: name a gradgen.Registry, a generated library, or a module that registers rules"
    )


def _package(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]
