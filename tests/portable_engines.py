"""Engines beside onnxruntime that run ONNX models, and the gradient models that show whether they run them right."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

import gradgen
from gradgen.evaluate import evaluator

Arrays = dict[str, np.ndarray]
DATA = Path(__file__).parent / "data"
WEB = Path(__file__).parent / "portable_web.mjs"
LSTM = """<ir_version: 10, opset_import: ["" : 21]> lstm (float[6, 2, 4] x) => (float loss) {
    y, h, c = LSTM<hidden_size=5>(x, W, R, B)
    s = Mul(y, y)
    loss = ReduceMean<keepdims=0>(s) }"""


def primals() -> dict[str, onnx.ModelProto]:
    """An MLP, a CNN, a transformer encoder and an LSTM, each with a loss."""
    models = {name: onnx.load(DATA / f"{name}_static.onnx") for name in ("mlp", "cnn", "encoder")}
    models["lstm"] = parser.parse_model(LSTM)
    rng = np.random.default_rng(0)
    for name, shape in (("W", (1, 20, 4)), ("R", (1, 20, 5)), ("B", (1, 40))):
        weight = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        models["lstm"].graph.initializer.append(numpy_helper.from_array(weight, name))
    return models


def gradient(primal: onnx.ModelProto, portable: bool) -> onnx.ModelProto:
    """The loss and its gradient to every parameter."""
    return gradgen.value_and_grad(primal, wrt=gradgen.parameters(primal), of=["loss"], portable=portable)


def feeds_for(model: onnx.ModelProto) -> Arrays:
    """Seeded inputs: floats, and labels below 10."""
    rng = np.random.default_rng(1)
    feeds: Arrays = {}
    for info in model.graph.input:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        floats = info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[info.name] = rng.standard_normal(shape).astype(np.float32) if floats else rng.integers(0, 10, shape)
    return feeds


def error(found: Arrays, model: onnx.ModelProto, feeds: Arrays) -> float:
    """The largest difference from onnxruntime, in units of the larger of the largest gradient and 1e-2."""
    want = evaluator(model, strict=True)(feeds)
    scale = max(1e-2, *(float(np.abs(v).max()) for n, v in want.items() if n != "loss"))
    return max(float(np.abs(np.reshape(found[n], v.shape) - v).max()) for n, v in want.items()) / scale


def openvino(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """The outputs by OpenVINO on the CPU, in float32."""
    import openvino as ov

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        results = compiled(feeds)
        return {o.name: np.asarray(results[compiled.output(k)]) for k, o in enumerate(model.graph.output)}


def iree(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """The outputs through MLIR: IREE's ONNX importer and compiler, run on the CPU."""
    import iree.compiler as compiler
    import iree.compiler.tools.import_onnx.__main__ as importer
    import iree.runtime as runtime

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "model.onnx", Path(folder) / "model.mlir"
        onnx.save(model, source)
        importer.main(importer.parse_arguments([str(source), "-o", str(target)]))
        options = ["--iree-llvmcpu-target-cpu=host"]
        code = compiler.compile_file(str(target), target_backends=["llvm-cpu"], input_type="onnx", extra_args=options)
    module = runtime.load_vm_flatbuffer(code, driver="local-task")
    (entry,) = [n for n in module.vm_module.function_names if not n.startswith("__") and "$" not in n]
    results = module[entry](*(feeds[i.name] for i in model.graph.input))
    listed = results if isinstance(results, tuple | list) else [results]
    return {o.name: np.asarray(r) for o, r in zip(model.graph.output, listed, strict=True)}


def web(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """The outputs by onnxruntime-web (WASM) under Node; `NODE_PATH` or the folder's node_modules holds the package."""
    with tempfile.TemporaryDirectory() as folder:
        path, request = Path(folder) / "model.onnx", Path(folder) / "request.json"
        onnx.save(model, path)
        tensors = {
            n: {"type": str(v.dtype), "shape": list(v.shape), "data": v.reshape(-1).tolist()} for n, v in feeds.items()
        }
        request.write_text(json.dumps({"model": str(path), "feeds": tensors}))
        command = [shutil.which("node") or "node", str(WEB), str(request)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return {n: np.asarray(v, np.float64) for n, v in json.loads(done.stdout).items()}


ENGINES: dict[str, Callable[[onnx.ModelProto, Arrays], Arrays]] = {
    "OpenVINO": openvino,
    "IREE": iree,
    "onnxruntime-web": web,
}
