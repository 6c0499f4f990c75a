# The samples of the rule tables, as tests draw on them.
from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import gradgen
from gradgen.samples import Sample


@cache
def table_samples() -> dict[str, list[Sample]]:
    """The samples of every op that has some, by op type (domain in front where it is not the standard's)."""
    found: dict[str, list[Sample]] = {}
    for path in sorted((Path(gradgen.__file__).parent / "rules").glob("*.toml")):
        for key, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            name, _, since = key.partition("@")
            name = name.removeprefix("ai.onnx::")
            domain, _, op_type = name.rpartition("::")
            settings = {k: entry[k] for k in ("range", "avoid", "tolerance") if k in entry}
            for i, spec in enumerate(entry.get("samples", ())):
                found.setdefault(name, []).append(Sample(domain, op_type, int(since or 1), i, spec, settings))
    return found
