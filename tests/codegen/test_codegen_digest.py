"""Hashes of much: the same however the bytes come."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.codegen.digest import PART, Digest, bytes_digest, file_digest, read_hashed


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART])
def test_it_does_not_depend_on_how_the_bytes_come(tmp_path: Path, size: int) -> None:
    data = (os.urandom(4096) * (size // 4096 + 1))[:size]
    path = tmp_path / "file"
    path.write_bytes(data)
    whole, pieces = Digest(""), Digest("")
    whole.update(memoryview(data))
    for begin in range(0, size, PART // 2 + 3):
        pieces.update(memoryview(data)[begin : begin + PART // 2 + 3])
    memory = memoryview(bytearray(size))
    with path.open("rb") as file:
        read = read_hashed(file.fileno(), 0, memory, "")
    assert memory == data
    assert whole.hexdigest() == pieces.hexdigest() == read == file_digest(path) == bytes_digest(memoryview(data))


def test_names_and_every_byte_count(tmp_path: Path) -> None:
    data = bytearray(2 * PART)
    found = set()
    for name, place in (("a", 0), ("b", 0), ("a", 5), ("a", PART + 5)):
        data[place] ^= 1
        digest = Digest(name)
        digest.update(memoryview(data))
        found.add(digest.hexdigest())
        data[place] ^= 1
    assert len(found) == 4


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with path.open("rb") as file, pytest.raises(OSError, match="shorter"):
        read_hashed(file.fileno(), 0, memoryview(bytearray(6)), "")


def test_it_is_found_while_the_interpreter_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PART))
    program = (
        "import sys, threading; from pathlib import Path; from autotune.codegen.digest import file_digest\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    print(file_digest(Path(sys.argv[1])))\n"
        "threading.Thread(target=work).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.strip() == file_digest(path)
