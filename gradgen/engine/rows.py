"""The rows of the rule table as the engine reads them from the generated registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Form:
    """One form of an op's backward rule.

    Attributes:
        rule: the rule function's name, `<op>_vjp` or `<op>_vjp__<form>`.
        kind: compiled, traced or structural.
        module: the Python module that holds the function.
        reads: its parameters in order, without attributes: cotangents `d<output>`, inputs, outputs, residuals.
        returns: what it differentiates, `d<input>` in order.
        attributes: the attributes that it takes.
        when: a condition of gradgen.engine.conditions, or None for the form that always holds.
        fwd: the `<op>_fwd` function that stands in for the forward node, or None.
        fwd_reads, fwd_returns, fwd_attributes: the contract of `fwd`.
        linear: whether it is linear in its cotangents.
        function: the function itself, for a rule that was registered at run time.
    """

    rule: str
    kind: str
    module: str
    reads: tuple[str, ...]
    returns: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    when: str | None = None
    fwd: str | None = None
    fwd_reads: tuple[str, ...] = ()
    fwd_returns: tuple[str, ...] = ()
    fwd_attributes: tuple[str, ...] = ()
    linear: bool = True
    function: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Row:
    """What is known of one op from one opset version on.

    Attributes:
        domain, op_type, since: the key; the row holds from opset `since` up to the next row of the op.
        forms: in the order in which they are tried; the general one is last.
        zero: inputs whose derivative is known to be zero.
        none: inputs without a derivative rule, with the reason.
        ignores: attributes that do not change the derivative.
        like: outputs that have the type and shape of an input, where the standard infers none for the op; with a
            straight-through body, which gives the shape, the type alone.
        defaults: name of a function of `module` that resolves attributes whose defaults depend on the node.
        random: whether the op draws random numbers; the name of the input that switches the draw on, where an absent
            one and one known to be false draw nothing; None where onnx knows.
        forward: the op's forward body (it reads inputs and returns outputs), through which the op is differentiated
            where the row has no forms. Outputs that the body does not return are left to the node.
        selects: inputs some of whose elements the op may leave out, so that what they hold does not matter (Where's
            branches, what Gather reads).
        straight_through: the body whose derivative passes the op's quantised inputs and outputs, where that is asked.
        linear: sets of inputs in each of which the op is linear, all others held. Where they cover the inputs that vary,
            the op is its own jvp. A name ends in `?` where a call of the op may leave the input out, as a zero.
        tangents: forms that give the tangents of outputs, `t<output>`, from those of inputs, `t<input>`, where the
            transpose of the backward rule is not the shortest way; the first one applies that takes what varies.
        kernel: whether runtimes run the op by themselves, and right; where not, its forward body stands in for it in
            every result, or travels with it as a function of the model where the row has forms.
        origin: where the row was written, for messages.
        inputs, outputs: the formal names; a trailing `*` marks the variadic one.
    """

    domain: str
    op_type: str
    since: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forms: tuple[Form, ...] = ()
    zero: tuple[str, ...] = ()
    none: Mapping[str, str] = field(default_factory=dict)
    ignores: tuple[str, ...] = ()
    defaults: str | None = None
    module: str = ""
    random: bool | str | None = None
    like: Mapping[str, str] = field(default_factory=dict)
    forward: Form | None = None
    straight_through: Form | None = None
    selects: tuple[str, ...] = ()
    linear: tuple[tuple[str, ...], ...] = ()
    tangents: tuple[Form, ...] = ()
    kernel: bool = True
    origin: str = ""

    def formal(self, names: tuple[str, ...], index: int) -> str:
        """The formal name at a position; the variadic one takes all that follow it."""
        if index < len(names):
            return names[index].rstrip("*")
        return names[-1].rstrip("*") if names and names[-1].endswith("*") else f"#{index}"

    def input_name(self, index: int) -> str:
        """The formal name of the input at a position."""
        return self.formal(self.inputs, index)

    def output_name(self, index: int) -> str:
        """The formal name of the output at a position."""
        return self.formal(self.outputs, index)

    @property
    def through_body(self) -> bool:
        """Whether the op is differentiated through its forward body."""
        return self.forward is not None and not self.forms

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The formal names of its outputs, without the mark of the variadic one."""
        return tuple(name.rstrip("*") for name in self.outputs)

    @cached_property
    def formals(self) -> tuple[str, ...]:
        """The formal names of its inputs, then of its outputs."""
        return (*(name.rstrip("*") for name in self.inputs), *self.output_names)

    @cached_property
    def cotangents(self) -> frozenset[str]:
        """What rules call the cotangents of its outputs."""
        return frozenset(f"d{name}" for name in self.output_names)

    @cached_property
    def structural(self) -> bool:
        """Whether a rule of the op works on its subgraphs."""
        return any(f.kind == "structural" for f in self.forms)

    @cached_property
    def _dispositions(self) -> dict[int, str]:
        return {}

    def disposition(self, index: int) -> str:
        """What an input's derivative is: `rule`, `body` (that of the forward body), `zero` or `none`."""
        found = self._dispositions.get(index)
        if found is None:
            found = self._dispositions[index] = self._disposition(self.input_name(index))
        return found

    def _disposition(self, name: str) -> str:
        if name in self.zero:
            return "zero"
        if name in self.none:
            return "none"
        if self.through_body:
            assert self.forward is not None
            return "body" if name in self.forward.reads else "none"
        return "rule" if any(f.kind == "structural" or f"d{name}" in f.returns for f in self.forms) else "none"

    def is_variadic(self, name: str) -> bool:
        """Whether a formal takes a list."""
        return f"{name}*" in self.inputs or f"{name}*" in self.outputs
