"""Tests of gradgen.compile: values, feeding, memory that results lie on, the cache, errors."""

from __future__ import annotations

import os
import threading

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from text_models import model

import gradgen
from gradgen import session


@pytest.fixture(autouse=True)
def scratch_cache(tmp_path, monkeypatch):
    """Keep optimised models out of the user's own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)


def linear() -> onnx.ModelProto:
    return model("g (float[N,3] x, float[2] b) => (float[N,2] y) { p = MatMul(x, w)\n y = Add(p, b) }", w=WEIGHT)


X, B = np.ones((4, 3), np.float32), np.array([10, 20], np.float32)


def test_by_position_and_by_name():
    step = gradgen.compile(linear())
    assert step.inputs == ["x", "b"] and step.outputs == ["y"]
    expected = X @ WEIGHT + B
    for found in (step(X, B), step(x=X, b=B), step(X, b=B), step([[1, 1, 1]] * 4, [10, 20])):
        assert list(found) == ["y"] and found["y"].dtype == np.float32
        np.testing.assert_array_equal(found["y"], expected)


def test_a_gradient_step():
    gradient = gradgen.value_and_grad(linear(), wrt=["w", "b"], reduce="sum")
    step = gradgen.compile(gradient, feed="w")
    found = step(X, B, 2 * WEIGHT)
    assert list(found) == ["y", "grad_w", "grad_b"]
    np.testing.assert_array_equal(found["y"], 2 * X @ WEIGHT + B)
    np.testing.assert_array_equal(found["grad_w"], np.full((3, 2), 4))
    np.testing.assert_array_equal(found["grad_b"], [4, 4])


def test_fed_initializers_have_their_stored_values_as_defaults():
    step = gradgen.compile(linear(), feed=["w*"])
    assert step.inputs == ["x", "b", "w"]
    np.testing.assert_array_equal(step(X, B)["y"], X @ WEIGHT + B)
    np.testing.assert_array_equal(step(X, B, w=0 * WEIGHT)["y"], [B] * 4)
    np.testing.assert_array_equal(step(X, B)["y"], X @ WEIGHT + B)


def test_initializers_that_are_inputs_become_constants_unless_fed():
    proto = linear()
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [3, 2]))
    assert gradgen.compile(proto).inputs == ["x", "b"]
    assert gradgen.compile(proto, feed="w").inputs == ["x", "b", "w"]
    assert len(proto.graph.input) == 3 and len(proto.graph.initializer) == 1  # the caller's model stays


def test_results_are_not_overwritten_while_they_are_held():
    step = gradgen.compile(linear())
    held = [step(np.full((4, 3), i, np.float32), B)["y"] for i in range(5)]
    rows = [step(np.full((4, 3), i, np.float32), B)["y"][1:, :1] for i in range(5)]  # views alone
    for i in range(5):
        np.testing.assert_array_equal(held[i], np.full((4, 3), i) @ WEIGHT + B)
        np.testing.assert_array_equal(rows[i], (np.full((4, 3), i) @ WEIGHT + B)[1:, :1])


def test_memory_takes_turns_and_an_output_never_lies_on_an_input():
    step = gradgen.compile(model("g (float[2,3] x) => (float[2,3] y) { y = Add(x, x) }"))
    x = np.ones((2, 3), np.float32)
    addresses = set()
    for i in range(6):
        y = step(x)["y"]
        assert not np.shares_memory(x, y)
        np.testing.assert_array_equal(y, np.full((2, 3), 2.0 ** (i + 1)))
        addresses.add(y.ctypes.data)
        x = y
    assert len(addresses) == 2 and all(a % 64 == 0 for a in addresses)


def test_changes_in_place_are_seen():
    step = gradgen.compile(linear())
    x = X.copy()
    step(x, B)
    x *= 3
    np.testing.assert_array_equal(step(x, B)["y"], 3 * X @ WEIGHT + B)


def test_an_array_that_lies_otherwise_than_before_is_bound_anew():
    step = gradgen.compile(model("g (float[A,B] x) => (float[A,B] y) { y = Add(x, x) }"))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(step(x)["y"], 2 * x)
    x.shape = (6, 2)
    np.testing.assert_array_equal(step(x)["y"], 2 * x)
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(step(square)["y"], 2 * square)
    turned = np.lib.stride_tricks.as_strided(square, strides=square.strides[::-1])
    np.testing.assert_array_equal(step(turned)["y"], 2 * turned)


def test_an_output_that_is_an_input():
    proto = model("g (float[A] x) => (float[A] x, float[A] y) { y = Neg(x) }")
    step = gradgen.compile(proto)
    x = np.arange(4, dtype=np.float32)
    for _ in range(2):
        found = step(x)
        np.testing.assert_array_equal(found["x"], x)
        np.testing.assert_array_equal(found["y"], -x)
        assert list(found) == ["x", "y"] and not np.shares_memory(found["x"], x)


def test_an_output_that_is_an_input_beside_one_whose_size_the_run_tells():
    step = gradgen.compile(
        model("g (float[A] x) => (int64[1,K] y, float[A] x, float[A] z) { y = NonZero(x)\n z = Neg(x) }")
    )
    for numbers in ([0, 1, 2], [3, 0], [4, 5, 6]):
        x = np.asarray(numbers, np.float32)
        found = step(x)
        assert list(found) == ["y", "x", "z"]
        np.testing.assert_array_equal(found["y"], [np.flatnonzero(x)])
        np.testing.assert_array_equal(found["x"], x)
        np.testing.assert_array_equal(found["z"], -x)


def test_a_call_after_one_that_failed():
    step = gradgen.compile(model("g (float[A] x, float[B] z) => (float[A] y) { y = Add(x, z) }"))
    x, z = np.ones(4, np.float32), np.full(4, 2, np.float32)
    np.testing.assert_array_equal(step(x, z)["y"], [3] * 4)
    for wrong in ({"x": x, "z": np.ones(3, np.float32)}, {"x": x, "z": np.ones((4, 1), np.float32)}, {"x": x}):
        with pytest.raises(gradgen.GradientError):
            step(**wrong)
        np.testing.assert_array_equal(step(x=x, z=z)["y"], [3] * 4)


def test_calls_from_several_threads_wait_for_each_other():
    """onnxruntime lets other threads run meanwhile, which would bind their arrays, and write into the same memory."""
    step = gradgen.compile(model("g (float[A,A] x) => (float[A,A] y) { y = MatMul(x, x) }"), threads=1)
    wrong = []

    def call(number):
        x = np.full((160, 160), number, np.float32)
        for _ in range(60):
            if not (step(x)["y"] == 160 * number**2).all():
                wrong.append(number)

    threads = [threading.Thread(target=call, args=[n]) for n in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_integers_that_do_not_fit_are_refused():
    step = gradgen.compile(model("g (int32[2] x) => (int32[2] y) { y = Add(x, x) }"))
    np.testing.assert_array_equal(step(np.array([1, 2**30 - 1]))["y"], [2, 2**31 - 2])
    with pytest.raises(gradgen.GradientError, match="'x' is of int32, and the array holds numbers beyond that"):
        step([1, 2**32 + 5])


def test_sizes_that_disagree_are_named():
    step = gradgen.compile(
        model("g (float[N] x, float[N] z, float[M] w) => (float[N] y) { a = Add(x, z)\n y = Add(a, w) }")
    )
    with pytest.raises(gradgen.GradientError, match="^'N' is 4 in 'x', 3 in 'z'; onnxruntime: "):
        step(*(np.ones(n, np.float32) for n in (4, 3, 1)))


def test_globs_of_what_is_fed_pass_over_constants_of_gradgens_own():
    gradient = gradgen.value_and_grad(linear(), wrt=["w"], reduce="sum")
    assert len(gradient.graph.initializer) > 1
    assert gradgen.compile(gradient, feed="*").inputs == ["x", "b", "w"]
    with pytest.raises(gradgen.GradientError, match="no initializer is called 'v'; there are w$"):
        gradgen.compile(gradient, feed="v")


def test_sizes_may_change_between_calls():
    step = gradgen.compile(linear())
    for rows in (4, 1, 0, 7, 4):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(step(x, B)["y"], x @ WEIGHT + B)


def test_sizes_that_only_the_run_tells():
    step = gradgen.compile(model("g (float[N] x) => (int64[1,K] y, float[N] z) { y = NonZero(x)\n z = Neg(x) }"))
    for x in ([0, 1, 2], [0, 0], [5.0]):
        found = step(np.asarray(x, np.float32))
        assert list(found) == ["y", "z"]
        np.testing.assert_array_equal(found["y"], [np.flatnonzero(x)])
        np.testing.assert_array_equal(found["z"], np.negative(x))


def test_scalars_strided_arrays_and_other_types():
    step = gradgen.compile(model("g (float s, float[2,3] x, bool[3] m) => (float[2,3] y) { p = Mul(s, x)\n q = Cast<to=1>(m)"
                                 "\n y = Mul(p, q) }"))  # fmt: skip
    x = np.arange(6.0).reshape(3, 2).T
    np.testing.assert_array_equal(step(2.0, x, [True, False, True])["y"], 2 * x * [1, 0, 1])


def test_values_that_are_no_numeric_tensors():
    step = gradgen.compile(model("g (string[2] x) => (string[2] y) { y = Identity(x) }"))
    assert step(np.array(["a", "b"], object))["y"].tolist() == ["a", "b"]


def test_inputs_of_any_name():
    step = gradgen.compile(model("g (float[1] self, float[1] arrays) => (float[1] y) { y = Sub(self, arrays) }"))
    assert step(self=[3.0], arrays=[1.0])["y"] == 2


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        ((X,), {}, "input 'b' is missing"),
        ((X, B, B), {}, "3 arrays, and the model has 2 inputs"),
        ((X, B), {"x": X}, "'x' is given twice"),
        ((X, B), {"z": X}, "no input 'z'"),
        ((X[:, :2], B), {}, r"input 'x' has shape \['N', 3\], and the array \[4, 2\]"),
        ((X[0], B), {}, "input 'x' has shape"),
        ((X.astype(complex), B), {}, "input 'x' is of float32, and the array of complex128"),
    ],
)
def test_what_does_not_fit_is_named(arrays, named, message):
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.compile(linear())(*arrays, **named)


def test_integers_are_not_cut_off():
    step = gradgen.compile(model("g (int64[2] x) => (int64[2] y) { y = Neg(x) }"))
    assert step(np.array([1, 2], np.int32))["y"].tolist() == [-1, -2]
    with pytest.raises(gradgen.GradientError, match="int64"):
        step([1.5, 2.0])


def test_errors_of_models():
    with pytest.raises(gradgen.GradientError, match="no initializer is called 'v'; there are w"):
        gradgen.compile(linear(), feed="v")
    with pytest.raises(gradgen.GradientError, match="there is no file .nowhere.onnx."):
        gradgen.compile("nowhere.onnx")
    broken = linear()
    broken.graph.node[0].op_type = "MatMull"
    with pytest.raises(gradgen.GradientError, match="onnxruntime does not load the model"):
        gradgen.compile(broken)
    step = gradgen.compile(model("g (float[N] x, float[M] z) => (float[N] y) { y = Add(x, z) }"))
    with pytest.raises(gradgen.GradientError, match="onnxruntime: "):
        step(np.ones(2), np.ones(3))


def kept(folder) -> list:
    return sorted(folder.rglob("*.onnx"))


def test_the_optimised_model_is_kept_and_used(scratch_cache, monkeypatch):
    folder = scratch_cache / "kept"
    gradgen.compile(linear(), cache=folder)
    (file,) = kept(folder)
    assert [p.name for p in folder.iterdir()] == [file.name]
    monkeypatch.setattr(session, "_create", None)  # neither read nor optimised again
    np.testing.assert_array_equal(gradgen.compile(linear(), cache=folder)(X, B)["y"], X @ WEIGHT + B)


def test_another_model_has_another_entry(scratch_cache):
    folder = scratch_cache / "kept"
    gradgen.compile(linear(), cache=folder)
    other = linear()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHT, "w"))
    np.testing.assert_array_equal(gradgen.compile(other, cache=folder)(X, B)["y"], 2 * X @ WEIGHT + B)
    assert len(kept(folder)) == 2


def test_another_way_of_blocking_has_another_entry(scratch_cache, monkeypatch):
    gradgen.compile(linear())
    monkeypatch.setattr(session.blocking, "VERSION", session.blocking.VERSION + 1)
    gradgen.compile(linear())
    assert len(list(session.cache_folder().glob("*.onnx"))) == 2


def test_a_damaged_entry_is_made_again(scratch_cache):
    folder = scratch_cache / "kept"
    gradgen.compile(linear(), cache=folder)
    (file,) = kept(folder)
    file.write_bytes(file.read_bytes()[:20])
    np.testing.assert_array_equal(gradgen.compile(linear(), cache=folder)(X, B)["y"], X @ WEIGHT + B)
    assert file.stat().st_size > 20


def test_the_default_folder_and_none(scratch_cache):
    gradgen.compile(linear(), cache=False)
    assert not kept(scratch_cache)
    gradgen.compile(linear())
    assert len(kept(session.cache_folder())) == 1 and session.cache_folder().is_relative_to(scratch_cache)


def test_a_place_that_cannot_be_written_is_no_error(scratch_cache):
    gradgen.compile(linear())
    (kept,) = session.cache_folder().glob("*.onnx")
    kept.unlink()
    kept.mkdir()
    np.testing.assert_array_equal(gradgen.compile(linear())(X, B)["y"], X @ WEIGHT + B)


def test_a_folder_that_cannot_be_made_is_no_error(scratch_cache):
    (scratch_cache / "file").touch()
    np.testing.assert_array_equal(gradgen.compile(linear(), cache=scratch_cache / "file")(X, B)["y"], X @ WEIGHT + B)


def test_the_oldest_entries_go(scratch_cache, monkeypatch):
    folder = scratch_cache / "kept"
    gradgen.compile(linear(), cache=folder)
    (first,) = kept(folder)
    os.utime(first, (1, 1))
    monkeypatch.setattr(session, "CACHE_BYTES", first.stat().st_size + 10)
    other = linear()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHT, "w"))
    gradgen.compile(other, cache=folder)
    assert len(kept(folder)) == 1 and not first.exists()


def test_external_data_is_found_beside_the_model(scratch_cache):
    path = scratch_cache / "model.onnx"
    onnx.save(linear(), path, save_as_external_data=True, location="weights", size_threshold=0)
    gradient = gradgen.value_and_grad(path, reduce="sum")
    np.testing.assert_array_equal(gradgen.compile(path)(X, B)["y"], X @ WEIGHT + B)
    np.testing.assert_array_equal(gradgen.compile(gradient)(X, B)["grad_x"], np.tile(WEIGHT.sum(axis=1), (4, 1)))
    assert not kept(session.cache_folder())
    np.testing.assert_array_equal(gradgen.compile(path, feed="w")(X, B)["y"], X @ WEIGHT + B)


def test_a_model_too_large_for_one_message(scratch_cache, monkeypatch):
    monkeypatch.setattr(session, "PROTO_LIMIT", 1)
    np.testing.assert_array_equal(gradgen.compile(linear())(X, B)["y"], X @ WEIGHT + B)


def test_options_reach_the_session():
    step = gradgen.compile(linear(), threads=1, spin=False)
    options = step.session.get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"
    assert not options.enable_mem_pattern
    assert isinstance(step.session, onnxruntime.InferenceSession)
    assert "x: (float)['N', 3]" in repr(step)
