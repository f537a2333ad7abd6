"""The C interface of a model: names, types and the header."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from autotune.errors import InputError
from autotune.runtime.program import Program, TensorSpec

_C_TYPES = {
    "f32": "float", "f64": "double", "bool": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t",
    **{f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
}  # fmt: skip
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long"
    " register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
    " bool catch class delete export friend mutable namespace new operator private protected public template this"
    " throw true false try using virtual asm typeof".split()
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input or output of `run`: its name in C, what it is, and the names of inputs that may be the same memory."""

    name: str
    spec: TensorSpec
    over: tuple[str, ...] = ()

    @property
    def c_type(self) -> str:
        return _C_TYPES[self.spec.dtype]

    @property
    def about(self) -> str:
        """Its type with its shape, as `float[1][3][224][224]`, and its name in the model where that differs."""
        dims = "".join(f"[{extent}]" for extent in self.spec.shape)
        form = {"f16": "half floats, ", "bf16": "bfloat16, "}.get(self.spec.dtype, "")
        origin = "" if self.spec.name == self.name else f", '{_comment(self.spec.name)}' of the model"
        over = f"; given {' or '.join(self.over)}, it is updated in place" if self.over else ""
        return f"{form}{self.c_type}{dims}{origin}{over}"


@dataclass(frozen=True, slots=True)
class Interface:
    """What a library exports. `prefix` begins every symbol, so that several models can be linked together."""

    prefix: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]

    @classmethod
    def of(cls, program: Program, prefix: str) -> Interface:
        """The interface of a program.

        Raises:
            InputError: the prefix is no C identifier.
        """
        if not re.fullmatch(r"[A-Za-z]\w*", prefix, re.ASCII) or prefix in _KEYWORDS:
            raise InputError(f"{prefix!r} is no prefix for C symbols: use letters, digits and _, a letter first")
        outputs = [spec for spec, _ in program.outputs]
        names = iter(identifiers([spec.name for spec in (*program.inputs, *outputs)], {"model", prefix}))
        inputs = tuple(Parameter(next(names), spec) for spec in program.inputs)
        over = [tuple(inputs[i].name for i, o in program.updates if o == n) for n in range(len(outputs))]
        found = tuple(Parameter(next(names), spec, same) for spec, same in zip(outputs, over, strict=True))
        return cls(prefix, inputs, found)

    @property
    def run_signature(self) -> str:
        """The declaration of `run`, without a semicolon."""
        given = [f"const {p.c_type} *{p.name}" for p in self.inputs] + [f"{p.c_type} *{p.name}" for p in self.outputs]
        return f"int {self.prefix}_run({', '.join([f'{self.prefix} *model', *given])})"

    @property
    def exports(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}_{name}" for name in ("create", "destroy", "run", "error", "variant"))

    def header(self, title: str, threads: int) -> str:
        """The C header, which C++ takes, too.

        Args:
            title: what the library was made of and for, a line.
            threads: of a run.
        """
        p, guard = self.prefix, f"{self.prefix.upper()}_H"
        sizes = [
            f"#define {p.upper()}_{q.name.upper()}_ELEMENTS {math.prod(q.spec.shape)}"
            for q in (*self.inputs, *self.outputs)
        ]
        listed = [f" *   {q.name:<16} in   {q.about}" for q in self.inputs]
        listed += [f" *   {q.name:<16} out  {q.about}" for q in self.outputs]
        lines = [
            f"/* {_comment(title)}", " * Made by autotune; link with the library.", " */",
            f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", "",
            "#ifdef __cplusplus", 'extern "C" {', "#endif", "", *sizes, "",
            f"/* A model that is ready to run: memory, and {threads - 1} threads beside the caller's. */",
            f"typedef struct {p} {p};", "",
            f"/* NULL when it cannot be had: {p}_error() says why. */", f"{p} *{p}_create(void);", "",
            f"void {p}_destroy({p} *model);", "",
            "/* One inference; tensors are row-major, and no output may overlap an input, unless it says so.", *listed,
            " * One run at a time for each object: make several for several threads.",
            f" * 0, or -1: {p}_error() says why. */", f"{self.run_signature};", "",
            "/* Why the last call in this thread failed, in one line. */", f"const char *{p}_error(void);", "",
            "/* The CPU for which the code in use was compiled. */", f"const char *{p}_variant(void);", "",
            "#ifdef __cplusplus", "}", "#endif", "#endif", "",
        ]  # fmt: skip
        return "\n".join(lines)


def identifiers(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """C identifiers for names, all different: what is no letter or digit becomes `_`, and equal ones are numbered.

    Args:
        taken: identifiers that none of them may be.
    """
    found: list[str] = []
    for name in names:
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        if not base or not base[0].isalpha():
            base = f"t_{base}".rstrip("_")
        if base in _KEYWORDS or base in taken:
            base += "_"
        unique, number = base, 1
        while unique.lower() in {other.lower() for other in found}:
            number += 1
            unique = f"{base}_{number}"
        found.append(unique)
    return found


def require_same(interfaces: Sequence[Interface]) -> Interface:
    """The one interface of all variants. Raises InputError when they differ."""
    if any(other != interfaces[0] for other in interfaces):
        raise InputError("the variants of a library need the same inputs and outputs: compile one model for all")
    return interfaces[0]


def _comment(text: str) -> str:
    """Text that cannot end a comment, in one line."""
    return re.sub(r"[^ -~]", "?", text).replace("*/", "* /").replace("/*", "/ *")
