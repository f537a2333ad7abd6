"""A conversation: each turn brings some new tokens behind all that was said, ours and ONNX Runtime in turn.

python -m benchmarks.turns                  GPT-2, 24 turns of 3 to 120 tokens
python -m benchmarks.turns llama --turns 40 --threads 2

The caches are those before by Concat, as exporters of transformers write them; a turn's tokens come in one run, then
three single ones follow. No turn is as long as the one before, so whoever has a program for each shape has to wait.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

from autotune.api.session import InferenceSession
from benchmarks.decode import MASK, MODELS, POSITIONS, TOKENS, product_of
from benchmarks.decode_caches import SIZES, Plain, onnxruntime_session
from benchmarks.report import Report, Row, parser, progress

TURN, AFTER = (3, 120), 3
WAITED = 4.0
"""A turn waited for a program where it took so many times as long as ONNX Runtime's."""
METHOD = (
    "Random seeded weights, f32, one sequence, all in one process, an object cache as it is found. Each turn is one "
    "run of its tokens behind all before, by ours, then by ONNX Runtime, each with its own caches; {AFTER} single "
    "tokens follow. A turn waited where it took {WAITED} times ONNX Runtime's time or more. Error: largest difference "
    "of the logits, of their range."
)


def main(arguments: list[str] | None = None) -> int:
    options = parser("turns", __doc__)
    options.add_argument("model", nargs="?", choices=SIZES, default="gpt2")
    options.add_argument("--turns", type=int, default=24)
    options.add_argument("-t", "--threads", type=int, default=1)
    given = options.parse_args(arguments)
    report = Report("turns", METHOD.format(AFTER=AFTER, WAITED=WAITED), given.quick)
    size = SIZES[given.model]
    with tempfile.TemporaryDirectory(prefix="autotune-turns-") as folder:
        path = Path(folder) / "model.onnx"
        model = MODELS[given.model](product_of("f32"), None, size)
        onnx.save(model, path)
        pasts = [value.name for value in model.graph.input if value.name.startswith("past")]
        ours = Plain(InferenceSession(path, target=f"native -num-cores={given.threads}", database=False).run)
        peer = Plain(onnxruntime_session(str(path), given.threads).run)
    engines, rng, length = (ours, peer), np.random.default_rng(0), 0
    for engine in engines:
        engine.start({name: np.zeros((1, size.heads, 0, size.width // size.heads), np.float32) for name in pasts})
    rows: list[Row] = []
    for turn in range(3 if given.quick else given.turns):
        count, found, errors = int(rng.integers(TURN[0], TURN[1] + 1)), list[list[float]](), list[float]()
        for tokens in (count, *[1] * AFTER):
            feeds = {
                TOKENS: rng.integers(0, size.vocabulary, (1, tokens)),
                MASK: np.ones((1, length + tokens), np.int64),
                POSITIONS: np.arange(length, length + tokens)[None],
            }
            logits, seconds = [], []
            for engine in engines:
                begin = time.perf_counter()
                logits.append(engine.step(feeds))
                seconds.append(time.perf_counter() - begin)
            found.append(seconds)
            errors.append(float(np.abs(logits[0] - logits[1]).max() / np.ptp(logits[1])))
            length += tokens
        (mine, theirs), steps = found[0], found[1:]
        rows.append(
            {"turn": turn, "behind": length - count - AFTER, "tokens": count, "autotune ms": mine * 1e3,
             "onnxruntime ms": theirs * 1e3, "times": theirs / mine,
             "a token": statistics.median(b / a for a, b in steps), "error": max(errors)}
        )  # fmt: skip
        progress(f"turn {turn}")
    report.table(f"{given.model}, {given.threads} threads", rows)
    times = [float(str(row["times"])) for row in rows]
    waited = sum(one < 1 / WAITED for one in times)
    where = f"{given.model}, {given.threads} threads"
    report.claim(f"{where}: turns that waited for a program", float(waited), "at most", len(rows) / 4)
    others = statistics.median(one for one in times if one >= 1 / WAITED)
    report.claim(f"{where}: other turns, onnxruntime's time over ours, median", others, "at least", 1.0, "x")
    report.claim(f"{where}: error", max(float(str(row["error"])) for row in rows), "at most", 1e-4)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
