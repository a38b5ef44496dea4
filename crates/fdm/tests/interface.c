/* The header's declarations against what they have to be, and the contract it states, from C. Prints the
 * layout for the comparison with Rust's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fdm.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HAS_TYPE(what, type) _Static_assert(_Generic((what), type: 1, default: 0), #what " is no " #type)
HAS_TYPE(&fdm_start, int (*)(void));
HAS_TYPE(&fdm_stop, int (*)(void));
HAS_TYPE(&fdm_reg_fd, int (*)(const struct pollfd *, int));
HAS_TYPE(&fdm_unreg_fd, int (*)(int));
HAS_TYPE(&fdm_update_fd_mode, int (*)(const struct pollfd *, void *, struct timeval *));
HAS_TYPE(&fdm_wait_event, int (*)(fdm_event_t *, unsigned, int));
HAS_TYPE(&fdm_setnum, int *);
HAS_TYPE(&fdm_default_live_counter, int *);
HAS_TYPE(((fdm_event_t *)0)->fd, int);
HAS_TYPE(((fdm_event_t *)0)->events, short);
HAS_TYPE(((fdm_event_t *)0)->payload, void *);

#define CHECK(truth)                                                                                    \
    do {                                                                                                \
        if (!(truth)) {                                                                                 \
            fprintf(stderr, "line %d: not so: %s (errno: %s)\n", __LINE__, #truth, strerror(errno));    \
            exit(EXIT_FAILURE);                                                                         \
        }                                                                                               \
    } while (0)
#define FAILS(call, why) CHECK((errno = 0, (call) == -1 && errno == (why)))

static int ends[2];
static struct pollfd interest;
static struct timeval now = {0, 0};
static fdm_event_t events[4];

static void print_layout(void)
{
    printf("size %zu\n", sizeof(fdm_event_t));
    printf("align %zu\n", _Alignof(fdm_event_t));
    printf("fd %zu\n", offsetof(fdm_event_t, fd));
    printf("events %zu\n", offsetof(fdm_event_t, events));
    printf("payload %zu\n", offsetof(fdm_event_t, payload));
    printf("FDM_TIMEOUT %d\n", FDM_TIMEOUT);
}

static void starting(void)
{
    FAILS(fdm_stop(), ENXIO);
    FAILS(fdm_reg_fd(&interest, 0), ENXIO);
    FAILS(fdm_unreg_fd(0), ENXIO);
    FAILS(fdm_update_fd_mode(&interest, NULL, NULL), ENXIO);
    FAILS(fdm_wait_event(events, 4, 0), ENXIO);

    /* The library reads the variables that this program writes. */
    CHECK(fdm_setnum == 3 && fdm_default_live_counter == 3);
    fdm_setnum = 0;
    FAILS(fdm_start(), EINVAL);
    fdm_setnum = 2;
    fdm_default_live_counter = 1;
    FAILS(fdm_start(), EINVAL);
    fdm_default_live_counter = 4;
    CHECK(fdm_start() == 0);
    FAILS(fdm_start(), EALREADY);
}

static void refusals(void)
{
    struct pollfd negative = {-1, POLLIN, 0}, closed = {1 << 20, POLLIN, 0}, both = interest;
    struct timeval past = {-1, 0}, crooked = {0, 1000000};
    both.events = POLLIN | POLLOUT;

    FAILS(fdm_reg_fd(NULL, 0), EINVAL);
    FAILS(fdm_reg_fd(&negative, 0), EBADF);
    FAILS(fdm_reg_fd(&closed, 0), EBADF);
    FAILS(fdm_reg_fd(&both, 0), EINVAL);
    FAILS(fdm_update_fd_mode(&interest, NULL, NULL), ENOENT);
    CHECK(fdm_reg_fd(&interest, 1) == 0);
    FAILS(fdm_reg_fd(&interest, 0), EEXIST);
    FAILS(fdm_update_fd_mode(NULL, NULL, NULL), EINVAL);
    FAILS(fdm_update_fd_mode(&negative, NULL, NULL), EBADF);
    FAILS(fdm_update_fd_mode(&both, NULL, NULL), EINVAL);
    FAILS(fdm_update_fd_mode(&interest, NULL, &past), EINVAL);
    FAILS(fdm_update_fd_mode(&interest, NULL, &crooked), EINVAL);
    FAILS(fdm_unreg_fd(-1), EBADF);
    FAILS(fdm_unreg_fd(1 << 20), ENOENT);
    FAILS(fdm_wait_event(NULL, 4, 0), EINVAL);
    FAILS(fdm_wait_event(events, 0, 0), EINVAL);
}

static void waiting(void)
{
    int payload;
    CHECK(fdm_wait_event(events, 4, 0) == 0);
    CHECK(fdm_wait_event(events, 4, 1) == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(fdm_wait_event(events, 4, -1) == 1);
    CHECK(events[0].fd == ends[0] && events[0].events == POLLIN && events[0].payload == NULL);
    CHECK(fdm_update_fd_mode(&interest, &payload, &now) == 0);
    CHECK(fdm_wait_event(events, 4, -1) == 1);
    CHECK(events[0].events == (POLLIN | FDM_TIMEOUT) && events[0].payload == &payload);
    CHECK(read(ends[0], &payload, 1) == 1);
    CHECK(fdm_wait_event(events, 4, 0) == 0);
    CHECK(fdm_update_fd_mode(&interest, &payload, &now) == 0);
    CHECK(fdm_wait_event(events, 4, -1) == 1);
    CHECK(events[0].events == FDM_TIMEOUT && events[0].payload == &payload);
}

/* Its call may also be the one that comes second. */
static void *wait_for_the_pipe(void *unused)
{
    while (fdm_wait_event(events, 4, -1) == -1)
        CHECK(errno == EBUSY);
    return unused;
}

static void overlapping(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_the_pipe, NULL) == 0);
    do {
        sched_yield();
        CHECK(fdm_unreg_fd(-1) == -1 && (errno == EBUSY || errno == EBADF));
    } while (errno != EBUSY);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(events[0].events == POLLIN);
}

int main(void)
{
    print_layout();
    CHECK(pipe(ends) == 0);
    interest.fd = ends[0];
    interest.events = POLLIN;
    starting();
    refusals();
    waiting();
    overlapping();
    CHECK(fdm_unreg_fd(ends[0]) == 0);
    FAILS(fdm_unreg_fd(ends[0]), ENOENT);
    CHECK(fdm_stop() == 0);
    FAILS(fdm_stop(), ENXIO);
    return EXIT_SUCCESS;
}
