"""Adapters for operators on images and for normalisations: Upsample, Resize, RoiAlign, BatchNormalization, …"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.engine.adapters import Edit, adapter


def _set_resize(edit: Edit, scales: ir.Value, nearest: str) -> None:
    """Make a Resize of the node, in the form of opset 13: what Upsample and Resize 10 compute is asymmetric."""
    mode = edit.pop("mode", "nearest")
    edit.node.op_type = "Resize"
    edit.node.attributes.clear()
    edit.set_attr("mode", mode)
    edit.set_attr("coordinate_transformation_mode", "asymmetric")
    if mode == "nearest":
        edit.set_attr("nearest_mode", nearest)
    edit.set_input(2, scales)
    edit.set_input(1, None)


@adapter()
def upsample_scales(edit: Edit) -> None:
    """Upsample 9: the scales become an input."""
    edit.set_input(1, edit.constant(edit.pop("scales"), "scales", ir.DataType.FLOAT))


def _upsample_mode(edit: Edit) -> str | None:
    mode = edit.attr("mode", "nearest")
    return None if mode in ("nearest", "linear") else f"mode '{mode}' is none of the standard's: use Resize"


@adapter(refuse=_upsample_mode)
def upsample_to_resize(edit: Edit) -> int:
    """Upsample 10: it is a Resize. Its scales are at least 1, so that the nearest element is the one below."""
    scales = edit.input(1)
    assert scales is not None
    _set_resize(edit, scales, "floor")
    return 11


@adapter(types=True)
def resize_asymmetric(edit: Edit) -> None:
    """Resize 11: coordinates and rounding are chosen by attributes.

    onnxruntime's Resize 10 is asymmetric; its nearest element is, axis by axis, the one below where the axis grows
    (scale at least 1) and the one above where it shrinks. Where both occur, or the scales are not known, one node
    becomes two; or Gathers where the sizes are known, because onnxruntime copies instead of resizing where a step
    leaves all sizes as they were, which for scales close to 1 is not the same.
    """
    scales = edit.input(1)
    assert scales is not None
    known = edit.static(1)
    grows = known is not None and bool((known >= 1).all())
    if edit.attr("mode", "nearest") != "nearest" or grows:
        _set_resize(edit, scales, "floor")
        return
    if known is not None and (known <= 1).all():
        _set_resize(edit, scales, "ceil")
        return
    sizes = edit.shape(0)
    if known is not None and sizes is not None:
        axes = [axis for axis, scale in enumerate(known) if scale != 1]
        if all(sizes[axis] is not None for axis in axes):
            _set_gathers(edit, axes, [sizes[axis] or 0 for axis in axes], known[axes].astype(np.float32))
            return
    one = edit.constant(1.0, "one", ir.DataType.FLOAT)
    up = edit.before("Max", [scales, one], "scales_up")
    down = edit.before("Min", [scales, one], "scales_down")
    grown = edit.before(
        "Resize",
        [edit.input(0), None, up],
        "grown",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    edit.set_input(0, grown)
    _set_resize(edit, down, "ceil")


def _set_gathers(edit: Edit, axes: list[int], sizes: list[int], scales: np.ndarray) -> None:
    """Make Gathers of a nearest Resize 10, one for each axis that changes; the node is the last of them."""
    value = edit.input(0)
    for axis, size, scale in zip(axes, sizes, scales, strict=True):
        position = np.arange(int(np.float32(size) * scale), dtype=np.float32) / scale
        nearest = np.floor(position) if scale >= 1 else np.ceil(position)
        indices = edit.constant(np.clip(nearest, 0, size - 1), f"rows_{axis}")
        if axis != axes[-1]:
            value = edit.before("Gather", [value, indices], f"axis_{axis}", axis=axis)
        else:
            edit.node.op_type = "Gather"
            edit.node.attributes.clear()
            edit.set_attr("axis", axis)
            edit.set_input(0, value)
            edit.set_input(1, indices)


def _resize_tf_half_pixel(edit: Edit) -> str | None:
    if edit.attr("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return None
    mode, nearest = edit.attr("mode", "nearest"), edit.attr("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and nearest in _TF_HALF_PIXEL:
        return None
    how = f"mode '{mode}'" + (f", nearest_mode '{nearest}'" if mode == "nearest" else "")
    return f"tf_half_pixel_for_nn with {how} cannot be expressed from opset 13 on: use half_pixel"


# With t = (i + 0.5) / scale, half_pixel's coordinate is t - 0.5: floor(t) is its rounding upwards at ties, and
# ceil(t - 0.5), t rounded downwards at ties, is its ceiling.
_TF_HALF_PIXEL = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


@adapter(refuse=_resize_tf_half_pixel)
def resize_optional_inputs(edit: Edit) -> None:
    """Resize 13: roi and scales may be absent, where they had to be empty; tf_half_pixel_for_nn is gone."""
    for index in (1, 2):
        value, content = edit.input(index), edit.static(index)
        if value is not None and ((content is not None and content.size == 0) or edit.shape(index) == [0]):
            edit.set_input(index, None)
    if edit.attr("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        edit.set_attr("coordinate_transformation_mode", "half_pixel")
        edit.set_attr("nearest_mode", _TF_HALF_PIXEL[edit.attr("nearest_mode", "round_prefer_floor")])


@adapter()
def roi_align_coordinates(edit: Edit) -> None:
    """RoiAlign 16: half_pixel became the default; before, regions were not shifted by half a pixel."""
    edit.set_attr("coordinate_transformation_mode", "output_half_pixel")


@adapter()
def grid_sample_modes(edit: Edit) -> None:
    """GridSample 20: bilinear and bicubic are called linear and cubic."""
    mode = edit.attr("mode", "bilinear")
    edit.set_attr("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


@adapter()
def mean_variance_axes(edit: Edit) -> None:
    """MeanVarianceNormalization 13: a function of the standard; inference fails in it where axes are not stated."""
    edit.set_attr("axes", list(edit.attr("axes", [0, 2, 3])))


def _untyped_data(edit: Edit) -> str | None:
    return "the element type of X is unknown: declare it on the graph's inputs" if edit.dtype(0) is None else None


@adapter(refuse=_untyped_data, types=True)
def group_norm_channels(edit: Edit) -> None:
    """GroupNormalization 21: scale and bias are per channel, not per group, and statistics have a type of their own.

    Version 18 computes in the data's type, which stash_type states.
    """
    groups, sizes, dtype = edit.attr("num_groups"), edit.shape(0), edit.dtype(0)
    assert dtype is not None
    column = edit.constant([groups, 1], "groups")
    if sizes is not None and sizes[1] is not None:
        repeat = edit.constant([1, sizes[1] // groups], "repeat")
    else:
        channels = edit.before("Shape", [edit.input(0)], "channels", start=1, end=2)
        size = edit.before("Div", [channels, edit.constant([groups], "num_groups")], "group_size")
        repeat = edit.before("Concat", [edit.constant([1], "one"), size], "repeat", axis=0)
    flat = edit.constant([-1], "flat")
    for index, name in ((1, "scale"), (2, "bias")):
        per_group = edit.before("Reshape", [edit.input(index), column], f"{name}_column")
        repeated = edit.before("Expand", [per_group, repeat], f"{name}_repeated")
        edit.set_input(index, edit.before("Reshape", [repeated, flat], f"{name}_per_channel"))
    edit.set_attr("stash_type", int(dtype))


def _trains(edit: Edit) -> bool:
    """Whether a BatchNormalization before 14 trains: it does where it has more outputs than Y."""
    return len(edit.node.outputs) > 1


def _batch_norm_per_feature(edit: Edit) -> str | None:
    if edit.attr("spatial", 1) == 0 and _trains(edit):
        return "spatial=0 in training mode has no counterpart: flatten X around a spatial one"
    return None


@adapter(refuse=_batch_norm_per_feature, types=True)
def batch_norm_spatial(edit: Edit) -> None:
    """BatchNormalization 9: one statistic per channel; before, spatial=0 asked for one per feature."""
    if edit.pop("spatial", 1):
        return
    target = edit.shape_of(0)
    edit.set_input(0, edit.before("Reshape", [edit.input(0), edit.constant([0, -1], "rows")], "flat"))
    flat = edit.constant([-1], "flat_shape")
    for index, name in enumerate(("scale", "bias", "mean", "var"), 1):
        edit.set_input(index, edit.before("Reshape", [edit.input(index), flat], f"{name}_flat"))
    edit.reshape_output(target)


def _batch_norm_rank(edit: Edit) -> str | None:
    if _trains(edit) and (edit.output(3) or edit.output(4)) and edit.shape(0) is None:
        return "the rank of X is unknown, which saved_mean and saved_var need: declare it on the graph's inputs"
    return None


@adapter(refuse=_batch_norm_rank, types=True)
def batch_norm_training(edit: Edit) -> None:
    """BatchNormalization 14: training is asked for by an attribute, and the saved statistics are no outputs.

    The saved statistics are computed beside the node. saved_var is what onnxruntime returns under that name:
    1 / sqrt(variance + epsilon).
    """
    if not _trains(edit):
        return
    edit.set_attr("training_mode", 1)
    saved = [edit.output(3), edit.output(4)]
    if any(saved):
        sizes, dtype = edit.shape(0), edit.dtype(0)
        assert sizes is not None
        axes = edit.constant([axis for axis in range(len(sizes)) if axis != 1], "axes")
        x = edit.input(0)
        mean = edit.before("ReduceMean", [x, axes], "batch_mean", keepdims=1)
        centred = edit.before("Sub", [x, mean], "centred")
        square = edit.before("Mul", [centred, centred], "square")
        var = edit.before("ReduceMean", [square, axes], "batch_var", keepdims=0)
        epsilon = edit.constant(edit.attr("epsilon", 1e-5), "epsilon", dtype or ir.DataType.FLOAT)
        std = edit.before("Sqrt", [edit.before("Add", [var, epsilon], "shifted")], "batch_std")
        results = (edit.before("Squeeze", [mean, axes], "mean"), edit.before("Reciprocal", [std], "inverse_std"))
        for old, new, hint in zip(saved, results, ("old_mean", "old_var"), strict=True):
            if old is not None:
                edit.take_over(old, new, hint)
    edit.node.resize_outputs(3)
    for value, hint in zip(edit.node.outputs[1:], ("running_mean", "running_var"), strict=True):
        value.name = value.name or edit.fresh(hint)  # inference insists on all three
