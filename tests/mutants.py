# Mutants of models: bytes that are flipped, cut and spliced, and fields that are changed, each by a seed.
"""Makes broken models for tests/test_fuzz.py; run as a script, it feeds a range of them to gradgen."""

from __future__ import annotations

import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message

DATA = Path(__file__).parent / "data"
CASES = (
    "act_softmax", "cnn_small", "cond_taken_true", "conv2d_groups", "convtranspose2d", "embedding", "einsum_attn",
    "gru_uni", "groupnorm_op21", "grid_sample_border", "index_put_acc", "half_roundtrip", "interp_trilinear_ac0",
    "avgpool2d_ceil_exclude", "bcast_all", "cumsum_reverse_excl", "clamp_tensor", "ce_weight", "diagonal", "amin_all",
)  # fmt: skip
LIMIT_SECONDS, LIMIT_BYTES = 10, 3 << 29  # of one mutant; of the process with all that it has imported
NUMBERS = (0, 1, 2, 3, 7, 10, 11, 16, 17, 100, -1, -2, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63))


def seeds() -> list[bytes]:
    """The models that mutants are made of."""
    files = [DATA / "mlp_static.onnx", DATA / "cnn_dynamic.onnx"]
    files += [DATA / "torch_cases" / name / "model.onnx" for name in CASES]
    return [path.read_bytes() for path in files if path.stat().st_size < 40_000]


def mutant(number: int, models: list[bytes]) -> bytes:
    """The mutant of a number: the same in every run."""
    rng = random.Random(number)
    content = rng.choice(models)
    if rng.random() < 0.35:
        return rng.choice(BYTE_MUTATIONS)(rng, content, models)
    proto = onnx.load_model_from_string(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        rng.choice(FIELD_MUTATIONS)(rng, proto)
    return proto.SerializeToString()


def _flip(rng: random.Random, content: bytes, _: list[bytes]) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 2, 8, 40))):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def _cut(rng: random.Random, content: bytes, _: list[bytes]) -> bytes:
    return content[: rng.randrange(len(content))]


def _splice(rng: random.Random, content: bytes, models: list[bytes]) -> bytes:
    other = rng.choice(models)
    return content[: rng.randrange(len(content))] + other[rng.randrange(len(other)) :]


def _drop(rng: random.Random, content: bytes, _: list[bytes]) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.choice((1, 2, 16)) :]


def _messages(proto: Message) -> Iterator[Message]:
    """A message and all in it."""
    yield proto
    for field, value in proto.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _all(proto: onnx.ModelProto, kind: type) -> list:
    return [m for m in _messages(proto) if isinstance(m, kind)]


def _names(proto: onnx.ModelProto) -> list[str]:
    found = {n for node in _all(proto, onnx.NodeProto) for n in (*node.input, *node.output)}
    return sorted(found | {v.name for v in _all(proto, onnx.ValueInfoProto)} | {"", "new"})


def _input(rng: random.Random, proto: onnx.ModelProto) -> None:
    node = rng.choice(_all(proto, onnx.NodeProto) or [onnx.NodeProto()])
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(proto))


def _output(rng: random.Random, proto: onnx.ModelProto) -> None:
    node = rng.choice(_all(proto, onnx.NodeProto) or [onnx.NodeProto()])
    if node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(_names(proto))


def _operator(rng: random.Random, proto: onnx.ModelProto) -> None:
    schemas = onnx.defs.get_all_schemas()
    node = rng.choice(_all(proto, onnx.NodeProto) or [onnx.NodeProto()])
    node.op_type = rng.choice([s.name for s in schemas if not s.domain])


def _size(rng: random.Random, proto: onnx.ModelProto) -> None:
    dims = _all(proto, onnx.TensorShapeProto.Dimension)
    if dims:
        rng.choice(dims).dim_value = rng.choice(NUMBERS)


def _stored(rng: random.Random, proto: onnx.ModelProto) -> None:
    tensors = _all(proto, onnx.TensorProto)
    if not tensors:
        return
    tensor = rng.choice(tensors)
    change = rng.randrange(5)
    if change == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif change == 1:
        tensor.data_type = rng.randrange(28)
    elif change == 2:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif change == 3 and tensor.raw_data:
        place = rng.randrange(len(tensor.raw_data))
        tensor.raw_data = tensor.raw_data[:place] + bytes([rng.randrange(256)]) + tensor.raw_data[place + 1 :]
    else:
        tensor.int64_data.append(rng.choice(NUMBERS))


