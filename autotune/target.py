"""`Target`: the CPU, its features and caches, and the number of threads that code is made and measured for."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from autotune import cpus, machine
from autotune.arguments import checked
from autotune.core import Core, vector_bits_of
from autotune.cores import core_of, core_of_host
from autotune.errors import TargetError

_AVX2 = frozenset({"avx2", "fma"})

# Features that only the system or an explicit intrinsic of ours could use: LLVM never selects them from our IR, and
# kernels and hypervisors hide or show them at will. They are no part of the code's identity.
_NOT_FOR_CODE = frozenset(
    """
    cldemote clflushopt clwb clzero enqcmd fsgsbase fxsr hreset invpcid kl lwp movdir64b movdiri movrs mwaitx pconfig
    pku prefetchi ptwrite raoint rdpid rdpru rdrnd rdseed rtm serialize sgx shstk tsxldtrk uintr usermsr waitpkg
    wbnoinvd widekl xsave xsavec xsaveopt xsaves
    """.split()
)
_FORM = "write 'native' or 'x86 [-mcpu=NAME] [-num-cores=N]'"


@dataclass(frozen=True, slots=True)
class Target:
    """What code is made for. Equal targets may exchange code and measured times.

    Attributes:
        arch: 'x86_64'.
        cpu: LLVM's name of the CPU; picks LLVM's instruction costs.
        features: the instruction set features that code may use, LLVM's names, sorted. Exact: those left out are off.
        num_threads: threads that run one kernel together.
        l1_bytes, l2_bytes, l3_bytes: data caches as one core sees them.
        core: what one core does in a cycle; it decides what is chosen untuned.

    Raises:
        TargetError: not x86-64, no AVX2 and FMA, a core without multiply-adds, or fewer than one thread.
    """

    arch: str
    cpu: str
    features: tuple[str, ...]
    num_threads: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    core: Core

    def __post_init__(self) -> None:
        if self.arch != "x86_64":
            raise TargetError(f"architecture {self.arch!r} is not supported: autotune makes code for x86_64")
        missing = sorted(_AVX2 - set(self.features))
        if missing:
            raise TargetError(f"CPU {self.cpu!r} lacks {' and '.join(missing)}: autotune needs AVX2 and FMA at least")
        kinds = [(kind, bits) for kind in ("fma.f32", "fma.f64") for bits in (128, 256, self.vector_bits)]
        unknown = [f"{kind} of {bits} bits" for kind, bits in kinds if self.core.pipe(kind, bits) is None]
        if unknown:
            raise TargetError(f"the core of CPU {self.cpu!r} says nothing of {unknown[0]}, which its features have")
        if self.num_threads < 1:
            raise TargetError(f"num-cores is {self.num_threads}, and must be at least 1")

    @classmethod
    def parse(cls, text: str | Target | None = None) -> Target:
        """The target that a text names: "native" or "x86" for this CPU (as None is), "x86 -mcpu=haswell -num-cores=2".

        Left out, the CPU and its features are this machine's, and so is the number of threads: the cores that the
        affinity mask and the CPU quota allow. The caches are always this machine's, since it does the measuring;
        a target that describes another machine comes from there, by `to_json`.

        Raises:
            TargetError: malformed, an unknown CPU or one without AVX2 and FMA, or this is not Linux on x86-64.
        """
        if isinstance(text, Target):
            return text
        if text is not None and not isinstance(text, str):
            raise TargetError(f"a target is a text or a Target, not {text!r}; {_FORM}")
        host = machine.this_machine()
        options = _parse_options("native" if text is None else text)
        cpu = options.get("-mcpu", "native")
        if cpu == "native":
            cpu, features, core = host.cpu, host.features, core_of_host(host, machine.environment())
        elif cpu in cpus.CPUS:
            features = cpus.features_of(cpu)
            core = core_of(cpu, features)
        else:
            raise TargetError(
                f"-mcpu={cpu}: LLVM knows no such CPU with AVX2 and FMA{_suggest(cpu, cpus.CPUS)}; "
                "`autotune machine` names this one"
            )
        return cls(
            arch="x86_64",
            cpu=cpu,
            features=tuple(sorted(set(features) - _NOT_FOR_CODE)),
            num_threads=_parse_cores(options["-num-cores"]) if "-num-cores" in options else host.allowed_cores,
            l1_bytes=host.caches.l1_bytes,
            l2_bytes=host.caches.l2_bytes,
            l3_bytes=host.caches.l3_bytes,
            core=core,
        )

    @checked
    def with_threads(self, num_threads: int) -> Target:
        """The same CPU with another number of threads."""
        return replace(self, num_threads=num_threads)

    def at_home(self) -> Target:
        """The same; where its core is this machine's, with all that is known here of that, which no text tells."""
        own = core_of_host(machine.this_machine(), machine.environment())
        return replace(self, core=own) if own == self.core else self

    def __repr__(self) -> str:
        return f"<Target {self}>"

    def __str__(self) -> str:
        return f"x86 -mcpu={self.cpu} -num-cores={self.num_threads}"

    @property
    def llvm_features(self) -> str:
        """The features in LLVM's form, those that are off named too, so that the CPU's name brings none back."""
        off = [name for name in machine.known_features() if name not in {*self.features, *_NOT_FOR_CODE}]
        # LLVM reads left to right, and "+x" switches on all that x implies: what is off comes last, so it wins
        return ",".join([f"+{name}" for name in self.features] + [f"-{name}" for name in off])

    @property
    def vector_bits(self) -> int:
        """Width of the widest vectors to use: 512 with AVX-512 F, VL, BW and DQ, else 256."""
        return vector_bits_of(self.features)

    @property
    def num_vector_registers(self) -> int:
        """Vector registers that code can name: 32 with AVX-512, else 16."""
        return 32 if self.vector_bits == 512 else 16

    def lanes(self, dtype_bytes: int) -> int:
        """Elements of `dtype_bytes` bytes in one vector."""
        return self.vector_bits // (8 * dtype_bytes)

    def residency(self, weight_bytes: int) -> str:
        """Where a model's weights are between two inferences: "L2", "L3" or "DRAM"; "" when they are said to be warm.

        Times measured in one class say little about another, so it is part of a record's identity.
        """
        if weight_bytes == 0:
            return ""
        if weight_bytes <= self.l2_bytes:
            return "L2"
        return "L3" if weight_bytes <= self.l3_bytes else "DRAM"

    def has(self, *features: str) -> bool:
        """Whether code may use all of these features."""
        return set(features) <= set(self.features)

    def missing_features(self) -> tuple[str, ...]:
        """The features that code for this target may use and this machine's CPU lacks."""
        return machine.lacking_features(self.features)

    def runs_on_host(self) -> bool:
        """Whether this machine's CPU has every feature of the target."""
        return not self.missing_features()

    def require_host(self) -> None:
        """Refuse to run code for this target where the CPU would stop at an unknown instruction.

        Raises:
            TargetError: names the features that this machine's CPU lacks.
        """
        missing = self.missing_features()
        if missing:
            raise TargetError(
                f"{self} needs {', '.join(missing)}, which this machine's {machine.cpu_name()} lacks: "
                "run it on such a CPU, or use -mcpu=native"
            )

    @property
    def key(self) -> str:
        """Identity for records, e.g. 'x86_64-znver4-t2-0123456789ab': readable first, then a hash of all fields, but
        for where the core's figures are from."""
        return _key(self)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces; equal targets give equal bytes."""
        return _to_json(self)

    @classmethod
    @checked
    def from_json(cls, text: str) -> Target:
        """The target that `to_json` wrote; one from before targets had a core gets what is known of its CPU.

        Raises:
            TargetError: not JSON, fields missing or unknown, or of the wrong type.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise TargetError(f"target is not JSON: {error}") from None
        names = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or {*values, "core"} != names:
            raise TargetError(f"target JSON must be an object with exactly {', '.join(sorted(names))}")
        features = values["features"]
        strings = [values["arch"], values["cpu"], *(features if isinstance(features, list) else [None])]
        numbers = [value for name, value in values.items() if name not in {"arch", "cpu", "features", "core"}]
        if not (all(type(value) is str for value in strings) and all(type(value) is int for value in numbers)):
            raise TargetError("target JSON: arch, cpu and each feature are strings, caches and threads whole numbers")
        core = Core.from_values(values["core"], "given") if "core" in values else core_of(values["cpu"], features)
        return cls(**{**values, "features": tuple(sorted(set(features))), "core": core})


