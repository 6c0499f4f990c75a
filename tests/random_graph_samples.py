# The samples of the rule tables, as what random graphs are drawn from.
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from table_samples import table_samples

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
    """The samples of the rule tables that have some content."""
    kept = {name: [s for s in samples if _has_content(s)] for name, samples in table_samples().items()}
    return {name: samples for name, samples in kept.items() if samples}


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
