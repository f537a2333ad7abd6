"""Operators that move rows, and programs, one after the other without a return to Python, as LLVM IR.

    i64 autotune_moves(ptr run, ptr pool, ptr moves)

`run` is `autotune_run`. How many rows there are is read from memory: data decides it. All words are i64, and most are
addresses of *cells*, which hold a number or the address of a value; a value lies in C order.

    moves   moves there are, their first one
    move    function, and what it is told:
            times      result, factor, factor                     result = product of two cells
            copy       target, source, bytes
            gather     target, source, places, rows, bytes of a row, rank, extents
            scatter    the same: rows of the source go to places of the target; `_add_` of a type are added there
            transpose  target, source, rows, columns              of elements of 8 bytes
            program    extent, fits, number of fits               the fit of an extent has its number; null: none; 1:
                       there is nothing to compute
    extents cells, `rank` of them: a place is so many i64, counted from the end where they are negative
    fit     plan, inputs, their number, points, their number, flags, their number, results, their number
    input   source, where the program reads it, bytes of a row, rows there: what is there beyond `extent` becomes zeros
    point   entry of a frame, source                               the entry gets the address of the value
    flag    an i32 that is 0 when all is well
    result  target, address                                        the cell gets the address

The result is 0 when all is done. It is 1 where a place is outside, an extent has no fit, or a flag is up: what was
written by then is worth nothing.
"""

from __future__ import annotations

from autotune.codegen.own_objects import own_object

CPU = "x86-64-v3"
"""What the object is for: every CPU that autotune runs on."""

MOVE_WORDS = 8
NOTHING = 1
"""In the place of a fit: there is nothing to compute."""

ADDS = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64"}
"""The types that `autotune_scatter_add_` knows, as LLVM calls them."""

_DRIVER = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

%Move = type { ptr, ptr, ptr, ptr, ptr, ptr, i64, ptr }
%Fit = type { ptr, ptr, i64, ptr, i64, ptr, i64, ptr, i64 }
%Input = type { ptr, ptr, i64, i64 }
%Pair = type { ptr, ptr }

define i64 @autotune_moves(ptr %run, ptr %pool, ptr %moves) {
entry:
  %count = load i64, ptr %moves
  %first.at = getelementptr i64, ptr %moves, i64 1
  %first = load ptr, ptr %first.at
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %work ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %work, label %done
work:
  %move = getelementptr %Move, ptr %first, i64 %n
  %function = load ptr, ptr %move
  %bad = call i64 %function(ptr %run, ptr %pool, ptr %move)
  %next = add i64 %n, 1
  %well = icmp eq i64 %bad, 0
  br i1 %well, label %loop, label %left
done:
  ret i64 0
left:
  ret i64 1
}

define internal ptr @cell(ptr %move, i64 %word) alwaysinline {
  %at = getelementptr ptr, ptr %move, i64 %word
  %found = load ptr, ptr %at
  ret ptr %found
}

define internal i64 @number(ptr %move, i64 %word) alwaysinline {
  %at = call ptr @cell(ptr %move, i64 %word)
  %found = load i64, ptr %at
  ret i64 %found
}

define internal ptr @value(ptr %move, i64 %word) alwaysinline {
  %at = call ptr @cell(ptr %move, i64 %word)
  %found = load ptr, ptr %at
  ret ptr %found
}

; the number of a row; -1 where a place is outside
define internal i64 @row(ptr %places, i64 %rank, ptr %extents) alwaysinline {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %inside ]
  %row = phi i64 [ 0, %entry ], [ %row.next, %inside ]
  %more = icmp ult i64 %n, %rank
  br i1 %more, label %work, label %done
work:
  %next = add i64 %n, 1
  %given.at = getelementptr i64, ptr %places, i64 %n
  %given = load i64, ptr %given.at
  %extent.at.at = getelementptr ptr, ptr %extents, i64 %n
  %extent.at = load ptr, ptr %extent.at.at
  %extent = load i64, ptr %extent.at
  %negative = icmp slt i64 %given, 0
  %shift = select i1 %negative, i64 %extent, i64 0
  %place = add i64 %given, %shift
  %good = icmp ult i64 %place, %extent
  %outer = mul i64 %row, %extent
  %row.next = add i64 %outer, %place
  br i1 %good, label %inside, label %outside
inside:
  br label %loop
done:
  ret i64 %row
outside:
  ret i64 -1
}

