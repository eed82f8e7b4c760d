/* What the tests share: sockets of one protocol, and checks that say where they failed. */
#ifndef CHECK_H
#define CHECK_H

#include <ringway_pi.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            int error = errno;                                                                             \
            fprintf(stderr, "%s:%d: %s: errno %d (%s), %s\n", __FILE__, __LINE__, #condition, error,       \
                    strerror(error), pi_error());                                                          \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)
#define FAILS(call, number) CHECK((errno = 0, (call) == -1 && errno == (number)))

/* Milliseconds in which what must happen does. */
enum { LONG = 60000 };

static const char *protocol = "tcp", *trust, *identity;

static inline void read_arguments(int argc, char **argv) {
    if (argc > 1) protocol = argv[1];
    if (argc > 2) trust = argv[2];
    if (argc > 3) identity = argv[3];
    alarm(240);
}

static inline int is_datagram(void) {
    return !strncmp(protocol, "udp", 3) || !strcmp(protocol, "quic-datagram") || !strcmp(protocol, "dccp-udp");
}

static inline int is_secure(void) { return !strcmp(protocol, "tls") || !strncmp(protocol, "quic", 4); }

static inline void set(int socket, int option, const char *text) {
    CHECK(pi_setsockopt(socket, PI_API, option, text, (socklen_t)strlen(text)) == 0);
}

static inline void set_number(int socket, int option, int number) {
    CHECK(pi_setsockopt(socket, PI_API, option, &number, sizeof number) == 0);
}

/* Returns a socket of the protocol with these services. */
static inline int new_socket_with(int services) {
    int socket = pi_socket(AF_INET, services);
    CHECK(socket >= 0);
    set(socket, PI_PROTOCOL, protocol);
    if (!strcmp(protocol, "mptcp")) set(socket, PI_PROPERTY, "multipath=active");
    if (is_secure()) {
        set_number(socket, PI_SECURITY, PI_SECURITY_REQUIRED);
        set(socket, PI_TRUST_FILE, trust);
        set(socket, PI_IDENTITY_FILE, identity);
    }
    return socket;
}

static inline int new_socket(void) { return new_socket_with(is_datagram() ? PI_DATAGRAMS : PI_RELIABLE_MESSAGES); }

static inline struct sockaddr_in loopback(void) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Has a socket listen, and returns the address. */
static inline struct sockaddr_in listening(int socket) {
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    CHECK(pi_bind(socket, (struct sockaddr *)&address, length) == 0);
    CHECK(pi_listen(socket, 8) == 0);
    CHECK(pi_getsockname(socket, (struct sockaddr *)&address, &length) == 0 && length == sizeof address);
    CHECK(address.sin_port != 0);
    return address;
}

static inline int connecting(int socket, const struct sockaddr_in *address) {
    return pi_connect(socket, (const struct sockaddr *)address, sizeof *address);
}

struct ends {
    int listener, client, server;
    struct sockaddr_in address;
};

/* Returns a connection and both of its ends. Where there is no handshake, a first message announces the client. */
static inline struct ends connect_ends(int services) {
    struct ends ends;
    char octets[8];
    ends.listener = new_socket_with(services);
    ends.address = listening(ends.listener);
    ends.client = new_socket_with(services);
    CHECK(connecting(ends.client, &ends.address) == 0);
    int has = 0;
    socklen_t length = sizeof has;
    CHECK(pi_getsockopt(ends.client, PI_API, PI_SERVICES, &has, &length) == 0);
    int is_silent = !strncmp(protocol, "udp", 3);
    if (is_silent) CHECK(pi_send(ends.client, "hello", 5, 0) == 5);
    ends.server = pi_accept(ends.listener, NULL, NULL);
    CHECK(ends.server >= 0);
    if (is_silent) CHECK(pi_recv(ends.server, octets, sizeof octets, 0) == 5);
    return ends;
}

static inline void close_ends(struct ends *ends) {
    CHECK(pi_close(ends->client) == 0 && pi_close(ends->server) == 0 && pi_close(ends->listener) == 0);
}

/* Returns what is ready of `events`, after waiting for `wait` milliseconds. */
static inline int ready(int socket, short events, int wait) {
    struct pollfd polled = {.fd = socket, .events = events};
    return poll(&polled, 1, wait) <= 0 ? 0 : polled.revents;
}

static inline int open_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static inline void wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
