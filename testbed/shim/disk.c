/*
 * Purpose: shows one process a disk that takes what is written, but does not say that it is safe.
 * Loaded with LD_PRELOAD. TESTBED_DISK names a file whose first eight bytes are 0 or not; while
 * they are not, fsync and fdatasync do not come back. The page cache keeps what is written, as it
 * does when a process is killed: what such a process loses had never been written at all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *stalled;

__attribute__((constructor)) static void open_disk(void) {
    const char *path = getenv("TESTBED_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *stalled, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) stalled = page;
    close(file);
}

static void wait_for_the_disk(void) {
    const struct timespec moment = {0, 2000000};
    while (stalled && *stalled) nanosleep(&moment, NULL);
}

int fsync(int file) {
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, file);
}
