"""The object cache: same objects back, damage is a miss, old files go first, a bad folder only warns."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest

from autotune.codegen import jit
from autotune.codegen.compiled_object import CompiledObject, ir_hash
from autotune.codegen.link import load_objects
from autotune.codegen.object_cache import ObjectCache, default_cache_directory
from autotune.errors import CodegenError

CPU, FEATURES = "x86-64-v3", "+avx2"


def fake(name: str, size: int = 1000) -> CompiledObject:
    return CompiledObject(os.urandom(size - 1) + b"\n", ir_hash(name))


def get(cache: ObjectCache, name: str) -> CompiledObject | None:
    return cache.get(ir_hash(name), cpu=CPU, features=FEATURES)


def put(cache: ObjectCache, compiled: CompiledObject) -> None:
    cache.put(compiled, cpu=CPU, features=FEATURES)


def test_an_object_comes_back_in_another_process_of_the_same_user(tmp_path: Path) -> None:
    compiled = fake("a")
    put(ObjectCache(tmp_path / "deep" / "cache"), compiled)
    again = ObjectCache(tmp_path / "deep" / "cache")
    assert get(again, "a") == compiled
    assert get(again, "b") is None
    assert stat.S_IMODE((tmp_path / "deep" / "cache").stat().st_mode) == 0o700


def test_compile_compiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "define i64 @f() { ret i64 7 }"
    first = ObjectCache(tmp_path).compile(text, cpu=CPU, features=FEATURES)
    monkeypatch.setattr(jit, "compile_uncounted", None)
    assert ObjectCache(tmp_path).compile(text, cpu=CPU, features=FEATURES) == first
    load_objects([first.object_code]).close()


def test_refused_ir_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CodegenError):
        ObjectCache(tmp_path).compile("define", cpu=CPU, features=FEATURES)
    assert list(tmp_path.iterdir()) == []


def test_the_key_covers_cpu_features_and_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ObjectCache(tmp_path)
    put(cache, fake("a"))
    assert cache.get(ir_hash("a"), cpu="znver4", features=FEATURES) is None
    assert cache.get(ir_hash("a"), cpu=CPU, features="") is None
    monkeypatch.setattr(llvm, "llvm_version_info", (99, 0, 0))
    assert get(cache, "a") is None


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "renamed"])
def test_damage_is_a_miss_and_is_repaired(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    cache, compiled = ObjectCache(tmp_path), fake("a")
    put(cache, compiled)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "renamed":
        put(cache, fake("b"))
        (other,) = (file for file in tmp_path.iterdir() if file != path)
        os.replace(other, path)
    else:
        path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-10]), "empty": b""}[damage])
    assert get(cache, "a") is None
    assert "damaged" in caplog.text
    put(cache, compiled)
    assert get(cache, "a") == compiled


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, max_bytes=10_000)
    for index in range(8):
        put(cache, fake(str(index)))
    for age, path in enumerate(sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    (tmp_path / "left-by-a-killed-process.tmp").write_bytes(bytes(1000))
    os.utime(tmp_path / "left-by-a-killed-process.tmp", (0, 0))
    kept = get(cache, "0")
    for index in range(8, 11):
        put(ObjectCache(tmp_path, max_bytes=10_000), fake(str(index)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000
    assert kept is not None
    assert get(cache, "0") == kept
    assert get(cache, "10") is not None
    assert get(cache, "1") is None
    assert not list(tmp_path.glob("*.tmp"))


def test_a_process_that_writes_little_seldom_looks_at_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def files(cache: ObjectCache) -> list[tuple[float, int, Path]]:
        looks.append(1)
        return []

    monkeypatch.setattr(ObjectCache, "_files", files)
    for index in range(400):
        put(ObjectCache(tmp_path), fake(str(index)))
    assert len(looks) < 10  # 400 kB of 256 MB
    looks.clear()
    cache = ObjectCache(tmp_path, max_bytes=1 << 20)
    for index in range(40):
        put(cache, fake(str(index)))
    assert looks


def test_a_folder_that_cannot_be_used_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = ObjectCache(blocked / "cache")
    for name in ("a", "b"):
        put(cache, fake(name))
        assert get(cache, name) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(blocked / "cache") in caplog.text


def test_a_folder_that_disappears_switches_the_cache_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ObjectCache(tmp_path / "cache")
    (tmp_path / "cache").rmdir()
    put(cache, fake("a"))
    put(cache, fake("b"))
    assert get(cache, "a") is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize("why", ["owner", "mode"])
def test_a_folder_that_others_may_write_is_not_trusted(
    tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(ObjectCache(tmp_path), fake("a"))
    if why == "owner":
        monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    else:
        tmp_path.chmod(0o777)
    assert get(ObjectCache(tmp_path), "a") is None
    assert "other users" in caplog.text


def test_a_folder_that_others_could_exchange_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o777)
    put(ObjectCache(parent / "objects"), fake("a"))
    assert not list((parent / "objects").iterdir())
    assert f"all may write to {parent}" in caplog.text
    parent.chmod(0o1777)  # as /tmp: nobody renames what belongs to others
    put(ObjectCache(parent / "objects"), fake("a"))
    assert get(ObjectCache(parent / "objects"), "a") is not None


@pytest.mark.parametrize(("group", "members", "used"), [("me", [], True), ("me", ["you"], False), ("all", [], False)])
def test_a_folder_that_a_group_could_exchange_is_not_used(
    tmp_path: Path, group: str, members: list[str], used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of one's own, as many systems give everybody one, has nobody else in it."""
    monkeypatch.setattr("pwd.getpwuid", lambda number: SimpleNamespace(pw_name="me"))
    monkeypatch.setattr("grp.getgrgid", lambda number: SimpleNamespace(gr_name=group, gr_mem=members))
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o775)
    put(ObjectCache(parent / "objects"), fake("a"))
    assert (get(ObjectCache(parent / "objects"), "a") is not None) == used


