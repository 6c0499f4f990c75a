"""Compiles the rule language: onnxscript functions to FunctionProtos and their text."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import onnx
import onnx.checker
import onnx.parser
import onnx.printer

from gradgen.errors import GradientError
from gradgen.rules import library
from gradgen.rules.lang import DOMAIN, OPSET, RuleFunction, unannotated

COMPILED = ("compiled", "library")


def rule_functions(module: ModuleType) -> dict[str, RuleFunction]:
    """The rule functions that a module defines (not those it imports), in its order."""
    return {
        name: f
        for name, f in vars(module).items()
        if isinstance(f, RuleFunction) and f.module == module.__name__ and name == f.name
    }


class Compiler:
    """Compiles rule functions, callee first, each once."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def proto(self, function: RuleFunction) -> onnx.FunctionProto:
        """The FunctionProto of a compiled rule or library function.

        Raises:
            GradientError: names the rule and says what onnxscript or the checker refused.
        """
        if reason := unannotated(function.fn):
            raise GradientError(f"{function.module}.{function.name}: {reason}")
        compiled = self._script(function)
        proto = compiled.to_function_proto()
        proto.doc_string = function.doc
        for node in all_nodes(proto.node):
            node.name = ""
            ordered = sorted(node.attribute, key=lambda a: a.name)
            del node.attribute[:]
            node.attribute.extend(ordered)
        if not proto.output:
            raise GradientError(f"{function.module}.{function.name}: it returns nothing")
        names = [n for n in proto.output if n.startswith("return_val")]
        if names and function.kind == "compiled":
            raise GradientError(
                f"{function.module}.{function.name}: return names, not expressions: dX = …, then `return dX`, or "
                "`dX = op.Identity(dY)` where that is another name of an input"
            )
        produced = {o for n in proto.node for o in n.output}
        for output in proto.output:
            if output not in produced:
                raise GradientError(
                    f"{function.module}.{function.name}: '{output}' is an input; return op.Identity of it"
                )
        if len(set(proto.output)) != len(proto.output):
            raise GradientError(f"{function.module}.{function.name}: two returned values are the same")
        del proto.opset_import[:]
        proto.opset_import.append(onnx.helper.make_opsetid("", OPSET))
        if any(n.domain == DOMAIN for n in all_nodes(proto.node)):
            proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = 10, {"": OPSET, DOMAIN: 1}
        try:
            onnx.checker.check_function(proto, context)
        except onnx.checker.ValidationError as error:
            raise GradientError(f"{function.module}.{function.name}: {error}") from error
        return proto

    def _script(self, function: RuleFunction) -> Any:
        """Let onnxscript read the function, with `op` and library functions replaced by what it understands."""
        if function.name in self._compiled:
            return self._compiled[function.name]
        import onnxscript
        from onnxscript.onnx_opset import opset21

        module = importlib.import_module(function.module)
        replaced: dict[str, Any] = {"op": opset21}
        called = {
            name: value
            for name in function.fn.__code__.co_names
            if isinstance(value := vars(module).get(name), RuleFunction) and value.kind in COMPILED
        }
        replaced.update((name, self._script(value)) for name, value in called.items())
        # onnxscript reads the names of the function's module: a copy of it, since other threads may run its rules.
        copy = ModuleType(f"{module.__name__}.{function.name}.{id(self)}")
        vars(copy).update({**vars(module), **replaced, "__name__": copy.__name__})
        sys.modules[copy.__name__] = copy
        try:
            script = onnxscript.script(onnxscript.values.Opset(DOMAIN, 1), default_opset=opset21)
            compiled = script(_moved(function.fn, copy))
        except Exception as error:  # onnxscript raises many kinds, and each is about the rule's text
            raise GradientError(f"{function.module}.{function.name}: {_reason(str(error), function)}") from error
        finally:
            del sys.modules[copy.__name__]
        self._compiled[function.name] = compiled
        return compiled


def _moved(fn: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """The function as if a module defined it."""
    moved = FunctionType(fn.__code__, vars(module), fn.__name__, fn.__defaults__, fn.__closure__)
    moved.__kwdefaults__, moved.__annotations__, moved.__doc__ = fn.__kwdefaults__, fn.__annotations__, fn.__doc__
    moved.__module__, moved.__qualname__ = module.__name__, fn.__qualname__
    return moved


def where(function: RuleFunction) -> str:
    """The file and line of a rule, for messages."""
    code = function.fn.__code__
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno}"


def _reason(message: str, function: RuleFunction) -> str:
    """What onnxscript says of a rule's text, in one line, with the line of the file."""
    match = re.search(
        r"(?:ERROR: )?(?P<what>.*?)\s*at: Function '\w+', line (?P<line>\d+)\n(?P<source>[^\n]*)", message, re.S
    )
    if match is None:
        return " ".join(message.split())
    what = " ".join(match["what"].split()).rstrip(".")
    if what.startswith("Missing names"):  # followed by all globals
        what = "an attribute must be a constant or a parameter: attribute arithmetic needs a traced rule"
    line = function.fn.__code__.co_firstlineno + int(match["line"]) - 1
    return f"{what}, in line {line}: {match['source'].strip()}"


def all_nodes(nodes: Any) -> list[onnx.NodeProto]:
    """Nodes with those of their subgraphs."""
    found = []
    for node in nodes:
        found.append(node)
        for attribute in node.attribute:
            found.extend(all_nodes(attribute.g.node))
    return found


def text(proto: onnx.FunctionProto) -> str:
    """The function as text that parses to the same function, attribute defaults and doc string included."""
    plain = onnx.FunctionProto()
    plain.CopyFrom(proto)
    doc = " ".join(proto.doc_string.split()).replace('"', "'")
    plain.doc_string = ""
    defaults = list(plain.attribute_proto)
    del plain.attribute_proto[:]
    printed = onnx.printer.to_text(plain).strip()
    header = [f'"{i.domain}" : {i.version}' for i in proto.opset_import]
    fields = f'domain: "{proto.domain}", opset_import: [{", ".join(header)}]' + (
        f', doc_string: "{doc}"' if doc else ""
    )
    body = printed[printed.index(">") + 1 :].strip()
    attributes = [*plain.attribute, *map(_default, defaults)]
    if attributes:
        body = re.sub(r"^(\S+?)\s*(<[^>]*>)?\s*\(", lambda m: f"{m[1]} <{', '.join(attributes)}>(", body, count=1)
    result = f"<{fields}>\n{body}"
    parsed = onnx.parser.parse_function(result)
    reparsed = onnx.FunctionProto()
    reparsed.CopyFrom(parsed)
    reparsed.doc_string = ""
    del reparsed.attribute_proto[:]
    if onnx.printer.to_text(reparsed).strip() != printed or list(parsed.attribute_proto) != defaults:
        raise GradientError(f"the text form of '{proto.name}' does not parse to the same function")
    return result


def _default(attribute: onnx.AttributeProto) -> str:
    printed = onnx.printer.to_text(_holder(attribute))
    match = re.search(rf"X <({re.escape(attribute.name)}\s*:?[^>]*)>", printed)
    if match is None:
        raise GradientError(f"attribute '{attribute.name}' has no text form")
    return match[1]


def _holder(attribute: onnx.AttributeProto) -> onnx.FunctionProto:
    node = onnx.NodeProto(op_type="X", output=["y"])
    node.attribute.append(attribute)
    holder = onnx.FunctionProto(name="f", domain="d", output=["y"])
    holder.node.append(node)
    holder.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    return holder


def library_functions() -> dict[str, RuleFunction]:
    """The functions of gradgen.rules.library."""
    return rule_functions(library)
