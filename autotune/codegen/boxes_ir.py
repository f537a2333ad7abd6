"""Non-maximum suppression as LLVM IR: one call for all batches and classes, whatever their number.

    i64 autotune_keep_boxes(ptr boxes, ptr scores, ptr sizes, float overlap, float least, ptr keys, ptr kept, ptr found)

`boxes` is f32 [batches, count, 4], `scores` f32 [batches, classes, count], `sizes` i64 {batches, classes, count, limit,
centred}: at most `limit` boxes of a class; boxes are two opposite corners, or a centre and a size. `keys` is scratch
of u64 [count], `kept` of f32 [5, limit rounded up to 16]. `found` gets i64 [returned, 3]: batch, class, box.

Candidates are the scores above `least`, as integers that grow with the score and, for equal ones, fall with the
position; they leave a heap best first, only as long as boxes are wanted. Each is compared with those kept so far,
16 at a time: what lies behind the last one is an empty box, which overlaps nothing.
"""

from __future__ import annotations

from autotune.codegen.own_objects import own_object

CPU = "x86-64-v3"
"""What the object is for: every CPU that autotune runs on."""

_HEAP = """
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i16 @llvm.cttz.i16(i16, i1)
declare i1 @llvm.vector.reduce.or.v16i1(<16 x i1>)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)

; the key at `from` sinks until it is no less than those below it
define internal void @sink(ptr %keys, i64 %count, i64 %from) {
entry:
  %from.at = getelementptr i64, ptr %keys, i64 %from
  %key = load i64, ptr %from.at
  br label %loop
loop:
  %hole = phi i64 [ %from, %entry ], [ %child, %rise ]
  %hole.at = getelementptr i64, ptr %keys, i64 %hole
  %twice = shl i64 %hole, 1
  %left = or i64 %twice, 1
  %right = add i64 %twice, 2
  %inside = icmp ult i64 %left, %count
  br i1 %inside, label %choose, label %done
choose:
  %both = icmp ult i64 %right, %count
  %second = select i1 %both, i64 %right, i64 %left
  %left.at = getelementptr i64, ptr %keys, i64 %left
  %second.at = getelementptr i64, ptr %keys, i64 %second
  %a = load i64, ptr %left.at
  %b = load i64, ptr %second.at
  %larger = icmp ugt i64 %b, %a
  %child = select i1 %larger, i64 %second, i64 %left
  %best = call i64 @llvm.umax.i64(i64 %a, i64 %b)
  %below = icmp ugt i64 %best, %key
  br i1 %below, label %rise, label %done
rise:
  store i64 %best, ptr %hole.at
  br label %loop
done:
  store i64 %key, ptr %hole.at
  ret void
}

define internal void @heapify(ptr %keys, i64 %count) {
entry:
  %half = lshr i64 %count, 1
  br label %loop
loop:
  %left = phi i64 [ %half, %entry ], [ %i, %work ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %work, label %done
work:
  %i = sub i64 %left, 1
  call void @sink(ptr %keys, i64 %count, i64 %i)
  br label %loop
done:
  ret void
}
"""

