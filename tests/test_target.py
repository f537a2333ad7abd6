"""Targets: what a text means, what is refused, and that code gets exactly the features it may use."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autotune import machine
from autotune.codegen.jit import assembly
from autotune.core import core_of_features
from autotune.errors import TargetError
from autotune.machine import Caches, Machine
from autotune.target import Target
from autotune.topology import Cpu, Topology

# Wide vectors in, and the question is which registers come out.
DOUBLE = """
define void @double(ptr %p) {
  %x = load <16 x float>, ptr %p, align 64
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %p, align 64
  ret void
}
"""


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Another machine, shown in place of this one: a Skylake server of which three cores are allowed."""
    features = ("adx", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "fma", "pku", "xsave")
    caches = Caches(32 << 10, 1 << 20, 24 << 20)
    skylake = Machine(
        "skylake-avx512", "Xeon", features, caches, Topology(tuple(Cpu(n, n) for n in range(8))), 3.0, 3, 1 << 34
    )
    monkeypatch.setattr(machine, "this_machine", lambda: skylake)
    monkeypatch.setattr(machine, "cpu_features", lambda: features)
    return skylake


@pytest.mark.parametrize("text", ["x86", "native", None, "native -mcpu=native", " x86  "])
def test_the_host_is_described_by_itself(other: Machine, text: str | None) -> None:
    target = Target.parse(text)
    assert (target.arch, target.cpu, target.num_threads) == ("x86_64", other.cpu, 3)
    assert (target.l1_bytes, target.l2_bytes, target.l3_bytes) == (32 << 10, 1 << 20, 24 << 20)
    assert target.has("avx512f", "adx")
    assert not target.has("pku"), "what only the system uses is no part of the code's identity"


def test_options(other: Machine) -> None:
    target = Target.parse("x86 -mcpu=haswell -num-cores=2")
    assert (target.cpu, target.num_threads, target.l3_bytes) == ("haswell", 2, other.caches.l3_bytes)
    assert Target.parse("x86 -num-cores=2 -mcpu=haswell") == target
    assert Target.parse(str(target)) == target
    assert Target.parse(target) is target


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "unknown target ''"),
        ("x87", "unknown target 'x87'; did you mean x86"),
        ("cuda", "unknown target 'cuda'; write 'native'"),
        ("x86 haswell", "unknown target option 'haswell'"),
        ("x86 -mcp=haswell", "unknown target option '-mcp' .*did you mean -mcpu"),
        ("x86 -mcpu", "'-mcpu' has no value"),
        ("x86 -mcpu=", "'-mcpu' has no value"),
        ("x86 -mcpu=haswell -mcpu=znver4", "'-mcpu' is given twice"),
        ("x86 -mcpu=haswel", "did you mean haswell"),
        ("x86 -mcpu=znver99", "did you mean znver"),
        ("x86 -mcpu=generic", "knows no such CPU with AVX2"),
        ("x86 -mcpu=core2", "knows no such CPU with AVX2"),
        ("x86 -num-cores=0", "-num-cores=0: write a whole number from 1 to 1024"),
        ("x86 -num-cores=-1", "-num-cores=-1: write a whole number"),
        ("x86 -num-cores=two", "-num-cores=two: write a whole number"),
        ("x86 -num-cores=²", "write a whole number"),
        ("x86 -num-cores=99999999999999999999", "write a whole number"),
    ],
)
def test_a_wrong_text_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(TargetError, match=complaint):
        Target.parse(text)


