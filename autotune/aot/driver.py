"""The C source of a library: tables of the plan, and the functions of the header around the native runtime."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.aot.cpu_check import CHECKER, check_function
from autotune.aot.interface import Interface
from autotune.runtime.program import ARENA, CONSTANTS, INPUT, OUTPUT, Program, Ref
from autotune.runtime.threads import BARRIER_SPIN, CROWDED_SPIN, IDLE_SPIN
from autotune.target import Target
from autotune.tensor.dtype import DType

_SPACES = {ARENA: 0, CONSTANTS: 1, INPUT: 2, OUTPUT: 3}


@dataclass(frozen=True, slots=True)
class Variant:
    """A program among the variants of a library: its number and how its parts are called there."""

    number: int
    program: Program

    @property
    def target(self) -> Target:
        return Target.from_json(self.program.target)

    def kernel(self, index: int) -> str:
        """The symbol of a kernel."""
        return f"v{self.number}_kernel{index}"

    @property
    def weights(self) -> str:
        """The symbol of the packed weights."""
        return f"v{self.number}_weights"


def driver_source(interface: Interface, variants: Sequence[Variant], weights_file: str | None) -> str:
    """C11 text of everything but kernels, runtime and weights.

    Args:
        variants: the ones to be preferred first; the first that the CPU can run is used.
        weights_file: name of the file beside the library that holds the weights, each variant's at a multiple of 4096
            bytes; None when they are in the library, under `Variant.weights`.

    Raises:
        TargetError: as `check_function`.
    """
    p = interface.prefix
    body = [_HEAD, CHECKER]
    for variant in variants:
        body += [check_function(f"v{variant.number}_lacks", variant.target.features), _tables(variant, weights_file)]
    table = ",\n".join(_entry(variant, weights_file) for variant in variants)
    body.append(f"static const variant variants[] = {{\n{table}\n}};\nenum {{ VARIANTS = {len(variants)} }};\n")
    name = "0" if weights_file is None else json.dumps(weights_file)
    body.append(f"static const char *const weights_file = {name};")
    counts = f"enum {{ INPUTS = {len(interface.inputs)}, OUTPUTS = {len(interface.outputs)} }};"
    spins = f"enum {{ IDLE_SPIN = {IDLE_SPIN}, BARRIER_SPIN = {BARRIER_SPIN}, CROWDED_SPIN = {CROWDED_SPIN} }};"
    body += [counts, spins, f"typedef struct {p} model_t;", _BODY.replace("struct model_s", f"struct {p}")]
    inputs = ", ".join(q.name for q in interface.inputs)
    outputs = ", ".join(q.name for q in interface.outputs)
    body.append(
        f"{p} *{p}_create(void) {{ return create(); }}\n"
        f"void {p}_destroy({p} *model) {{ destroy(model); }}\n"
        f"const char *{p}_error(void) {{ return complaint; }}\n"
        f"const char *{p}_variant(void) {{ const variant *v = chosen(); return v ? v->cpu : 0; }}\n"
        f"{interface.run_signature} {{\n"
        f"  const void *in[] = {{{inputs or '0'}}};\n"
        f"  void *out[] = {{{outputs}}};\n"
        "  return run(model, in, out);\n"
        "}\n"
    )
    return "\n".join(body)


def _tables(variant: Variant, weights_file: str | None) -> str:
    program, v = variant.program, f"v{variant.number}"
    used = sorted({call.object for call in program.calls})
    lines = [f"void {variant.kernel(index)}(void **, int64_t, int64_t);" for index in used]
    if weights_file is None:
        lines.append(f"extern const unsigned char {variant.weights}[];")
    refs = [r for call in program.calls for r in call.frame]
    lines.append(f"static const ref {v}_refs[] = {{{', '.join(map(_ref, refs)) or '{0, 0}'}}};")
    calls = (f"{{{variant.kernel(call.object)}, {len(call.frame)}}}" for call in program.calls)
    lines.append(f"static const call {v}_calls[] = {{{', '.join(calls) or '{0, 0}'}}};")
    inputs = (str(_bytes(spec.dtype, spec.shape)) for spec in program.inputs)
    lines.append(f"static const size_t {v}_inputs[] = {{{', '.join(inputs) or '0'}}};")
    outputs = (f"{{{_ref(r)}, {_bytes(spec.dtype, spec.shape)}}}" for spec, r in program.outputs)
    lines.append(f"static const output {v}_outputs[] = {{{', '.join(outputs)}}};")
    checks = (f"{{{_ref(check.ref)}, {_text(check.complaint)}}}" for check in program.checks)
    lines.append(f"static const check {v}_checks[] = {{{', '.join(checks) or '{{0, 0}, 0}'}}};")
    return "\n".join([*lines, ""])


def _entry(variant: Variant, weights_file: str | None) -> str:
    program, v = variant.program, f"v{variant.number}"
    weights = "0" if weights_file is not None else variant.weights
    return (
        f"  {{{_text(variant.target.cpu)}, {v}_lacks, {v}_calls, {len(program.calls)}, {v}_refs, {v}_inputs,"
        f" {v}_outputs, {v}_checks, {len(program.checks)}, {weights}, {program.constant_bytes},"
        f" {program.arena_bytes}, {program.num_threads}}}"
    )


def _ref(r: Ref) -> str:
    return f"{{{_SPACES[r.space]}, {r.offset}}}"


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * DType(dtype).bytes


def _text(text: str) -> str:
    """A C string literal: JSON's escapes for ASCII are C's but for \\u, which other characters become."""
    return json.dumps(text.encode("ascii", "replace").decode())


_HEAD = """\
#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *autotune_pool_create(int64_t threads, int64_t idle_spin, int64_t barrier_spin);
void autotune_pool_destroy(void *pool);
void *autotune_pool_barrier(void *pool);
void autotune_run(void *pool, void *plan);