define i64 @autotune_times(ptr %run, ptr %pool, ptr %move) {
  %result = call ptr @cell(ptr %move, i64 1)
  %one = call i64 @number(ptr %move, i64 2)
  %other = call i64 @number(ptr %move, i64 3)
  %product = mul i64 %one, %other
  store i64 %product, ptr %result
  ret i64 0
}

define i64 @autotune_copy(ptr %run, ptr %pool, ptr %move) {
  %target = call ptr @value(ptr %move, i64 1)
  %source = call ptr @value(ptr %move, i64 2)
  %bytes = call i64 @number(ptr %move, i64 3)
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  ret i64 0
}

define i64 @autotune_transpose(ptr %run, ptr %pool, ptr %move) {
entry:
  %target = call ptr @value(ptr %move, i64 1)
  %source = call ptr @value(ptr %move, i64 2)
  %rows = call i64 @number(ptr %move, i64 3)
  %columns = call i64 @number(ptr %move, i64 4)
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]
  %r.more = icmp ult i64 %r, %rows
  br i1 %r.more, label %begin, label %done
begin:
  %r.next = add i64 %r, 1
  %from = mul i64 %r, %columns
  br label %column
column:
  %c = phi i64 [ 0, %begin ], [ %c.next, %move.one ]
  %c.more = icmp ult i64 %c, %columns
  br i1 %c.more, label %move.one, label %row.end
move.one:
  %c.next = add i64 %c, 1
  %source.n = add i64 %from, %c
  %source.at = getelementptr i64, ptr %source, i64 %source.n
  %x = load i64, ptr %source.at
  %to = mul i64 %c, %rows
  %target.n = add i64 %to, %r
  %target.at = getelementptr i64, ptr %target, i64 %target.n
  store i64 %x, ptr %target.at
  br label %column
row.end:
  br label %row
done:
  ret i64 0
}
"""

_PROGRAM = """
define i64 @autotune_program(ptr %run, ptr %pool, ptr %move) {
entry:
  %extent = call i64 @number(ptr %move, i64 1)
  %fits = call ptr @cell(ptr %move, i64 2)
  %num.at = getelementptr i64, ptr %move, i64 3
  %num = load i64, ptr %num.at
  %known = icmp ult i64 %extent, %num
  br i1 %known, label %look, label %bad
look:
  %fit = call ptr @cell(ptr %fits, i64 %extent)
  %none = icmp eq ptr %fit, null
  br i1 %none, label %bad, label %some
some:
  %nothing = icmp eq ptr %fit, inttoptr (i64 NOTHING to ptr)
  br i1 %nothing, label %done, label %fill
fill:
  %given = load %Fit, ptr %fit
  %plan = extractvalue %Fit %given, 0
  %inputs = extractvalue %Fit %given, 1
  %num.inputs = extractvalue %Fit %given, 2
  %points = extractvalue %Fit %given, 3
  %num.points = extractvalue %Fit %given, 4
  %flags = extractvalue %Fit %given, 5
  %num.flags = extractvalue %Fit %given, 6
  %results = extractvalue %Fit %given, 7
  %num.results = extractvalue %Fit %given, 8
  br label %input
input:
  %i = phi i64 [ 0, %fill ], [ %i.next, %pad ]
  %i.more = icmp ult i64 %i, %num.inputs
  br i1 %i.more, label %pad, label %point
pad:
  %i.at = getelementptr %Input, ptr %inputs, i64 %i
  %i.row = load %Input, ptr %i.at
  %source.at = extractvalue %Input %i.row, 0
  %source = load ptr, ptr %source.at
  %room = extractvalue %Input %i.row, 1
  %bytes = extractvalue %Input %i.row, 2
  %rows = extractvalue %Input %i.row, 3
  %filled = mul i64 %extent, %bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %room, ptr %source, i64 %filled, i1 false)
  %beyond = getelementptr i8, ptr %room, i64 %filled
  %empty.rows = sub i64 %rows, %extent
  %empty = mul i64 %empty.rows, %bytes
  call void @llvm.memset.p0.i64(ptr %beyond, i8 0, i64 %empty, i1 false)
  %i.next = add i64 %i, 1
  br label %input
point:
  %p = phi i64 [ 0, %input ], [ %p.next, %aim ]
  %p.more = icmp ult i64 %p, %num.points
  br i1 %p.more, label %aim, label %call
aim:
  %p.at = getelementptr %Pair, ptr %points, i64 %p
  %p.row = load %Pair, ptr %p.at
  %p.entry = extractvalue %Pair %p.row, 0
  %p.source.at = extractvalue %Pair %p.row, 1
  %p.source = load ptr, ptr %p.source.at
  store ptr %p.source, ptr %p.entry
  %p.next = add i64 %p, 1
  br label %point
