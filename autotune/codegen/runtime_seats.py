"""Threads of one region on cores of their own, as LLVM IR: a part of `autotune.codegen.runtime_ir`.

When all cores are busy, the system wakes a helper on its waker's core, and may leave the two there long after another
core has become free: each region then takes as long as on one thread. So threads note where they run when a region
begins, and a helper that has waited long in a barrier looks around: when it shares a core with a thread of a lower
number, it moves to one that none of the others was seen on. Nobody is pinned: the helper's mask is what it was before.
The caller's thread belongs to the application and is never moved.

A move to a core that is busy with someone else's work would cost milliseconds. So the helper first asks how many
threads want to run in the whole system, and stays where it is when they are more than the cores that it may use.
Looking and moving take 10 to 30 us, and are not repeated for 64 times as long.
"""

from __future__ import annotations

SEATS_IR = """
@load.path = internal constant [14 x i8] c"/proc/loadavg\\00"
declare i64 @llvm.ctpop.i64(i64)

define internal void @note_seat(ptr %self) {
  %core = call i32 @sched_getcpu()
  %wide = sext i32 %core to i64
  %seat.at = getelementptr %Helper, ptr %self, i64 0, i32 3
  store atomic i64 %wide, ptr %seat.at monotonic, align 8
  ret void
}

; how many threads want to run: the number before the slash in "0.20 0.18 0.12 1/80 11206"; very many if nobody knows
define internal i64 @count_runnable() {
entry:
  %text = alloca [64 x i8]
  ; open(path, O_CLOEXEC), read, close
  %file = call i64 (i64, ...) @syscall(i64 2, ptr @load.path, i64 524288)
  %closed = icmp slt i64 %file, 0
  br i1 %closed, label %unknown, label %read
read:
  %size = call i64 (i64, ...) @syscall(i64 0, i64 %file, ptr %text, i64 64)
  %status = call i64 (i64, ...) @syscall(i64 3, i64 %file)
  br label %scan
scan:
  %i = phi i64 [ 0, %read ], [ %i.next, %character ]
  %number = phi i64 [ 0, %read ], [ %number.next, %character ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %look, label %unknown
look:
  %at = getelementptr i8, ptr %text, i64 %i
  %code = load i8, ptr %at
  %slash = icmp eq i8 %code, 47
  br i1 %slash, label %found, label %character
character:
  %digit = sub i8 %code, 48
  %is.digit = icmp ult i8 %digit, 10
  %digit.wide = zext i8 %digit to i64
  %shifted = mul i64 %number, 10
  %longer = add i64 %shifted, %digit.wide
  %number.next = select i1 %is.digit, i64 %longer, i64 0
  %i.next = add i64 %i, 1
  br label %scan
found:
  ret i64 %number
unknown:
  ret i64 9223372036854775807
}

define internal void @take_seat(ptr %helpers, i64 %thread, i64 %threads) {
entry:
  %allowed = alloca [16 x i64]
  %free = alloca [16 x i64]
  %self = getelementptr %Helper, ptr %helpers, i64 %thread
  call void @note_seat(ptr %self)
  %own.at = getelementptr %Helper, ptr %self, i64 0, i32 3
  %own = load atomic i64, ptr %own.at monotonic, align 8
  br label %search
search:
  %i = phi i64 [ 0, %entry ], [ %i.next, %compare ]
  %lower = icmp ult i64 %i, %thread
  br i1 %lower, label %compare, label %done
compare:
  %other.at = getelementptr %Helper, ptr %helpers, i64 %i, i32 3
  %other = load atomic i64, ptr %other.at monotonic, align 8
  %shared = icmp eq i64 %other, %own
  %i.next = add i64 %i, 1
  br i1 %shared, label %ask, label %search
ask:
  %start = call i64 @llvm.readcyclecounter()
  %rest.at = getelementptr %Helper, ptr %self, i64 0, i32 4
  %rest.end = load i64, ptr %rest.at
  %early = icmp ult i64 %start, %rest.end
  br i1 %early, label %done, label %masks
masks:
  %cleared = call ptr @memset(ptr %allowed, i32 0, i64 128)
  ; sched_getaffinity(this thread, 128 bytes, mask): with more than 1024 cores it fails, and the mask stays empty
  %got = call i64 (i64, ...) @syscall(i64 204, i64 0, i64 128, ptr %allowed)
  br label %copy
copy:
  %word = phi i64 [ 0, %masks ], [ %word.next, %copy ]
  %cores = phi i64 [ 0, %masks ], [ %cores.next, %copy ]
  %from.at = getelementptr i64, ptr %allowed, i64 %word
  %to.at = getelementptr i64, ptr %free, i64 %word
  %bits = load i64, ptr %from.at
  store i64 %bits, ptr %to.at
  %counted = call i64 @llvm.ctpop.i64(i64 %bits)
  %cores.next = add i64 %cores, %counted
  %word.next = add i64 %word, 1
  %copied = icmp eq i64 %word.next, 16
  br i1 %copied, label %count, label %copy
count:
  %runnable = call i64 @count_runnable()
  %crowded = icmp ugt i64 %runnable, %cores.next
  br i1 %crowded, label %rest, label %strike
strike:
  %j = phi i64 [ 0, %count ], [ %j.next, %strike ]
  %taken.at = getelementptr %Helper, ptr %helpers, i64 %j, i32 3
  %taken = load atomic i64, ptr %taken.at monotonic, align 8
  %place = lshr i64 %taken, 6
  %inside = and i64 %place, 15
  %struck.at = getelementptr i64, ptr %free, i64 %inside
  %before = load i64, ptr %struck.at
  %shift = and i64 %taken, 63
  %bit = shl i64 1, %shift
  %kept = xor i64 %bit, -1
  %after = and i64 %before, %kept
  store i64 %after, ptr %struck.at
  %j.next = add i64 %j, 1
  %all = icmp eq i64 %j.next, %threads
  br i1 %all, label %move, label %strike
move:
  ; sched_setaffinity; an empty mask is refused, and nobody moves
  %moved = call i64 (i64, ...) @syscall(i64 203, i64 0, i64 128, ptr %free)
  %stays = icmp slt i64 %moved, 0
  br i1 %stays, label %rest, label %unpin
unpin:
  %unpinned = call i64 (i64, ...) @syscall(i64 203, i64 0, i64 128, ptr %allowed)
  call void @note_seat(ptr %self)
  br label %rest
rest:
  %end = call i64 @llvm.readcyclecounter()
  %took = sub i64 %end, %start
  %pause = mul i64 %took, 64
  %rest.until = add i64 %end, %pause
  store i64 %rest.until, ptr %rest.at
  br label %done
done:
  ret void
}
"""
