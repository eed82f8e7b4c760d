/* Errors: each is a number of errno(3) and a text, none is a signal, and no descriptor is left over. */
#include "check.h"

static char octets[64];

static void what_is_no_socket_of_the_library(void) {
    int plain = socket(AF_INET, SOCK_STREAM, 0), file = open("/dev/null", O_RDONLY);
    FAILS(pi_send(-1, "x", 1, 0), EBADF);
    FAILS(pi_send(900, "x", 1, 0), EBADF);
    FAILS(pi_recv(plain, octets, 1, 0), ENOTSOCK);
    FAILS(pi_close(file), ENOTSOCK);
    CHECK(close(plain) == 0 && close(file) == 0);
}

static void what_cannot_be_asked_for(void) {
    int socket = new_socket();
    struct sockaddr_in6 wrong = {.sin6_family = AF_INET6};
    FAILS(pi_socket(AF_UNIX, PI_RELIABLE_MESSAGES), EAFNOSUPPORT);
    FAILS(pi_socket(AF_INET, 0), EINVAL);
    FAILS(pi_socket(AF_INET, PI_MESSAGES | PI_BYTES), EINVAL);
    FAILS(pi_bind(socket, (struct sockaddr *)&wrong, sizeof wrong), EAFNOSUPPORT);
    FAILS(pi_bind(socket, (struct sockaddr *)&wrong, 3), EINVAL);
    FAILS(pi_bind(socket, NULL, 16), EFAULT);
    FAILS(pi_connect(socket, NULL, 0), EDESTADDRREQ);
    FAILS(pi_accept(socket, NULL, NULL), EINVAL);
    FAILS(pi_setsockopt(socket, PI_API, 77, "x", 1), ENOPROTOOPT);
    FAILS(pi_setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, "x", 1), ENOPROTOOPT);
    FAILS(pi_setsockopt(socket, PI_API, PI_PROPERTY, "keepAlives=require", 18), EINVAL);
    CHECK(strstr(pi_error(), "keepAlive"));
    FAILS(pi_setsockopt(socket, PI_API, PI_SECURITY, "x", 1), EINVAL);
    FAILS(pi_setsockopt(socket, PI_API, PI_REMOTE, "nowhere", 7), EINVAL);
    CHECK(pi_close(socket) == 0);
}

static void services_that_no_protocol_has(void) {
    int socket = pi_socket(AF_INET, PI_RELIABLE_MESSAGES);
    struct sockaddr_in address = loopback();
    set(socket, PI_PROTOCOL, "udp");
    FAILS(connecting(socket, &address), EPROTONOSUPPORT);
    CHECK(strlen(pi_error()) > 20);
    CHECK(pi_close(socket) == 0);
    socket = pi_socket(AF_INET, PI_RELIABLE_MESSAGES);
    set_number(socket, PI_SECURITY, PI_SECURITY_REQUIRED);
    set(socket, PI_TRUST_FILE, "/nowhere");
    FAILS(connecting(socket, &address), ENOENT);
    CHECK(pi_close(socket) == 0);
}

static void a_port_in_use(void) {
    int first = new_socket(), second = new_socket();
    struct sockaddr_in address = listening(first);
    CHECK(pi_bind(second, (struct sockaddr *)&address, sizeof address) == 0);
    FAILS(pi_listen(second, 1), EADDRINUSE);
    CHECK(pi_close(first) == 0 && pi_close(second) == 0);
}

static void a_peer_that_has_gone(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    CHECK(pi_abort(ends.server) == 0);
    CHECK(ready(ends.client, POLLIN, LONG) & POLLHUP);
    /* SIGPIPE would end this program. */
    FAILS(pi_send(ends.client, "x", 1, 0), ECONNRESET);
    FAILS(pi_send(ends.client, "x", 1, 0), EPIPE);
    CHECK(pi_recv(ends.client, octets, sizeof octets, 0) == 0);
    CHECK(pi_close(ends.client) == 0);
    CHECK(pi_close(ends.listener) == 0);
}

static void what_is_written_without_the_library(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    CHECK(write(ends.client, "no packet", 9) == 9);
    CHECK(ready(ends.client, POLLIN, LONG) & POLLHUP);
    FAILS(pi_recv(ends.client, octets, sizeof octets, 0), EPROTO);
    close_ends(&ends);
}

static void what_is_sent_to_nothing(void) {
    int socket = pi_socket(AF_INET, PI_DATAGRAMS), other = new_socket();
    struct sockaddr_in address = listening(other);
    CHECK(pi_close(other) == 0);
    set(socket, PI_PROTOCOL, "udp");
    CHECK(connecting(socket, &address) == 0);
    CHECK(pi_send(socket, "x", 1, 0) == 1);
    FAILS(pi_recv(socket, octets, sizeof octets, MSG_DONTWAIT), EAGAIN);
    CHECK(pi_close(socket) == 0);
}

static void a_process_without_descriptors(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    int taken[1024], count = 0, client = new_socket();
    CHECK(connecting(client, &ends.address) == 0);
    CHECK(ready(ends.listener, POLLIN, LONG) == POLLIN);
    while (count < 1024 && (taken[count] = dup(ends.client)) >= 0) count++;
    if (count < 1024) {
        FAILS(pi_socket(AF_INET, PI_DATAGRAMS), EMFILE);
        FAILS(pi_accept(ends.listener, NULL, NULL), EMFILE);
    }
    while (count > 0) close(taken[--count]);
    /* The connection has waited. */
    int server = pi_accept(ends.listener, NULL, NULL);
    CHECK(server >= 0 && pi_close(server) == 0 && pi_close(client) == 0);
    close_ends(&ends);
}

/* Many sockets, some closed by close(2): what the library knows of them does not grow, and no descriptor is left. */
static void no_descriptor_is_left(void) {
    int before = open_descriptors();
    for (int i = 0; i < 300; i++) {
        int socket = new_socket();
        if (i % 2) CHECK(close(socket) == 0);
        else CHECK(pi_close(socket) == 0);
    }
    for (int i = 0; i < 20; i++) {
        struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
        close_ends(&ends);
    }
    /* The other end of a socket that was never connected is closed when it is noticed. */
    CHECK(open_descriptors() < before + 300);
    for (int i = 0; i < 300; i++) CHECK(pi_close(new_socket()) == 0);
    CHECK(open_descriptors() < before + 300);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    what_is_no_socket_of_the_library();
    what_cannot_be_asked_for();
    services_that_no_protocol_has();
    a_port_in_use();
    a_peer_that_has_gone();
    what_is_written_without_the_library();
    what_is_sent_to_nothing();
    a_process_without_descriptors();
    no_descriptor_is_left();
    return 0;
}
