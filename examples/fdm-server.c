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
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BODY = 1024, BATCH = 64, IDLE_SECONDS = 60 };

struct connection {
    int fd;
    size_t filled, sent;  /* bytes of request, and of the reply under way */
    int replying, closing; /* closing: the peer wants no more replies after this one */
    struct connection *previous, *next;
    char request[4096];
};

static struct connection *connections;
static char reply[BODY + 128];
static size_t reply_length;
static int listener = -1, accepting = 1;

static void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void listen_again(void)
{
    struct pollfd interest = {.fd = listener, .events = POLLIN};
    accepting = fdm_reg_fd(&interest, 1) == 0;
}

static void drop(struct connection *it)
{
    fdm_unreg_fd(it->fd); /* first: the number may be another connection's after close */
    close(it->fd);
    *(it->previous ? &it->previous->next : &connections) = it->next;
    if (it->next)
        it->next->previous = it->previous;
    free(it);
    if (!accepting)
        listen_again();
}

/* Waits for the direction that is next; the idle time starts anew. Returns 0, or -1 as fdm does. */
static int expect(struct connection *it)
{
    struct pollfd interest = {.fd = it->fd, .events = it->replying ? POLLOUT : POLLIN};
    struct timeval idle = {.tv_sec = IDLE_SECONDS};
    return fdm_update_fd_mode(&interest, it, &idle);
}

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct pollfd interest = {.fd = fd, .events = POLLIN};
        struct connection *it;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && connections) {
            /* It would be reported without end: look again when a connection has ended. */
            fdm_unreg_fd(listener);
            accepting = 0;
        }
        if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
            return;
        if (fd < 0)
            continue;
        it = calloc(1, sizeof *it);
        if (!it || fdm_reg_fd(&interest, 0) == -1) {
            free(it);
            close(fd);
            continue;
        }
        it->fd = fd;
        it->next = connections;
        if (connections)
            connections->previous = it;
        connections = it;
        if (expect(it) == -1)
            drop(it);
    }
}

/* Takes the next request from what has arrived, if it is there to its end. */
static void take_request(struct connection *it)
{
    char *end = memmem(it->request, it->filled, "\r\n\r\n", 4);
    if (!end)
        return;
    end[2] = '\0';
    it->closing |= strcasestr(it->request, "\r\nconnection: close\r\n") != NULL;
    it->filled -= (size_t)(end + 4 - it->request);
    memmove(it->request, end + 4, it->filled);
    it->replying = 1;
    it->sent = 0;
}

/* Reads and replies until it would block. Returns 0, or -1 when the connection has ended. */
static int serve(struct connection *it)
{
    for (;;) {
        ssize_t got;
        if (it->replying)
            got = send(it->fd, reply + it->sent, reply_length - it->sent, MSG_NOSIGNAL);
        else if (it->filled < sizeof it->request)
            got = recv(it->fd, it->request + it->filled, sizeof it->request - it->filled, 0);
        else
            return -1; /* a request head of that size */
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return expect(it);
        if (got <= 0)
            return -1;
        if (it->replying) {
            it->sent += (size_t)got;
            if (it->sent < reply_length)
                continue;
            if (it->closing)
                return -1;
            it->replying = 0;
        } else {
            it->filled += (size_t)got;
        }
        take_request(it);
    }
}

/* Returns a descriptor that is readable once the program is asked to end. */
static int asked_to_end(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) == -1)
        die("sigprocmask");
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

static int listen_on(unsigned short port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        bind(fd, (struct sockaddr *)&address, length) == -1 || listen(fd, SOMAXCONN) == -1 ||
        getsockname(fd, (struct sockaddr *)&address, &length) == -1)
        die("listen");
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int count, char **arguments)
{
    struct pollfd ending = {.fd = asked_to_end(), .events = POLLIN};
    int running = 1;

    reply_length = (size_t)sprintf(reply, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(reply + reply_length, 'x', BODY);
    reply_length += BODY;
    listener = listen_on((unsigned short)(count > 1 ? atoi(arguments[1]) : 0));
    if (fdm_start() == -1 || fdm_reg_fd(&ending, 1) == -1)
        die("fdm");
    listen_again();

    while (running) {
        fdm_event_t events[BATCH];
        int ready = fdm_wait_event(events, BATCH, -1);
        if (ready == -1 && errno != EINTR)
            die("fdm_wait_event");
        for (int i = 0; i < ready; i++) {
            struct connection *it = events[i].payload;
            if (events[i].fd == ending.fd)
                running = 0;
            else if (events[i].fd == listener)
                accept_all();
            else if (events[i].events == FDM_TIMEOUT || serve(it) == -1)
                drop(it);
        }
    }

    while (connections)
        drop(connections);
    fdm_stop();
    close(listener);
    close(ending.fd);
    return EXIT_SUCCESS;
}