_CANDIDATES = """
; the keys of the scores above `least`; how many there are
define internal i64 @candidates(ptr %scores, i64 %count, float %least, ptr %keys) {
entry:
  %least.one = insertelement <16 x float> poison, float %least, i64 0
  %bound = shufflevector <16 x float> %least.one, <16 x float> poison, <16 x i32> zeroinitializer
  br label %block
block:
  %first = phi i64 [ 0, %entry ], [ %next, %block.end ]
  %found = phi i64 [ 0, %entry ], [ %found.all, %block.end ]
  %more = icmp ult i64 %first, %count
  br i1 %more, label %look, label %done
look:
  %rest = sub i64 %count, %first
  %here = call i64 @llvm.umin.i64(i64 %rest, i64 16)
  %beyond = shl i64 -1, %here
  %inside.wide = xor i64 %beyond, -1
  %inside.bits = trunc i64 %inside.wide to i16
  %inside = bitcast i16 %inside.bits to <16 x i1>
  %scores.at = getelementptr float, ptr %scores, i64 %first
  %scores.here = call <16 x float> @llvm.masked.load.v16f32.p0(
      ptr align 4 %scores.at, <16 x i1> %inside, <16 x float> %bound)
  %above = fcmp ogt <16 x float> %scores.here, %bound
  %bits.all = bitcast <16 x i1> %above to i16
  br label %each
each:
  %bits = phi i16 [ %bits.all, %look ], [ %bits.next, %take ]
  %found.all = phi i64 [ %found, %look ], [ %found.next, %take ]
  %any = icmp ne i16 %bits, 0
  br i1 %any, label %take, label %block.end
take:
  %lane.narrow = call i16 @llvm.cttz.i16(i16 %bits, i1 true)
  %lane = zext i16 %lane.narrow to i64
  %lower = sub i16 %bits, 1
  %bits.next = and i16 %bits, %lower
  %place = add i64 %first, %lane
  %score.at = getelementptr float, ptr %scores, i64 %place
  %score.signed = load float, ptr %score.at
  ; -0.0 + 0.0 is 0.0: the two are equal scores
  %score = fadd float %score.signed, 0.0
  %word = bitcast float %score to i32
  %sign = ashr i32 %word, 31
  %flip = or i32 %sign, -2147483648
  %order = xor i32 %word, %flip
  %order.wide = zext i32 %order to i64
  %high = shl i64 %order.wide, 32
  %low = xor i64 %place, 4294967295
  %key = or i64 %high, %low
  %key.at = getelementptr i64, ptr %keys, i64 %found.all
  store i64 %key, ptr %key.at
  %found.next = add i64 %found.all, 1
  br label %each
block.end:
  %next = add i64 %first, 16
  br label %block
done:
  ret i64 %found
}
"""

_BOXES = """
; lowest and highest corner: y0, x0, y1, x1
define internal <4 x float> @corners(ptr %box, i64 %centred) {
  %given = load <4 x float>, ptr %box, align 4
  %a = shufflevector <4 x float> %given, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %b = shufflevector <4 x float> %given, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %is.centred = icmp ne i64 %centred, 0
  br i1 %is.centred, label %centre, label %opposite
centre:
  %half = fmul <2 x float> %b, <float 0.5, float 0.5>
  %below = fsub <2 x float> %a, %half
  %above = fadd <2 x float> %a, %half
  %centre.corners = shufflevector <2 x float> %below, <2 x float> %above, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  ret <4 x float> %centre.corners
opposite:
  %ordered = fcmp olt <2 x float> %a, %b
  %low = select <2 x i1> %ordered, <2 x float> %a, <2 x float> %b
  %high = select <2 x i1> %ordered, <2 x float> %b, <2 x float> %a
  %opposite.corners = shufflevector <2 x float> %low, <2 x float> %high, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  ret <4 x float> %opposite.corners
}

define internal float @area(<4 x float> %box) {
  %low = shufflevector <4 x float> %box, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %high = shufflevector <4 x float> %box, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %sides = fsub <2 x float> %high, %low
  %height = extractelement <2 x float> %sides, i64 0
  %width = extractelement <2 x float> %sides, i64 1
  %area = fmul float %height, %width
  ret float %area
}

define internal void @keep(<4 x float> %box, float %area, ptr %kept, i64 %count, i64 %room) {
entry:
  %x0.row = getelementptr float, ptr %kept, i64 %room
  %y1.row = getelementptr float, ptr %x0.row, i64 %room
  %x1.row = getelementptr float, ptr %y1.row, i64 %room
  %area.row = getelementptr float, ptr %x1.row, i64 %room
  %y0.at = getelementptr float, ptr %kept, i64 %count
  %x0.at = getelementptr float, ptr %x0.row, i64 %count
  %y1.at = getelementptr float, ptr %y1.row, i64 %count
  %x1.at = getelementptr float, ptr %x1.row, i64 %count
  %area.at = getelementptr float, ptr %area.row, i64 %count
  %lane = and i64 %count, 15
  %opens = icmp eq i64 %lane, 0
  br i1 %opens, label %clear, label %write
clear:
  store <16 x float> zeroinitializer, ptr %y0.at, align 4
  store <16 x float> zeroinitializer, ptr %x0.at, align 4
  store <16 x float> zeroinitializer, ptr %y1.at, align 4
  store <16 x float> zeroinitializer, ptr %x1.at, align 4
  store <16 x float> zeroinitializer, ptr %area.at, align 4
  br label %write
write:
  %y0 = extractelement <4 x float> %box, i64 0
  %x0 = extractelement <4 x float> %box, i64 1
  %y1 = extractelement <4 x float> %box, i64 2
  %x1 = extractelement <4 x float> %box, i64 3
  store float %y0, ptr %y0.at
  store float %x0, ptr %x0.at
  store float %y1, ptr %y1.at
  store float %x1, ptr %x1.at
  store float %area, ptr %area.at
  ret void
}
"""

