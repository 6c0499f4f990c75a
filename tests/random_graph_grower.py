# Grows a random graph node by node, with the values at hand: nodes that run, leaves in range, shapes made to fit.
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from random_graph_samples import built_sample, setting, table
from random_graph_values import IllegalError, Leaf, Value, run

from gradgen.engine.forward import STRAY
from gradgen.engine.registry import registered
from gradgen.samples import RANGE, Sample, draw

# Ops that broadcast their inputs to one shape: they are applied to whatever shapes are there.
BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Where", "Sum", "Mean", "Max", "Min"}
SIZES = (1, 2, 3, 4, 5)
# Values that grow beyond this are brought back before they are used again.
LARGE = 4.0


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
        captures: Sequence[Value] = (),
        **attributes: Any,
    ) -> list[Value]:
        """A node, run on its inputs' contents.

        Args:
            op_type, domain, attributes: of the node.
            inputs: None for an absent one.
            outputs: how many, or which of them it has.
            pooled: whether float results may become the inputs of drawn nodes.
            captures: what its subgraphs read.

        Raises:
            IllegalError: onnxruntime does not run it, or a result is not finite or empty.
        """
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.fresh("y") if w else "" for w in wanted]
        given = ["" if v is None else v.name for v in inputs]
        # What onnxruntime writes into the standard domain, though the standard has no such op, is there.
        domain = "" if domain == STRAY else domain
        node = helper.make_node(op_type, given, names, name=self.fresh("node"), domain=domain, **attributes)
        if domain:
            self.domains[domain] = 5 if domain == "ai.onnx.ml" else 1
        feeds = {v.name: v.array for v in [*inputs, *captures] if v is not None}
        arrays = run([node], feeds, self.opset, self.domains)
        self.nodes.append(node)
        found = [self._known(n, a) for n, a in zip([n for n in names if n], arrays, strict=True)]
        if pooled:
            self.offer(found)
        return found

    def emit_all(self, nodes: Sequence[onnx.NodeProto], given: Sequence[Value]) -> None:
        """Nodes of which only the last gives a tensor, which later nodes may read; `given` is all that they read."""
        for node in nodes:
            node.name = self.fresh("node")
        arrays = run(nodes, {v.name: v.array for v in given}, self.opset, self.domains)
        self.nodes += nodes
        self.offer([self._known(n, a) for n, a in zip(nodes[-1].output, arrays, strict=True)])

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
        value = self.fit(self.pick(), shape)
        if value.array.size > 1 and np.ptp(value.array) == 0:
            # What is normalised then is zero but for rounding, which its standard deviation blows up.
            value = self.emit("Add", [value, self.drawn_leaf(shape, -0.5, 0.5)])[0]
        return self.into(value, low, high)

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
            low, high = setting(sample, "range", name, RANGE)
            inputs.append(self.supply(part, low, high, setting(sample, "avoid", name, ())))
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
        built = built_sample(sample)
        node = built.model.graph.node[0]
        stored = {t.name: numpy_helper.to_array(t) for t in built.model.graph.initializer}
        pointwise = not stored and len(built.feeds) == 1 and all(a.ndim == 0 for a in built.feeds.values())
        resized = self._sizes() if not stored and self.chance(0.5) and not _has_fixed_sizes(node) else {}
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
        low, high = setting(sample, "range", name, RANGE)
        low, high = item.get("low", low), item.get("high", high)
        avoid = item.get("avoid", setting(sample, "avoid", name, ()))
        if pointwise and self.pool:
            return self.into(self.pick(), low, high)
        return self.supply([resized.get(s, s) for s in content.shape], low, high, avoid)


def _has_fixed_sizes(node: onnx.NodeProto) -> bool:
    """Whether onnxruntime runs an op on sizes that do not go together."""
    return node.domain == "ai.onnx.ml" or node.op_type == "RotaryEmbedding"


def _broadcasts(own: Sequence[int], shape: Sequence[int]) -> bool:
    return len(own) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False))


Part = Callable[[Grower], None]