@functools.lru_cache(maxsize=64)  # every trial asks, of the same few
def _to_json(target: Target) -> str:
    values = {**asdict(target), "core": target.core.to_values()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


@functools.lru_cache(maxsize=64)
def _key(target: Target) -> str:
    digest = hashlib.sha256(_to_json(target).encode()).hexdigest()
    return f"{target.arch}-{target.cpu}-t{target.num_threads}-{digest[:12]}"


def _parse_options(text: str) -> dict[str, str]:
    """The options of a target text: {"-mcpu": "haswell", "-num-cores": "2"}."""
    first, *rest = text.split() or [""]
    if first not in {"x86", "native"}:
        raise TargetError(f"unknown target {first!r}{_suggest(first, ['x86', 'native'])}; {_FORM}")
    options: dict[str, str] = {}
    for word in rest:
        name, _, value = word.partition("=")
        if name not in {"-mcpu", "-num-cores"}:
            suggestion = _suggest(name, ["-mcpu", "-num-cores"])
            raise TargetError(f"unknown target option {name!r} in {text!r}{suggestion}; {_FORM}")
        if not value:
            raise TargetError(f"target option {name!r} has no value in {text!r}; {_FORM}")
        if name in options:
            raise TargetError(f"target option {name!r} is given twice in {text!r}; give it once")
        options[name] = value
    return options


def _parse_cores(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1024):
        raise TargetError(f"-num-cores={text}: write a whole number from 1 to 1024")
    return int(text)


def _suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
