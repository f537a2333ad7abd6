"""Where the elements of a mask are not zero, as LLVM IR.

    void autotune_nonzero(ptr mask, i64 rows, i64 columns, ptr sizes, ptr place, i64 outer, ptr found, i64 count)

`mask` is u8 [rows, columns]; `sizes` and `place` are i64 [outer]: the dimensions that make up the rows, and zeros, as
the place of the first row. `found` gets i64 [outer + 1, count], the indices of the `count` elements in row-major order,
and may be written one element beyond its end.

    i64 autotune_find_nonzero(ptr data, ptr how, ptr mask, ptr found)

The same for elements of any kind, in one call; returned is how many there are. `how` is i64 {elements, bytes of one,
bits of one that count, rows, columns, outer, sizes, place}; `mask` is scratch of a byte for each element, `found` has
room for all of them.

    void autotune_find_each(ptr frames, i64 count)

The same for so many arrays: a frame is {data, how, mask, found, room for how many there are}.

64 bytes of a row are one word of bits, which are taken one by one; what is left of a row is looked at byte by byte.
"""

from __future__ import annotations

from autotune.codegen.own_objects import own_object

CPU = "x86-64-v3"
"""What the object is for: every CPU that autotune runs on."""

_ROW = """
declare i64 @llvm.cttz.i64(i64, i1)

; the columns of one row, written from `at` on; where the next row's go
define internal ptr @columns(ptr %row, i64 %columns, ptr %at) {
entry:
  %whole = and i64 %columns, -64
  br label %block
block:
  %first = phi i64 [ 0, %entry ], [ %first.next, %block.end ]
  %to = phi ptr [ %at, %entry ], [ %to.bits, %block.end ]
  %more = icmp ult i64 %first, %whole
  br i1 %more, label %look, label %tail
look:
  %bytes.at = getelementptr i8, ptr %row, i64 %first
  %bytes = load <64 x i8>, ptr %bytes.at, align 1
  %set = icmp ne <64 x i8> %bytes, zeroinitializer
  %bits.all = bitcast <64 x i1> %set to i64
  br label %each
each:
  %bits = phi i64 [ %bits.all, %look ], [ %bits.next, %take ]
  %to.bits = phi ptr [ %to, %look ], [ %to.bits.next, %take ]
  %any = icmp ne i64 %bits, 0
  br i1 %any, label %take, label %block.end
take:
  %lane = call i64 @llvm.cttz.i64(i64 %bits, i1 true)
  %lower = sub i64 %bits, 1
  %bits.next = and i64 %bits, %lower
  %column = add i64 %first, %lane
  store i64 %column, ptr %to.bits
  %to.bits.next = getelementptr i64, ptr %to.bits, i64 1
  br label %each
block.end:
  %first.next = add i64 %first, 64
  br label %block
tail:
  %left = phi i64 [ %whole, %block ], [ %left.next, %byte ]
  %to.tail = phi ptr [ %to, %block ], [ %to.tail.next, %byte ]
  %inside = icmp ult i64 %left, %columns
  br i1 %inside, label %byte, label %done
byte:
  ; written in any case, and kept where it is one
  store i64 %left, ptr %to.tail
  %byte.at = getelementptr i8, ptr %row, i64 %left
  %value = load i8, ptr %byte.at
  %is.set = icmp ne i8 %value, 0
  %one = zext i1 %is.set to i64
  %to.tail.next = getelementptr i64, ptr %to.tail, i64 %one
  %left.next = add i64 %left, 1
  br label %tail
done:
  ret ptr %to.tail
}

define internal void @fill(ptr %from, ptr %to, i64 %value) {
entry:
  br label %loop
loop:
  %at = phi ptr [ %from, %entry ], [ %next, %work ]
  %more = icmp ult ptr %at, %to
  br i1 %more, label %work, label %done
work:
  store i64 %value, ptr %at
  %next = getelementptr i64, ptr %at, i64 1
  br label %loop
done:
  ret void
}

; the place of the next row
define internal void @advance(ptr %sizes, ptr %place, i64 %outer) {
entry:
  br label %loop
loop:
  %left = phi i64 [ %outer, %entry ], [ %d, %carry ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %step, label %done
step:
  %d = sub i64 %left, 1
  %place.at = getelementptr i64, ptr %place, i64 %d
  %size.at = getelementptr i64, ptr %sizes, i64 %d
  %old = load i64, ptr %place.at
  %size = load i64, ptr %size.at
  %new = add i64 %old, 1
  %full = icmp eq i64 %new, %size
  br i1 %full, label %carry, label %set
carry:
  store i64 0, ptr %place.at
  br label %loop
set:
  store i64 %new, ptr %place.at
  br label %done
done:
  ret void
}
"""

