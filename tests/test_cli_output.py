# Standard output that cannot be written: a line on standard error and exit code 2, whatever the command.
"""Tests of commands whose output goes to a full device; exit code 1 would say that a gradient is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import DIGITS

FULL = Path("/dev/full")
ASKED = [str(DIGITS), "--of", "loss", "--wrt", "fc.bias"]


@pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(
    "command",
    [
        ["verify", *ASKED],
        ["verify", *ASKED, "--json"],
        ["grad", *ASKED, "-o", "-"],
        ["grad", *ASKED, "--check", "-o", "g.onnx"],
        ["parameters", str(DIGITS)],
        ["coverage"],
        ["--help"],
    ],
    ids=lambda command: command[0] + (f" {command[-1]}" if len(command) > 2 else ""),
)
def test_a_full_device_is_one_line(tmp_path, command):
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradgen", *command], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("gradgen: ") and line.endswith("No space left on device")
