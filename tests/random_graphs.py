# Random graphs of ops from the rule table, grown node by node with the values at hand: the stuff of a property test.
from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import gradgen.rules
from gradgen.engine.registry import registered
from gradgen.samples import RANGE, Built, Sample, build, draw

# Ops that broadcast their inputs to one shape: they are applied to whatever shapes are there.
BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Where", "Sum", "Mean", "Max", "Min"}
OPSETS = (21, 21, 21, 22, 23, 24, 25, 26, 28)
SIZES = (1, 2, 3, 4, 5)
# Values that grow beyond this are brought back before they are used again.
LARGE = 4.0


class IllegalError(Exception):
    """The node that was tried does not run on these inputs."""


@dataclass(frozen=True)
class Value:
    """A value of the graph: its name and what it holds at the point where the graph was grown."""

    name: str
    array: np.ndarray


@dataclass
class Leaf:
    """An input or an initializer of the graph.

    Attributes:
        array: its content.
        moves: whether it is a float that gradients are taken of, and that may be moved off a kink.
        stored: whether it is an initializer.
        dims: the dimensions that an input declares.
    """

    name: str
    array: np.ndarray
    moves: bool
    stored: bool
    dims: list[int | str] = field(default_factory=list)


@dataclass
class RandomGraph:
    """A grown graph, with what it is differentiated by and of."""

    nodes: list[onnx.NodeProto]
    leaves: list[Leaf]
    values: dict[str, np.ndarray]
    opset: int
    domains: dict[str, int]
    wrt: list[str]
    of: list[str]
    drawn: list[str]

    def feeds(self, move: float = 0.0, seed: int = 0) -> dict[str, np.ndarray]:
        """The content of all leaves, moved by normal noise of the size `move` where they may be."""
        rng = np.random.default_rng(seed)
        found = {}
        for leaf in self.leaves:
            noise = move * rng.standard_normal(leaf.array.shape)
            found[leaf.name] = (leaf.array + noise).astype(leaf.array.dtype) if leaf.moves and move else leaf.array
        return found

    def model(self, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
        """The model, the stored leaves with the content that `feeds` gives them."""
        inputs, stored = [], []
        for leaf in self.leaves:
            if leaf.stored:
                stored.append(numpy_helper.from_array(feeds[leaf.name], leaf.name))
            else:
                inputs.append(helper.make_tensor_value_info(leaf.name, _kind(leaf.array), leaf.dims))
        outputs = [
            helper.make_tensor_value_info(o, _kind(self.values[o]), [None] * self.values[o].ndim) for o in self.of
        ]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, stored)
        return helper.make_model(graph, opset_imports=opset_imports(self.opset, self.domains), ir_version=10)


def opset_imports(opset: int, domains: dict[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in domains.items())]


