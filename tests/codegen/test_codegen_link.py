"""What objects may hold beside code: data that is written, pointers, zeros, addresses from outside; and damage."""

from __future__ import annotations

import ctypes

import pytest

from autotune.codegen.jit import compile_ir
from autotune.codegen.link import load_objects
from autotune.errors import CodegenError

DATA = """
@counter = global i64 40
@zeros = global [4 x i64] zeroinitializer
@pointers = global [2 x ptr] [ptr @counter, ptr @add]
@elsewhere = external global i64
declare double @exp2(double)

define i64 @add(i64 %x) {
  %old = load i64, ptr @counter
  %new = add i64 %old, %x
  store i64 %new, ptr @counter
  %zero = load i64, ptr getelementptr ([4 x i64], ptr @zeros, i64 0, i64 3)
  %sum = add i64 %new, %zero
  ret i64 %sum
}
define i64 @through() {
  %where = load ptr, ptr @pointers
  %there = load i64, ptr %where
  ret i64 %there
}
define i64 @called(i64 %x) {
  %function = load ptr, ptr getelementptr ([2 x ptr], ptr @pointers, i64 0, i64 1)
  %found = call i64 %function(i64 %x)
  ret i64 %found
}
define i64 @outside() { %found = load i64, ptr @elsewhere ret i64 %found }
define double @root(double %x) { %found = call double @exp2(double %x) ret double %found }
"""


def data_object() -> bytes:
    return compile_ir(DATA, cpu="x86-64-v3", features="").object_code


def test_data_pointers_zeros_and_addresses_from_outside() -> None:
    number, real = ctypes.c_int64(7), ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    takes, nothing = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64), ctypes.CFUNCTYPE(ctypes.c_int64)
    imports = {"elsewhere": ctypes.addressof(number)}
    with load_objects([data_object()], imports) as library, load_objects([data_object()], imports) as other:
        assert takes(library.address("add"))(2) == 42
        assert takes(library.address("called"))(-2) == 40
        assert nothing(library.address("through"))() == 40
        assert takes(other.address("add"))(0) == 40, "each library has data of its own"
        assert nothing(library.address("outside"))() == 7
        assert real(library.address("root"))(3.0) == 8.0


def complaint(data: bytes) -> str:
    """What linking says of an object; nothing runs of it."""
    try:
        load_objects([data]).close()
    except CodegenError as error:
        return str(error)
    return "cannot link object code: nothing wrong was found"


def test_damage_does_not_end_the_process() -> None:
    """Compiled files have a checksum, so this is for those whose author is wrong."""
    whole = data_object()
    cuts = [whole[:end] for end in range(0, len(whole), 37)]
    flips = [whole[:n] + bytes([whole[n] ^ 0x55]) + whole[n + 1 :] for n in range(0, len(whole), 5)]
    assert {complaint(data).partition(":")[0] for data in cuts + flips} == {"cannot link object code"}


def test_an_executable_is_no_object() -> None:
    with open("/proc/self/exe", "rb") as file, pytest.raises(CodegenError, match="it is no relocatable object"):
        load_objects([file.read()])
