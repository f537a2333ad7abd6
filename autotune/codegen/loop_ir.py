"""The driver of a loop whose body is plans, as LLVM IR: step after step without a return to Python.

    i64 autotune_loop(ptr run, ptr pool, ptr loop)

`run` is `autotune_run`. A step goes from leg 0 on: each runs its plan, and what it leaves says which leg follows. Every
i64 of `loop`, and of the tables that it points to:

    loop    step, end, counter, legs, leg, condition, stride of the condition
    leg     plan, points, number of points, checks, number of checks, copies, number of copies,
            asked, words asked, answers, number of answers
    point   entry of a frame, address, stride, mask              before a plan: entry = address + (step & mask) · stride
    check   address of an i32 that is 0 when all is well
    copy    source, stride, mask, destination, stride, mask, bytes          behind a plan, from here to there
    answer  leg that follows, words that are asked for it

A plan may be null. Each step stores its number at `counter`. With a mask of 1 two buffers take turns; with one of -1
each step has a place of its own. Of a leg at the end of a step `asked` is null; of others it is the address of words,
where copies put what decides, and the leg of the answer that equals them follows.
The condition is a byte: the one that a step writes lies beside the one that it reads, and they take turns; null where
there is none.

The result is 0 at the end, 1 when the condition says so, 2 when a check fails, 3 when no answer of a leg fits; `step`
tells how many were taken, `leg` which one it was of 2 and 3. The step goes on with that one.
"""

from __future__ import annotations

from autotune.codegen.own_objects import own_object

CPU = "x86-64"
"""What the object is for: every x86-64 CPU."""

POINT_WORDS, COPY_WORDS, LEG_WORDS = 4, 7, 11

_IR = """
%Loop = type { i64, i64, ptr, ptr, i64, ptr, i64 }
%Leg = type { ptr, ptr, i64, ptr, i64, ptr, i64, ptr, i64, ptr, i64 }
%Point = type { ptr, i64, i64, i64 }
%Copy = type { i64, i64, i64, i64, i64, i64, i64 }

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @place(i64 %base, i64 %stride, i64 %mask, i64 %step) alwaysinline {
  %number = and i64 %step, %mask
  %offset = mul i64 %number, %stride
  %at = add i64 %base, %offset
  ret i64 %at
}

define i64 @autotune_loop(ptr %run, ptr %pool, ptr %loop) {
entry:
  %given = load %Loop, ptr %loop
  %first = extractvalue %Loop %given, 0
  %end = extractvalue %Loop %given, 1
  %counter = extractvalue %Loop %given, 2
  %legs = extractvalue %Loop %given, 3
  %first.leg = extractvalue %Loop %given, 4
  %condition = extractvalue %Loop %given, 5
  %condition.stride = extractvalue %Loop %given, 6
  %leg.word = getelementptr %Loop, ptr %loop, i64 0, i32 4
  store i64 0, ptr %leg.word
  %conditional = icmp ne ptr %condition, null
  br label %step
step:
  %i = phi i64 [ %first, %entry ], [ %next, %goes ]
  %begins = phi i64 [ %first.leg, %entry ], [ 0, %goes ]
  store i64 %i, ptr %loop
  %more = icmp slt i64 %i, %end
  br i1 %more, label %begin, label %ended
begin:
  store i64 %i, ptr %counter
  br label %leg
leg:
  %l = phi i64 [ %begins, %begin ], [ %follows, %found ]
  %leg.at = getelementptr %Leg, ptr %legs, i64 %l
  %leg.row = load %Leg, ptr %leg.at
  %plan = extractvalue %Leg %leg.row, 0
  %points = extractvalue %Leg %leg.row, 1
  %num.points = extractvalue %Leg %leg.row, 2
  %checks = extractvalue %Leg %leg.row, 3
  %num.checks = extractvalue %Leg %leg.row, 4
  %copies = extractvalue %Leg %leg.row, 5
  %num.copies = extractvalue %Leg %leg.row, 6
  %asked = extractvalue %Leg %leg.row, 7
  %words = extractvalue %Leg %leg.row, 8
  %answers = extractvalue %Leg %leg.row, 9
  %num.answers = extractvalue %Leg %leg.row, 10
  %idle = icmp eq ptr %plan, null
  br label %point
point:
  %p = phi i64 [ 0, %leg ], [ %p.next, %aim ]
  %p.more = icmp ult i64 %p, %num.points
  br i1 %p.more, label %aim, label %aimed
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
aimed:
  br i1 %idle, label %check, label %call
call:
  call void %run(ptr %pool, ptr %plan)
  br label %check
check:
  %k = phi i64 [ 0, %aimed ], [ 0, %call ], [ %k.next, %look ]
  %k.more = icmp ult i64 %k, %num.checks
  br i1 %k.more, label %look, label %copy
look:
  %flag.at.at = getelementptr ptr, ptr %checks, i64 %k
  %flag.at = load ptr, ptr %flag.at.at
  %flag = load i32, ptr %flag.at
  %k.next = add i64 %k, 1
  %well = icmp eq i32 %flag, 0
  br i1 %well, label %check, label %halt
copy:
  %c = phi i64 [ 0, %check ], [ %c.next, %move ]
  %c.more = icmp ult i64 %c, %num.copies
  br i1 %c.more, label %move, label %copied
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
copied:
  %last = icmp eq ptr %asked, null
  br i1 %last, label %ask, label %ways
ways:
  %row.words = add i64 %words, 1
  br label %answer
answer:
  %a = phi i64 [ 0, %ways ], [ %a.next, %other ]
  %a.more = icmp ult i64 %a, %num.answers
  br i1 %a.more, label %compare, label %halt
compare:
  %a.word = mul i64 %a, %row.words
  %a.at = getelementptr i64, ptr %answers, i64 %a.word
  br label %word
word:
  %w = phi i64 [ 0, %compare ], [ %w.next, %equal ]
  %w.more = icmp ult i64 %w, %words
  br i1 %w.more, label %same, label %found
same:
  %w.next = add i64 %w, 1
  %here.at = getelementptr i64, ptr %asked, i64 %w
  %there.at = getelementptr i64, ptr %a.at, i64 %w.next
  %here = load i64, ptr %here.at
  %there = load i64, ptr %there.at
  %agrees = icmp eq i64 %here, %there
  br i1 %agrees, label %equal, label %other
equal:
  br label %word
other:
  %a.next = add i64 %a, 1
  br label %answer
found:
  %follows = load i64, ptr %a.at
  br label %leg
halt:
  %code = phi i64 [ 2, %look ], [ 3, %answer ]
  store i64 %l, ptr %leg.word
  ret i64 %code
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
