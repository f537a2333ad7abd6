"""Distinct numbers as LLVM IR: keys that carry their places, sorted digit by digit.

    i64 autotune_unique_i64(ptr numbers, i64 count, ptr memory)
    i64 autotune_unique_f32(ptr numbers, i64 count, ptr memory)

`numbers` are `count` numbers, at least one and fewer than 2^32; `memory` is i64 [5 count + 256]. Returned is how many
distinct numbers there are, or -1 for integers that are 2^32 and more apart. `memory` begins then with where each
distinct number is first, which one of them each of the numbers is, and how often each occurs: [count] each.

A key has in its high 32 bits an integer that grows with the number, alike for equal ones, -0.0 and 0.0, and all that
are NaN, and its place in the low ones. The sort leaves equal bytes as they are, and looks at those only that differ.
"""

from __future__ import annotations

from autotune.codegen.own_objects import own_object

CPU = "x86-64-v3"
"""What the object is for: every CPU that autotune runs on."""

_INTEGERS = """
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)

define i64 @autotune_unique_i64(ptr noalias %numbers, i64 %count, ptr noalias %memory) {
entry:
  %keys = call ptr @keys_of(ptr %memory, i64 %count)
  %one = load i64, ptr %numbers
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n.next, %look ]
  %low = phi i64 [ %one, %entry ], [ %low.next, %look ]
  %high = phi i64 [ %one, %entry ], [ %high.next, %look ]
  %at = getelementptr i64, ptr %numbers, i64 %n
  %x = load i64, ptr %at
  %low.next = call i64 @llvm.smin.i64(i64 %low, i64 %x)
  %high.next = call i64 @llvm.smax.i64(i64 %high, i64 %x)
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %look, label %compare
compare:
  ; right as an unsigned number even where it is no signed one
  %range = sub i64 %high.next, %low.next
  %fits = icmp ult i64 %range, 4294967296
  br i1 %fits, label %write, label %apart
apart:
  ret i64 -1
write:
  %m = phi i64 [ 0, %compare ], [ %m.next, %write ]
  %from = getelementptr i64, ptr %numbers, i64 %m
  %y = load i64, ptr %from
  %above = sub i64 %y, %low.next
  %shifted = shl i64 %above, 32
  %key = or i64 %shifted, %m
  %to = getelementptr i64, ptr %keys, i64 %m
  store i64 %key, ptr %to
  %m.next = add i64 %m, 1
  %left = icmp ult i64 %m.next, %count
  br i1 %left, label %write, label %sort
sort:
  %zeros = call i64 @llvm.ctlz.i64(i64 %range, i1 false)
  %bits = sub i64 64, %zeros
  %bits.up = add i64 %bits, 7
  %bytes = lshr i64 %bits.up, 3
  %runs = call i64 @runs(ptr %memory, i64 %count, i64 %bytes)
  ret i64 %runs
}
"""

_FLOATS = """
define i64 @autotune_unique_f32(ptr noalias %numbers, i64 %count, ptr noalias %memory) {
entry:
  %keys = call ptr @keys_of(ptr %memory, i64 %count)
  br label %write
write:
  %n = phi i64 [ 0, %entry ], [ %n.next, %write ]
  %from = getelementptr float, ptr %numbers, i64 %n
  %signed = load float, ptr %from
  ; -0.0 + 0.0 is 0.0
  %x = fadd float %signed, 0.0
  %bits = bitcast float %x to i32
  %sign = ashr i32 %bits, 31
  %flip = or i32 %sign, -2147483648
  %order = xor i32 %bits, %flip
  %none = fcmp uno float %x, %x
  %high = select i1 %none, i32 -1, i32 %order
  %wide = zext i32 %high to i64
  %shifted = shl i64 %wide, 32
  %key = or i64 %shifted, %n
  %to = getelementptr i64, ptr %keys, i64 %n
  store i64 %key, ptr %to
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %write, label %sort
sort:
  %runs = call i64 @runs(ptr %memory, i64 %count, i64 4)
  ret i64 %runs
}
"""

_SORT = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal ptr @keys_of(ptr %memory, i64 %count) {
  %before = mul i64 %count, 3
  %keys = getelementptr i64, ptr %memory, i64 %before
  ret ptr %keys
}