def test_a_folder_below_that_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when root runs in a user's home: its owner may rename whatever is in it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    plain = Path.stat

    def other_owner(path: Path, **options: bool) -> os.stat_result:
        found = plain(path, **options)
        return os.stat_result((*found[:4], 4711, *found[5:])) if path == theirs else found

    monkeypatch.setattr(Path, "stat", other_owner)
    put(ObjectCache(theirs / "objects"), fake("a"))
    assert not list((theirs / "objects").iterdir())
    assert f"{theirs} belongs to somebody else" in caplog.text


def test_a_link_that_others_could_exchange_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder in (shared, own):
        folder.mkdir()
    (shared / "link").symlink_to(own)
    shared.chmod(0o777)
    put(ObjectCache(shared / "link" / "objects"), fake("a"))
    assert f"all may write to {shared}" in caplog.text


def test_nobody_else_may_write_to_the_files(tmp_path: Path) -> None:
    """Where the folder can be entered, the user's umask does not decide."""
    before = os.umask(0)
    try:
        put(ObjectCache(tmp_path / "objects"), fake("a"))
    finally:
        os.umask(before)
    (path,) = (tmp_path / "objects").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_folder_means_no_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ObjectCache(None)
    put(cache, fake("a"))
    assert get(cache, "a") is None
    assert caplog.records == []


@pytest.mark.parametrize(
    ("env", "directory"),
    [
        ({"XDG_CACHE_HOME": "/x", "HOME": "/home/me"}, Path("/x/autotune/objects")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, Path("/home/me/.cache/autotune/objects")),
        ({"HOME": "/home/me"}, Path("/home/me/.cache/autotune/objects")),
        ({}, None),
    ],
)
def test_the_default_folder(env: dict[str, str], directory: Path | None) -> None:
    assert default_cache_directory(env) == directory
