"""Tree ensembles as scikit-learn, XGBoost and LightGBM export them, against ONNX Runtime: one row, and a thousand.

python -m benchmarks.forests --write FOLDER   train and export them: needs scikit-learn, skl2onnx, onnxmltools, lightgbm
python -m benchmarks.forests FOLDER           time what lies there
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import autotune
from benchmarks.report import Report, Row, parser, progress

FEATURES, SAMPLES = 30, 5000
ROWS = (1, 1000)
ROUNDS = 30
CALLS = 64
"""Calls of an engine in its turn, at most; each has rows of its own: no branch is known from the call before."""
BLOCK_SECONDS = 0.005
PROMISED = 2.0
METHOD = (
    "Both engines in one process, one thread each, blocks of runs in turn, other data in every run of a block; "
    f"medians. Random separable data of {FEATURES} features, models trained on {SAMPLES} rows. Error: largest "
    "difference over the largest value."
)


def write(folder: Path) -> None:
    """Train each kind with its own library, and save what its exporter makes.

    Raises:
        ImportError: a library is missing.
    """
    import lightgbm
    import xgboost
    from onnxmltools.convert import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from skl2onnx import to_onnx
    from sklearn.datasets import make_classification, make_regression
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    x, classes = make_classification(SAMPLES, FEATURES, n_informative=20, n_classes=3, random_state=0)
    z, values = make_regression(SAMPLES, FEATURES, n_informative=20, random_state=0)
    x, z, two = x.astype(np.float32), z.astype(np.float32), (classes > 0).astype(int)
    types = [("input", FloatTensorType([None, FEATURES]))]
    quiet = {"verbose": -1, "random_state": 0}
    models: dict[str, Callable[[], onnx.ModelProto]] = {
        "sklearn_classifier_100": lambda: to_onnx(
            RandomForestClassifier(100, random_state=0).fit(x, classes), x[:1], options={"zipmap": False}
        ),
        "sklearn_regressor_500_depth_10": lambda: to_onnx(
            RandomForestRegressor(500, max_depth=10, random_state=0).fit(z[:2000], values[:2000]), z[:1]
        ),
        "xgboost_classifier_1000_depth_6": lambda: convert_xgboost(
            xgboost.XGBClassifier(n_estimators=1000, max_depth=6).fit(x, two), initial_types=types
        ),
        "xgboost_regressor_300_depth_8": lambda: convert_xgboost(
            xgboost.XGBRegressor(n_estimators=300, max_depth=8).fit(z, values), initial_types=types
        ),
        "lightgbm_classifier_500": lambda: convert_lightgbm(
            lightgbm.LGBMClassifier(n_estimators=500, **quiet).fit(x, two), initial_types=types, zipmap=False
        ),
        "lightgbm_regressor_1000": lambda: convert_lightgbm(
            lightgbm.LGBMRegressor(n_estimators=1000, **quiet).fit(z, values), initial_types=types
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in models.items():
        progress(name)
        onnx.save(make(), folder / f"{name}.onnx")


def measure(path: Path, rows: int) -> Row:
    """Medians of both engines, and how far apart their floats are."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    ours = autotune.InferenceSession(str(path), target="native -num-cores=1", database=False)
    rng, data = np.random.default_rng(0), peer.get_inputs()[0].name
    calls = [{data: 2 * rng.standard_normal((rows, FEATURES), dtype=np.float32)} for _ in range(CALLS)]
    error = max(_error(ours.run(None, feeds), peer.run(None, feeds)) for feeds in calls)
    start = time.perf_counter()
    peer.run(None, calls[0])
    runs = min(max(1, round(BLOCK_SECONDS / (time.perf_counter() - start))), CALLS)
    found = {"ours": list[float](), "onnxruntime": list[float]()}
    for _ in range(ROUNDS):
        for name, engine in (("ours", ours), ("onnxruntime", peer)):
            begin = time.perf_counter()
            for feeds in calls[:runs]:
                engine.run(None, feeds)
            found[name].append((time.perf_counter() - begin) / runs)
    mine, other = (statistics.median(seconds) * 1e6 for seconds in found.values())
    return {"model": path.stem, "rows": rows, "ours µs": mine, "onnxruntime µs": other, "ratio": other / mine,
            "error": error}  # fmt: skip


def _error(ours: list[Any], theirs: list[NDArray[Any]]) -> float:
    pairs = [(a, b) for a, b in zip(ours, theirs) if isinstance(b, np.ndarray) and b.dtype.kind == "f"]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def main(arguments: list[str] | None = None) -> int:
    options = parser("forests", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("folder", type=Path, nargs="?", help="with the models")
    options.add_argument("--write", type=Path, metavar="FOLDER", help="train and export the models there")
    given = options.parse_args(arguments)
    if given.write:
        try:
            write(given.write)
        except ImportError as error:
            options.error(f"{error}: pip install scikit-learn skl2onnx onnxmltools xgboost lightgbm")
        return 0
    paths = sorted(given.folder.glob("*.onnx")) if given.folder else []
    if not paths:
        options.error("name a folder with models; --write makes them")
    report = Report("forests", METHOD, given.quick)
    for path in paths[:1] if given.quick else paths:
        for rows in ROWS:
            row = measure(path, rows)
            report.table("latency", [row])
            report.claim(f"{path.stem}, {rows} rows", float(row["ratio"] or 0), "at least", PROMISED, "x")
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
