/*
 * Purpose: shows one process a full disk. Loaded with LD_PRELOAD. TESTBED_FULL_DISK names a file of
 * two numbers of eight bytes. While the first is not 0, a write behind the end of a file or into a
 * hole of it fails with ENOSPC, and the second counts such writes. What a file has can be
 * overwritten, as on a real full disk. Standard output and error, which are logs, are elsewhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile int64_t *dial;

__attribute__((constructor)) static void open_disk(void) {
    const char *path = getenv("TESTBED_FULL_DISK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof *dial, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) dial = page;
    close(file);
}

/* The first place from there on at which a file has no data; there if it ends before. The file is
 * opened once more, so that its own position stays. */
static off_t first_hole(int file, off_t from) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again < 0) return from;
    off_t hole = lseek(again, from, SEEK_HOLE);
    close(again);
    return hole < 0 ? from : hole;
}

/* Whether there is no space for so many bytes from there on; from the file's position if < 0. */
static int lacks_space(int file, off_t from, size_t bytes) {
    struct stat seen;
    if (!dial || !dial[0] || file <= STDERR_FILENO || bytes == 0) return 0;
    if (fstat(file, &seen) || !S_ISREG(seen.st_mode)) return 0;
    if (fcntl(file, F_GETFL) & O_APPEND) from = seen.st_size;
    if (from < 0) from = lseek(file, 0, SEEK_CUR);
    off_t end = from + (off_t)bytes;
    /* What fallocate has reserved may be called a hole, but has its blocks. */
    if (end <= seen.st_size && (off_t)seen.st_blocks * 512 >= seen.st_size) return 0;
    if (first_hole(file, from) >= end) return 0;
    __atomic_add_fetch(&dial[1], 1, __ATOMIC_RELAXED);
    errno = ENOSPC;
    return 1;
}

ssize_t write(int file, const void *from, size_t bytes) {
    return lacks_space(file, -1, bytes) ? -1 : syscall(SYS_write, file, from, bytes);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off64_t at) {
    return lacks_space(file, at, bytes) ? -1 : syscall(SYS_pwrite64, file, from, bytes, at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
    return pwrite64(file, from, bytes, at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int part = 0; part < count; part++) bytes += parts[part].iov_len;
    return lacks_space(file, -1, bytes) ? -1 : syscall(SYS_writev, file, parts, count);
}

int posix_fallocate64(int file, off64_t from, off64_t bytes) {
    if (lacks_space(file, from, (size_t)bytes)) return ENOSPC;
    return syscall(SYS_fallocate, file, 0, from, bytes) ? errno : 0;
}

int posix_fallocate(int file, off_t from, off_t bytes) {
    return posix_fallocate64(file, from, bytes);
}
