# The C++ of docs/library.md: compiled, and where protobuf can be linked, run on a library and a model.
"""A test that needs a C++ compiler, protoc and protobuf's headers; it says which of them is not there.

Where they lie in no place that a compiler searches, PATH, CPATH, LIBRARY_PATH and LD_LIBRARY_PATH say where.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import gradgen

PAGE = Path(__file__).parent.parent / "docs" / "library.md"
PACKAGES = Path(onnx.__file__).parent.parent
MAIN = """
#include <cstdio>

int main(int, char** arguments) {
  try {
    const onnx::ModelProto library = read_library(arguments[1]);
    onnx::ModelProto model;
    std::ifstream file(arguments[2], std::ios::binary);
    model.ParseFromIstream(&file);
    link(model, library, "softplus_vjp", {"dy", "h"}, {"dh"});
    link(model, library, "softplus_vjp", {"dh", "p"}, {"ds"});
    link(model, library, arguments[4], {"ds", "p"}, {"dx"});
    std::ofstream out(arguments[3], std::ios::binary);
    return model.SerializeToOstream(&out) ? 0 : 2;
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    return 1;
  }
}
"""


def command(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def first_error(text: str) -> str:
    return next((line for line in text.splitlines() if "error" in line), text[:200])


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> tuple[list[object], Path]:
    """A compiler with its options, and the folder with what protoc wrote; skips the tests where something is missing."""
    folder = tmp_path_factory.mktemp("cpp")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("there is no C++ compiler: neither CXX nor c++, g++, clang++")
    if not shutil.which("protoc"):
        pytest.skip("there is no protoc")
    command("protoc", "-I", PACKAGES, f"--cpp_out={folder}", "onnx/onnx-ml.proto")
    compile_it = [compiler, "-std=c++17", "-Wall", "-DONNX_ML", "-I", folder, "-isystem", PACKAGES]
    probe = folder / "probe.cpp"
    probe.write_text(
        '#include "onnx/onnx-ml.pb.h"\nint main() { onnx::ModelProto model; return model.functions_size(); }\n'
    )
    done = command(*compile_it, "-fsyntax-only", probe, check=False)
    if done.returncode:
        pytest.skip(f"protobuf's headers are not there, or not those of protoc: {first_error(done.stderr)}")
    return compile_it, folder


@pytest.fixture(scope="module")
def program(build) -> Path:
    """The program of the page with a `main` of the test's."""
    compile_it, folder = build
    (block,) = re.findall(r"```cpp\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "program.cpp").write_text(block + MAIN, encoding="utf-8")
    return folder / "program.cpp"


def test_the_block_compiles_without_a_warning(build, program):
    compile_it, _ = build
    done = command(*compile_it, "-Wextra", "-fsyntax-only", program)
    assert not [line for line in done.stderr.splitlines() if line.startswith(str(program))], done.stderr


def test_the_program_links_rules_into_a_model(build, program, tmp_path):
    """y = softplus(softplus(sigmoid(x))): one rule is called twice, and another one once."""
    compile_it, folder = build
    binary, messages = tmp_path / "program", folder / "onnx" / "onnx-ml.pb.cc"
    command(*compile_it, "-w", "-c", messages, "-o", tmp_path / "messages.o")
    done = command(
        *compile_it, "-w", program, tmp_path / "messages.o", "-lprotobuf", "-pthread", "-o", binary, check=False
    )
    if done.returncode and "cannot find -lprotobuf" in done.stderr:
        pytest.skip("the page's program compiles, and there is no libprotobuf to link it with")
    assert done.returncode == 0, done.stderr
    onnx.save(gradgen.library(21, ["Softplus", "Sigmoid"]), tmp_path / "vjp.onnx")
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N] x, float[N] dy) => (float[N] y, float[N] dx) { p = Sigmoid(x) h = Softplus(p) y = Softplus(h) }""")
    onnx.save(model, tmp_path / "m.onnx")
    files = (tmp_path / "vjp.onnx", tmp_path / "m.onnx", tmp_path / "out.onnx")
    done = command(binary, *files, "nothing_vjp", check=False)
    assert (done.returncode, done.stderr) == (1, "the library has no function nothing_vjp")
    command(binary, *files, "sigmoid_vjp")
    linked = onnx.load(files[2])
    onnx.checker.check_model(linked, full_check=True)
    assert [f.name for f in linked.functions] == ["softplus_vjp", "sigmoid_vjp"]
    assert [(i.domain, i.version) for i in linked.opset_import] == [("", 21), ("gradgen.vjp", 1)]
    session = onnxruntime.InferenceSession(files[2], providers=["CPUExecutionProvider"])
    x, dy = np.array([-1, 0, 2], np.float32), np.array([1, 2, -1], np.float32)
    (found,) = session.run(["dx"], {"x": x, "dy": dy})

    def sigmoid(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-z))

    p = sigmoid(x.astype(np.float64))
    want = dy * sigmoid(np.log1p(np.exp(p))) * sigmoid(p) * p * (1 - p)
    np.testing.assert_allclose(found, want, rtol=1e-6)
