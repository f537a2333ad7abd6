"""Linear attention: a matrix of state per head that every token decays, corrects and is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import floating, integer, number, require
from autotune.ops.precision import sum_dtype
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, cast, const, read, unary
from autotune.tensor.recurrences import recurrence, state
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

EXTRAS = ("past", "decay", "beta")


@operator("linear_attention", operands="q k v e0? e1? e2?", extras="", scale=1.0, result=0)
def linear_attention(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """S[t] = decayed + k[t] ⊗ u, and scale · q[t]ᵀ S[t] for each token t; the state starts as `past`, or zero.

    q, k, v are (batch, tokens, heads, features); groups of query heads share a state. `extras` names the other
    operands, in order: "past" (batch, heads, key features, value features), "decay" (batch, tokens, heads, key features
    or 1): decayed is S[t-1] · exp(decay); "beta" (batch, tokens, heads or 1): u is beta · (v - decayedᵀ k), else v.
    `result`: 0 what the tokens read, in q's dtype; 1 the last state, in that of `past` or else of q.
    """
    q, k, v, *others = inputs
    names = tuple(str(attrs["extras"]).split(",")) if attrs["extras"] else ()
    known = names == tuple(e for e in EXTRAS if e in names) and len(names) == len(others)
    require(known, f"linear_attention: extras={names} for {len(others)} more operands; they are from {EXTRAS}")
    for t, name in ((q, "q"), (k, "k"), (v, "v")):
        floating("linear_attention", t)
        require(len(t.shape) == 4, f"linear_attention: {name} must be 4-D, got shape {t.shape}")
    rows = _Tokens(q, k, v, dict(zip(names, others, strict=True)))
    which = integer("linear_attention", attrs, "result")
    require(which in (0, 1), f"linear_attention: result={which} must be 0 or 1")
    return rows.last() if which else rows.read(number("linear_attention", attrs, "scale"))


class _Tokens:
    """The stages, over token t, batch b, head h, key feature i and value feature j."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, extra: Mapping[str, Tensor]) -> None:
        self.q, self.k, self.v, self.extra = q, k, v, extra
        self.batch, self.tokens, self.heads, self.width = k.shape
        self.wide = sum_dtype(q.dtype)
        self.shape = (self.tokens, self.batch, self.heads, self.width, v.shape[3])
        same = v.shape[:3] == k.shape[:3] and q.shape[:2] == k.shape[:2] and q.shape[3] == self.width
        same = same and self.heads > 0 and q.shape[2] % self.heads == 0
        require(same, f"linear_attention: q, k, v of shapes {q.shape}, {k.shape}, {v.shape} do not fit together")
        fits: dict[str, list[tuple[int, ...]]] = {
            "past": [(self.batch, self.heads, self.width, v.shape[3])],
            "decay": [(*k.shape[:3], n) for n in (1, self.width)],
            "beta": [(self.batch, self.tokens, n) for n in (1, self.heads)],
        }
        for name, t in extra.items():
            floating("linear_attention", t)
            require(t.shape in fits[name], f"linear_attention: {name} of shape {t.shape} must be one of {fits[name]}")

    def _steps(self) -> tuple[Tensor, Tensor]:
        """The state after each token, and what the token reads from it: of the states only the last one is kept."""
        old = state(self.shape, self.wide, "linear_state")

        def before(t: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            earlier: Expr = read(old, (t - 1, b, h, i, j), when=t >= 1, otherwise=0.0)
            if "past" in self.extra:
                given = read(self.extra["past"], (b, h, i, j), when=t < 1, otherwise=0.0)
                earlier = earlier + cast(self.wide, given)
            if "decay" not in self.extra:
                return earlier
            decay = self.extra["decay"]
            rate = cast(self.wide, decay[b, t, h, i if decay.shape[3] > 1 else 0])
            return earlier * unary("exp", rate)

        decayed = compute(self.shape, before, "linear_decayed")

        def key(t: Expr, b: Expr, h: Expr, i: Expr) -> Expr:
            return cast(self.wide, self.k[b, t, h, i])

        written = None
        if "beta" in self.extra:
            i = reduce_axis(self.width, "i")
            known = compute(
                (*self.shape[:3], self.shape[4]),
                lambda t, b, h, j: sum_(decayed[t, b, h, i, j] * key(t, b, h, i.var), i),
                "linear_known",
            )
            beta = self.extra["beta"]

            def correction(t: Expr, b: Expr, h: Expr, j: Expr) -> Expr:
                rate = cast(self.wide, beta[b, t, h if beta.shape[2] > 1 else 0])
                return rate * (cast(self.wide, self.v[b, t, h, j]) - known[t, b, h, j])

            written = compute(known.shape, correction, "linear_written")

        def after(t: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            value = cast(self.wide, self.v[b, t, h, j]) if written is None else written[t, b, h, j]
            return decayed[t, b, h, i, j] + key(t, b, h, i) * value

        new = compute(self.shape, after, "linear_state")
        group, i = self.q.shape[2] // self.heads, reduce_axis(self.width, "i")

        def found(t: Expr, b: Expr, h: Expr, j: Expr) -> Reduction:
            return sum_(cast(self.wide, self.q[b, t, h, i]) * new[t, b, h // group if group > 1 else h, i, j], i)

        shape = (self.tokens, self.batch, self.q.shape[2], self.v.shape[3])
        read_ = compute(shape, found, "linear_read")
        states, seen = recurrence([old], [new], [read_], name="linear_attention")
        return states, seen

    def read(self, scale: float) -> Tensor:
        """What each token reads from its state."""
        _, seen = self._steps()
        shape = (*self.q.shape[:3], self.v.shape[3])
        return compute(shape, lambda b, t, h, j: cast(self.q.dtype, seen[t, b, h, j] * scale), "linear_attention")

    def last(self) -> Tensor:
        """The state after the last token."""
        past = self.extra.get("past")
        own = self.q.dtype if past is None else past.dtype
        if self.tokens:
            states, _ = self._steps()
            return compute(self.shape[1:], lambda *at: cast(own, states[(self.tokens - 1, *at)]), "linear_attention")
        if past is not None:
            return compute(self.shape[1:], lambda *at: past[at], "linear_attention")
        return compute(self.shape[1:], lambda *at: const(0.0, own), "linear_attention")
