"""What was compiled, on disk, so that nothing is compiled twice: always safe to delete, apart from the database.

One file per object, kernel, program or decision, named by a hash of all that it depends on. Files hold machine
code that we will run, so the folder belongs to the user alone, and each file carries a checksum.
"""

from __future__ import annotations

import contextlib
import functools
import grp
import hashlib
import logging
import os
import pwd
import random
import shutil
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.compiled_object import CompiledObject, ir_hash
from autotune.codegen.digest import Digest, read_hashed
from autotune.machine import environment, user_cache

_log = logging.getLogger(__name__)

_LOOK_SHARE = 64
"""The folder's size is looked at when 1/64 of what is allowed may have been added to it."""

_LARGEST_SHARE = 4
"""Nothing is kept that takes more than 1/4 of what is allowed, or of the disk's free space: it would drive all out."""

_CHECKSUM = 64
"""Bytes of a file before its contents, which so begin on a cache line."""

# Part of every key: raise it when the file format or the pipeline of `compile_uncounted` changes.
_FORMAT = 9


def default_cache_directory(env: Mapping[str, str]) -> Path | None:
    """The user's cache folder by the XDG specification, None without a home; `env` comes from the command line."""
    folder = user_cache(env)
    return None if folder is None else folder / "objects"


class ObjectCache:
    """Compiled objects in a folder, the least recently used dropped first.

    Several processes may share a folder. A damaged file is a miss; a folder that cannot be used means no
    cache, said once in the log.

    Args:
        directory: made with mode 0700 when missing; None switches the cache off.
        max_bytes: size at which old files are deleted.
    """

    def __init__(self, directory: Path | None, max_bytes: int = 2 << 30) -> None:
        self._directory = directory
        self._trouble = ""
        self._max_bytes = max_bytes
        self._bytes: int | None = None  # this process's idea of the folder's size, once it has looked
        # Ten thousands of files take seconds to look at, so that not every process does: how much one may write before
        # is drawn, and all of them together still look as often as they write so much.
        self._unseen = random.randrange(max(max_bytes // _LOOK_SHARE, 1))
        if directory is not None:
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                status = directory.stat()
                if status.st_uid != os.getuid() or status.st_mode & 0o022:
                    self._switch_off("other users could replace the code in it; make it yours, with mode 0700")
                elif (why := _open_above(directory)) is not None:
                    self._switch_off(f"other users could exchange it, for {why}")
            except OSError as error:
                self._switch_off(f"{error.strerror}; set XDG_CACHE_HOME to a folder of yours")

    @property
    def directory(self) -> Path | None:
        """The folder, None where nothing is kept."""
        return self._directory

    @property
    def trouble(self) -> str:
        """Why the folder is not used; empty where it is, or none was wanted."""
        return self._trouble

    def compile(
        self, ir_text: str, *, cpu: str, features: str, by: Callable[..., CompiledObject] | None = None
    ) -> CompiledObject:
        """`compile_uncounted` (or `by`, which does the same), unless the same text was compiled before.

        Raises:
            CodegenError: the IR does not parse or verify.
        """
        found = self.get(ir_hash(ir_text), cpu=cpu, features=features)
        if found is None:
            found = (by or _compiler())(ir_text, cpu=cpu, features=features)
            self.put(found, cpu=cpu, features=features)
        return found

    def get(self, ir_hash: str, *, cpu: str, features: str) -> CompiledObject | None:
        """The stored object, None when there is none or its file is damaged."""
        found = self.recall(_key(ir_hash, cpu, features))
        if found is None:
            return None
        return CompiledObject(found.tobytes(), ir_hash)

    def put(self, compiled: CompiledObject, *, cpu: str, features: str) -> None:
        """Store an object; a reader in another process sees the whole file or none."""
        self.remember(_key(compiled.ir_hash, cpu, features), compiled.object_code)

    def recall(self, name: str) -> npt.NDArray[np.uint8] | None:
        """What was stored under a name (a hash of all that it depends on), None when there is nothing, or damage.

        Returns:
            u8 (bytes,), which begins on a cache line.
        """
        if self._directory is None:
            return None
        path = self._directory / name
        try:
            checksum, body, digest = _read(path)
        except OSError:
            return None
        if checksum != digest:
            _log.warning("%s is damaged and will be compiled again", path)
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):  # another process dropped it; what was read is whole
            os.utime(path)  # used now: not the next to be dropped
        return body

    def remember(self, name: str, *parts: Any) -> None:
        """Store bytes under a name, unless they are too many; a reader in another process sees the whole file or none.

        Args:
            parts: buffers that follow one another.
        """
        if self._directory is None:
            return
        path, size = self._directory / name, sum(memoryview(part).nbytes for part in parts)
        checksum = Digest(path.name)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            if size * _LARGEST_SHARE > min(self._max_bytes, shutil.disk_usage(self._directory).free):
                _log.info("%d bytes are too many for the object cache", size)
                return
            try:
                with open(temporary, "wb", opener=_private) as file:
                    file.seek(_CHECKSUM)
                    for part in parts:
                        checksum.update(memoryview(part))
                        file.write(part)
                    file.seek(0)
                    file.write(checksum.hexdigest().encode())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
            self._account(_CHECKSUM + size)
        except OSError as error:
            self._switch_off(str(error))

    def _account(self, size: int) -> None:
        """Count what was written, and make room when it is time."""
        if self._bytes is not None:
            self._bytes += size
        elif size > self._unseen:
            self._bytes = sum(one for _, one, _ in self._files())
        else:
            self._unseen -= size
        if self._bytes is not None and self._bytes > self._max_bytes:
            self._evict()

    def _files(self) -> list[tuple[float, int, Path]]:
        """(time of last use, size, path) of each file, what a killed process left half written included."""
        if self._directory is None:
            return []
        found = []
        for path in self._directory.iterdir():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process dropped it
            found.append((status.st_mtime, status.st_size, path))
        return found

    def _evict(self) -> None:
        """Drop files, the longest unused first, down to 3/4 of the limit, so that this is rare."""
        files = sorted(self._files())
        self._bytes = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._bytes <= self._max_bytes * 3 // 4:
                break
            path.unlink(missing_ok=True)
            self._bytes -= size

    def _switch_off(self, reason: str) -> None:
        _warn(self._directory, reason)
        self._directory, self._trouble = None, reason


def object_cache() -> ObjectCache:
    """The user's cache."""
    return ObjectCache(default_cache_directory(environment()))


@functools.cache
def _warn(directory: Path | None, reason: str) -> None:
    """Once a process: several caches may have the same folder."""
    _log.warning("no object cache in %s: %s", directory, reason)


def _private(path: str, flags: int) -> int:
    """Opens a file that nobody else may write to, whatever the user's umask says."""
    return os.open(path, flags, 0o600)


def _open_above(directory: Path) -> str | None:
    """Why others could put another folder in this one's place: one above it, or above a link to it, lets them."""
    own = os.getuid()
    for folder in dict.fromkeys((*directory.resolve().parents, *directory.absolute().parents)):
        status = folder.stat()
        if status.st_uid not in (0, own):  # who owns a folder may rename what is in it, be it sticky or not
            return f"{folder} belongs to somebody else; name a cache folder of yours by XDG_CACHE_HOME"
        if status.st_mode & stat.S_ISVTX:  # as /tmp: nobody renames what belongs to others
            continue
        if status.st_mode & stat.S_IWOTH:
            return f"all may write to {folder}; chmod o-w that"
        if status.st_mode & stat.S_IWGRP and _has_others(status.st_gid, own):
            return f"the group of {folder} may write to it; chmod g-w that"
    return None


def _has_others(group: int, own: int) -> bool:
    """Whether others than this user and root may be in a group: in all but root's and that of his own name."""
    try:
        user = pwd.getpwuid(own).pw_name
        found = grp.getgrgid(group)
    except KeyError:  # as in containers, whose users and groups have no names
        return group not in (0, os.getgid())
    return found.gr_name not in (user, "root") or not {user, "root"}.issuperset(found.gr_mem)


def _compiler() -> Callable[..., CompiledObject]:
    from autotune.codegen.jit import compile_uncounted  # LLVM: who finds whole programs here starts without it

    return compile_uncounted


def _key(ir_hash: str, cpu: str, features: str) -> str:
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return hashlib.sha256("\n".join((str(_FORMAT), ir_hash, cpu, features, version)).encode()).hexdigest()


def _read(path: Path) -> tuple[bytes, npt.NDArray[np.uint8], bytes]:
    """The checksum that a file begins with, what follows, and the checksum that this should have."""
    with path.open("rb", buffering=0) as file:
        size = max(os.fstat(file.fileno()).st_size - _CHECKSUM, 0)
        raw = np.empty(size + _CHECKSUM, np.uint8)
        start = -raw.ctypes.data % _CHECKSUM
        body, expected = raw[start : start + size], file.read(_CHECKSUM)
        digest = read_hashed(file.fileno(), _CHECKSUM, body.data, path.name)  # names count: files may change places
    return expected, body, digest.encode()
