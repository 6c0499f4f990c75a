# The samples of the rule tables, as what random graphs are drawn from.
from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import gradgen.rules
from gradgen.samples import Built, Sample, build

# Not drawn: two ops have no CPU kernel in onnxruntime, one is the standard's from opset 17 on, and of one, which
# onnxruntime's optimiser writes into the standard domain, no checker knows.
LEFT_OUT = {
    "com.microsoft::BiasAdd",
    "com.microsoft::BiasSoftmax",
    "onnxruntime::LayerNormalization",
    "onnxruntime::SimplifiedLayerNormalization",
}


@cache
def table() -> dict[str, list[Sample]]:
    """The samples of every op that has some, by op type (domain in front where it is not the standard's)."""
    found: dict[str, list[Sample]] = {}
    for path in sorted(Path(gradgen.rules.__file__).parent.glob("*.toml")):
        for key, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            name, _, since = key.partition("@")
            domain, _, op_type = name.rpartition("::")
            settings = {k: entry[k] for k in ("range", "avoid", "tolerance") if k in entry}
            samples = [
                Sample("" if domain == "ai.onnx" else domain, op_type, int(since or 1), i, spec, settings)
                for i, spec in enumerate(entry.get("samples", ()))
            ]
            kept = [s for s in samples if _has_content(s)]
            if kept:
                found.setdefault(name.removeprefix("ai.onnx::"), []).extend(kept)
    return found


def _has_content(sample: Sample) -> bool:
    try:
        built = built_sample(sample)
    except Exception:  # the generated tests of the sample say what is wrong with it
        return False
    floats = {n: a for n, a in built.feeds.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    return len(floats) == len(built.feeds) > 0 and all(a.size for a in floats.values())


class _Carrier:
    """Carries a sample past a cache whose key is its place in the table."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Carrier)


def built_sample(sample: Sample) -> Built:
    """The sample as a float32 model of one node."""
    return _build(sample.domain, sample.op_type, sample.since, sample.index, _Carrier(sample))


@cache
def _build(domain: str, op_type: str, since: int, index: int, carrier: _Carrier) -> Built:
    return build(carrier.sample, np.float32)


def smallest_opset(op: str) -> int:
    """The first opset that some sample of an op runs in."""
    return min(s.opset for s in table()[op])


def setting(sample: Sample, key: str, name: str, default: Any) -> Any:
    setting = sample.settings.get(key, default)
    return setting.get(name, default) if isinstance(setting, dict) else setting