_CLASSES = """
; one class: how many boxes `found` holds afterwards
define internal i64 @class(
    ptr %boxes, ptr %scores, ptr %sizes, float %overlap, float %least, ptr %keys, ptr %kept, ptr %found, i64 %already,
    i64 %batch, i64 %class) {
entry:
  %count.at = getelementptr i64, ptr %sizes, i64 2
  %limit.at = getelementptr i64, ptr %sizes, i64 3
  %centred.at = getelementptr i64, ptr %sizes, i64 4
  %count = load i64, ptr %count.at
  %limit = load i64, ptr %limit.at
  %centred = load i64, ptr %centred.at
  %padded = add i64 %limit, 15
  %room = and i64 %padded, -16
  %total = call i64 @candidates(ptr %scores, i64 %count, float %least, ptr %keys)
  call void @heapify(ptr %keys, i64 %total)
  br label %loop
loop:
  %left = phi i64 [ %total, %entry ], [ %rest, %again ]
  %taken = phi i64 [ 0, %entry ], [ %taken.next, %again ]
  %some = icmp ne i64 %left, 0
  %wanted = icmp ult i64 %taken, %limit
  %more = and i1 %some, %wanted
  br i1 %more, label %pop, label %done
pop:
  %key = load i64, ptr %keys
  %rest = sub i64 %left, 1
  %last.at = getelementptr i64, ptr %keys, i64 %rest
  %last = load i64, ptr %last.at
  store i64 %last, ptr %keys
  call void @sink(ptr %keys, i64 %rest, i64 0)
  %low = and i64 %key, 4294967295
  %place = xor i64 %low, 4294967295
  %numbers = shl i64 %place, 2
  %box.at = getelementptr float, ptr %boxes, i64 %numbers
  %box = call <4 x float> @corners(ptr %box.at, i64 %centred)
  %area = call float @area(<4 x float> %box)
  %covered = call i1 @suppressed(<4 x float> %box, float %area, ptr %kept, i64 %taken, i64 %room, float %overlap)
  br i1 %covered, label %again, label %take
take:
  call void @keep(<4 x float> %box, float %area, ptr %kept, i64 %taken, i64 %room)
  %row = add i64 %already, %taken
  %row.start = mul i64 %row, 3
  %batch.at = getelementptr i64, ptr %found, i64 %row.start
  %class.at = getelementptr i64, ptr %batch.at, i64 1
  %place.at = getelementptr i64, ptr %batch.at, i64 2
  store i64 %batch, ptr %batch.at
  store i64 %class, ptr %class.at
  store i64 %place, ptr %place.at
  %one.more = add i64 %taken, 1
  br label %again
again:
  %taken.next = phi i64 [ %taken, %pop ], [ %one.more, %take ]
  br label %loop
done:
  %now = add i64 %already, %taken
  ret i64 %now
}

define i64 @autotune_keep_boxes(
    ptr %boxes, ptr %scores, ptr %sizes, float %overlap, float %least, ptr %keys, ptr %kept, ptr %found) {
entry:
  %batches = load i64, ptr %sizes
  %classes.at = getelementptr i64, ptr %sizes, i64 1
  %classes = load i64, ptr %classes.at
  %count.at = getelementptr i64, ptr %sizes, i64 2
  %count = load i64, ptr %count.at
  %rows = mul i64 %batches, %classes
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %next, %work ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %work ]
  %more = icmp ult i64 %row, %rows
  br i1 %more, label %work, label %done
work:
  %batch = udiv i64 %row, %classes
  %class = urem i64 %row, %classes
  %boxes.first = mul i64 %batch, %count
  %boxes.numbers = shl i64 %boxes.first, 2
  %boxes.at = getelementptr float, ptr %boxes, i64 %boxes.numbers
  %scores.first = mul i64 %row, %count
  %scores.at = getelementptr float, ptr %scores, i64 %scores.first
  %sum.next = call i64 @class(
      ptr %boxes.at, ptr %scores.at, ptr %sizes, float %overlap, float %least, ptr %keys, ptr %kept, ptr %found,
      i64 %sum, i64 %batch, i64 %class)
  %next = add i64 %row, 1
  br label %loop
done:
  ret i64 %sum
}
"""


