"""A model's gradients by gradgen, PyTorch and onnx-ad, for tools/bench.py; as a script, the peak memory of one of them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from peak_memory import peak_of
from torch import Tensor, nn

Arrays = dict[str, np.ndarray]


def machine() -> dict[str, Any]:
    """The processor, its cores, and versions."""
    import onnxruntime

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": len(names) or None,
        "system": platform.system(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "torch": torch.__version__,
        "onnx": onnx.__version__,
    }


class Problem:
    """One model with its arguments, and its gradients by each library."""

    def __init__(self, module: nn.Module, arguments: dict[str, Tensor]):
        import bench_models

        self.module, self.arguments = module, arguments
        self.names = [name for name, _ in module.named_parameters()]
        self.primal = bench_models.export(module, arguments)
        self.feeds: Arrays = {name: value.numpy() for name, value in arguments.items()}
        self.weights: Arrays = {name: p.detach().numpy() for name, p in module.named_parameters()}

    def torch_step(self, to_input: bool = False) -> Callable[[], Any]:
        """A step of PyTorch eager: the gradients as tensors."""
        arguments = list(self.arguments.values())
        parameters = list(self.module.parameters())
        if to_input:
            arguments[0] = arguments[0].clone().requires_grad_()
            targets = [arguments[0]]
        else:
            targets = parameters

        def step() -> Any:
            for parameter in parameters:
                parameter.requires_grad_(not to_input)
            return torch.autograd.grad(self.module(*arguments), targets)

        return step

    def torch_gradients(self, to_input: bool = False) -> Arrays:
        names = list(self.feeds)[:1] if to_input else self.names
        found = self.torch_step(to_input)()
        return dict(zip(names, (g.numpy() for g in found), strict=True))

    def gradgen(self, threads: int, to_input: bool = False) -> tuple[Callable[[], Arrays], dict[str, float]]:
        """A step of gradgen's model, and its nodes for each node of the primal.

        In training the weights are fed anew; for the gradient to the input they stay in the model, which is fixed.
        """
        import gradgen

        wrt = list(self.feeds)[:1] if to_input else self.names
        model = gradgen.value_and_grad(self.primal, wrt=wrt, of=["loss"])
        step = gradgen.compile(model, feed=() if to_input else self.names, threads=threads)
        feeds = self.feeds if to_input else {**self.feeds, **self.weights}
        count = len(model.graph.node) / len(self.primal.graph.node)

        def run() -> Arrays:
            found = step(**feeds)
            return {name: found[f"grad_{name}"] for name in wrt}

        return run, {"nodes": count}

    def onnx_ad(self, threads: int) -> tuple[Callable[[], Arrays] | None, str]:
        """A step of onnx-ad's model, or the reason why there is none."""
        try:
            import onnx_ad
            import onnxruntime

            from gradgen.session import options

            primal = onnx.ModelProto()
            primal.CopyFrom(self.primal)
            weights = {t.name: t for t in primal.graph.initializer if t.name in self.weights}
            for tensor in weights.values():
                primal.graph.initializer.remove(tensor)
                value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
                primal.graph.input.append(value)
            model = onnx_ad.reverse(primal)
            session = onnxruntime.InferenceSession(model.SerializeToString(), options(threads, True))
            declared = {i.name: i.shape for i in session.get_inputs()}
            feeds = {**self.feeds, **self.weights}
            # The seeds: cotangents of the outputs, with a leading axis of directions.
            for name in declared:
                if name not in feeds:
                    feeds[name] = np.ones([d if isinstance(d, int) else 1 for d in declared[name]], np.float32)
            results = [o.name for o in session.get_outputs()]
            found = {n: next(r for r in results if r.endswith(f"adj_{n}")) for n in self.names}
            session.run(results, feeds)
        except Exception as error:  # whatever it cannot do
            return None, (str(error).splitlines() or [type(error).__name__])[0]

        def run() -> Arrays:
            values = dict(zip(results, session.run(results, feeds), strict=True))
            return {n: values[r].reshape(self.weights[n].shape) for n, r in found.items()}

        return run, ""


def main(name: str, threads: int, library: str) -> None:
    """Print the peak memory of steps of one library."""
    import logging
    import warnings

    import bench_models

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    case = bench_models.CASES[name]
    problem = Problem(case.make(), case.arguments())
    step = problem.torch_step() if library == "torch" else problem.gradgen(threads)[0]
    print(peak_of(step))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