typedef void kernel(void **frame, int64_t thread, int64_t threads);
typedef struct { unsigned space; uint64_t offset; } ref;
typedef struct { kernel *code; size_t entries; } call;
typedef struct { ref where; size_t bytes; } output;
typedef struct { ref where; const char *complaint; } check;
typedef struct {
  const char *cpu;
  const char *(*lacks)(void);
  const call *calls; size_t num_calls;
  const ref *refs;
  const size_t *inputs;
  const output *outputs;
  const check *checks; size_t num_checks;
  const unsigned char *weights; uint64_t weight_bytes;
  uint64_t arena_bytes;
  int64_t threads;
} variant;
typedef struct { kernel *code; void **frame; } step;
typedef struct { int64_t steps; step *first; int64_t rotations; void *barrier; } plan;
enum { ARENA, CONSTANTS, INPUT, OUTPUT, ALIGN = 64, PAGE = 4096 };
"""

_BODY = """
struct model_s {
  const variant *v;
  unsigned char *arena;
  const unsigned char *weights;
  void *mapped; size_t mapped_bytes;
  void *pool;
  void **frames;
  step *steps;
  plan plan;
  const void *in[INPUTS + 1];
  void *out[OUTPUTS];
};

static _Thread_local char complaint[512];

static const variant *chosen(void) {
  const char *lacking = 0;
  for (int n = 0; n < VARIANTS; n++) {
    lacking = variants[n].lacks();
    if (!lacking) return &variants[n];
  }
  snprintf(complaint, sizeof complaint, "this CPU lacks %s", lacking);
  return 0;
}

static int fail(model_t *m, const char *what) {
  snprintf(complaint, sizeof complaint, "%s%s%s", what, errno ? ": " : "", errno ? strerror(errno) : "");
  if (m && m->mapped) munmap(m->mapped, m->mapped_bytes);
  if (m) { free(m->arena); free(m->frames); free(m->steps); free(m); }
  return -1;
}

static int map_weights(model_t *m) {
  Dl_info here;
  char path[4096];
  struct stat found;
  size_t begin = 0, total = 0;
  for (int n = 0; n < VARIANTS; n++) {
    if (&variants[n] == m->v) begin = total;
    total += (variants[n].weight_bytes + PAGE - 1) / PAGE * PAGE;
  }
  if (!dladdr((void *)variants, &here)) return -1;
  const char *slash = strrchr(here.dli_fname, '/');
  int folder = slash ? (int)(slash - here.dli_fname) + 1 : 0;
  if (snprintf(path, sizeof path, "%.*s%s", folder, here.dli_fname, weights_file) >= (int)sizeof path) return -1;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  if (!fstat(file, &found) && (size_t)found.st_size == total) {
    void *all = mmap(0, total, PROT_READ, MAP_PRIVATE, file, 0);
    if (all != MAP_FAILED) { m->mapped = all; m->mapped_bytes = total; m->weights = (unsigned char *)all + begin; }
  } else {
    errno = 0;
  }
  close(file);
  return m->mapped ? 0 : -1;
}