def _spread(name: str, value: str) -> str:
    """%name: the float %value in all lanes."""
    return f"""  %{name}.first = insertelement <16 x float> poison, float %{value}, i64 0
  %{name} = shufflevector <16 x float> %{name}.first, <16 x float> poison, <16 x i32> zeroinitializer
"""


def _common(name: str, low: str, high: str) -> str:
    """%name: how much of the intervals low..high the box and each kept one have in common, 0 if nothing."""
    return f"""  %{name}.begins = fcmp ogt <16 x float> %{low}, %{low}.kept
  %{name}.begin = select <16 x i1> %{name}.begins, <16 x float> %{low}, <16 x float> %{low}.kept
  %{name}.ends = fcmp olt <16 x float> %{high}, %{high}.kept
  %{name}.end = select <16 x i1> %{name}.ends, <16 x float> %{high}, <16 x float> %{high}.kept
  %{name}.length = fsub <16 x float> %{name}.end, %{name}.begin
  %{name}.some = fcmp ogt <16 x float> %{name}.length, zeroinitializer
  %{name} = select <16 x i1> %{name}.some, <16 x float> %{name}.length, <16 x float> zeroinitializer
"""


def _suppressed() -> str:
    pairs = [*((side, f"{side}.one") for side in ("y0", "x0", "y1", "x1")), ("mine", "area"), ("most", "overlap")]
    spread = "".join(_spread(name, value) for name, value in pairs)
    return f"""
; whether a box overlaps one of the first `count` kept ones by more than `overlap` of what both cover
define internal i1 @suppressed(
    <4 x float> %box, float %area, ptr %kept, i64 %count, i64 %room, float %overlap) {{
entry:
  %y0.one = extractelement <4 x float> %box, i64 0
  %x0.one = extractelement <4 x float> %box, i64 1
  %y1.one = extractelement <4 x float> %box, i64 2
  %x1.one = extractelement <4 x float> %box, i64 3
{spread}  %x0.row = getelementptr float, ptr %kept, i64 %room
  %y1.row = getelementptr float, ptr %x0.row, i64 %room
  %x1.row = getelementptr float, ptr %y1.row, i64 %room
  %area.row = getelementptr float, ptr %x1.row, i64 %room
  br label %loop
loop:
  %first = phi i64 [ 0, %entry ], [ %next, %apart ]
  %more = icmp ult i64 %first, %count
  br i1 %more, label %compare, label %none
compare:
  %y0.at = getelementptr float, ptr %kept, i64 %first
  %x0.at = getelementptr float, ptr %x0.row, i64 %first
  %y1.at = getelementptr float, ptr %y1.row, i64 %first
  %x1.at = getelementptr float, ptr %x1.row, i64 %first
  %area.at = getelementptr float, ptr %area.row, i64 %first
  %y0.kept = load <16 x float>, ptr %y0.at, align 4
  %x0.kept = load <16 x float>, ptr %x0.at, align 4
  %y1.kept = load <16 x float>, ptr %y1.at, align 4
  %x1.kept = load <16 x float>, ptr %x1.at, align 4
  %theirs = load <16 x float>, ptr %area.at, align 4
{_common("height", "y0", "y1")}{_common("width", "x0", "x1")}  %shared = fmul <16 x float> %height, %width
  %sum = fadd <16 x float> %theirs, %mine
  %covered = fsub <16 x float> %sum, %shared
  %share = fdiv <16 x float> %shared, %covered
  %meet = fcmp ogt <16 x float> %shared, zeroinitializer
  %solid = fcmp ogt <16 x float> %covered, zeroinitializer
  %much = fcmp ogt <16 x float> %share, %most
  %exist = and <16 x i1> %meet, %solid
  %over = and <16 x i1> %exist, %much
  %any = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %over)
  br i1 %any, label %found, label %apart
apart:
  %next = add i64 %first, 16
  br label %loop
found:
  ret i1 true
none:
  ret i1 false
}}
"""


def boxes_ir() -> str:
    """The IR text of the object."""
    return "".join((_HEAP, _CANDIDATES, _BOXES, _suppressed(), _CLASSES))


def boxes_object() -> bytes:
    """The object code, for every CPU that autotune runs on: those with AVX2."""
    return own_object(boxes_ir(), CPU)
