from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SERVING = Path(__file__).parents[2] / "examples" / "serving"


def test_a_server_answers_many_clients_at_once() -> None:
    pytest.importorskip("mlserver")
    command = [sys.executable, str(SERVING / "check.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "200 right answers" in done.stdout
