"""Finds the row and the functions of an op: the one typed loader of gradgen.generated, and registries of one's own."""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
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
NEWEST = 1 << 30  # a version that no operator set reaches


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
        origin: what the rows come from, for messages.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        bodies: Mapping[str, Any] | None = None,
        parent: Registry | Literal["registered", "plugins"] | None = "registered",
        origin: str = "",
    ):
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._bodies: dict[str, Any] = dict(bodies or {})
        self._given_parent = parent
        self.origin = origin
        self._lock = threading.Lock()
        self._extended: dict[tuple[str, str], Registry] = {}
        self.templates = Templates()
        for row in rows:
            self.add(row)

    @property
    def _parent(self) -> Registry | None:
        if isinstance(self._given_parent, str):
            return registered() if self._given_parent == "registered" else plugins()
        return self._given_parent

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
            bodies = {f.name: f for text in texts for f in parse_functions(text)}
            rows, ruled = [_bound(row, bodies) for row in module.ROWS], _ruled(module.ROWS)
            # Rules and bodies are held by their rows: under their names they would stand in for gradgen's own.
            helpers = {name: body for name, body in bodies.items() if name not in ruled}
            found = cls(rows, helpers, origin=f"the library '{folder}'")
        except Exception as error:  # a file that somebody edited may raise anything
            raise GradientError(f"'{folder}' holds a broken library, generate it again: {error}") from error
        shipped = builtin()
        if taken := sorted(n for n in helpers if shipped.has_body(n)):
            raise GradientError(
                f"'{folder}' has functions named {', '.join(taken)}, as gradgen itself has: rename them and generate it "
                "again"
            )
        return found

    def add(self, row: Row) -> None:
        """Add a row.

        A rule is added to the row of an op that has a body alone, and a body to one that has a rule alone.

        Raises:
            GradientError: the op has such a row for this version already; both are named.
        """
        with self._lock:
            rows = self._rows.get((row.domain, row.op_type), [])
            same = next((r for r in rows if r.since == row.since), None)
            if same is not None:
                row = _merged(same, row)
                rows = [r for r in rows if r is not same]
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
        own = self.own_rows()
        inherited = self._parent.rows() if self._parent else []
        return own + [r for r in inherited if (r.domain, r.op_type) not in self._rows]

    def own(self, domain: str, op_type: str, version: int) -> Row | None:
        """The row that this registry itself has for exactly this version, or None."""
        return next((r for r in self._rows.get((domain, op_type), ()) if r.since == version), None)

    def own_rows(self) -> list[Row]:
        """The rows that this registry itself has."""
        return [r for rows in list(self._rows.values()) for r in rows]

    def helpers(self) -> dict[str, Any]:
        """The compiled functions that rules call by name."""
        ruled = _ruled(self.own_rows())
        return {name: body for name, body in list(self._bodies.items()) if name not in ruled}

    def has_body(self, name: str) -> bool:
        """Whether this registry itself has a compiled function of a name."""
        return name in self._bodies

    def callee(self, domain: str, op_type: str) -> tuple[ir.Function, bool] | None:
        """The body of an op that another body calls, and whether the op has a rule of its own; None for other ops."""
        row = self.find(domain, op_type, NEWEST)
        if row is None or row.kernel or row.forward is None or row.forward.kind != "compiled":
            return None
        return form_body(row.forward, self), bool(row.forms)

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
        self._found: dict[tuple[str, str, int], Row | None] = {}

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
        key = (domain, op_type, self.version(domain))
        if key not in self._found:
            self._found[key] = self.registry.find(*key)
        return self._found[key]

    def of(self, node: ir.Node | onnx.NodeProto) -> Row | None:
        """The row that holds for a node of the model, or None."""
        return self.find(node.domain, node.op_type)

    def may_draw(self, node: ir.Node | onnx.NodeProto) -> bool:
        """Whether a node itself draws random numbers, or does so if an input says so; its subgraphs are not looked at."""
        row = self.of(node)
        if row is not None and row.random is not None:
            return bool(row.random)
        return node.domain in ("", "ai.onnx") and is_random("", node.op_type)


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
def _registered() -> Registry:
    return Registry(parent="plugins")


def registered() -> Registry:
    """The registry that every call uses and `register_vjp` writes to, over those of plugins and the built-in one.

    While a plugin is loaded, its own.
    """
    from gradgen.engine.plugins import collecting

    return collecting() or _registered()


def plugins() -> Registry:
    """The registry of the rules that installed packages bring, over the built-in one."""
    from gradgen.engine.plugins import collecting, installed

    return builtin() if collecting() is not None else installed()


def _merged(old: Row, new: Row) -> Row:
    """One row of a body and a rule for the same op; raises GradientError for two of a kind."""
    if not old.forms and new.forms and (new.forward is None or new.forward is old.forward):
        ruled, bodied = new, old
    elif old.forms and old.forward is None and not new.forms:
        ruled, bodied = old, new
    else:
        name, kind = f"{old.domain or 'ai.onnx'}::{old.op_type}", "rule" if old.forms and new.forms else "row"
        names = " and ".join(r.origin or f"'{_rule_name(r)}'" for r in (old, new))
        raise GradientError(
            f"{name} has a {kind} for version {old.since} already: {names}; use a Registry of its own for another"
        )
    return replace(ruled, inputs=bodied.inputs, outputs=bodied.outputs, forward=bodied.forward, kernel=bodied.kernel)


def _rule_name(row: Row) -> str:
    forms = [*row.forms, *([row.forward] if row.forward else [])]
    return forms[-1].rule if forms else "a row without a rule"


def _bound(row: Row, bodies: Mapping[str, Any]) -> Row:
    """A row whose compiled rules hold their functions, so that no function of the same name stands in for them."""

    def bind(form: Form | None) -> Form | None:
        return form if form is None or form.kind != "compiled" else replace(form, function=bodies[form.rule])

    forms = tuple(f for form in row.forms if (f := bind(form)) is not None)
    return replace(row, forms=forms, forward=bind(row.forward), straight_through=bind(row.straight_through))


def _ruled(rows: Iterable[Row]) -> set[str]:
    return {f.rule for r in rows for f in (*r.forms, r.forward, r.straight_through) if f is not None}


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


def form_body(form: Form, registry: Registry) -> ir.Function:
    """The body of a compiled form: its own, or the one of its name in the registry."""
    if isinstance(form.function, onnx.FunctionProto):
        return ir.serde.deserialize_function(form.function)
    return registry.body(form.rule)


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
