"""Sliding windows over images: how many positions, and which sides they overhang."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ops.checks import require
from autotune.tensor.expr import Const, Expr, Read, read
from autotune.tensor.stage import Tensor


def window_count(
    op: str, size: int, kernel: int, stride: int, dilation: int, before: int, after: int, side: str, up: bool = False
) -> int:
    """Number of window positions along one side.

    With `up` (ceil_mode) a last partial window counts too, unless it would start in the padding after the image.

    Raises:
        WorkloadError: when not even one window fits.
    """
    window = (kernel - 1) * dilation + 1
    padded = size + before + after
    require(window <= padded, f"{op}: a window of {window} does not fit into the padded {side} {padded}")
    count = (padded - window) // stride + 1
    if up and (padded - window) % stride and count * stride < size + before:
        count += 1
    return count


def position(o: Expr, stride: int, tap: Expr, dilation: int, before: int) -> Expr:
    """Where tap `tap` of window `o` lies: `o*stride + tap*dilation - before`."""
    at = o if stride == 1 else o * stride
    if not (isinstance(tap, Const) and tap.value == 0):
        at = at + (tap if dilation == 1 else tap * dilation)
    return at - before if before else at


def overhang(size: int, count: int, kernel: int, stride: int, dilation: int, before: int) -> tuple[bool, bool]:
    """Whether any window reads before the image, and after it."""
    return before > 0, (count - 1) * stride + (kernel - 1) * dilation - before >= size


def image_element(
    x: Tensor, n: Expr, c: Expr, y: Expr, z: Expr, sides: Sequence[tuple[bool, bool]],
    otherwise: float | int | bool = 0,
) -> Read:  # fmt: skip
    """x[n, c, y, z], or `otherwise` outside of the image; only the sides that overhang are tested."""
    inside: Expr | None = None
    for at, extent, (before, after) in zip((y, z), x.shape[2:], sides, strict=True):
        for needed, condition in ((before, at >= 0), (after, at < extent)):
            if needed:
                inside = condition if inside is None else inside & condition
    return read(x, (n, c, y, z), when=inside, otherwise=otherwise)
