"""Cores: which description a CPU gets, and what becomes of the measured one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core import KINDS, WIDTHS, Core, core_of_features, has_instruction, vector_bits_of
from autotune.cores import core_of, core_of_host, keep_measured, measured_path
from autotune.cpus import CPUS, features_of
from autotune.errors import TargetError
from autotune.machine import Caches, Machine
from autotune.topology import Cpu, Topology

SERVER = (*features_of("rocketlake"), "amx-tile", "amx-bf16", "avx512bf16", "avx512fp16")
"""A server's CPU under the name that a hypervisor lends it."""


TWO = Topology((Cpu(0, core=0), Cpu(1, core=1)))


def a_machine(cpu: str = "haswell", model: str = "Xeon") -> Machine:
    features = tuple(features_of(cpu))
    return Machine(cpu, model, features, Caches(1 << 15, 1 << 20, 1 << 25), TWO, None, 2, 1 << 34)


def env(folder: Path) -> Mapping[str, str]:
    return {"XDG_CACHE_HOME": str(folder)}


@pytest.mark.parametrize(
    ("cpu", "wide", "narrow", "beside"),
    [("znver4", 1, 2, True), ("znver5", 2, 2, True), ("rocketlake", 1, 2, False), ("sapphirerapids", 2, 2, False)],
)
def test_what_ships_of_avx512(cpu: str, wide: float, narrow: float, beside: bool) -> None:
    core = core_of(cpu, features_of(cpu))
    rates = [pipe.per_cycle for bits in (512, 256) if (pipe := core.pipe("fma.f32", bits))]
    assert (core.source, rates, core.adds_beside_multiplies) == ("shipped", [wide, narrow], beside)


@pytest.mark.parametrize("cpu", ["haswell", "znver3"])
def test_no_wide_vectors_where_there_are_none(cpu: str) -> None:
    core = core_of(cpu, features_of(cpu))
    assert core.source == "shipped"
    assert {pipe.bits for pipe in core.pipes} == {128, 256}


def test_a_lent_name_deceives_nobody() -> None:
    found = core_of("rocketlake", SERVER)
    assert found == core_of("sapphirerapids", SERVER)
    assert found.lane_rate("fma.f32", 512) == 2 * core_of("rocketlake", features_of("rocketlake")).lane_rate(
        "fma.f32", 512
    )


def test_an_unknown_cpu_gets_what_follows_from_its_features() -> None:
    assert core_of("novalake", ("avx2", "fma")) == core_of_features(("avx2", "fma"), 256)
    assert core_of("novalake", ("avx2", "fma")).source == "features"


def test_hidden_features_take_their_instructions_along() -> None:
    hidden = [name for name in features_of("znver4") if not name.startswith("avx512")]
    assert {pipe.kind for pipe in core_of("znver4", hidden).pipes} == {"fma.f32", "fma.f64"}


@pytest.mark.parametrize(("cpu", "loads", "stores"), [("znver4", 2, 1), ("znver5", 2, 1), ("rocketlake", 2, 1)])
def test_without_wide_vectors_loads_are_counted_in_narrow_ones(cpu: str, loads: float, stores: float) -> None:
    wide, narrow = core_of(cpu, features_of(cpu)), core_of(cpu, features_of("haswell"))
    assert (narrow.loads, narrow.stores, narrow.l1) == (loads, stores, 32 * loads)
    assert {pipe.bits for pipe in narrow.pipes} == {128, 256}
    assert (narrow.l2, narrow.dram, narrow.ghz) == (wide.l2, wide.dram, wide.ghz)


@pytest.mark.parametrize("cpu", CPUS)
def test_every_cpu_has_a_core_with_its_instructions(cpu: str) -> None:
    features = features_of(cpu)
    core = core_of(cpu, features)
    there = {(kind, bits) for kind in KINDS for bits in WIDTHS if has_instruction(kind, bits, features)}
    assert {(pipe.kind, pipe.bits) for pipe in core.pipes} == there
    assert core.rounded().rounded() == core.rounded()
    assert Core.from_values(json.loads(json.dumps(core.to_values())), "given") == core


