"""What guards say about the values of quasi-affine forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from autotune.tensor.linear import UNBOUNDED, Div, Linear, Mod, Ranges

Facts = tuple[Linear, ...]

MAX_CASES = 256
"""Values of the variables inside divisions that are tried one by one."""


def least(form: Linear, ranges: Ranges, facts: Facts) -> int:
    """A lower bound of `form` where all `facts` are >= 0 (any number, when they never are)."""
    if any(fact.range(ranges)[1] < 0 for fact in facts):
        return UNBOUNDED[1]
    best = form.range(ranges)[0]
    if best >= 0 or not facts:
        return best
    plain = (*facts, *(without for fact in facts if (without := _linearised(fact)) != fact))
    return _least(form, ranges, plain, 3)


def least_by_cases(form: Linear, ranges: Ranges, facts: Facts) -> int:
    """`least`, for each value of those variables inside divisions that have the fewest.

    Quotients and remainders of one variable do not vary by themselves, but intervals know nothing of that: for p in
    0..2, 2 * ((2 * p) // 3) - p is -1 at least, and -2 by intervals.
    """
    inside = {name for term in form.terms if isinstance(term, (Div, Mod)) for name in term.arg.variables()}
    names: list[str] = []
    spans: list[tuple[int, int]] = []
    count = 1
    known_spans = ((*ranges.get(name, UNBOUNDED), name) for name in inside)
    for lo, hi, name in sorted(known_spans, key=lambda span: (span[1] - span[0], span[2])):
        if 1 <= (hi - lo + 1) * count <= MAX_CASES:
            names, spans, count = [*names, name], [*spans, (lo, hi)], (hi - lo + 1) * count
    if not names or form.is_opaque:
        return least(form, ranges, facts)

    def cases() -> Iterator[int]:
        for values in itertools.product(*(range(lo, hi + 1) for lo, hi in spans)):
            fixed = {name: Linear(value) for name, value in zip(names, values, strict=True)}
            known = tuple(fact.substitute(fixed, ranges) for fact in facts)
            yield least(form.substitute(fixed, ranges), ranges, known)

    return min(cases())


def _linearised(fact: Linear) -> Linear:
    """The same fact, or a weaker one, without quotients.

    x // d <= r means x <= d * r + d - 1, and x // d >= r means x >= d * r; when the quotient's factor does not
    divide the rest, what follows from x - d < d * (x // d) <= x.
    """
    for term, c in fact.terms.items():
        others = {t: x for t, x in fact.terms.items() if t != term}
        size = abs(c)
        if isinstance(term, Div) and any(x % size for x in others.values()):
            weaker = Linear(fact.const, others) * term.divisor + term.arg * c
            return _linearised(weaker if c > 0 else weaker + size * (term.divisor - 1))
        if isinstance(term, Div):
            rest = Linear(fact.const // size, {t: x // size for t, x in others.items()}) * term.divisor
            return _linearised(rest + term.arg if c > 0 else rest - term.arg + (term.divisor - 1))
    return fact


def _least(form: Linear, ranges: Ranges, facts: Facts, depth: int) -> int:
    best = _without_divisions(form, ranges, facts, depth)
    if depth == 0:
        return best
    for n, fact in enumerate(facts):
        others = facts[:n] + facts[n + 1 :]
        for term, c in fact.terms.items():
            k = form.terms.get(term, 0)
            if k * c > 0:
                # form * a = fact * b + rest, in which the term cancels, and fact >= 0.
                g = math.gcd(k, c)
                a, b = abs(c) // g, abs(k) // g
                rest = form * a - fact * b
                if len(rest.terms) < len(form.terms) + len(fact.terms):
                    best = max(best, -(-_least(rest, ranges, others, depth - 1) // a))
    return best


def _without_divisions(form: Linear, ranges: Ranges, facts: Facts, depth: int) -> int:
    """A lower bound, with one quotient after the other replaced by what the facts say of its numerator."""
    best = form.range(ranges)[0]
    for term, c in form.terms.items() if depth else ():
        if not isinstance(term, Div):
            continue
        # c * (arg // d) + c * r + rest = c * ((arg + d * r) // d) + rest
        others = {t: x for t, x in form.terms.items() if t != term}
        joined = Linear(form.const // c, {t: x // c for t, x in others.items() if x % c == 0})
        rest = Linear(form.const % c, {t: x for t, x in others.items() if x % c})
        whole, tail = term.arg + joined * term.divisor, _least(rest, ranges, facts, depth - 1)
        if c > 0:
            best = max(best, tail + c * (_least(whole, ranges, facts, depth - 1) // term.divisor))
        else:
            best = max(best, tail + c * (-_least(whole * -1, ranges, facts, depth - 1) // term.divisor))
    return best
