"""The rule language: the decorators and the opset with which backward rules are written.

A module of rules compiles nothing when it is imported: `@vjp` and `@library` keep the function, and the generator
compiles it to a FunctionProto. `op` stands for opset 21. While a traced rule or a lowering runs, `op.Name(...)` emits a
node into the builder that is current; while the generator compiles a module, onnxscript reads the same text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

DOMAIN = "gradgen.vjp"
INTERNAL = "gradgen.internal"
OPSET = 21

_builder: ContextVar[Any] = ContextVar("gradgen_builder")


@contextmanager
def building(builder: Any):
    """Make `builder` the one into which `op` and library functions emit."""
    token = _builder.set(builder)
    try:
        yield builder
    finally:
        _builder.reset(token)


def current_builder() -> Any:
    """The builder of the rule that is being traced."""
    return _builder.get()


class TracingOpset:
    """Opset 21 as rules see it: `op.Add(a, b)` emits an Add into the current builder and returns its value.

    `_outputs=k` asks for the first k outputs (a list where k is not 1). `_fold=False` leaves it to the runtime even
    where all it reads is known: for ops whose rounding the runtime decides.
    """

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def emit(*inputs: Any, _outputs: int = 1, _fold: bool = True, **attributes: Any) -> Any:
            return current_builder().node(op_type, inputs, attributes, _outputs, fold=_fold)

        return emit


op: Any = TracingOpset()


def subgraph(parameters: Sequence[Any], fn: Callable[..., Any]) -> Any:
    """Trace a Python function into a graph that `op.Scan(..., body=)`, `op.If(..., then_branch=)` take.

    Args:
        parameters: values (or `gradgen.engine.values.Value(dtype, shape)`) that give the types of the graph's inputs.
        fn: called with one value per parameter while the graph is built; returns the graph's results. It may read
            values of the rule, which the graph then captures.

    Returns:
        the graph; its `outputs` carry the results' types.
    """
    return current_builder().subgraph(parameters, fn)


def scan(
    fn: Callable[..., tuple[Sequence[Any], Sequence[Any]]],
    states: Sequence[Any],
    sequences: Sequence[Any],
    reverse: bool = False,
) -> tuple[list[Any], list[Any]]:
    """Emit a Scan along axis 0; where there is one step, the step itself.

    Args:
        fn: called with the list of states and the list of elements of the sequences at one step; returns the next
            states, of the same types and shapes, and the elements to collect.
        states: the states before the first step.
        sequences: of equal length and known rank.
        reverse: whether to go from the last step to the first; what is collected keeps the order of the sequences.

    Returns:
        the final states, and what was collected, stacked along axis 0.
    """
    from gradgen.engine.values import Value

    count = len(states)
    if sequences[0].shape is not None and sequences[0].shape[:1] == (1,):
        following, collected = fn(list(states), [op.Squeeze(s, [0]) for s in sequences])
        return list(following), [op.Unsqueeze(c, [0]) for c in collected]
    elements = [Value(s.dtype, s.shape[1:] if s.rank else ()) for s in sequences]

    def flat(*args: Any) -> list[Any]:
        following, collected = fn(list(args[:count]), list(args[count:]))
        return [*following, *collected]

    body = subgraph([*states, *elements], flat)
    stacked = len(body.outputs) - count
    directions = {}
    if reverse:
        directions = {"scan_input_directions": [1] * len(sequences), "scan_output_directions": [1] * stacked or None}
    results = op.Scan(
        *states, *sequences, body=body, num_scan_inputs=len(sequences), _outputs=len(body.outputs), **directions
    )
    results = results if isinstance(results, list) else [results]
    return results[:count], results[count:]


@dataclass(eq=False)
class RuleFunction:
    """A function of the rule language. `kind` is compiled, traced, structural or library."""

    fn: Callable[..., Any]
    kind: str
    returns: tuple[str, ...] = ()
    linear: bool = True
    lowering: Callable[..., Any] | None = None
    flows: Callable[..., Any] | None = None
    rewrite: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def shaped_as_last(self) -> bool:
        """Whether the result has the shape of the last argument: the contract of `sum_to` and every `*_like`."""
        return self.kind == "library" and (self.name == "sum_to" or self.name.endswith("_like"))

    @property
    def module(self) -> str:
        return self.fn.__module__

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.fn) or ""

    def __call__(self, *args: Any, **attributes: Any) -> Any:
        """Inside a traced rule: apply this function to values of the current builder."""
        if self.kind == "traced":
            return self.fn(*args, **attributes)
        return current_builder().call(self, args, attributes)

    def lower(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Register the static lowering of a library function.

        It is traced with the arguments' values and returns the result, or None where it does not know enough, in
        which case the function's general body is used.
        """
        self.lowering = fn
        return fn


