"""Runs onnx-ad on the models of tests/data/torch_cases and prints its row of the README's table.

`python tools/compare_peers.py` makes an environment with onnx-ad for the run; `--here` uses the one that it runs in.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("onnx-ad==0.3.0", "onnx==1.23.2", "onnxruntime==1.32.0", "numpy>=2.0")
VERDICTS = ("right", "refused", "does not run", "wrong")


def main() -> None:
    """Compare in a fresh environment, or in this one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--here", action="store_true", help="run in this environment, and install nothing")
    if parser.parse_args().here:
        compare()
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        subprocess.run([python, Path(__file__), "--here"], check=True)


def compare() -> None:
    """Print what becomes of each model that is not right, and the row."""
    import onnx_ad

    sys.path.insert(0, str(ROOT / "tests"))
    from torch_cases import load_cases

    counts: Counter[str] = Counter()
    for case in load_cases():
        verdict, reason = judge(case)
        counts[verdict] += 1
        if verdict != "right":
            print(f"{case.name}: {verdict}: {' '.join(reason.split())[:200]}")
    print(f"| onnx-ad {onnx_ad.__version__} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")


def judge(case) -> tuple[str, str]:
    """A verdict on one model and its reason: what counts as equal is what gradgen's own test asks for."""
    import numpy as np
    import onnx
    import onnx_ad
    import onnxruntime
    from torch_cases import differences

    model = onnx.load(case.path)
    feeds = dict(case.inputs)
    # onnx-ad differentiates graph inputs alone.
    for tensor in [t for t in model.graph.initializer if t.name in case.gradients]:
        model.graph.initializer.remove(tensor)
        if tensor.name not in {i.name for i in model.graph.input}:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            model.graph.input.append(value)
        feeds[tensor.name] = onnx.numpy_helper.to_array(tensor)
    try:
        # Cotangents and gradients get a last axis, of the directions: here there is one.
        result = onnx_ad.reverse(model, list(case.gradients), list(case.cotangents), prefix="adj_", layout="onnx")
    except Exception as error:  # a refusal may be of any kind
        return "refused", f"{type(error).__name__}: {error}"
    feeds |= {f"adj_{name}": np.expand_dims(ct, -1) for name, ct in case.cotangents.items()}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(result.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run([f"adj_{name}" for name in case.gradients], feeds)
    except Exception as error:  # so may what the runtime says
        return "does not run", str(error)
    got = {name: value[..., 0] for name, value in zip(case.gradients, found, strict=True)}
    problems = differences(got, case.gradients)
    return ("wrong", "; ".join(problems)) if problems else ("right", "")


if __name__ == "__main__":
    main()
