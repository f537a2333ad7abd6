"""Attention: scores, mask, softmax and values as one operator; and the rotation of positions that goes before it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import flag, floating, integer, integers, number, require, word
from autotune.ops.precision import sum_dtype
from autotune.ops.registry import Needed, operator
from autotune.ops.softmax import falling_power
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Read, binary, cast, const, maximum, minimum, read, select, unary
from autotune.tensor.stage import Reduction, Tensor, compute, largest_, reduce_axis, sum_

HEADS_FIRST = "bhsd,bhsd,bhsd,bhsd"
EXTRAS = ("mask", "lengths")


@dataclass(frozen=True, slots=True)
class Heads:
    """One of the operands q, k, v: a 4-D tensor whose dimensions come in the order of the letters of `order`."""

    tensor: Tensor
    order: str
    first: int

    def extent(self, letter: str) -> int:
        return self.tensor.shape[self.order.index(letter)]

    def at(self, b: Expr, h: Expr, s: Expr, d: Expr, when: Expr | None = None) -> Read:
        """The element of batch b, head h (counted from `first`), position s, feature d; 0 unless `when` holds."""
        index = {"b": b, "h": h + self.first if self.first else h, "s": s, "d": d}
        return read(self.tensor, tuple(index[letter] for letter in self.order), when=when)


@operator(
    "attention",
    operands="q k v mask? lengths?",
    extras="",
    q_heads=Needed.integer,
    kv_heads=Needed.integer,
    first=(0, 0, 0),
    order=HEADS_FIRST,
    scale=1.0,
    softcap=0.0,
    causal=False,
    offset=0,
    window=(-1, -1),
    precision="",
    empty_zero=True,
    fill=-math.inf,
    result=0,
)
def attention(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """softmax(softcap(scale q·k) + mask) · v over heads; query head h reads key and value head h // group.

    Each of q, k, v and the result is 4-D; its word in `order` names its dimensions: b(atch), h(ead), s(equence), d
    (feature). `first` is where the heads of q, k, v begin in their operands: one tensor may hold all three.
    `extras` names the other operands, in order: "mask" (bool: who takes part, and `fill` stands in for the scores of
    the others; else added; it broadcasts to (batch, heads, queries, keys), and missing last keys are masked), "lengths"
    (keys of each batch that count). The position of query i is i + `offset` (with lengths: so that the last query is at
    the last key); `causal` masks later keys, `window` = (left, right) those further away, -1 leaves a side open.
    Softmax works in `precision`, "" for q's own. With `empty_zero` a row without keys left gives zeros, else NaN.
    `result`: 0 the values; 1 to 4 scores (batch, heads, queries, keys): scaled, capped, masked, softmax.
    """
    rows = _Rows(inputs, attrs)
    which = integer("attention", attrs, "result")
    require(0 <= which <= 4, f"attention: result={which} must be 0 to 4")
    if 1 <= which <= 3:
        return rows.scores(which)
    return rows.probabilities() if which == 4 else rows.values()


class _Rows:
    """The stages of one attention, over batch b, head h, query i, key j and feature d."""

    def __init__(self, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> None:
        op = "attention"
        order = tuple(str(attrs["order"]).split(","))
        extras = tuple(str(attrs["extras"]).split(",")) if attrs["extras"] else ()
        require(len(order) == 4 and all(sorted(o) == sorted("bhsd") for o in order),
                f"attention: order={order} must be four permutations of bhsd")  # fmt: skip
        require(extras == tuple(e for e in EXTRAS if e in extras), f"attention: extras={extras} must be from {EXTRAS}")
        require(len(inputs) == 3 + len(extras), f"attention: {len(inputs)} operands for extras={extras}")
        for t, name in zip(inputs, "qkv", strict=False):
            floating(op, t)
            require(len(t.shape) == 4, f"attention: {name} must be 4-D, got shape {t.shape}")
        first = integers(op, attrs, "first", 3, 0)
        self.q, self.k, self.v = (Heads(t, o, f) for t, o, f in zip(inputs, order, first, strict=False))
        self.order = str(order[3])
        self.extra = dict(zip(extras, inputs[3:], strict=True))
        self.heads, self.kv_heads = integer(op, attrs, "q_heads", 0), integer(op, attrs, "kv_heads", 1)
        self.batch, self.queries, self.keys = self.q.extent("b"), self.q.extent("s"), self.k.extent("s")
        self._check()
        self.scale, self.softcap = number(op, attrs, "scale"), number(op, attrs, "softcap")
        self.causal, self.offset = flag(op, attrs, "causal"), integer(op, attrs, "offset")
        self.window = integers(op, attrs, "window", 2, -1)
        self.empty_zero, self.fill = flag(op, attrs, "empty_zero"), number(op, attrs, "fill")
        known = ("", *(d.value for d in DType if d.is_float))
        self.precision = DType(word(op, attrs, "precision", known) or self.q.tensor.dtype)
        self.wide = sum_dtype(DType.f64 if self.precision is DType.f64 else self.q.tensor.dtype)
        self.shape = (self.batch, self.heads, self.queries, self.keys)

    def _check(self) -> None:
        for t, name, count in ((self.q, "q", self.heads), (self.k, "k", self.kv_heads), (self.v, "v", self.kv_heads)):
            fits = t.first + count <= t.extent("h") and t.extent("b") == self.batch
            require(
                fits, f"attention: {name} of shape {t.tensor.shape} lacks {count} heads from {t.first} on, or batches"
            )
        require(self.heads % self.kv_heads == 0, f"attention: {self.heads} query heads for {self.kv_heads} key heads")
        same = self.q.extent("d") == self.k.extent("d") and self.v.extent("s") == self.keys
        shapes = ", ".join(str(t.tensor.shape) for t in (self.q, self.k, self.v))
        require(same, f"attention: q, k, v of shapes {shapes} do not fit together")
        if "mask" in self.extra:
            own = self.extra["mask"].shape
            fits = 1 <= len(own) <= 4 and own[-1] <= self.keys
            lead = (self.batch, self.heads, self.queries)[4 - len(own) :]
            fits = fits and all(n in (1, e) for n, e in zip(own[:-1], lead, strict=True))
            require(fits, f"attention: a mask of shape {own} for {self.batch} batches, {self.heads} heads, "
                          f"{self.queries} queries, {self.keys} keys")  # fmt: skip
        if "lengths" in self.extra:
            lengths = self.extra["lengths"]
            fits = lengths.dtype is DType.i64 and lengths.shape == (self.batch,)
            require(fits, f"attention: lengths must be i64({self.batch},), got {lengths.dtype}{lengths.shape}")

    def _kv_head(self, h: Expr) -> Expr:
        group = self.heads // self.kv_heads
        return h // group if group > 1 else h

    def _there(self, b: Expr, j: Expr) -> Expr | None:
        """Whether key j counts: what lies behind those of a batch need not even be numbers. None where all do."""
        return j < self.extra["lengths"][b] if "lengths" in self.extra else None

    def _products(self) -> Tensor:
        d = reduce_axis(self.q.extent("d"), "d")

        def body(b: Expr, h: Expr, i: Expr, j: Expr) -> Reduction:
            left, right = self.q.at(b, h, i, d.var), self.k.at(b, self._kv_head(h), j, d.var)
            return sum_(cast(self.wide, left) * cast(self.wide, right), d)

        return compute(self.shape, body, "attention_products")

    def _capped(self, product: Expr, level: int) -> Expr:
        value = product * self.scale if self.scale != 1.0 else product
        if level >= 2 and self.softcap:
            value = unary("tanh", value * (1 / self.softcap)) * self.softcap
        return value

    def scores(self, level: int) -> Tensor:
        """The scores before softmax; `level` as `result` of the operator: 1 scaled, 2 capped, 3 masked."""
        products, own = self._products(), self.q.tensor.dtype

        def body(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            value = self._capped(products[b, h, i, j], level)
            return cast(own, self._masked(value, b, h, i, j) if level == 3 else value)

        return compute(self.shape, body, "attention")

    def _masked(self, value: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        """`value` plus the mask. What is masked for good never comes through, were it infinite or NaN."""
        never = const(-math.inf, value.dtype)
        if "mask" in self.extra:
            mask = self.extra["mask"]
            lead = (b, h, i)[4 - len(mask.shape) :]
            at = (*(e if n > 1 else 0 for e, n in zip(lead, mask.shape[:-1], strict=True)), j)
            within = j < mask.shape[-1] if mask.shape[-1] < self.keys else None
            lowest = False if mask.dtype is DType.bool else -math.inf if mask.dtype.is_float else 0
            given = read(mask, at, when=within, otherwise=lowest)
            if mask.dtype is DType.bool:
                value = select(given, value, const(self.fill, value.dtype))
                if within is not None and self.fill != -math.inf:
                    value = select(within, value, never)
            else:
                added = cast(value.dtype, given)
                value = select(binary("eq", added, never), never, value + added) if self.empty_zero else value + added
                if within is not None and not mask.dtype.is_float:
                    value = select(within, value, never)
        for allowed in self._positions(b, i, j):
            value = select(allowed, value, never)
        return value

    def _positions(self, b: Expr, i: Expr, j: Expr) -> list[Expr]:
        """Conditions under which query i may look at key j."""
        found: list[Expr] = []
        here = i + self.offset if self.offset else i
        if "lengths" in self.extra:
            length = self.extra["lengths"][b]
            here = i + (length - self.queries)
            found += [there] if (there := self._there(b, j)) is not None else []
        left, right = self.window
        if self.causal:
            found.append(j <= here)
        if left >= 0:
            found.append(here - left <= j)
        if right >= 0:
            found.append(j <= here + right)
        return found

    @property
    def _may_be_empty(self) -> bool:
        """Whether every key of a row may be masked: then its maximum is -inf, its sum 0."""
        ahead = self.causal and self.offset < 0
        far = max(self.window) >= 0
        return self.empty_zero and (bool(self.extra) or ahead or far or not self.keys)

    def _powers(self) -> tuple[Tensor, Tensor]:
        """exp(score - largest of the row), and 1 / sum of the row."""
        rows = self.shape[:3]
        products = self._products()

        def logit(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            value = self._masked(self._capped(products[b, h, i, j], 2), b, h, i, j)
            narrow = self.precision.bytes < self.wide.bytes and self.precision is not self.q.tensor.dtype
            return cast(self.wide, cast(self.precision, value)) if narrow else cast(self.wide, value)

        logits = compute(self.shape, logit, "attention_logits")
        j = reduce_axis(self.keys, "j")
        largest = compute(rows, lambda b, h, i: largest_(logits[b, h, i, j], j), "attention_max")

        def power(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            top: Expr = largest[b, h, i]
            if self._may_be_empty:
                top = select(binary("eq", top, -math.inf), 0.0, top)
            return falling_power(logits[b, h, i, j] - top, self.keys)

        powers = compute(self.shape, power, "attention_exp")
        total = compute(rows, lambda b, h, i: sum_(powers[b, h, i, j], j), "attention_sum")

        def inverse(b: Expr, h: Expr, i: Expr) -> Expr:
            value = 1.0 / total[b, h, i]
            return select(binary("eq", total[b, h, i], 0.0), 0.0, value) if self._may_be_empty else value

        return powers, compute(rows, inverse, "attention_scale")

    def probabilities(self) -> Tensor:
        """Softmax of each row, in q's dtype."""
        powers, scale = self._powers()
        own = self.q.tensor.dtype
        return compute(self.shape, lambda b, h, i, j: cast(own, powers[b, h, i, j] * scale[b, h, i]), "attention")

    def values(self) -> Tensor:
        """Sums of value rows weighted by the powers, divided by the rows' sums at the end, in the result's order.

        Powers are f32, and of bf16 operands rounded to that before they are multiplied, as instructions for pairs want.
        """
        own = self.q.tensor.dtype
        powers, scale = self._powers()
        weights, keys = powers, self.keys
        if own is DType.bf16:
            weights = self._narrowed(powers)
            keys = weights.shape[3]
        j = reduce_axis(keys, "j")
        extents = {"b": self.batch, "h": self.heads, "s": self.queries, "d": self.v.extent("d")}
        shape = tuple(extents[letter] for letter in self.order)

        def named(index: Sequence[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
            at = dict(zip(self.order, index, strict=True))
            return at["b"], at["h"], at["s"], at["d"]

        def summed(*index: Expr) -> Reduction:
            b, h, i, d = named(index)
            there = self._there(b, j.var)
            if keys > self.keys:
                there = j.var < self.keys if there is None else binary("and", there, j.var < self.keys)
            row = self.v.at(b, self._kv_head(h), j.var, d, there)
            return sum_(cast(self.wide, weights[b, h, i, j]) * cast(self.wide, row), j)

        sums = compute(shape, summed, "attention_values", list(self.order))

        def scaled(*index: Expr) -> Expr:
            b, h, i, _ = named(index)
            return cast(own, sums[index] * scale[b, h, i])

        return compute(shape, scaled, "attention", list(self.order))

    def _narrowed(self, powers: Tensor) -> Tensor:
        """The powers as factors of 16 bits, as many for each row as make whole pairs: the last may be zero."""
        own, pairs = self.q.tensor.dtype, self.keys + self.keys % 2

        def narrow(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            there = j < self.keys if pairs > self.keys else None
            return cast(own, read(powers, (b, h, i, j), when=there))

        return compute((*self.shape[:3], pairs), narrow, "attention_weights")


@operator(
    "rotary", operands="data cos sin positions?", traits="rereads", order="bhsd", dim=Needed.integer, interleaved=False
)
def rotary(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Rotary position embedding: pairs of the first `dim` features turned by an angle that depends on the position.

    cos and sin are (batch or 1, sequence, dim/2), or (positions, dim/2) when `positions` (batch, sequence) chooses
    rows; or of `dim` values instead of dim/2, one per feature. The partner of a feature is dim/2 away, or its neighbour
    when `interleaved`.
    """
    x, cosine, sine, *positions = inputs
    own = floating("rotary", x)
    wide = sum_dtype(own)
    order, dim = str(attrs["order"]), integer("rotary", attrs, "dim", 0)
    interleaved = flag("rotary", attrs, "interleaved")
    ok = len(x.shape) == 4 and sorted(order) == sorted("bhsd")
    require(ok, f"rotary: order={order} does not fit data of shape {x.shape}")
    extents = dict(zip(order, x.shape, strict=True))
    half = dim // 2
    require(dim % 2 == 0 and dim <= extents["d"], f"rotary: dim={dim} must be even and at most {extents['d']}")
    single = not positions and cosine.shape[:1] == (1,)  # for all batches
    each = half > 0 and cosine.shape[-1:] == (dim,)  # feature
    rows = cosine.shape[:1] if positions else (1 if single else extents["b"], extents["s"])
    needed = (*rows, dim if each else half)
    for t, name in ((cosine, "cos"), (sine, "sin")):
        require(t.shape == needed and t.dtype is own, f"rotary: {name} is {t.dtype}{t.shape}, needs {own}{needed}")
    for t in positions:
        wanted = (extents["b"], extents["s"])
        fits = t.dtype in (DType.i32, DType.i64) and t.shape == wanted
        require(fits, f"rotary: positions must be integers of shape {wanted}, got {t.dtype}{t.shape}")
    if dim == 0:
        return compute(x.shape, lambda *i: x[i], "rotary")

    def body(*index: Expr) -> Expr:
        at = dict(zip(order, index, strict=True))
        d = at["d"]
        rotated = d < dim if dim < extents["d"] else None
        angle = d if each else d // 2 if interleaved else d % half
        partner = d + 1 - 2 * (d % 2) if interleaved else (d + half) % dim
        if rotated is not None:
            angle, partner = minimum(angle, needed[-1] - 1), minimum(partner, extents["d"] - 1)
        row: tuple[Expr | int, ...] = (0 if single else at["b"], at["s"])
        if positions:
            raw = cast(DType.i64, positions[0][at["b"], at["s"]])
            count = cosine.shape[0]
            row = (minimum(maximum(select(raw < 0, raw + count, raw), 0), count - 1),)
        other = x[tuple(partner if letter == "d" else e for letter, e in zip(order, index, strict=True))]
        is_first = binary("eq", d % 2, 0) if interleaved else d < half
        turned = cast(wide, other) * cast(wide, sine[(*row, angle)])
        value = cast(wide, x[index]) * cast(wide, cosine[(*row, angle)]) + select(is_first, -turned, turned)
        return cast(own, value) if rotated is None else select(rotated, cast(own, value), x[index])

    return compute(x.shape, body, "rotary")
