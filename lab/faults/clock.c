/* Loaded into a process (LD_PRELOAD) it sets the clock of that process ahead by the seconds that a shared file holds. What a
   process waits for, CLOCK_MONOTONIC, stays; libfaketime changes that too, and Python's sleep then fails. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead;

__attribute__((constructor)) static void look(void) {
    const char *name = getenv("FAULTS_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) ahead = page;
}

int clock_gettime(clockid_t which, struct timespec *out) {
    int failed = (int)syscall(SYS_clock_gettime, which, out);
    if (!failed && ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) out->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
