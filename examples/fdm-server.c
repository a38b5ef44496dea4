/* fdm-server.c - a memory server on libfdm: 1 KiB replies from memory over connections that are kept.
 *
 *   fdm-server [PORT]      listens on 127.0.0.1, on any free port without PORT; SIGTERM or SIGINT ends it
 *
 * It shows what a program needs of the library: a locked listener, a payload and an idle deadline for each
 * connection, one direction at a time, and the order in which a connection ends: unregister, close, free.
 * It reads requests only as far as their empty line: one with a body is not understood.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fdm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BODY = 1024, BATCH = 64, MOST = 65536, IDLE_SECONDS = 60, LOOK_AROUND_MS = 500 };

struct connection {
    int fd, replying, closing; /* closing: the peer wants no more replies after this one */
    size_t filled, sent;       /* bytes of request, and of the reply under way */
    char request[4096];
};

static struct connection *connections[MOST]; /* by descriptor */
static int listener = -1, open_connections, accepting;
static char reply[BODY + 128];
static size_t reply_length;
static volatile sig_atomic_t running = 1;

static void end(int signal)
{
    (void)signal;
    running = 0;
}

static void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void accept_again(void)
{
    struct pollfd interest = {.fd = listener, .events = POLLIN};
    accepting = fdm_reg_fd(&interest, 1) == 0;
}

static void drop(struct connection *it)
{
    fdm_unreg_fd(it->fd); /* first: the number may be another connection's after close */
    close(it->fd);
    connections[it->fd] = NULL;
    open_connections--;
    free(it);
    if (!accepting)
        accept_again();
}

/* Waits for the direction that is next; the idle time starts anew. Returns 0, or -1 as fdm does. */
static int expect(struct connection *it)
{
    struct pollfd interest = {.fd = it->fd, .events = it->replying ? POLLOUT : POLLIN};
    struct timeval idle = {.tv_sec = IDLE_SECONDS};
    return fdm_update_fd_mode(&interest, it, &idle);
}

static void admit(int fd)
{
    struct pollfd interest = {.fd = fd, .events = POLLIN};
    struct connection *it = fd < MOST ? calloc(1, sizeof *it) : NULL;
    if (!it || fdm_reg_fd(&interest, 0) == -1) {
        free(it);
        close(fd);
        return;
    }
    it->fd = fd;
    connections[fd] = it;
    open_connections++;
    if (expect(it) == -1)
        drop(it);
}

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(fd);
        } else if (errno != ECONNABORTED && errno != EINTR) {
            if ((errno == EMFILE || errno == ENFILE) && open_connections) {
                /* It would be reported without end: look again when a connection has ended. */
                fdm_unreg_fd(listener);
                accepting = 0;
            }
            return;
        }
    }
}

/* Takes the next request from what has arrived, if it is there to its end. */
static void take_request(struct connection *it)
{
    char *empty = memmem(it->request, it->filled, "\r\n\r\n", 4);
    if (!empty)
        return;
    empty[2] = '\0';
    it->closing |= strcasestr(it->request, "\r\nconnection: close\r\n") != NULL;
    it->filled -= (size_t)(empty + 4 - it->request);
    memmove(it->request, empty + 4, it->filled);
    it->replying = 1;
    it->sent = 0;
}

/* Reads and replies until it would block. Returns 0, or -1 when the connection has ended. */
static int serve(struct connection *it)
{
    for (;;) {
        /* No room for more of a request reads nothing, and ends the connection as the peer's end does. */
        ssize_t moved = it->replying
            ? send(it->fd, reply + it->sent, reply_length - it->sent, MSG_NOSIGNAL)
            : recv(it->fd, it->request + it->filled, sizeof it->request - it->filled, 0);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0 && errno == EAGAIN)
            return expect(it);
        if (moved <= 0)
            return -1;
        *(it->replying ? &it->sent : &it->filled) += (size_t)moved;
        if (it->replying && it->sent < reply_length)
            continue;
        if (it->replying && it->closing)
            return -1;
        it->replying = 0;
        take_request(it);
    }
}

static void listen_on(unsigned short port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof address;
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener == -1 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        bind(listener, (struct sockaddr *)&address, length) == -1 || listen(listener, SOMAXCONN) == -1 ||
        getsockname(listener, (struct sockaddr *)&address, &length) == -1)
        die("listen");
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
}

int main(int count, char **arguments)
{
    signal(SIGTERM, end);
    signal(SIGINT, end);
    reply_length = (size_t)sprintf(reply, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(reply + reply_length, 'x', BODY);
    reply_length += BODY;
    listen_on((unsigned short)(count > 1 ? atoi(arguments[1]) : 0));
    if (fdm_start() == -1)
        die("fdm_start");
    accept_again();

    while (running) {
        fdm_event_t events[BATCH];
        /* Not for ever: a signal may come just before the wait. */
        int ready = fdm_wait_event(events, BATCH, LOOK_AROUND_MS);
        if (ready == -1 && errno != EINTR)
            die("fdm_wait_event");
        for (int i = 0; i < ready; i++) {
            struct connection *it = events[i].payload;
            if (events[i].fd == listener)
                accept_all();
            else if (events[i].events == FDM_TIMEOUT || serve(it) == -1)
                drop(it);
        }
    }

    for (int fd = 0; fd < MOST; fd++)
        if (connections[fd])
            drop(connections[fd]);
    fdm_stop();
    close(listener);
    return EXIT_SUCCESS;
}
