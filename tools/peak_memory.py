"""The peak memory of a call, for the scripts beside this one."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def resident() -> int:
    """The resident size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_of(step: Callable[[], Any], repeats: int = 10) -> int:
    """The highest resident size while steps run, above the size before them, in bytes."""
    gc.collect()
    before, done, highest = resident(), threading.Event(), 0

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.0002):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(repeats):
        kept = step()
    done.set()
    watcher.join()
    del kept
    return max(highest, resident()) - before
