"""compile_ir and load_objects: the code runs, symbols stay apart, and mistakes become one-line errors."""

from __future__ import annotations

import ctypes
import dataclasses

import pytest

from autotune.codegen.compiled_object import ir_hash
from autotune.codegen.jit import assembly, compile_ir, compile_uncounted, count_spills
from autotune.codegen.kernel import generate
from autotune.codegen.link import _ALLOC, _Object, load_objects
from autotune.errors import CodegenError, TargetError
from autotune.ops import parse_workload
from autotune.search_spaces import default_config, make_schedule
from autotune.target import Target

CPU, FEATURES = "x86-64-v3", ""


def constant(value: int, symbol: str = "answer") -> bytes:
    return compile_ir(f"define i64 @{symbol}() {{ ret i64 {value} }}", cpu=CPU, features=FEATURES).object_code


def call(address: int, *arguments: int) -> int:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return int(prototype(address)(*arguments))


def register_tile(rows: int) -> str:
    """A loop over k with `rows` x 2 accumulators of 16 floats, the shape of every GEMM-like kernel."""
    cells = [(i, j) for i in range(rows) for j in range(2)]
    lines = ["declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)"]
    lines += ["define void @tile(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %n) {", "entry:"]
    for i, j in cells:
        lines += [f"%acc{i}_{j} = alloca <16 x float>, align 64"]
        lines += [f"store <16 x float> zeroinitializer, ptr %acc{i}_{j}, align 64"]
    lines += ["br label %loop", "loop:", "%k = phi i64 [0, %entry], [%next, %loop]", f"%ak = mul i64 %k, {rows}"]
    for j in range(2):
        lines += [f"%bp{j} = getelementptr [2 x <16 x float>], ptr %b, i64 %k, i64 {j}"]
        lines += [f"%b{j} = load <16 x float>, ptr %bp{j}, align 64"]
    for i in range(rows):
        lines += [f"%ai{i} = add i64 %ak, {i}", f"%ap{i} = getelementptr float, ptr %a, i64 %ai{i}"]
        lines += [
            f"%as{i} = load float, ptr %ap{i}",
            f"%ae{i} = insertelement <16 x float> poison, float %as{i}, i32 0",
        ]
        lines += [f"%a{i} = shufflevector <16 x float> %ae{i}, <16 x float> poison, <16 x i32> zeroinitializer"]
    for i, j in cells:
        fma = f"call <16 x float> @llvm.fma.v16f32(<16 x float> %a{i}, <16 x float> %b{j}, <16 x float> %old{i}_{j})"
        lines += [f"%old{i}_{j} = load <16 x float>, ptr %acc{i}_{j}, align 64", f"%new{i}_{j} = {fma}"]
        lines += [f"store <16 x float> %new{i}_{j}, ptr %acc{i}_{j}, align 64"]
    lines += ["%next = add nuw nsw i64 %k, 1", "%more = icmp ult i64 %next, %n", "br i1 %more, label %loop, label %end"]
    lines += ["end:"]
    for i, j in cells:
        lines += [f"%out{i}_{j} = load <16 x float>, ptr %acc{i}_{j}, align 64"]
        lines += [f"%cp{i}_{j} = getelementptr [2 x <16 x float>], ptr %c, i64 {i}, i64 {j}"]
        lines += [f"store <16 x float> %out{i}_{j}, ptr %cp{i}_{j}, align 64"]
    return "\n".join([*lines, "ret void", "}"])


def test_code_runs() -> None:
    text = "define i64 @add(i64 %a, i64 %b) { %c = add i64 %a, %b ret i64 %c }"
    with load_objects([compile_ir(text, cpu=CPU, features=FEATURES).object_code]) as library:
        assert call(library.address("add"), 40, 2) == 42


def test_constant_tables_and_quoted_names_survive_the_assembler() -> None:
    text = """
    @table = private constant [3 x i64] [i64 5, i64 -7, i64 11]
    @"odd \\22name\\22" = private constant [4 x i8] c"\\5C\\22\\00a"
    define i64 @pick(i64 %i) {
      %p = getelementptr [3 x i64], ptr @table, i64 0, i64 %i
      %v = load i64, ptr %p
      %q = getelementptr i8, ptr @"odd \\22name\\22", i64 %i
      %b = load i8, ptr %q
      %w = zext i8 %b to i64
      %r = add i64 %v, %w
      ret i64 %r
    }"""
    with load_objects([compile_ir(text, cpu=CPU, features=FEATURES).object_code]) as library:
        assert [call(library.address("pick"), i) for i in range(3)] == [5 + 0x5C, -7 + 0x22, 11]