def _type(rng: random.Random, proto: onnx.ModelProto) -> None:
    kinds = _all(proto, onnx.TypeProto.Tensor)
    if kinds:
        rng.choice(kinds).elem_type = rng.randrange(28)


def _attribute(rng: random.Random, proto: onnx.ModelProto) -> None:
    attributes = _all(proto, onnx.AttributeProto)
    if not attributes:
        return
    attribute = rng.choice(attributes)
    change = rng.randrange(5)
    if change == 0:
        attribute.i = rng.choice(NUMBERS)
    elif change == 1 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
    elif change == 2:
        attribute.ints.append(rng.choice(NUMBERS))
    elif change == 3:
        attribute.name = rng.choice(attributes).name
    else:
        attribute.s = rng.choice((b"", b"linear", b"SAME_UPPER", b"\xff", b"ij,jk->ik"))


def _remove(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Remove a field, or one element of it."""
    message = rng.choice([m for m in _messages(proto) if m.ListFields()] or [onnx.ModelProto(ir_version=1)])
    field, value = rng.choice(message.ListFields())
    if field.is_repeated and rng.random() < 0.8:
        del value[rng.randrange(len(value))]
    else:
        message.ClearField(field.name)


def _repeat(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Repeat an element of a field."""
    lists = [v for m in _messages(proto) for f, v in m.ListFields() if f.is_repeated]
    if lists:
        chosen = rng.choice(lists)
        chosen.append(rng.choice(list(chosen)))


def _version(rng: random.Random, proto: onnx.ModelProto) -> None:
    if rng.random() < 0.3 or not proto.opset_import:
        proto.ir_version = rng.choice((-1, 0, 1, 3, 4, 8, 13, 14, 99))
    else:
        rng.choice(proto.opset_import).version = rng.choice((-1, 0, 1, 6, 7, 9, 11, 13, 17, 18, 21, 23, 27, 99))


BYTE_MUTATIONS: list[Callable[[random.Random, bytes, list[bytes]], bytes]] = [_flip, _flip, _cut, _splice, _drop]
FIELD_MUTATIONS: list[Callable[[random.Random, onnx.ModelProto], None]] = [
    _input, _output, _operator, _size, _stored, _type, _attribute, _attribute, _remove, _repeat, _version,
]  # fmt: skip


def _valid(proto: onnx.ModelProto) -> bool:
    sizes = [d.dim_value for d in _all(proto, onnx.TensorShapeProto.Dimension)]
    if any(not 0 <= size < 2**31 for size in sizes):
        # onnx's inference of Slice ends the process at the one. Of the other its inference of Reshape and Concat makes
        # products and sums that overflow, in gradients as in models: its checker then refuses what is right.
        return False
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception:
        return False
    return True


def outcome(content: bytes) -> str:
    """What gradgen makes of a model: "refused", "differentiated", or a line that says what must not be."""
    import gradgen

    try:
        proto = onnx.load_model_from_string(content)
    except DecodeError:
        return "refused"
    try:
        result = gradgen.vjp(proto)
    except gradgen.GradientError as error:
        return "refused" if str(error).isprintable() or "\n" in str(error) else f"an unprintable message: {error!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    if not _valid(proto):
        return "differentiated"  # what is not valid may give what is not valid
    try:
        onnx.checker.check_model(result, full_check=True)
    except Exception as error:
        return f"the model is valid, its vjp is not: {error}"
    return "differentiated"


def main(first: int, last: int) -> None:
    """Print the outcome of each mutant; a line before each says which it is, should the process die."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    warnings.simplefilter("ignore")
    models = seeds()
    for number in range(first, last):
        content = mutant(number, models)
        print(number, end=" ", flush=True)
        signal.alarm(LIMIT_SECONDS)
        found = outcome(content)
        signal.alarm(0)
        print(" ".join(found.split())[:300], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