def test_a_host_without_avx2_is_refused(other: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(other, cpu="westmere", features=("sse4.2",))
    monkeypatch.setattr(machine, "this_machine", lambda: old)
    with pytest.raises(TargetError, match="CPU 'westmere' lacks avx2 and fma"):
        Target.parse("x86")


@pytest.mark.parametrize(
    ("cpu", "bits", "registers", "floats"), [("haswell", 256, 16, 8), ("znver4", 512, 32, 16), ("knl", 256, 16, 8)]
)
def test_vectors(cpu: str, bits: int, registers: int, floats: int) -> None:
    target = Target.parse(f"x86 -mcpu={cpu}")
    assert (target.vector_bits, target.num_vector_registers) == (bits, registers)
    assert (target.lanes(4), target.lanes(1), target.lanes(8)) == (floats, floats * 4, floats // 2)


@pytest.mark.parametrize(("cpu", "wide"), [("haswell", False), ("znver3", False), ("znver4", True), ("skx", True)])
def test_code_uses_exactly_the_features(cpu: str, wide: bool) -> None:
    target = Target.parse(f"x86 -mcpu={cpu}")
    text = assembly(DOUBLE, cpu=target.cpu, features=target.llvm_features)
    assert ("%zmm" in text) == wide
    assert ("%ymm" in text) != wide


def test_features_win_over_the_cpus_name() -> None:
    """A hypervisor may hide what the CPU of that name has; then code must not use it."""
    hidden = {"avx512f", "avx512vl"}
    masked = Target.parse("x86 -mcpu=znver4")
    masked = replace(masked, features=tuple(name for name in masked.features if name not in hidden))
    assert masked.has("avx512vnni"), "what implies the hidden feature must not bring it back"
    assert "%zmm" not in assembly(DOUBLE, cpu=masked.cpu, features=masked.llvm_features)


def test_which_features_this_machine_lacks(other: Machine) -> None:
    assert Target.parse("native").runs_on_host()
    target = replace(Target.parse("native"), features=("3dnowa", "avx2", "fma"))  # no CPU with AVX2 has the first
    assert target.missing_features() == ("3dnowa",)
    assert not target.runs_on_host()


def test_json_round_trip_and_key() -> None:
    target = Target.parse("x86 -mcpu=haswell -num-cores=2")
    assert Target.from_json(target.to_json()) == target
    assert target.to_json() == json.dumps(json.loads(target.to_json()), sort_keys=True, separators=(",", ":"))
    assert target.key.startswith("x86_64-haswell-t2-")
    other = [
        replace(target, num_threads=1),
        replace(target, cpu="broadwell"),
        replace(target, features=(*target.features, "sse4a")),
        replace(target, l1_bytes=1),
        replace(target, l2_bytes=1),
        replace(target, l3_bytes=1),
        replace(target, core=replace(target.core, loads=1.5)),
    ]
    assert len({target.key, *(changed.key for changed in other)}) == 8


def test_the_key_is_pinned() -> None:
    """Databases hold keys: a change here orphans every record."""
    core = core_of_features(("avx2", "fma"), 256)
    target = Target("x86_64", "haswell", ("avx2", "fma"), 2, 32768, 262144, 8388608, core)
    assert target.key == "x86_64-haswell-t2-08a61b3a9de5"


def test_where_the_figures_are_from_is_no_part_of_the_key() -> None:
    target = Target.parse("x86 -mcpu=haswell")
    told = replace(target, core=replace(target.core, source="measured"))
    assert (told, told.key) == (target, target.key)
    assert "source" not in target.to_json()


@pytest.mark.parametrize("cpu", ["haswell", "znver4"])
def test_a_target_from_before_cores_gets_what_is_known_of_its_cpu(cpu: str) -> None:
    target = Target.parse(f"x86 -mcpu={cpu} -num-cores=2")
    old = {name: value for name, value in json.loads(target.to_json()).items() if name != "core"}
    assert Target.from_json(json.dumps(old)) == target


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"arch": "aarch64"}, "'aarch64' is not supported"),
        ({"num_threads": 0}, "must be at least 1"),
        ({"features": ["avx2"]}, "lacks fma"),
        ({"features": "avx2"}, "each feature are strings"),
        ({"features": [1]}, "each feature are strings"),
        ({"l1_bytes": "32K"}, "whole number"),
        ({"l1_bytes": True}, "whole number"),
        ({"cpu": None}, "strings"),
        ({"extra": 1}, "exactly arch, core, cpu"),
        (
            {"features": ["avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma"]},
            "nothing of fma.f32 of 512 bits",
        ),
        ({"core": None}, "a core must be an object with exactly adds_beside_multiplies, barrier_cycles"),
    ],
)
def test_damaged_json_is_refused(change: dict[str, object], complaint: str) -> None:
    values = json.loads(Target.parse("x86 -mcpu=haswell").to_json())
    with pytest.raises(TargetError, match=complaint):
        Target.from_json(json.dumps(values | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_no_target_in_json_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="target"):
        Target.from_json(text)


def test_what_no_text_tells_of_a_core_is_known_at_home(other: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Target.parse("native")
    measured = replace(here.core, source="measured", peaks=((1, 100.0),))
    monkeypatch.setattr("autotune.target.core_of_host", lambda host, env: measured)
    sent = Target.from_json(here.to_json())
    assert (sent.core.source, sent.core.peaks) == ("given", ())
    home = sent.at_home()
    assert home == sent and (home.core.source, home.core.peaks) == ("measured", measured.peaks)
    foreign = Target.parse("x86 -mcpu=haswell")
    assert foreign.at_home() is foreign
