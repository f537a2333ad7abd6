"""Sliding windows over images: how many positions, and which sides they overhang."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ops.checks import require
from autotune.tensor.expr import Const, Expr, Read, read
from autotune.tensor.stage import Tensor


def sides_of(rank: int) -> tuple[str, ...]:
    """What the spatial dimensions of an image are called."""
    return ("depth", "height", "width")[3 - rank :] if rank <= 3 else tuple(f"dimension {d}" for d in range(rank))


def window_count(
    op: str, size: int, kernel: int, stride: int, dilation: int, before: int, after: int, side: str, up: bool = False
) -> int:
    """Number of window positions along one side.

    With `up` (ceil_mode) a last partial window counts too, be it the only one, unless it would start in the padding
    after the image. An image without elements may have no position.

    Raises:
        WorkloadError: when not even one window fits.
    """
    window = (kernel - 1) * dilation + 1
    padded = size + before + after
    fits = window <= padded or (up and size > 0 and window - padded < stride)
    require(fits or not size, f"{op}: a window of {window} does not fit into the padded {side} {padded}")
    if not fits:
        return 0
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


def taps_inside(size: int, count: int, kernel: int, stride: int, dilation: int, before: int) -> int:
    """How many taps of all windows along an axis read the image, not what is around it."""
    return sum(0 <= o * stride + r * dilation - before < size for o in range(count) for r in range(kernel))


def inside(at: Sequence[Expr], extents: Sequence[int], sides: Sequence[tuple[bool, bool]]) -> Expr | None:
    """Whether a position lies in the image; only the sides that overhang are tested, None when none does."""
    found: Expr | None = None
    for place, extent, (before, after) in zip(at, extents, sides, strict=True):
        for needed, condition in ((before, place >= 0), (after, place < extent)):
            if needed:
                found = condition if found is None else found & condition
    return found


def image_element(
    x: Tensor, n: Expr, c: Expr, at: Sequence[Expr], sides: Sequence[tuple[bool, bool]],
    otherwise: float | int | bool = 0,
) -> Read:  # fmt: skip
    """x[n, c, *at], or `otherwise` outside of the image; only the sides that overhang are tested."""
    return read(x, (n, c, *at), when=inside(at, x.shape[2:], sides), otherwise=otherwise)
