"""Finds the row and the functions of an op: the one typed loader of gradgen.generated, and registries of one's own."""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

import onnx
import onnx.parser
import onnx_ir as ir

from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET, RuleFunction

T = TypeVar("T")


class Templates(dict[Any, Any]):
    """Specialised rules by signature. It holds a limited number; the oldest give way."""

    def __init__(self, limit: int = 20_000):
        super().__init__()
        self._limit = limit
        self._lock = threading.Lock()

    def __setitem__(self, key: Any, template: Any) -> None:
        with self._lock:
            super().__setitem__(key, template)
            while len(self) > self._limit:
                del self[next(iter(self))]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            super().clear()


class Registry:
    """A set of rows, looked up by domain, op type and version; what it lacks is asked of `parent`.

    Args:
        rows: the rows.
        bodies: compiled functions by name.
        parent: the registry to ask for what is not here; by default the one that every call uses, None for no other.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        bodies: Mapping[str, Any] | None = None,
        parent: Registry | Literal["registered"] | None = "registered",
    ):
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._bodies: dict[str, Any] = dict(bodies or {})
        self._given_parent = parent
        self._lock = threading.Lock()
        self._extended: dict[tuple[str, str], Registry] = {}
        self.templates = Templates()
        for row in rows:
            self.add(row)

    @property
    def _parent(self) -> Registry | None:
        return registered() if isinstance(self._given_parent, str) else self._given_parent

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Registry:
        """The rules that `gradgen generate --out FOLDER` wrote, over those that are registered.

        The module of a traced rule is imported by its name when the rule is needed.

        Raises:
            GradientError: the folder holds no generated library.
        """
        path = Path(folder) / "registry.py"
        spec = importlib.util.spec_from_file_location(f"gradgen_library_{path.parent.name}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise GradientError(f"'{folder}' holds no generated library: there is no registry.py")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            texts = [(path.parent / name).read_text(encoding="utf-8") for name in module.LIBRARIES]
            return cls(module.ROWS, {f.name: f for text in texts for f in parse_functions(text)})
        except Exception as error:  # a file that somebody edited may raise anything
            raise GradientError(f"'{folder}' holds a broken library, generate it again: {error}") from error

    def add(self, row: Row) -> None:
        """Add a row; a second one for the same op and version raises GradientError."""
        with self._lock:
            rows = self._rows.get((row.domain, row.op_type), [])
            if any(r.since == row.since for r in rows):
                name = f"{row.domain or 'ai.onnx'}::{row.op_type}"
                raise GradientError(
                    f"{name} has a rule for version {row.since} already; use a Registry of its own for another"
                )
            # A new list: another thread may be reading the old one.
            self._rows[row.domain, row.op_type] = sorted([*rows, row], key=lambda r: r.since)
            self.templates.clear()

    def extended(self, row: Row) -> Registry:
        """This registry with one more row, that of an internal op; it shares the specialised rules, and is made once."""
        key = (row.domain, row.op_type)
        with self._lock:
            if key not in self._extended:
                registry = Registry([row], parent=self)
                registry.templates = self.templates
                self._extended[key] = registry
            return self._extended[key]

    def add_body(self, name: str, function: Any) -> None:
        """Add a compiled function (FunctionProto or onnx_ir Function)."""
        self._bodies[name] = function

    def find(self, domain: str, op_type: str, version: int) -> Row | None:
        """The row that holds for an op at a version of its domain's operator set, or None."""
        domain = "" if domain == "ai.onnx" else domain
        for row in reversed(self._rows.get((domain, op_type), ())):
            if row.since <= version:
                return row
        return self._parent.find(domain, op_type, version) if self._parent else None

    def rows(self) -> list[Row]:
        """All rows, the parent's included where they are not replaced."""
        own = [r for rows in self._rows.values() for r in rows]
        inherited = self._parent.rows() if self._parent else []
        return own + [r for r in inherited if (r.domain, r.op_type) not in self._rows]

    def body(self, name: str) -> ir.Function:
        """A compiled function as an onnx_ir Function."""
        function = self._bodies.get(name)
        if function is None:
            if self._parent is None:
                raise GradientError(f"the function '{name}' is not in the library; regenerate it")
            return self._parent.body(name)
        if isinstance(function, onnx.FunctionProto):
            with self._lock:
                function = self._bodies[name]
                if isinstance(function, onnx.FunctionProto):
                    function = self._bodies[name] = ir.serde.deserialize_function(function)
        return function


class Rules:
    """The rows that hold for one model: those of a registry, for the versions of the operator sets that it imports.

    Args:
        registry: the rows.
        versions: the version of each operator set by domain, the standard one's under ''.
    """

    def __init__(self, registry: Registry, versions: Mapping[str, int]):
        self.registry = registry
        self.versions = versions

    @property
    def opset(self) -> int:
        """The version of the standard's operator set."""
        return self.version("")

    def version(self, domain: str) -> int:
        """The version of an operator set; where the model imports none, the one that rules are written in, or 1."""
        domain = "" if domain == "ai.onnx" else domain
        return self.versions.get(domain) or (OPSET if domain == "" else 1)

    def find(self, domain: str, op_type: str) -> Row | None:
        """The row that holds for an op of the model, or None."""
        return self.registry.find(domain, op_type, self.version(domain))

    def of(self, node: ir.Node | onnx.NodeProto) -> Row | None:
        """The row that holds for a node of the model, or None."""
        return self.find(node.domain, node.op_type)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A function of no arguments that is called once, also where threads ask for its result at the same time."""
    lock, cached = threading.RLock(), cache(make)

    @wraps(make)
    def result() -> T:
        with lock:
            return cached()

    return result


@once
def builtin() -> Registry:
    """The registry that gradgen ships."""
    module = importlib.import_module("gradgen.generated.registry")
    bodies: dict[str, Any] = {}
    for name in module.LIBRARIES:
        text = importlib.resources.files("gradgen.generated").joinpath(name).read_text(encoding="utf-8")
        for function in parse_functions(text):
            bodies[function.name] = function
    return Registry(module.ROWS, bodies, None)


def registry_of(registry: Registry | None) -> Registry:
    """The registry that a call was given, or the one that every call uses; raises GradientError for anything else."""
    if registry is None:
        return registered()
    if not isinstance(registry, Registry):
        kind = type(registry).__name__
        raise GradientError(
            f"registry is a gradgen.Registry, not {kind}; gradgen.Registry.load(folder) reads a generated one"
        )
    return registry


@once
def registered() -> Registry:
    """The registry that `register_vjp` writes to, over the built-in one."""
    return Registry(parent=builtin())


def parse_functions(text: str) -> list[onnx.FunctionProto]:
    """The functions of a `.onnxtxt` library: blocks that a blank line separates."""
    lines = [line for line in text.splitlines() if not line.startswith("//")]
    blocks = "\n".join(lines).split("\n\n")
    return [onnx.parser.parse_function(block) for block in blocks if block.strip()]


@cache
def rule_function(module: str, name: str) -> RuleFunction:
    """A rule of the rule language by module and name."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise GradientError(
            f"the rule '{name}' is in the module '{module}': put its folder on the Python path (PYTHONPATH): {error}"
        ) from error


def form_function(form: Form) -> RuleFunction:
    """The Python function of a traced or structural form."""
    return form.function if isinstance(form.function, RuleFunction) else rule_function(form.module, form.rule)


@cache
def is_random(domain: str, op_type: str) -> bool:
    """Whether an op of the standard draws random numbers: onnx marks it as not deterministic."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, domain=domain)
    except onnx.defs.SchemaError:
        return False
    return schema.node_determinism == onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
