/* poll(2), epoll(7), O_NONBLOCK and timeouts. */
#include "check.h"

static void not_block(int socket) { CHECK(fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK) == 0); }

/* Returns the events of a socket that epoll reports at edges, 0 if there are none. */
static uint32_t edge(int epoll, int wait) {
    struct epoll_event event = {0};
    return epoll_wait(epoll, &event, 1, wait) == 1 ? event.events : 0;
}

static void a_socket_is_writable_when_it_is_connected(void) {
    int listener = new_socket(), client = new_socket(), epoll = epoll_create1(EPOLL_CLOEXEC), error = -1;
    struct sockaddr_in address = listening(listener);
    socklen_t length = sizeof error;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) == 0);
    CHECK(edge(epoll, 0) == 0 && ready(listener, POLLIN | POLLOUT, 0) == 0);
    FAILS(pi_send(client, "x", 1, 0), ENOTCONN);
    not_block(client);
    FAILS(connecting(client, &address), EINPROGRESS);
    CHECK(edge(epoll, LONG) == EPOLLOUT);
    CHECK(pi_getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    FAILS(connecting(client, &address), EISCONN);
    char octet;
    FAILS(pi_recv(client, &octet, 1, 0), EAGAIN);

    CHECK(ready(listener, POLLIN, LONG) == POLLIN);
    int server = pi_accept(listener, NULL, NULL);
    CHECK(server >= 0 && ready(listener, POLLIN, 0) == 0);
    not_block(listener);
    FAILS(pi_accept(listener, NULL, NULL), EAGAIN);
    CHECK(ready(server, POLLIN | POLLOUT, 0) == POLLOUT);
    CHECK(pi_send(server, "x", 1, 0) == 1);
    CHECK(edge(epoll, LONG) & EPOLLIN);
    CHECK(pi_recv(client, &octet, 1, 0) == 1);
    FAILS(pi_recv(client, &octet, 1, 0), EAGAIN);
    CHECK(pi_close(server) == 0);
    CHECK(edge(epoll, LONG) & EPOLLIN);
    CHECK(pi_recv(client, &octet, 1, 0) == 0);
    CHECK(pi_close(client) == 0 && pi_close(listener) == 0);
    close(epoll);
}

static void who_does_not_read_makes_the_sender_wait(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    enum { LENGTH = 50000 };
    static char octets[LENGTH];
    long sent = 0, got = 0;
    not_block(ends.client);
    /* Readiness is true: what is writable takes a message, and what is not, none. */
    while (ready(ends.client, POLLOUT, 2000) == POLLOUT) {
        CHECK(pi_send(ends.client, octets, LENGTH, 0) == LENGTH);
        CHECK(++sent < 10000);
    }
    CHECK(sent > 3);
    /* There may be room for less than makes it writable. */
    while (pi_send(ends.client, octets, LENGTH, 0) == LENGTH) sent++;
    CHECK(errno == EAGAIN);
    for (; got < sent; got++) CHECK(pi_recv(ends.server, octets, LENGTH, 0) == LENGTH);
    CHECK(ready(ends.client, POLLOUT, LONG) == POLLOUT);
    close_ends(&ends);
}

static void waiting_ends_after_a_timeout(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    struct timeval soon = {.tv_usec = 20000};
    char octet;
    CHECK(pi_setsockopt(ends.client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    FAILS(pi_recv(ends.client, &octet, 1, 0), EAGAIN);
    FAILS(pi_recv(ends.server, &octet, 1, MSG_DONTWAIT), EAGAIN);
    close_ends(&ends);
}

static void nobody_listens(void) {
    int listener = new_socket(), blocking = new_socket(), client = new_socket(), error = 0;
    struct sockaddr_in address = listening(listener);
    socklen_t length = sizeof error;
    CHECK(pi_close(listener) == 0);
    FAILS(connecting(blocking, &address), ECONNREFUSED);
    CHECK(strstr(pi_error(), "127.0.0.1"));
    FAILS(pi_send(blocking, "x", 1, 0), EPIPE);
    CHECK(pi_close(blocking) == 0);
    not_block(client);
    FAILS(connecting(client, &address), EINPROGRESS);
    CHECK(ready(client, POLLOUT, LONG) & POLLHUP);
    CHECK(pi_getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNREFUSED);
    CHECK(pi_close(client) == 0);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    a_socket_is_writable_when_it_is_connected();
    who_does_not_read_makes_the_sender_wait();
    waiting_ends_after_a_timeout();
    nobody_listens();
    return 0;
}
