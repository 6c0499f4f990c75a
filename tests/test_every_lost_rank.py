# Every op of the rule tables, on every sample, behind values whose rank inference has lost: each float input, and all.
"""Nothing is refused for a lost rank, and the gradients agree with finite differences of the op by itself."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx.helper
import pytest
from table_samples import table_samples

import gradgen
import gradgen.rules
from gradgen.differences import directional
from gradgen.engine.reading import checkable
from gradgen.evaluate import Evaluator
from gradgen.samples import build

LENGTH = "axes_of_run_time"


def lost(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The model with these inputs behind a reduction over axes that are an input; no output states its shape."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    nodes = [onnx.helper.make_node("ReduceSum", [f"{n}/in", LENGTH], [n], keepdims=0) for n in names]
    for info in proto.graph.input:
        if info.name in names:
            info.name += "/in"
            info.type.tensor_type.shape.dim.add().dim_value = 1
    proto.graph.input.append(onnx.helper.make_tensor_value_info(LENGTH, onnx.TensorProto.INT64, [1]))
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    nodes.extend(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", sorted(table_samples()))
def test_every_input_may_lose_its_rank(op):
    compared = 0
    for sample in table_samples()[op]:
        narrow = build(sample, np.float32)
        floats = [n for n in narrow.wrt if getattr(narrow.feeds[n], "dtype", np.dtype(int)).kind == "f"]
        if not floats or not narrow.of:
            continue
        wide = build(sample)
        run, rng = Evaluator(wide.primal), np.random.default_rng(1)
        outputs = run(wide.feeds)
        cotangents = {n: rng.uniform(0.3, 1.5, outputs[n].shape) for n in wide.of}
        direction = {n: rng.standard_normal(wide.feeds[n].shape) for n in floats}
        want = directional(run, wide.feeds, direction, cotangents, base=outputs)
        assert not want.kink, f"{op}, sample {sample}"
        for names in [*([n] for n in floats), *([floats] if len(floats) > 1 else [])]:
            proto = lost(narrow.model, names)
            wrt = [f"{n}/in" if n in names else n for n in narrow.wrt]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                derived = gradgen.vjp(proto, wrt=wrt, of=narrow.of, portable=narrow.portable)
            kinds = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
                     for i in derived.graph.input if i.type.HasField("tensor_type")}  # fmt: skip
            feeds = {n: narrow.feeds[n][..., None] if n in names else narrow.feeds[n] for n in narrow.feeds}
            feeds = {f"{n}/in" if n in names else n: value for n, value in feeds.items()}
            feeds |= {
                LENGTH: np.array([-1]),
                **{f"grad_{n}": ct.astype(kinds[f"grad_{n}"]) for n, ct in cotangents.items()},
            }
            onnx.checker.check_model(checkable(derived))
            try:
                found = Evaluator(derived, strict=True)(feeds)
            except ValueError:
                with pytest.raises(ValueError):  # onnxruntime's own inference takes a lost rank for a wrong one
                    Evaluator(proto, strict=True)(feeds)
                found = Evaluator(derived)(feeds)
            parts = [
                (found[f"grad_{n}/in"][..., 0] if n in names else found[f"grad_{n}"]).astype(np.float64) * direction[n]
                for n in floats
            ]
            compared += 1
            scale = sum(np.abs(p).sum() for p in parts) + 1e-3
            assert abs(sum(p.sum() for p in parts) - want.value) <= 2e-4 * scale, f"{op}, sample {sample}, {names} lost"
    if not compared:
        pytest.skip(f"{op} has no sample with a float input and a float output")
