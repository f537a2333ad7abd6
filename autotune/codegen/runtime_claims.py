"""How threads share the iterations of a loop, as LLVM IR: a part of `autotune.codegen.runtime_ir`.

Every thread has an equal range of its own, in order, so that what it reads again is still in its caches. A thread that
has run out of work takes iterations from the ranges of others: cores are not equally fast (a second thread or another
machine on the core, other kinds of core), and a thread may have lost its core for a while. The design is that of
pthreadpool (Google, XNNPACK), except that nothing is set up before a loop, which would take a barrier.

What is left of a range is one word on a cache line of its own: the number of the loop, and how many iterations of it
are taken. All threads number the loops alike, since all come to all of them; so a word that is of an earlier loop says
that its owner has not come yet, and whoever takes the first iterations writes the new number. Nobody leaves a loop
before all of it is taken. A word of a later loop means the same: nothing is left of this one.
"""

from __future__ import annotations

CLAIMS = 8
"""Pieces that a range is taken in, if it has as many iterations: so much of a thread's work others can take over."""

CLAIMS_IR = f"""
; The next iterations of the loop for this thread, first | (end << 32); 0 when none is left. `turn` counts the calls of
; one thread in one loop from 0. A loop has less than 2^31 iterations.
define i64 @autotune_claim(ptr %barrier, i64 %thread, i64 %threads, i64 %extent, i64 %turn) {{
entry:
  %begins = icmp eq i64 %turn, 0
  %alone = icmp ule i64 %threads, 1
  br i1 %alone, label %whole, label %shared
whole:
  %end.alone = shl i64 %extent, 32
  %all = select i1 %begins, i64 %end.alone, i64 0
  ret i64 %all
shared:
  %helpers = getelementptr %Barrier, ptr %barrier, i64 1
  %loop.at = getelementptr %Helper, ptr %helpers, i64 %thread, i32 7
  %victim.at = getelementptr %Helper, ptr %helpers, i64 %thread, i32 8
  %loop.old = load i32, ptr %loop.at
  br i1 %begins, label %begin, label %go.on
begin:
  %loop.new = add i32 %loop.old, 1
  store i32 %loop.new, ptr %loop.at
  store i64 0, ptr %victim.at
  br label %go.on
go.on:
  %number = phi i32 [ %loop.new, %begin ], [ %loop.old, %shared ]
  %number.wide = zext i32 %number to i64
  %number.high = shl i64 %number.wide, 32
  %pieces = mul i64 %threads, {CLAIMS}
  %part = udiv i64 %extent, %pieces
  %piece = call i64 @llvm.umax.i64(i64 %part, i64 1)
  %behind.first = load i64, ptr %victim.at
  br label %victim
victim:
  ; the thread whose range it is comes so far behind this one, in a ring
  %behind = phi i64 [ %behind.first, %go.on ], [ %behind.next, %next.victim ]
  %turned = add i64 %thread, %behind
  %over = icmp uge i64 %turned, %threads
  %back = sub i64 %turned, %threads
  %owner = select i1 %over, i64 %back, i64 %turned
  %first.times = mul i64 %extent, %owner
  %first = udiv i64 %first.times, %threads
  %end.times = add i64 %first.times, %extent
  %end = udiv i64 %end.times, %threads
  %count = sub i64 %end, %first
  %word.at = getelementptr %Helper, ptr %helpers, i64 %owner, i32 6
  br label %look
look:
  %word = load atomic i64, ptr %word.at acquire, align 8
  %word.high = lshr i64 %word, 32
  %word.number = trunc i64 %word.high to i32
  %ahead = sub i32 %word.number, %number
  %is.later = icmp sgt i32 %ahead, 0
  %is.this = icmp eq i32 %ahead, 0
  %word.low = and i64 %word, 4294967295
  %taken = select i1 %is.this, i64 %word.low, i64 0
  %used.up = icmp uge i64 %taken, %count
  %nothing = or i1 %is.later, %used.up
  br i1 %nothing, label %next.victim, label %take
take:
  %more = add i64 %taken, %piece
  %until = call i64 @llvm.umin.i64(i64 %more, i64 %count)
  %new = or i64 %number.high, %until
  %swapped = cmpxchg ptr %word.at, i64 %word, i64 %new acq_rel acquire
  %won = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %won, label %found, label %look
found:
  store i64 %behind, ptr %victim.at
  %begin.at = add i64 %first, %taken
  %end.at = add i64 %first, %until
  %end.high = shl i64 %end.at, 32
  %claim = or i64 %begin.at, %end.high
  ret i64 %claim
next.victim:
  %behind.next = add i64 %behind, 1
  %unasked = icmp ult i64 %behind.next, %threads
  br i1 %unasked, label %victim, label %done
done:
  ret i64 0
}}
"""