static void *at(const model_t *m, ref r) {
  switch (r.space) {
    case ARENA: return m->arena + r.offset;
    case CONSTANTS: return (void *)(m->weights + r.offset);
    case INPUT: return (void *)m->in[r.offset];
    default: return m->out[r.offset];
  }
}

static model_t *create(void) {
  errno = 0;
  const variant *v = chosen();
  if (!v) return 0;
  model_t *m = calloc(1, sizeof *m);
  if (!m) { fail(0, "no memory"); return 0; }
  m->v = v;
  m->weights = v->weights;
  if (weights_file && map_weights(m)) { fail(m, weights_file); return 0; }
  size_t entries = 0;
  for (size_t n = 0; n < v->num_calls; n++) entries += v->calls[n].entries + 1;
  m->arena = aligned_alloc(ALIGN, (v->arena_bytes + 2 * ALIGN) / ALIGN * ALIGN);
  m->frames = malloc((entries + 1) * sizeof *m->frames);
  m->steps = malloc((v->num_calls + 1) * sizeof *m->steps);
  if (!m->arena || !m->frames || !m->steps) { fail(m, "no memory"); return 0; }
  cpu_set_t allowed;
  int crowded = !sched_getaffinity(0, sizeof allowed, &allowed) && CPU_COUNT(&allowed) < v->threads;
  m->pool = crowded ? autotune_pool_create(v->threads, CROWDED_SPIN, CROWDED_SPIN)
                    : autotune_pool_create(v->threads, IDLE_SPIN, BARRIER_SPIN);
  if (!m->pool) { fail(m, "cannot start threads"); return 0; }
  const ref *r = v->refs;
  void **frame = m->frames;
  for (size_t n = 0; n < v->num_calls; n++) {
    m->steps[n] = (step){v->calls[n].code, frame};
    for (size_t e = 0; e < v->calls[n].entries; e++, r++) *frame++ = at(m, *r);
    *frame++ = autotune_pool_barrier(m->pool);
  }
  m->plan = (plan){(int64_t)v->num_calls, m->steps, 1, autotune_pool_barrier(m->pool)};
  return m;
}

static void destroy(model_t *m) {
  if (!m) return;
  autotune_pool_destroy(m->pool);
  if (m->mapped) munmap(m->mapped, m->mapped_bytes);
  free(m->arena); free(m->frames); free(m->steps); free(m);
}

static int run(model_t *m, const void **in, void **out) {
  const variant *v = m->v;
  int moved = 0;
  for (int n = 0; n < INPUTS; n++) {
    if (!in[n]) { snprintf(complaint, sizeof complaint, "input %d is NULL", n); return -1; }
    moved |= m->in[n] != in[n];
    m->in[n] = in[n];
  }
  for (int n = 0; n < OUTPUTS; n++) {
    if (!out[n]) { snprintf(complaint, sizeof complaint, "output %d is NULL", n); return -1; }
    moved |= m->out[n] != out[n];
    m->out[n] = out[n];
  }
  if (moved) {
    const ref *r = v->refs;
    for (size_t n = 0; n < v->num_calls; n++)
      for (size_t e = 0; e < v->calls[n].entries; e++, r++)
        if (r->space >= INPUT) m->steps[n].frame[e] = at(m, *r);
  }
  if (v->num_calls) autotune_run(m->pool, &m->plan);
  for (size_t n = 0; n < v->num_checks; n++) {
    int32_t flag;
    memcpy(&flag, at(m, v->checks[n].where), sizeof flag);
    if (flag) { snprintf(complaint, sizeof complaint, "%s", v->checks[n].complaint); return -1; }
  }
  for (int n = 0; n < OUTPUTS; n++) {
    const void *source = at(m, v->outputs[n].where);
    if (source != m->out[n]) memcpy(m->out[n], source, v->outputs[n].bytes);
  }
  return 0;
}
"""
