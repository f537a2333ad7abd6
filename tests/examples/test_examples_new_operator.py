from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_new_operator_is_defined_printed_tuned_and_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.new_operator", "--trials", "5", "--db", str(tmp_path / "t.sqlite")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "squares[i<128] = sum[k<768] (in0[i, k] * in0[i, k])" in done.stdout
    assert "vectorize for squares.rf.k.i" in done.stdout
    assert "tuned: 5 trials, 0 failed" in done.stdout
    assert "(exact: " in done.stdout
    error = re.search(r"largest error against NumPy: (\S+)", done.stdout)
    assert error is not None
    assert float(error[1]) < 1e-5


def test_the_example_is_about_a_hundred_lines() -> None:
    assert len((ROOT / "examples" / "new_operator.py").read_text().splitlines()) <= 105