def _kind(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


@cache
def table() -> dict[str, list[Sample]]:
    """The samples of every op that has some, by op type (domain in front where it is not the standard's)."""
    found: dict[str, list[Sample]] = {}
    for path in sorted(Path(gradgen.rules.__file__).parent.glob("*.toml")):
        for key, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            name, _, since = key.partition("@")
            domain, _, op_type = name.rpartition("::")
            settings = {k: entry[k] for k in ("range", "avoid", "tolerance") if k in entry}
            samples = [
                Sample("" if domain == "ai.onnx" else domain, op_type, int(since or 1), i, spec, settings)
                for i, spec in enumerate(entry.get("samples", ()))
            ]
            kept = [s for s in samples if _has_content(s)]
            if kept:
                found.setdefault(name.removeprefix("ai.onnx::"), []).extend(kept)
    return found


def _has_content(sample: Sample) -> bool:
    try:
        built = built_sample(sample.domain, sample.op_type, sample.since, sample.index, _Hashable(sample))
    except Exception:  # the generated tests of the sample say what is wrong with it
        return False
    floats = {n: a for n, a in built.feeds.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    return len(floats) == len(built.feeds) > 0 and all(a.size for a in floats.values())


class _Hashable:
    """Carries a sample past a cache whose key is its place in the table."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable)


@cache
def built_sample(domain: str, op_type: str, since: int, index: int, carrier: _Hashable) -> Built:
    return build(carrier.sample, np.float32)


def smallest_opset(op: str) -> int:
    """The first opset that some sample of an op runs in."""
    return min(s.opset for s in table()[op])


class Grower:
    """Grows one graph.

    Args:
        choices: where every decision comes from; contents of leaves come from a seed that it draws.
        opset: of the model.
    """

    def __init__(self, choices: random.Random, opset: int) -> None:
        self.choices = choices
        self.opset = opset
        self.rng = np.random.default_rng(choices.randint(0, 2**20))
        self.named = choices.choice(["static", "static", "own", "own", "shared", "some"])
        self.nodes: list[onnx.NodeProto] = []
        self.leaves: list[Leaf] = []
        self.pool: list[Value] = []
        self.values: dict[str, np.ndarray] = {}
        self.domains: dict[str, int] = {}
        self.drawn: list[str] = []
        self.count = 0

    def chance(self, probability: float) -> bool:
        return self.choices.random() < probability

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def add(self, op: str) -> bool:
        """Try to add an op of the table, with one of its samples; False where none of a few tries runs."""
        from random_graph_parts import PARTS

        for _ in range(4):
            state = (len(self.nodes), len(self.leaves), len(self.pool), dict(self.values))
            try:
                if op in PARTS:
                    PARTS[op](self)
                elif op in BROADCAST:
                    self._broadcast(op)
                else:
                    self._sample(op)
                self.drawn.append(op)
                return True
            except IllegalError:
                del self.nodes[state[0] :], self.leaves[state[1] :], self.pool[state[2] :]
                self.values = state[3]
        return False

    # Values from nowhere

    def leaf(self, array: np.ndarray, moves: bool = True) -> Value:
        """A float input or parameter."""
        name = self.fresh("x")
        array = np.asarray(array, np.float32)
        stored = self.chance(0.3)
        self.leaves.append(Leaf(name, array, moves, stored, self._dims(name, array)))
        return self._known(name, array, pooled=True)

    def constant(self, array: Any, dtype: Any = np.int64, dynamic: float = 0.0) -> Value:
        """A constant, or with some probability an input that holds it."""
        name, array = self.fresh("c"), np.asarray(array, dtype)
        stored = not self.chance(dynamic)
        self.leaves.append(Leaf(name, array, False, stored, list(array.shape)))
        return self._known(name, array)

    def _dims(self, name: str, array: np.ndarray) -> list[int | str]:
        names = {
            "static": lambda i, s: s,
            "own": lambda i, s: f"{name}_{i}",
            "shared": lambda i, s: f"size_{s}",
            "some": lambda i, s: f"{name}_{i}" if self.chance(0.5) else s,
        }
        return [names[self.named](i, s) for i, s in enumerate(array.shape)]

    def _known(self, name: str, array: np.ndarray, pooled: bool = False) -> Value:
        self.values[name] = array
        value = Value(name, array)
        if pooled:
            self.pool.append(value)
        return value

    def drawn_leaf(self, shape: Sequence[int], low: float, high: float, avoid: Sequence[float] = ()) -> Value:
        return self.leaf(draw(self.rng, tuple(shape), low, high, list(avoid)))

    # Nodes

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: int | Sequence[bool] = 1,
        domain: str = "",
        pooled: bool = False,
        **attributes: Any,
    ) -> list[Value]:
        """A node, run on its inputs' contents.

        Args:
            op_type, domain, attributes: of the node.
            inputs: None for an absent one.
            outputs: how many, or which of them it has.
            pooled: whether float results may become the inputs of drawn nodes.

        Raises:
            IllegalError: onnxruntime does not run it, or a result is not finite or empty.
        """
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.fresh("y") if w else "" for w in wanted]
        given = ["" if v is None else v.name for v in inputs]
        node = helper.make_node(op_type, given, names, name=self.fresh("node"), domain=domain, **attributes)
        if domain:
            self.domains[domain] = (
                onnx.defs.get_schema(op_type, domain=domain).since_version if domain.startswith("ai.") else 1
            )
        arrays = run([node], {v.name: v.array for v in inputs if v is not None}, self.opset, self.domains)
        self.nodes.append(node)
        found = [self._known(n, a) for n, a in zip([n for n in names if n], arrays, strict=True)]
        if pooled:
            self.offer(found)
        return found

    def offer(self, found: Sequence[Value]) -> None:
        """Let later nodes read these values; others than floats become floats first, now and then."""
        for value in found:
            if value.array.dtype.kind == "f":
                self.pool.append(value)
            elif value.array.dtype.kind in "iub" and self.chance(0.5):
                self.pool += self.emit("Cast", [value], to=TensorProto.FLOAT)

    # Values at hand, made to fit

    def pick(self) -> Value:
        """A value that is there already, the later ones more often."""
        if not self.pool:
            return self.drawn_leaf([self.choices.choice(SIZES) for _ in range(self.choices.randint(0, 4))], *RANGE)
        span = len(self.pool) if self.chance(0.4) else min(3, len(self.pool))
        value = self.pool[-1 - self.choices.randrange(span)]
        return self.emit("Cast", [value], to=TensorProto.FLOAT)[0] if value.array.dtype != np.float32 else value

    def supply(self, shape: Sequence[int], low: float, high: float, avoid: Sequence[float] = ()) -> Value:
        """A value of a shape and in a range: a fresh leaf or one at hand, made to fit."""
        if not self.pool or self.chance(0.3):
            return self.drawn_leaf(shape, low, high, avoid)
        return self.into(self.fit(self.pick(), shape), low, high)

    def into(self, value: Value, low: float, high: float) -> Value:
        """The value, squashed where it leaves a range or is so large that it would grow without bound."""
        array = value.array
        free = (low, high) == RANGE
        if free and np.abs(array).max(initial=0) <= LARGE and np.abs(array).max(initial=1) > 1e-2:
            return value
        if not free and array.min(initial=high) >= low and array.max(initial=low) <= high and self.chance(0.5):
            return value
        middle, half = float(array.min() + array.max()) / 2, float(np.ptp(array)) / 2
        if half <= 1e-3 * max(1.0, abs(middle)):  # all alike: not to the middle, where other ops have a kink
            half = max(1.0, abs(middle))
            middle += half * self.choices.choice((-0.4, 0.3))
        value = self.emit("Sub", [value, self.constant(middle, np.float32)])[0]
        factor = 0.8 * (high - low) / 2
        if self.chance(0.6):
            value = self.emit("Mul", [value, self.constant(factor / half, np.float32)])[0]
        else:
            value = self.emit("Mul", [value, self.constant(1 / half, np.float32)])[0]
            if self.chance(0.7):
                value = self.emit("Tanh", [value])[0]
                value = self.emit("Mul", [value, self.constant(factor, np.float32)])[0]
            else:
                value = self.emit("Sigmoid", [value])[0]
                value = self.emit("Sub", [value, self.constant(0.5, np.float32)])[0]
                value = self.emit("Mul", [value, self.constant(2 * factor, np.float32)])[0]
        return self.emit("Add", [value, self.constant((low + high) / 2, np.float32)])[0]

    def shape_of(self, shape: Sequence[int]) -> Value:
        """A shape, constant or read from a value that has it."""
        alike = [v for v in self.pool if v.array.shape == tuple(shape)]
        if alike and self.chance(0.3):
            return self.emit("Shape", [self.choices.choice(alike)])[0]
        return self.constant(np.array(shape, np.int64))

    def fit(self, value: Value, shape: Sequence[int]) -> Value:
        """The value's elements in another shape: viewed, expanded, cut or repeated."""
        shape, own = tuple(shape), value.array.shape
        size, have = int(np.prod(shape)), value.array.size
        if shape == own:
            return value
        if size == have:
            return self.emit("Reshape", [value, self.shape_of(shape)])[0]
        if _broadcasts(own, shape) and self.chance(0.7):
            return self.emit("Expand", [value, self.shape_of(shape)])[0]
        flat = self.emit("Reshape", [value, self.constant([-1])])[0]
        if size < have:
            start = self.choices.randint(0, have - size)
            bounds = [self.constant([start]), self.constant([start + size]), self.constant([0])]
            flat = self.emit("Slice", [flat, *bounds])[0]
        elif self.chance(0.5):
            flat = self.emit("Gather", [flat, self.constant(self.rng.permutation(np.arange(size) % have))])[0]
        else:
            missing = self.drawn_leaf([size - have], float(value.array.min()) - 0.5, float(value.array.max()) + 0.5)
            flat = self.emit("Concat", [flat, missing], axis=0)[0]
        return self.emit("Reshape", [flat, self.constant(np.array(shape, np.int64))])[0]

    # Drawn nodes

    def _choose(self, op: str) -> Sample:
        rows = [s for s in table()[op] if s.opset <= self.opset]
        row = registered().find(rows[0].domain, rows[0].op_type, self.opset) if rows else None
        rows = [s for s in rows if row is not None and s.since == row.since]
        if not rows:
            raise IllegalError(f"no sample of {op} for opset {self.opset}")
        return self.choices.choice(rows)

    def _broadcast(self, op: str) -> None:
        sample = self._choose(op)
        formals = onnx.defs.get_schema(op, self.opset).inputs
        names = [f.name for f in formals]
        if len(names) == 1:
            names *= self.choices.randint(1, 4)
        shape = self.pick().array.shape
        if self.chance(0.4):
            shape = (*(self.choices.choice(SIZES) for _ in range(self.choices.randint(0, 2))), *shape)[-5:]
        inputs = []
        for name in names:
            part = self._part(shape)
            if name == "condition":
                inputs.append(self.condition(part))
                continue
            low, high = _setting(sample, "range", name, RANGE)
            inputs.append(self.supply(part, low, high, _setting(sample, "avoid", name, ())))
        attributes = {k: v for k, v in sample.spec.items() if k in onnx.defs.get_schema(op, self.opset).attributes}
        self.emit(op, inputs, pooled=True, **attributes)

    def condition(self, shape: Sequence[int]) -> Value:
        """A mask: known, given, or a comparison of a value at hand."""
        if self.chance(0.4):
            return self.emit("Greater", [self.fit(self.pick(), shape), self.constant(0.1, np.float32)])[0]
        return self.constant(self.rng.random(tuple(shape)) < 0.5, bool, dynamic=0.5)

    def _part(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        if self.chance(0.5):
            return tuple(shape)
        kept = list(shape[self.choices.randint(0, len(shape)) :])
        return tuple(1 if self.chance(0.3) else s for s in kept)

    def _sample(self, op: str) -> None:
        sample = self._choose(op)
        built = built_sample(sample.domain, sample.op_type, sample.since, sample.index, _Hashable(sample))
        node = built.model.graph.node[0]
        stored = {t.name: numpy_helper.to_array(t) for t in built.model.graph.initializer}
        pointwise = not stored and len(built.feeds) == 1 and all(a.ndim == 0 for a in built.feeds.values())
        resized = self._sizes() if not stored and self.chance(0.5) else {}
        given: dict[str, Value | None] = {"": None}
        for name in node.input:
            if name in stored:
                array = stored[name]
                given[name] = self.constant(array, array.dtype, dynamic=0.12 if array.dtype.kind in "iub" else 0.0)
            elif name in built.feeds:
                given[name] = self._float(sample, name, built.feeds[name], pointwise, resized)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        wanted = [bool(o) for o in node.output]
        self.emit(node.op_type, [given[n] for n in node.input], wanted, node.domain, pooled=True, **attributes)

    def _sizes(self) -> dict[int, int]:
        return {size: self.choices.randint(max(size - 1, 2), size + 2) for size in range(2, 8)}

    def _float(self, sample: Sample, name: str, content: np.ndarray, pointwise: bool, resized: dict[int, int]) -> Value:
        item = sample.spec.get(name)
        if item is None:  # one of a variadic formal
            formal, _, index = name.rpartition("_")
            item, name = sample.spec[formal][int(index)], formal
        item = item if isinstance(item, dict) else {"shape": item}
        if "values" in item:
            base = self.leaf(content)
            if not self.pool or self.chance(0.5):
                return base
            small = self.emit("Tanh", [self.into(self.fit(self.pick(), content.shape), *RANGE)])[0]
            return self.emit("Add", [base, self.emit("Mul", [small, self.constant(0.02, np.float32)])[0]])[0]
        low, high = _setting(sample, "range", name, RANGE)
        low, high = item.get("low", low), item.get("high", high)
        avoid = item.get("avoid", _setting(sample, "avoid", name, ()))
        if pointwise and self.pool:
            return self.into(self.pick(), low, high)
        return self.supply([resized.get(s, s) for s in content.shape], low, high, avoid)


def _setting(sample: Sample, key: str, name: str, default: Any) -> Any:
    setting = sample.settings.get(key, default)
    return setting.get(name, default) if isinstance(setting, dict) else setting


def _broadcasts(own: Sequence[int], shape: Sequence[int]) -> bool:
    return len(own) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False))


def run(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], opset: int, domains: dict[str, int]
) -> list[np.ndarray]:
    """What nodes compute on onnxruntime: the outputs of the last one.

    Raises:
        IllegalError: it does not load or run, or a float result is not finite or too large, or one is empty.
    """
    inputs = [helper.make_tensor_value_info(n, _kind(a), a.shape) for n, a in feeds.items()]
    outputs = [helper.make_empty_tensor_value_info(o) for o in nodes[-1].output if o]
    graph = helper.make_graph(list(nodes), "node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opset_imports(opset, domains), ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run(None, feeds, quiet)
    except Exception as error:  # onnxruntime raises types of its own
        raise IllegalError(str(error)) from error
    for array in found:
        if array.size == 0 or array.size > 400 or array.dtype.kind == "f" and not np.abs(array).max() < 1e4:
            raise IllegalError("a result is empty, large or not finite")
    return found


def grow(choices: random.Random, ops: Sequence[str]) -> RandomGraph:
    """A graph of these ops in this order, each fed with what is there; an op that never fits is left out."""
    opset = choices.choice(OPSETS)
    from random_graph_parts import PARTS

    opset = max([opset, *(smallest_opset(op) for op in ops if op not in PARTS)])
    grower = Grower(choices, opset)
    for op in ops:
        grower.add(op)
    return finish(grower)


def all_ops() -> list[str]:
    """Everything that can be drawn."""
    from random_graph_parts import PARTS

    return sorted({*table(), *PARTS})


def draw_ops(choices: random.Random, seen: Mapping[str, int], among: Sequence[str] | None = None) -> list[str]:
    """3 to 12 ops, those that were seldom on a differentiated path more often; one in ten stops a gradient."""
    from random_graph_parts import STOPPING

    ruled = [op for op in among or all_ops() if op not in STOPPING]
    weights = [1 / (1 + seen.get(op, 0)) for op in ruled]
    ops = choices.choices(ruled, weights, k=choices.randint(3, 12))
    return [choices.choice(sorted(STOPPING)) if choices.random() < 0.1 else op for op in ops]


def finish(grower: Grower) -> RandomGraph:
    """Choose what is differentiated: most of the ends, now and then a value on the way, with respect to most leaves."""
    read = {name for node in grower.nodes for name in node.input}
    made = {name for node in grower.nodes for name in node.output if name}
    floats = [v.name for v in grower.pool if v.name in made]
    ends = [n for n in floats if n not in read]
    of = [n for n in ends if grower.chance(0.85)] or ends[-1:] or floats[-1:]
    of += [n for n in floats if n not in ends and grower.chance(0.05)]
    moving = [leaf.name for leaf in grower.leaves if leaf.moves]
    wrt = [n for n in moving if grower.chance(0.9)] or moving
    return RandomGraph(
        grower.nodes, grower.leaves, grower.values, grower.opset, grower.domains, wrt, of, list(grower.drawn)
    )


Part = Callable[[Grower], None]