def vjp(fn: Callable[..., Any] | None = None, *, linear: bool = True) -> Any:
    """A compiled rule `<op>_vjp` or a `<op>_fwd`: an onnxscript function.

    Parameters named `d<output>` are cotangents, those named as an input or output of the schema are values, all others
    are attributes. The returned names `d<input>` say what is differentiated. `linear=False` declares a rule that is
    not linear in its cotangent (clipped or guided gradients).
    """
    if fn is None:
        return lambda f: RuleFunction(f, "compiled", linear=linear)
    return RuleFunction(fn, "compiled", linear=linear)


fwd = vjp


def forward(*returns: Any) -> Any:
    """The forward body of an op that the standard does not define: it is differentiated through what it emits.

    Bare, on an onnxscript function; as `@forward("Y", ...)`, on plain Python over typed values, as a traced rule. The
    parameters are the op's inputs in order, then its attributes (keyword-only where traced); what is returned are the
    outputs, by name. It emits standard ops only, and computes what the op's kernel computes. For an op without a schema
    the signature is the schema.

    A straight-through body is written alike; it may read the op's outputs too, gets float stand-ins for quantised
    inputs that carry a derivative, and returns float stand-ins for quantised outputs, or None.
    """
    if len(returns) == 1 and callable(returns[0]):
        return RuleFunction(returns[0], "compiled")
    return lambda fn: RuleFunction(fn, "traced", returns=returns)


def library(fn: Callable[..., Any]) -> RuleFunction:
    """A function that rules call: an onnxscript function, the general body, with an optional static lowering."""
    return RuleFunction(fn, "library")


def traced(*returns: str, linear: bool = True) -> Callable[[Callable[..., Any]], RuleFunction]:
    """A traced rule: plain Python over typed values, run once per signature.

    Its positional parameters are named as those of a compiled rule; variadic formals are lists (of values or None);
    attributes are keyword-only and hold plain Python values; an absent cotangent or optional input is None. `returns`
    names what the function returns, in order: `d<input>`, where a variadic input's is a list. A value has `.rank`,
    `.shape`, `.dtype`, `.const`; `.rank` of a value of unknown rank refuses the rule by name.
    """
    return lambda fn: RuleFunction(fn, "traced", returns=tuple(returns), linear=linear)


def structural(
    fn: Callable[..., Any] | None = None,
    *,
    flows: Callable[..., Any] | None = None,
    rewrite: Callable[..., Any] | None = None,
) -> Any:
    """A rule for a node with subgraphs: `fn(context) -> (value, cotangent) pairs`, see gradgen.engine.structural.

    `flows(node)` lists the `Flow` of each subgraph: how its inputs and outputs are connected with the node's. By
    default a subgraph reads captured values alone and its outputs are the node's. `rewrite(node, linker)` may return
    values that take the place of the node's outputs, of nodes that it put in front of it; None keeps the node.
    """
    if fn is None:
        return lambda f: RuleFunction(f, "structural", flows=flows, rewrite=rewrite)
    return RuleFunction(fn, "structural", flows=flows, rewrite=rewrite)


def parameters(fn: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Positional and keyword-only parameter names of a rule."""
    positional: list[str] = []
    keyword: list[str] = []
    for p in inspect.signature(fn).parameters.values():
        (keyword if p.kind is p.KEYWORD_ONLY else positional).append(p.name)
    return positional, keyword


def unannotated(fn: Callable[..., Any]) -> str:
    """What to do about the parameters of an onnxscript function that look like attributes and have no annotation."""
    found = [p.name for p in inspect.signature(fn).parameters.values()
             if p.default not in (p.empty, None) and p.annotation is p.empty]  # fmt: skip
    return (
        f"'{found[0]}' has a default, as attributes have: annotate it (float, int, str, list[int], …)" if found else ""
    )


def given(computed: Any, value: Any) -> Any:
    """Inside a straight-through body: `value`, with the derivative of `computed`."""
    result = current_builder().node("Given", (computed, value), {}, 1, domain=INTERNAL)
    result.dtype, result.shape = value.dtype, value.shape
    return result


def picked(x: Any, result: Any) -> Any:
    """Where an op that returns one of its inputs has picked x: a bool tensor.

    onnxruntime computes float16 in float32 where it has no kernel, and may hand x on as it is, not rounded, beside a
    result that is. So what differs by less than the distance to the next float16 counts as equal.
    """
    same = op.Equal(x, result)
    if x.dtype != ir.DataType.FLOAT16:
        return same
    # Neighbours lie 2⁻¹¹ of the larger one apart, or more, and 2⁻²⁴ at least; what rounds to a number lies closer.
    distance = op.Max(op.Mul(op.Max(op.Abs(x), op.Abs(result)), 2.0**-11), 2.0**-24)
    return op.Or(same, op.Less(op.Abs(op.Sub(x, result)), distance))


def same_dim(a: int | str | None, b: int | str | None) -> bool:
    """Whether two dimensions are known to be equal: the same size or the same name."""
    return a is not None and a == b


def same_shape(a: Sequence[int | str | None] | None, b: Sequence[int | str | None] | None) -> bool:
    """Whether two shapes are known to be equal."""
    return a is not None and b is not None and len(a) == len(b) and all(map(same_dim, a, b))