def test_figures_that_differ_by_noise_become_the_same() -> None:
    core = core_of("znver4", features_of("znver4"))
    noisy = replace(core, ghz=core.ghz * 1.03, loads=core.loads * 0.96, dram=core.dram * 1.05, l2=core.l2 * 0.97)
    assert noisy.rounded() == core.rounded()


def test_measured_figures_come_first(tmp_path: Path) -> None:
    host = a_machine()
    assert core_of_host(host, env(tmp_path)).source == "shipped"
    measured = replace(core_of("haswell", host.features), dram=7.0, peaks=((1, 61.5), (2, 119.0)))
    path = keep_measured(measured, host, env(tmp_path))
    assert path == measured_path("haswell", env(tmp_path)) == tmp_path / "autotune" / "cores" / "haswell.json"
    assert [file.name for file in path.parent.iterdir()] == ["haswell.json"]
    found = core_of_host(host, env(tmp_path))
    assert (found, found.source, found.peaks) == (measured, "measured", measured.peaks)
    values = json.loads(path.read_text())
    del values["peaks"]  # as files of before
    path.write_text(json.dumps(values))
    os.utime(path, ns=(1, 1))
    old = core_of_host(host, env(tmp_path))
    assert (old, old.peaks) == (measured, ()), "peaks are no part of what a core is"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 0}, "it is of version 0"),
        ({"model": "Opteron"}, "it was measured on Opteron, this is Xeon"),
        ({"features": ["avx2"]}, "it was measured on Xeon"),
        ({"core": {}}, "a core must be an object"),
        ({"peaks": {"1": -2.0}}, "peaks must be positive numbers"),
        ({"peaks": 3}, "peaks must be GFLOP/s by the number of threads"),
        ({"more": 1}, "it must be an object with exactly version"),
        (None, "Expecting value"),
    ],
)
def test_a_file_that_does_not_hold_is_passed_over_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, object] | None, complaint: str
) -> None:
    host = a_machine()
    path = keep_measured(replace(core_of("haswell", host.features), dram=7.0), host, env(tmp_path))
    values = json.loads(path.read_text())
    path.write_text("damaged" if change is None else json.dumps({**values, **change}))
    with caplog.at_level(logging.WARNING):
        found = [core_of_host(host, env(tmp_path)) for _ in range(2)]
    assert {core.source for core in found} == {"shipped"}
    (record,) = caplog.records
    assert str(path) in record.message and complaint in record.message and "--measure" in record.message


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"loads": 0}, "a core's loads"),
        ({"ghz": "3"}, "a core's ghz"),
        ({"dram": float("nan")}, "a core's dram"),
        ({"adds_beside_multiplies": 1}, "a core's adds_beside_multiplies"),
        ({"pipes": [{"kind": "fma.f32"}]}, "a pipe must be an object"),
        ({"pipes": [{"kind": "fma.f8", "bits": 256, "per_cycle": 1, "latency": 4}]}, "a pipe of kind 'fma.f8'"),
        ({"pipes": {}}, "pipes is a list"),
    ],
)
def test_damaged_figures_are_refused(change: dict[str, object], complaint: str) -> None:
    values = core_of("haswell", ("avx2", "fma")).to_values()
    with pytest.raises(TargetError, match=complaint):
        Core.from_values({**values, **change}, "given")


def test_measured_figures_need_a_place(tmp_path: Path) -> None:
    host = a_machine()
    core = core_of("haswell", host.features)
    assert core_of_host(host, {}) == core
    with pytest.raises(TargetError, match="set HOME or XDG_CACHE_HOME"):
        keep_measured(core, host, {})
    (tmp_path / "autotune").write_text("a file, where a folder should be")
    with pytest.raises(TargetError, match="cannot be written"):
        keep_measured(core, host, env(tmp_path))


def test_widths() -> None:
    assert vector_bits_of(("avx2", "fma")) == 256
    assert vector_bits_of(features_of("znver4")) == 512


@pytest.mark.parametrize(
    ("cpu", "gain"), [("znver4", 2.0), ("cooperlake", 1.0), ("sapphirerapids", 0.5), ("haswell", 0.0)]
)
def test_what_folding_pairs_gains(cpu: str, gain: float) -> None:
    assert core_of(cpu, features_of(cpu)).folding("dot.bf16", 2) == gain