call:
  call void %run(ptr %pool, ptr %plan)
  br label %flag
flag:
  %f = phi i64 [ 0, %call ], [ %f.next, %check ]
  %f.more = icmp ult i64 %f, %num.flags
  br i1 %f.more, label %check, label %result
check:
  %flag.at = call ptr @cell(ptr %flags, i64 %f)
  %up = load i32, ptr %flag.at
  %f.next = add i64 %f, 1
  %well = icmp eq i32 %up, 0
  br i1 %well, label %flag, label %bad
result:
  %r = phi i64 [ 0, %flag ], [ %r.next, %tell ]
  %r.more = icmp ult i64 %r, %num.results
  br i1 %r.more, label %tell, label %done
tell:
  %r.at = getelementptr %Pair, ptr %results, i64 %r
  %r.row = load %Pair, ptr %r.at
  %r.target = extractvalue %Pair %r.row, 0
  %r.address = extractvalue %Pair %r.row, 1
  store ptr %r.address, ptr %r.target
  %r.next = add i64 %r, 1
  br label %result
done:
  ret i64 0
bad:
  ret i64 1
}
"""

_COPIED = """
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 %bytes, i1 false)
  br label %row
"""

_ADDED = """
  %width = udiv exact i64 %bytes, {size}
  br label %element
element:
  %e = phi i64 [ 0, %work ], [ %e.next, %add.one ]
  %e.more = icmp ult i64 %e, %width
  br i1 %e.more, label %add.one, label %row
add.one:
  %e.next = add i64 %e, 1
  %to.at = getelementptr {kind}, ptr %there, i64 %e
  %of.at = getelementptr {kind}, ptr %here, i64 %e
  %old = load {kind}, ptr %to.at
  %more.of = load {kind}, ptr %of.at
  %sum = {add} {kind} %old, %more.of
  store {kind} %sum, ptr %to.at
  br label %element
"""


def _rows(name: str, body: str) -> str:
    """What does something with each row: `%here` is number n of them, `%there` the one at its place."""
    return f"""
define i64 @autotune_{name}(ptr %run, ptr %pool, ptr %move) {{
entry:
  %target = call ptr @value(ptr %move, i64 1)
  %source = call ptr @value(ptr %move, i64 2)
  %places = call ptr @value(ptr %move, i64 3)
  %rows = call i64 @number(ptr %move, i64 4)
  %bytes = call i64 @number(ptr %move, i64 5)
  %rank.at = getelementptr i64, ptr %move, i64 6
  %rank = load i64, ptr %rank.at
  %extents = call ptr @cell(ptr %move, i64 7)
  br label %row
row:
  %n = phi i64 [ 0, %entry ], [ %next, {"%element" if "element:" in body else "%work"} ]
  %more = icmp ult i64 %n, %rows
  br i1 %more, label %find, label %done
find:
  %next = add i64 %n, 1
  %first = mul i64 %n, %rank
  %places.at = getelementptr i64, ptr %places, i64 %first
  %place = call i64 @row(ptr %places.at, i64 %rank, ptr %extents)
  %inside = icmp sge i64 %place, 0
  br i1 %inside, label %work, label %outside
work:
  %here.n = mul i64 %n, %bytes
  %there.n = mul i64 %place, %bytes
  %here = getelementptr i8, ptr {"%target" if name == "gather" else "%source"}, i64 %here.n
  %there = getelementptr i8, ptr {"%source" if name == "gather" else "%target"}, i64 %there.n{body}
done:
  ret i64 0
outside:
  ret i64 1
}}
"""


def moves_ir() -> str:
    """The IR text of the object."""
    adds = "".join(
        _rows(
            f"scatter_add_{name}", _ADDED.format(size=int(name[1:]) // 8, kind=kind, add="f" * (name[0] == "f") + "add")
        )
        for name, kind in ADDS.items()
    )
    gather = _rows("gather", _COPIED.format(to="%here", of="%there"))
    return (
        _DRIVER
        + _PROGRAM.replace("NOTHING", str(NOTHING))
        + gather
        + _rows("scatter", _COPIED.format(to="%there", of="%here"))
        + adds
    )


def moves_object() -> bytes:
    """The object code, for every CPU that autotune runs on: those with AVX2."""
    return own_object(moves_ir(), CPU)
