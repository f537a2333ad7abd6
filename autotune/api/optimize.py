"""`autotune.optimize`: from a model to a session that is as fast as a minute of tuning makes it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.api.fallback import check_fallback
from autotune.api.locate import DatabaseLike
from autotune.api.phase import TuneCallback
from autotune.api.session import InferenceSession
from autotune.api.tune import tune
from autotune.arguments import checked
from autotune.errors import UnsupportedError
from autotune.search import Budget
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

_log = logging.getLogger(__name__)


@checked
def optimize(
    model: ModelSource,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    budget: str | float | Budget = "1m",
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    precision: str = "model",
    max_error: float | None = None,
    fallback: str | None = None,
    callbacks: Sequence[TuneCallback] = (),
    progress: bool | None = None,
) -> InferenceSession:
    """Tune a model and make a session of it; called again, it goes on tuning where it stopped.

    Ctrl-C ends the tuning; the session then has what was found so far.

    Args:
        model: as for `InferenceSession`. target, database, budget, shapes, inputs, callbacks,
            progress: as for `tune`.
        strict_fp, precision, max_error: as for `compile`.
        fallback: "onnxruntime" has ONNX Runtime run what autotune does not support: see `InferenceSession`.

    Raises:
        ModelError, UnsupportedError, TargetError, DatabaseError, ConfigError, InputError: as for `tune`.
    """
    check_fallback(fallback)
    try:
        report = tune(
            model, target, database, budget=budget, shapes=shapes, inputs=inputs, callbacks=callbacks,
            progress=progress, strict_fp=strict_fp, precision=precision, max_error=max_error,
        )  # fmt: skip
        _log.info("tuned: %s", report.model)
    except UnsupportedError:
        if fallback is None:
            raise
    return InferenceSession(
        model, target=target, database=database, shapes=shapes, fallback=fallback,
        strict_fp=strict_fp, precision=precision, max_error=max_error,
    )  # fmt: skip
