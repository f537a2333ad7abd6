/* Loaded ahead of all libraries, shows a process another CPU: `cpuid` stops at a fault, as the system is asked to let it,
   and is answered here; the sizes of caches are read from other files. See as_cpu.py, which says what to show. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define SET_CPUID 0x1012 /* ARCH_SET_CPUID of arch_prctl; 0: faults */
#define MOST 32

/* Of a leaf and subleaf, what stays of the registers a, b, c, d, and what is added. */
static struct { uint32_t leaf, subleaf, keep[4], add[4]; } rows[MOST];
static int count;
static char caches[PATH_MAX];
static struct sigaction theirs; /* what the process wants done about other faults */
static int (*set_action)(int, const struct sigaction *, struct sigaction *);

static void faults(int on) { syscall(SYS_arch_prctl, SET_CPUID, (unsigned long)!on); }

static void answer(greg_t *registers) {
    uint32_t leaf = registers[REG_RAX], subleaf = registers[REG_RCX], r[4];
    faults(0);
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(subleaf));
    faults(1);
    for (int i = 0; i < count; i++)
        if (rows[i].leaf == leaf && (rows[i].subleaf == subleaf || leaf < 7)) /* which have no subleaves */
            for (int n = 0; n < 4; n++) r[n] = (r[n] & rows[i].keep[n]) | rows[i].add[n];
    registers[REG_RAX] = r[0], registers[REG_RBX] = r[1], registers[REG_RCX] = r[2], registers[REG_RDX] = r[3];
    registers[REG_RIP] += 2;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (info->si_code == SI_KERNEL && !memcmp((void *)registers[REG_RIP], "\x0f\xa2", 2)) return answer(registers);
    if (theirs.sa_flags & SA_SIGINFO) return theirs.sa_sigaction(number, info, context);
    if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) return theirs.sa_handler(number);
    struct sigaction ends = {.sa_handler = SIG_DFL};
    set_action(number, &ends, NULL);
    raise(number);
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    if (!set_action) *(void **)&set_action = dlsym(RTLD_NEXT, "sigaction");
    if (number != SIGSEGV) return set_action(number, action, old);
    if (old) *old = theirs;
    if (action) theirs = *action;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(number, &action, &old) ? SIG_ERR : old.sa_handler;
}

/* .../cpu0/cache/index2/size is <caches>/index2. */
static int opened(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    char other[2 * PATH_MAX];
    const char *index = path && !strncmp(path, "/sys/devices/system/cpu/cpu", 27) ? strstr(path, "/cache/index") : NULL;
    if (!index || !caches[0] || strlen(index) != 18 || strcmp(index + 13, "/size")) return real(path, flags, mode);
    snprintf(other, sizeof other, "%s/index%c", caches, index[12]);
    return real(other, flags, mode);
}

#define OPEN(name)                                                            \
    int name(const char *path, int flags, ...) {                              \
        va_list rest;                                                         \
        va_start(rest, flags);                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                         \
        return opened(#name, path, flags, mode);                              \
    }
OPEN(open)
OPEN(open64)

__attribute__((constructor)) static void start(void) {
    const char *text = getenv("AS_CPU_WORDS"), *folder = getenv("AS_CPU_CACHES");
    int used;
    for (; text && count < MOST; count++, text += used) {
        uint32_t *k = rows[count].keep, *a = rows[count].add;
        if (sscanf(text, "%x.%x:%x,%x,%x,%x:%x,%x,%x,%x;%n", &rows[count].leaf, &rows[count].subleaf, k, k + 1, k + 2,
                   k + 3, a, a + 1, a + 2, a + 3, &used) != 10)
            break;
    }
    if (folder) snprintf(caches, sizeof caches, "%s", folder);
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    if (!set_action) *(void **)&set_action = dlsym(RTLD_NEXT, "sigaction");
    set_action(SIGSEGV, &ours, NULL);
    faults(1);
}