_ALL = """
define void @autotune_nonzero(
    ptr %mask, i64 %rows, i64 %columns, ptr %sizes, ptr %place, i64 %outer, ptr %found, i64 %count) {
entry:
  %before = mul i64 %outer, %count
  %last = getelementptr i64, ptr %found, i64 %before
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]
  %at = phi ptr [ %last, %entry ], [ %at.next, %row.end ]
  %more = icmp ult i64 %r, %rows
  br i1 %more, label %scan, label %done
scan:
  %offset = mul i64 %r, %columns
  %row.at = getelementptr i8, ptr %mask, i64 %offset
  %at.next = call ptr @columns(ptr %row.at, i64 %columns, ptr %at)
  br label %dimension
dimension:
  %d = phi i64 [ 0, %scan ], [ %d.next, %write ]
  %behind = phi i64 [ %before, %scan ], [ %behind.next, %write ]
  %some = icmp ult i64 %d, %outer
  br i1 %some, label %write, label %row.end
write:
  %place.at = getelementptr i64, ptr %place, i64 %d
  %index = load i64, ptr %place.at
  %back = sub i64 0, %behind
  %from = getelementptr i64, ptr %at, i64 %back
  %to = getelementptr i64, ptr %at.next, i64 %back
  call void @fill(ptr %from, ptr %to, i64 %index)
  %d.next = add i64 %d, 1
  %behind.next = sub i64 %behind, %count
  br label %dimension
row.end:
  call void @advance(ptr %sizes, ptr %place, i64 %outer)
  %r.next = add i64 %r, 1
  br label %row
done:
  ret void
}
"""

_FIND = """
define i64 @autotune_find_nonzero(ptr noalias %data, ptr noalias %how, ptr noalias %mask, ptr noalias %found) {
entry:
  %total = load i64, ptr %how
  %bytes.at = getelementptr i64, ptr %how, i64 1
  %bytes = load i64, ptr %bytes.at
  %bits.at = getelementptr i64, ptr %how, i64 2
  %bits = load i64, ptr %bits.at
  switch i64 %bytes, label %of.8 [
    i64 1, label %of.1
    i64 2, label %of.2
    i64 4, label %of.4
  ]
of.1:
  %count.1 = call i64 @mark.1(ptr %data, i64 %total, i64 %bits, ptr %mask)
  br label %write
of.2:
  %count.2 = call i64 @mark.2(ptr %data, i64 %total, i64 %bits, ptr %mask)
  br label %write
of.4:
  %count.4 = call i64 @mark.4(ptr %data, i64 %total, i64 %bits, ptr %mask)
  br label %write
of.8:
  %count.8 = call i64 @mark.8(ptr %data, i64 %total, i64 %bits, ptr %mask)
  br label %write
write:
  %count = phi i64 [ %count.1, %of.1 ], [ %count.2, %of.2 ], [ %count.4, %of.4 ], [ %count.8, %of.8 ]
  %rows.at = getelementptr i64, ptr %how, i64 3
  %rows = load i64, ptr %rows.at
  %columns.at = getelementptr i64, ptr %how, i64 4
  %columns = load i64, ptr %columns.at
  %outer.at = getelementptr i64, ptr %how, i64 5
  %outer = load i64, ptr %outer.at
  %sizes = getelementptr i64, ptr %how, i64 6
  %place = getelementptr i64, ptr %sizes, i64 %outer
  ; the place is that of the first row again when all rows are done
  call void @autotune_nonzero(
    ptr %mask, i64 %rows, i64 %columns, ptr %sizes, ptr %place, i64 %outer, ptr %found, i64 %count)
  ret i64 %count
}
"""

_EACH = """
define void @autotune_find_each(ptr %frames, i64 %count) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %work ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %work, label %done
work:
  %start = mul i64 %n, 5
  %frame = getelementptr ptr, ptr %frames, i64 %start
  %data = load ptr, ptr %frame
  %how.at = getelementptr ptr, ptr %frame, i64 1
  %how = load ptr, ptr %how.at
  %mask.at = getelementptr ptr, ptr %frame, i64 2
  %mask = load ptr, ptr %mask.at
  %found.at = getelementptr ptr, ptr %frame, i64 3
  %found = load ptr, ptr %found.at
  %many = call i64 @autotune_find_nonzero(ptr %data, ptr %how, ptr %mask, ptr %found)
  %many.at = getelementptr ptr, ptr %frame, i64 4
  store i64 %many, ptr %many.at
  %n.next = add i64 %n, 1
  br label %loop
done:
  ret void
}
"""


def _mark(size: int) -> str:
    """What counts elements of so many bytes and writes the mask."""
    kind = f"i{8 * size}"
    return f"""
define internal i64 @mark.{size}(ptr noalias %data, i64 %total, i64 %bits.wide, ptr noalias %mask) {{
entry:
  %bits = {"trunc i64 %bits.wide to " + kind if size < 8 else "add i64 %bits.wide, 0"}
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %work ]
  %count = phi i64 [ 0, %entry ], [ %count.next, %work ]
  %more = icmp ult i64 %n, %total
  br i1 %more, label %work, label %done
work:
  %at = getelementptr {kind}, ptr %data, i64 %n
  %x = load {kind}, ptr %at
  %kept = and {kind} %x, %bits
  %is.set = icmp ne {kind} %kept, 0
  %byte = zext i1 %is.set to i8
  %mask.at = getelementptr i8, ptr %mask, i64 %n
  store i8 %byte, ptr %mask.at
  %one = zext i1 %is.set to i64
  %count.next = add i64 %count, %one
  %n.next = add i64 %n, 1
  br label %loop
done:
  ret i64 %count
}}
"""


def nonzero_ir() -> str:
    """The IR text of the object."""
    return _ROW + _ALL + "".join(map(_mark, (1, 2, 4, 8))) + _FIND + _EACH


def nonzero_object() -> bytes:
    """The object code, for every CPU that autotune runs on: those with AVX2."""
    return own_object(nonzero_ir(), CPU)
