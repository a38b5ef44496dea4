/* The time of day of a process, moved by the seconds that a file holds. Every other clock is the kernel's. Preloaded into the
 * server of a trial, because a real jump would move the clock of the whole machine. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved_by;

/* Before the server gives up the right to open files. */
__attribute__((constructor)) static void map_the_file(void) {
    const char *path = getenv("CAMPAIGN_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *moved_by, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        moved_by = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME && moved_by) {
        time->tv_sec += *moved_by;
        /* Nobody can set a clock of Linux to a time before the epoch. */
        if (time->tv_sec < 0)
            time->tv_sec = 0;
    }
    return failed;
}
