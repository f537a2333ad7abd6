"""Staged files: a model, and the programs that runs of it led to, so that who opens one compiles nothing for such runs.

The form is that of `runtime.sealed`. Weights of the model and packed ones are parts: what several programs read, or
what is packed as the model has it, is there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from autotune.codegen.host_objects import host_objects
from autotune.codegen.own_objects import bring
from autotune.compiler.compile import CompiledModel, KernelReport
from autotune.compiler.foreseen import Extents, Foreseen
from autotune.compiler.precision import Precise
from autotune.compiler.programs import Known, Made
from autotune.compiler.weights import PackedWeights
from autotune.errors import CompiledModelError, WorkloadError
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.source import Source
from autotune.graph.frontend.whole_source import from_bytes, to_bytes
from autotune.graph.ir import Array
from autotune.ops.workload import Workload
from autotune.records import Tier
from autotune.runtime.constants import Constants
from autotune.runtime.file_head import damaged, require_cpu, write_whole_file
from autotune.runtime.program import Program
from autotune.runtime.sealed import Parts, Sealed, read_header, read_sealed, write_sealed
from autotune.runtime.signature import Signer, Trust
from autotune.target import Target
from autotune.tensor.dtype import DType


@dataclass(frozen=True)
class StagedFile:
    """A model that is made ready, as `compile_staged` gives it.

    Attributes:
        source: the model, with all its data.
        target: in JSON.
        options: of `api.load`, that decide what programs are: texts, numbers and lists.
        fixed: inputs that are constants.
        shapes: that it is ready for.
        made: its programs, by the keys of their graphs.
    """

    source: Source
    target: str
    options: Mapping[str, Any]
    fixed: Mapping[str, Array]
    shapes: Foreseen
    made: Mapping[str, Made]

    @cached_property
    def programs(self) -> tuple[CompiledModel, ...]:
        """In the order of their keys."""
        return tuple(self.made[key].program for key in sorted(self.made))

    @property
    def weight_bytes(self) -> int:
        """Of the packed weights of all programs; what several read counts once."""
        held = {place: n for program in self.programs for place, n in program.constants.memory.items()}
        return sum(held.values())

    @property
    def model_bytes(self) -> int:
        """Of the model, its weights included."""
        return int(self.source.proto.ByteSize()) + sum(data.nbytes for data in self.source.weights.values())

    def save(self, path: str | Path, sign: str | Path | None = None) -> None:
        """Write one file, which holds the model, too: it runs where autotune is installed as a whole.

        Args:
            sign: a private Ed25519 key, in PEM, to sign the file with.

        Raises:
            CompiledModelError: the file cannot be written. InputError: the key cannot be used.
            ModelError: the model is too large to be written.
        """
        signer = None if sign is None else Signer.load(sign)
        write_whole_file(Path(path), lambda file: self.write(file, signer))

    def write(self, file: BinaryIO, signer: Signer | None = None) -> None:
        """`save` to an open file that is at its beginning; OSError when it takes no more."""
        parts = Parts()
        header = {
            "target": self.target,
            "options": self.options,
            "model": parts.add(to_bytes(self.source)),
            "weights": [[place, parts.add(data)] for place, data in sorted(self.source.weights.items())],
            "fixed": [[name, *_form(a), parts.add(_bytes(a))] for name, a in sorted(self.fixed.items())],
            "shapes": {"exact": self.shapes.exact, "ranged": self.shapes.ranged},
            "own": [[key, parts.add(code)] for key, code in sorted(host_objects().items())],
            "programs": {key: _to_json(made, parts) for key, made in sorted(self.made.items())},
        }
        write_sealed(file, header, parts, signer)


@dataclass(frozen=True)
class OpenedFile:
    """A staged file that was checked: what `StagedFile` has, and the programs when they are asked for."""

    source: Source
    target: str
    options: Mapping[str, Any]
    fixed: Mapping[str, Array]
    shapes: Foreseen
    _programs: Known = field(repr=False)
    _weights: PackedWeights = field(repr=False)
    _contents: Mapping[int, bytes] = field(repr=False)

    def known(self, model: OnnxModel) -> Known:
        """The programs for the parsed model, whose weights need not be hashed: the file has done so."""
        for place, contents in self._contents.items():
            array = model.initializers[self.source.proto.graph.initializer[place].name]
            if array.dtype != np.bool_ and array.nbytes == self.source.weights[place].nbytes:  # as they lie in the file
                self._weights.tell(array, contents)
        return self._programs


def open_file(path: Path, trust: Trust | None = None) -> OpenedFile:
    """Read a staged file and check it: signature, checksum, version, CPU. Its own host operators are brought then.

    Raises:
        CompiledModelError: missing, damaged, of another kind or version, made for another CPU, or not signed as `trust`
            asks.
    """
    sealed = read_sealed(path, trust)
    header = sealed.header
    try:
        require_cpu(path, header["target"])
        contents = {int(place): bytes.fromhex(sealed.digests[number]) for place, number in header["weights"]}
        fixed = {name: _array(dtype, shape, sealed.parts[number]) for name, dtype, shape, number in header["fixed"]}
        found = PackedWeights()
        programs = {key: partial(_from_json, path, one, sealed) for key, one in header["programs"].items()}
        opened = OpenedFile(
            _source(sealed), header["target"], header["options"], fixed,
            Foreseen(_extents(header["shapes"]["exact"]), _extents(header["shapes"]["ranged"])),
            Known(programs, found), found, contents,
        )  # fmt: skip
        bring({key: sealed.parts[number].tobytes() for key, number in header["own"]})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise damaged(path) from error
    return opened


def source_of(path: Path) -> Source:
    """The model of a staged file, of which nothing is run. Raises as `open_file`, but for the CPU."""
    sealed = read_sealed(path)
    try:
        return _source(sealed)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise damaged(path) from error


def target_of(path: Path) -> Target:
    """What the programs of a staged file are for. Raises CompiledModelError as `open_file`, but for the CPU."""
    header, _ = read_header(path)
    return Target.from_json(header["target"])


def _source(sealed: Sealed) -> Source:
    weights = {int(place): sealed.parts[number] for place, number in sealed.header["weights"]}
    return from_bytes(sealed.parts[sealed.header["model"]].tobytes(), weights)


def _to_json(made: Made, parts: Parts) -> dict[str, Any]:
    program = made.program
    constants = program.constants
    return {
        "names": made.names,
        "plan": program.program.to_json(),
        "objects": [parts.add(code) for code in program.objects],
        "runtime": parts.add(program.runtime),
        "constants": [constants.nbytes, [[s, parts.add(a)] for s, a in zip(constants.starts, constants.parts)]],
        "kernels": [[k.workload.to_json(), k.config, k.tier.value, k.reason, k.seconds, k.nbytes, k.origins, k.error]
                    for k in program.kernels],
        "least": program.arena_lower_bound,
        "precise": asdict(program.precise),
    }  # fmt: skip


def _from_json(path: Path, one: Mapping[str, Any], sealed: Sealed) -> Made:
    try:
        nbytes, places = one["constants"]
        constants = Constants(nbytes, tuple(s for s, _ in places), tuple(sealed.parts[number] for _, number in places))
        kernels = tuple(
            KernelReport(Workload.from_json(w), config, Tier(tier), reason, seconds, size, tuple(origins), error)
            for w, config, tier, reason, seconds, size, origins, error in one["kernels"]
        )
        program = CompiledModel(
            Program.from_json(one["plan"]), tuple(sealed.parts[number].tobytes() for number in one["objects"]),
            constants, sealed.parts[one["runtime"]].tobytes(), kernels, one["least"], Precise(**one["precise"]),
        )  # fmt: skip
        reads, writes = one["names"]
        return Made(program, (tuple(reads), tuple(writes)))
    except (KeyError, IndexError, TypeError, ValueError, WorkloadError, CompiledModelError) as error:
        raise damaged(path) from error


def _extents(data: Sequence[Mapping[str, int]]) -> tuple[Extents, ...]:
    return tuple({str(symbol): int(extent) for symbol, extent in one.items()} for one in data)


def _form(array: Array) -> tuple[str, list[int]]:
    return DType.of(array.dtype).value, list(array.shape)


def _bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _array(dtype: str, shape: Sequence[int], data: Array) -> Array:
    found: Array = data.view(DType(dtype).numpy)
    return found.reshape(shape)
