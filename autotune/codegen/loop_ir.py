"""The driver of a loop whose body is one plan, as LLVM IR: step after step without a return to Python.

    i64 autotune_loop(ptr run, ptr pool, ptr plan, ptr loop)

`run` is `autotune_run`. Every i64 of `loop`, and of the tables that it points to:

    loop    step, end, counter, points, number of points, copies, number of copies, condition, stride of the condition,
            checks, number of checks
    point   entry of a frame, address, stride, mask              before a step: entry = address + (step & mask) · stride
    copy    source, stride, mask, destination, stride, mask, bytes          after a step, from here to there
    check   address of an i32 that is 0 when all is well

Each step stores its number at `counter`. With a mask of 1 two buffers take turns; with one of -1 each step has a place
of its own. The condition is a byte: the one that a step writes lies beside the one that it reads, and they take turns;
null where there is none.

The result is 0 at the end, 1 when the condition says so, 2 + n when check n fails; `step` tells how many were taken.
"""

from __future__ import annotations

from autotune.codegen.own_objects import own_object

CPU = "x86-64"
"""What the object is for: every x86-64 CPU."""

POINT_WORDS, COPY_WORDS = 4, 7

_IR = """
%Loop = type { i64, i64, ptr, ptr, i64, ptr, i64, ptr, i64, ptr, i64 }
%Point = type { ptr, i64, i64, i64 }
%Copy = type { i64, i64, i64, i64, i64, i64, i64 }

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @place(i64 %base, i64 %stride, i64 %mask, i64 %step) alwaysinline {
  %number = and i64 %step, %mask
  %offset = mul i64 %number, %stride
  %at = add i64 %base, %offset
  ret i64 %at
}

define i64 @autotune_loop(ptr %run, ptr %pool, ptr %plan, ptr %loop) {
entry:
  %given = load %Loop, ptr %loop
  %first = extractvalue %Loop %given, 0
  %end = extractvalue %Loop %given, 1
  %counter = extractvalue %Loop %given, 2
  %points = extractvalue %Loop %given, 3
  %num.points = extractvalue %Loop %given, 4
  %copies = extractvalue %Loop %given, 5
  %num.copies = extractvalue %Loop %given, 6
  %condition = extractvalue %Loop %given, 7
  %condition.stride = extractvalue %Loop %given, 8
  %checks = extractvalue %Loop %given, 9
  %num.checks = extractvalue %Loop %given, 10
  %conditional = icmp ne ptr %condition, null
  br label %step
step:
  %i = phi i64 [ %first, %entry ], [ %next, %goes ]
  store i64 %i, ptr %loop
  %more = icmp slt i64 %i, %end
  br i1 %more, label %begin, label %ended
begin:
  store i64 %i, ptr %counter
  br label %point
point:
  %p = phi i64 [ 0, %begin ], [ %p.next, %aim ]
  %p.more = icmp ult i64 %p, %num.points
  br i1 %p.more, label %aim, label %call
aim:
  %p.at = getelementptr %Point, ptr %points, i64 %p
  %p.row = load %Point, ptr %p.at
  %p.entry = extractvalue %Point %p.row, 0
  %p.base = extractvalue %Point %p.row, 1
  %p.stride = extractvalue %Point %p.row, 2
  %p.mask = extractvalue %Point %p.row, 3
  %p.address = call i64 @place(i64 %p.base, i64 %p.stride, i64 %p.mask, i64 %i)
  store i64 %p.address, ptr %p.entry
  %p.next = add i64 %p, 1
  br label %point
call:
  call void %run(ptr %pool, ptr %plan)
  br label %check
check:
  %k = phi i64 [ 0, %call ], [ %k.next, %look ]
  %k.more = icmp ult i64 %k, %num.checks
  br i1 %k.more, label %look, label %copy
look:
  %flag.at.at = getelementptr ptr, ptr %checks, i64 %k
  %flag.at = load ptr, ptr %flag.at.at
  %flag = load i32, ptr %flag.at
  %k.next = add i64 %k, 1
  %well = icmp eq i32 %flag, 0
  br i1 %well, label %check, label %failed
failed:
  %code = add i64 %k, 2
  ret i64 %code
copy:
  %c = phi i64 [ 0, %check ], [ %c.next, %move ]
  %c.more = icmp ult i64 %c, %num.copies
  br i1 %c.more, label %move, label %ask
move:
  %c.at = getelementptr %Copy, ptr %copies, i64 %c
  %c.row = load %Copy, ptr %c.at
  %s.base = extractvalue %Copy %c.row, 0
  %s.stride = extractvalue %Copy %c.row, 1
  %s.mask = extractvalue %Copy %c.row, 2
  %d.base = extractvalue %Copy %c.row, 3
  %d.stride = extractvalue %Copy %c.row, 4
  %d.mask = extractvalue %Copy %c.row, 5
  %bytes = extractvalue %Copy %c.row, 6
  %source = call i64 @place(i64 %s.base, i64 %s.stride, i64 %s.mask, i64 %i)
  %destination = call i64 @place(i64 %d.base, i64 %d.stride, i64 %d.mask, i64 %i)
  %from = inttoptr i64 %source to ptr
  %to = inttoptr i64 %destination to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  %c.next = add i64 %c, 1
  br label %copy
ask:
  %next = add i64 %i, 1
  br i1 %conditional, label %read, label %goes
read:
  %parity = and i64 %next, 1
  %offset = mul i64 %parity, %condition.stride
  %byte.at = getelementptr i8, ptr %condition, i64 %offset
  %byte = load i8, ptr %byte.at
  %on = icmp ne i8 %byte, 0
  br i1 %on, label %goes, label %stop
goes:
  br label %step
stop:
  store i64 %next, ptr %loop
  ret i64 1
ended:
  ret i64 0
}
"""


def loop_ir() -> str:
    """The IR text of the driver."""
    return _IR


def loop_object() -> bytes:
    """The driver's object code, the same for every x86-64 CPU."""
    return own_object(loop_ir(), CPU)