; the keys by one byte of theirs, from one place to the other
define internal void @by_byte(ptr noalias %from, ptr noalias %to, i64 %count, i64 %shift, ptr noalias %places) {
entry:
  call void @llvm.memset.p0.i64(ptr %places, i8 0, i64 2048, i1 false)
  br label %tally
tally:
  %n = phi i64 [ 0, %entry ], [ %n.next, %tally ]
  %from.at = getelementptr i64, ptr %from, i64 %n
  %key = load i64, ptr %from.at
  %moved = lshr i64 %key, %shift
  %byte = and i64 %moved, 255
  %tally.at = getelementptr i64, ptr %places, i64 %byte
  %old = load i64, ptr %tally.at
  %new = add i64 %old, 1
  store i64 %new, ptr %tally.at
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %tally, label %sum
sum:
  %b = phi i64 [ 0, %tally ], [ %b.next, %sum ]
  %before = phi i64 [ 0, %tally ], [ %before.next, %sum ]
  %place.at = getelementptr i64, ptr %places, i64 %b
  %here = load i64, ptr %place.at
  store i64 %before, ptr %place.at
  %before.next = add i64 %before, %here
  %b.next = add i64 %b, 1
  %others = icmp ult i64 %b.next, 256
  br i1 %others, label %sum, label %move
move:
  %m = phi i64 [ 0, %sum ], [ %m.next, %move ]
  %move.from = getelementptr i64, ptr %from, i64 %m
  %move.key = load i64, ptr %move.from
  %move.moved = lshr i64 %move.key, %shift
  %move.byte = and i64 %move.moved, 255
  %free.at = getelementptr i64, ptr %places, i64 %move.byte
  %free = load i64, ptr %free.at
  %free.next = add i64 %free, 1
  store i64 %free.next, ptr %free.at
  %to.at = getelementptr i64, ptr %to, i64 %free
  store i64 %move.key, ptr %to.at
  %m.next = add i64 %m, 1
  %left = icmp ult i64 %m.next, %count
  br i1 %left, label %move, label %done
done:
  ret void
}
"""

_RUNS = """
; the keys in `memory`, which have so many bytes that count, sorted and told apart; how many are distinct
define internal i64 @runs(ptr noalias %memory, i64 %count, i64 %bytes) {
entry:
  %keys = call ptr @keys_of(ptr %memory, i64 %count)
  %other = getelementptr i64, ptr %keys, i64 %count
  %places = getelementptr i64, ptr %other, i64 %count
  %inverse = getelementptr i64, ptr %memory, i64 %count
  %counts = getelementptr i64, ptr %inverse, i64 %count
  br label %sort
sort:
  %byte = phi i64 [ 0, %entry ], [ %byte.next, %pass ]
  %from = phi ptr [ %keys, %entry ], [ %to, %pass ]
  %to = phi ptr [ %other, %entry ], [ %from, %pass ]
  %unsorted = icmp ult i64 %byte, %bytes
  br i1 %unsorted, label %pass, label %begin
pass:
  %above = shl i64 %byte, 3
  %shift = add i64 %above, 32
  call void @by_byte(ptr %from, ptr %to, i64 %count, i64 %shift, ptr %places)
  %byte.next = add i64 %byte, 1
  br label %sort
begin:
  %one = load i64, ptr %from
  %before = xor i64 %one, -9223372036854775808
  br label %look
look:
  %n = phi i64 [ 0, %begin ], [ %n.next, %look ]
  %last = phi i64 [ %before, %begin ], [ %key, %look ]
  %run = phi i64 [ -1, %begin ], [ %run.here, %look ]
  %seen = phi i64 [ 0, %begin ], [ %seen.here, %look ]
  %at = getelementptr i64, ptr %from, i64 %n
  %key = load i64, ptr %at
  %place = and i64 %key, 4294967295
  %both = xor i64 %key, %last
  %high = lshr i64 %both, 32
  %new = icmp ne i64 %high, 0
  %step = zext i1 %new to i64
  %run.here = add i64 %run, %step
  %seen.more = add i64 %seen, 1
  %seen.here = select i1 %new, i64 1, i64 %seen.more
  %first.at = getelementptr i64, ptr %memory, i64 %run.here
  %first.old = load i64, ptr %first.at
  %first.new = select i1 %new, i64 %place, i64 %first.old
  store i64 %first.new, ptr %first.at
  %counts.at = getelementptr i64, ptr %counts, i64 %run.here
  store i64 %seen.here, ptr %counts.at
  %inverse.at = getelementptr i64, ptr %inverse, i64 %place
  store i64 %run.here, ptr %inverse.at
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %look, label %done
done:
  %runs = add i64 %run.here, 1
  ret i64 %runs
}
"""


def unique_ir() -> str:
    """The IR text of the object."""
    return _INTEGERS + _FLOATS + _SORT + _RUNS


def unique_object() -> bytes:
    """The object code, for every CPU that autotune runs on: those with AVX2."""
    return own_object(unique_ir(), CPU)
