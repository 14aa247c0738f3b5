/*
 * Purpose: shows one process a wall clock that is off, and leaves its monotonic clock alone.
 * Loaded with LD_PRELOAD. TESTBED_CLOCK names a file whose first eight bytes are the offset in
 * milliseconds, in the machine's byte order; writing them moves the clock at once.
 *
 * The true time is asked of the kernel, not of the C library: looking up the functions that this
 * file hides would allocate memory, and a program's allocator may ask for the time meanwhile.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_ms;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("TESTBED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *offset_ms, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset_ms = page;
    close(file);
}

static void shift(struct timespec *at) {
    int64_t ms = offset_ms ? *offset_ms : 0;
    int64_t nanoseconds = at->tv_nsec + ms % 1000 * 1000000;
    int64_t carry = (nanoseconds >= 1000000000) - (nanoseconds < 0);
    at->tv_sec += ms / 1000 + carry;
    at->tv_nsec = nanoseconds - carry * 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(at);
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