def test_no_jump_lies_across_thirty_two_bytes() -> None:
    """A comparison and its jump, which are one instruction to the CPU, neither cross such a boundary nor end at it."""
    numbers = [0x51000000 + 4097 * n for n in range(64)]
    lines = ["define void @jumps(i32 %x, ptr %p) {", "entry:", "br label %b0"]
    for n, number in enumerate(numbers):
        lines += [f"b{n}:", f"%c{n} = icmp eq i32 %x, {number}", f"br i1 %c{n}, label %h{n}, label %b{n + 1}"]
        lines += [f"h{n}:", f"store volatile i8 {n}, ptr %p", f"br label %b{n + 1}"]
    code = compile_ir("\n".join([*lines, f"b{len(numbers)}:", "ret void", "}"]), cpu=CPU, features=FEATURES).object_code
    for number in numbers:
        at = code.index(number.to_bytes(4, "little"))  # the text begins at a multiple of 32 in the file, too
        first, jump = at - 2, at + 4
        last = jump + (1 if code[jump] & 0xF0 == 0x70 else 5)
        assert code[first] == 0x81 and (code[jump] & 0xF0 == 0x70 or code[jump] == 0x0F)
        assert first // 32 == last // 32 and last % 32 != 31


def test_libraries_have_their_own_symbols() -> None:
    first, second = load_objects([constant(1)]), load_objects([constant(2)])
    assert (call(first.address("answer")), call(second.address("answer"))) == (1, 2)
    first.close()
    assert call(second.address("answer")) == 2


def test_objects_of_one_library_see_each_other() -> None:
    caller = "declare i64 @answer() define i64 @twice() { %v = call i64 @answer() %w = shl i64 %v, 1 ret i64 %w }"
    with load_objects([compile_ir(caller, cpu=CPU, features=FEATURES).object_code, constant(21)]) as library:
        assert call(library.address("twice")) == 42


def test_imports_and_process_symbols_resolve() -> None:
    text = """
    declare i64 @hook(i64)
    declare ptr @memset(ptr, i32, i64)
    declare i32 @pthread_create(ptr, ptr, ptr, ptr)
    declare i64 @syscall(i64, ...)
    define i64 @outer(i64 %x) {
      %buffer = alloca i64
      call ptr @memset(ptr %buffer, i32 1, i64 8)
      %ones = load i64, ptr %buffer
      %y = call i64 @hook(i64 %x)
      %z = add i64 %ones, %y
      ret i64 %z
    }
    define ptr @thread_create() { ret ptr @pthread_create }
    define i64 @thread_id() { %r = call i64 (i64, ...) @syscall(i64 186) ret i64 %r }"""
    data = compile_ir(text, cpu=CPU, features=FEATURES).object_code
    with load_objects([constant(5, "five")]) as other, load_objects([data], {"hook": other.address("five")}) as library:
        assert call(library.address("outer"), 0) == 0x0101010101010101 + 5
        assert call(library.address("thread_create")) != 0
        assert call(library.address("thread_id")) > 0


def test_bad_ir_is_one_line() -> None:
    for text in ("define i64 @f() { ret i32 0 }", "not IR", "define i64 @f() { %x = add i64 %x, 1 ret i64 %x }"):
        with pytest.raises(CodegenError, match="LLVM refused the IR") as caught:
            compile_ir(text, cpu=CPU, features=FEATURES)
        assert "\n" not in str(caught.value)


def test_link_errors() -> None:
    with pytest.raises(CodegenError, match="cannot link"):
        load_objects([b"not an object"])
    with pytest.raises(CodegenError, match=r"cannot link.*answer"):
        load_objects([constant(1), constant(2)])
    with load_objects([constant(1)]) as library, pytest.raises(CodegenError, match="nothing_here"):
        library.address("nothing_here")
    text = "declare i64 @missing_symbol() define i64 @f() { %v = call i64 @missing_symbol() ret i64 %v }"
    library = load_objects([compile_ir(text, cpu=CPU, features=FEATURES).object_code])
    with pytest.raises(CodegenError, match="cannot resolve 'f'"):
        library.address("f")
    library.close()
    library.close()
    with pytest.raises(CodegenError, match="closed"):
        library.address("f")


