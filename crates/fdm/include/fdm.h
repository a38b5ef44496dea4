/* fdm.h - locality-aware event dispatching
 *
 * The interface of Liu and Chen, "A Scalable Locality-Aware Event Dispatching Mechanism for Network
 * Servers". Most connections are idle most of the time, yet poll(2) pays for all of them at every call.
 * Here each descriptor is in one of several polling sets, which are polled at different frequencies: one
 * that is quiet falls into a set that is polled less often, one with events in two consecutive polls of
 * its set rises to the set that every call polls.
 *
 * Every function that fails returns -1, sets errno and has changed nothing. Besides its own reasons, any
 * of them fails with
 *
 *   ENXIO             the library is not started (all but fdm_start)
 *   EBUSY             another call is under way, see below
 *   ENOTRECOVERABLE   a fault in the library; it is stopped now and can be started again
 *
 * Threads: there is one instance a process. It may be used from any thread, but from one at a time: calls
 * must not overlap. An overlapping call (in a second thread, in a signal handler, or while fdm_wait_event
 * blocks elsewhere) fails with EBUSY and does no harm. A child of fork(2) has a copy of its own; where
 * another thread was in a call at the time of the fork, all calls in the child fail with EBUSY.
 *
 * Descriptors stay the caller's. Unregister one before it is closed: its number may be given to another,
 * and until then the closed one is reported with POLLNVAL.
 */
#ifndef FDM_H
#define FDM_H

#include <poll.h>
#include <sys/time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A bit of fdm_event_t.events besides those of poll(2): the deadline of the descriptor has passed. */
#define FDM_TIMEOUT 0x4000

/* An event of one descriptor. */
typedef struct {
    int fd;
    short events;  /* POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL, FDM_TIMEOUT: at least one of them */
    void *payload; /* as the last fdm_update_fd_mode gave it, NULL before the first */
} fdm_event_t;

/* How many polling sets: 1 to 255, 3 unless set. Read by fdm_start. */
extern int fdm_setnum;

/* The default live counter N: 2 or more, 3 unless set, 3 to 10 is useful. Set k (from 0) is polled by every
 * N^k-th call, and a descriptor falls from it after N-1 of its polls without an event. Read by fdm_start. */
extern int fdm_default_live_counter;

/* Starts the library, without descriptors. Returns 0.
 *   EALREADY  it is started
 *   EINVAL    fdm_setnum or fdm_default_live_counter is out of range */
int fdm_start(void);

/* Stops it and frees its memory. No descriptor is closed. Returns 0. */
int fdm_stop(void);

/* Registers fd->fd for fd->events: POLLIN or POLLOUT, one direction at a time. It starts in the set that
 * every call polls, and with a lock other than 0, as for a listening socket, it stays there. It has no
 * payload and no deadline. Costs one system call, to see that it is open. Returns 0.
 *   EBADF   fd->fd is not open
 *   EEXIST  it is registered
 *   EINVAL  fd is NULL, or fd->events not one direction */
int fdm_reg_fd(const struct pollfd *fd, int lock);

/* Forgets a descriptor: no event of it is delivered any more. Returns 0.
 *   EBADF   fd is negative
 *   ENOENT  it is not registered */
int fdm_unreg_fd(int fd);

/* Gives a registered descriptor another direction (or the same), payload and deadline, all three. It
 * stays in its set; events that were found before and not delivered are dropped, and found again where
 * they still hold. The deadline counts from now and is not written to; NULL means none. It is looked at
 * whenever the descriptor's set is polled, delivered once as FDM_TIMEOUT, and gone then. Makes no system
 * call. Returns 0.
 *   EBADF   fd->fd is negative
 *   ENOENT  it is not registered
 *   EINVAL  fd is NULL, fd->events not one direction, or the deadline negative or without normal form */
int fdm_update_fd_mode(const struct pollfd *fd, void *payload, struct timeval *deadline);

/* Waits for events and writes at most count of them; at most one of each descriptor. The timeout is in
 * milliseconds: 0 polls the sets whose turn it is and does not block, a negative one waits for ever. No
 * wait that may block ends without events before it has polled every set. Events that there is no room
 * for come first in the next call. Returns how many it has written, 0 when the time is over.
 *   EINTR   a signal handler ran first; nothing is lost
 *   EINVAL  events is NULL, count is 0, or more descriptors are registered than RLIMIT_NOFILE allows
 *   ENOMEM  the kernel has no memory for poll(2) */
int fdm_wait_event(fdm_event_t *events, unsigned count, int timeout);

#ifdef __cplusplus
}
#endif

#endif