def test_object_and_hash_are_reproducible() -> None:
    text = register_tile(4)
    first, second = (compile_ir(text, cpu="x86-64-v4", features="") for _ in range(2))
    assert first == second
    assert first.ir_hash == ir_hash(text) != ir_hash(text + "\n")


def in_memory(object_code: bytes) -> list[tuple[int, int, bytes]]:
    """What is loaded of an object: flags, alignment and bytes of its sections."""
    parsed = _Object.parse(object_code)
    loaded = [s for s in parsed.sections if s.flags & _ALLOC and s.size]
    return [(s.flags, s.align, object_code[s.offset : s.offset + s.size]) for s in loaded]


SHAPES = [
    "conv2d data=1,32,14,14 weight=48,32,3,3 pad=1 + bias + relu",
    "matmul a=7,33 b=33,50 + gelu",
    "softmax data=4,100",
    "max_pool data=1,16,9,9 kernel=3 pad=1",
]


@pytest.mark.parametrize("cpu", ["haswell", "znver4", "sapphirerapids"])
def test_the_code_is_the_same_where_nobody_counts(cpu: str) -> None:
    """What was measured is what a model runs, though its object was not made by way of assembly."""
    target = Target.parse(f"x86 -mcpu={cpu} -num-cores=1")
    for text in SHAPES:
        workload = parse_workload(text)
        ir = generate(make_schedule(workload, default_config(workload, target), target), target).ir
        counted, plain = (f(ir, cpu=target.cpu, features=target.llvm_features) for f in (compile_ir, compile_uncounted))
        assert in_memory(plain.object_code) == in_memory(counted.object_code)
        assert plain.ir_hash == counted.ir_hash and (plain.spills, plain.fmas) == (0, 0)


@pytest.mark.parametrize("rows", [14, 28])
def test_spill_count_tells_good_tiles_from_bad(rows: int) -> None:
    compiled = compile_ir(register_tile(rows), cpu="x86-64-v4", features="")
    assert compiled.fmas == 2 * rows
    assert (compiled.spills == 0) == (rows == 14)


def test_count_spills_counts_vector_stack_traffic_only() -> None:
    text = (
        "\tvmovups\t%zmm0, 64(%rsp)\n\tvmovaps\t(%rsp), %ymm3\n\tvfmadd231ps\t128(%rsp), %zmm1, %zmm2\n"
        "\tvmovups\t(%rbp,%rax,4), %zmm0\n\tmovq\t%rax, 8(%rsp)\n\tvmovss\t%xmm0, 4(%rsp)\n"
        "\tvpdpbusd\t%zmm0, %zmm1, %zmm2\n"
    )
    assert count_spills(text) == (3, 2)


def test_sums_of_integers_are_added_one_by_one() -> None:
    """Sums of products first would need registers that a tile has not."""
    lines = ["define <8 x i32> @f(<8 x i32> %s0, ptr %p) {"]
    for n in range(6):
        lines += [f"%a{n} = getelementptr <8 x i32>, ptr %p, i64 {n}", f"%x{n} = load <8 x i32>, ptr %a{n}, align 32"]
        lines += [f"%s{n + 1} = add <8 x i32> %s{n}, %x{n}"]
    text = assembly("\n".join([*lines, "ret <8 x i32> %s6", "}"]), cpu=CPU, features=FEATURES)
    assert text.count("vpaddd") == 6 and "vmovdqa" not in text


def test_features_reach_the_code_generator() -> None:
    text = "define <16 x float> @f(<16 x float> %a) { %b = fadd <16 x float> %a, %a ret <16 x float> %b }"
    assert "zmm" in assembly(text, cpu="x86-64-v3", features="+avx512f")
    assert "zmm" not in assembly(text, cpu="x86-64-v3", features="")


def test_code_for_another_cpu_is_not_loaded() -> None:
    here = Target.parse("native")
    with load_objects([constant(1)], target=here) as library:
        assert call(library.address("answer")) == 1
    elsewhere = dataclasses.replace(here, features=(*here.features, "amx-avx512", "avx10.2"))
    with pytest.raises(TargetError, match=r"avx10\.2.*lacks"):
        load_objects([constant(1)], target=elsewhere)
