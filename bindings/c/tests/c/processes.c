/* dup(2), fork(2) and the end of a process. */
#include "check.h"

static char octets[64];

/* A process that has not used the library yet forks, and the child does. What it has written arrives, although it neither
 * closes the socket nor waits. */
static void what_was_written_outlives_the_program(int argc, char **argv) {
    enum { LENGTH = 200000 };
    int ports[2], got = 0;
    CHECK(pipe(ports) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in address;
        static char message[LENGTH];
        read_arguments(argc, argv);
        CHECK(read(ports[0], &address, sizeof address) == sizeof address);
        int client = new_socket();
        CHECK(connecting(client, &address) == 0);
        for (int i = 0; i < 5; i++) CHECK(pi_send(client, message, LENGTH, 0) == LENGTH);
        exit(0);
    }
    int listener = new_socket();
    struct sockaddr_in address = listening(listener);
    CHECK(write(ports[1], &address, sizeof address) == sizeof address);
    int server = pi_accept(listener, NULL, NULL);
    static char message[LENGTH];
    CHECK(server >= 0);
    for (ssize_t length; (length = pi_recv(server, message, LENGTH, 0)) != 0; got += (int)length) CHECK(length > 0);
    CHECK(got == 5 * LENGTH);
    wait_for(child);
    CHECK(pi_close(server) == 0 && pi_close(listener) == 0 && close(ports[0]) == 0 && close(ports[1]) == 0);
}

static void duplicates_are_one_socket(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    int other = dup(ends.client);
    CHECK(other >= 0 && pi_close(ends.client) == 0);
    CHECK(pi_send(other, "dup", 3, 0) == 3);
    CHECK(pi_recv(ends.server, octets, sizeof octets, 0) == 3);
    set_number(other, PI_PRIORITY, 3);
    CHECK(ready(ends.server, POLLIN, 50) == 0);
    /* close(2) is as good. */
    CHECK(close(other) == 0);
    CHECK(pi_recv(ends.server, octets, sizeof octets, 0) == 0);
    ends.client = dup(ends.server);
    close_ends(&ends);
}

static void a_child_uses_what_it_inherits(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    int unconnected = new_socket();
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        CHECK(pi_close(ends.server) == 0);
        CHECK(pi_send(ends.client, "of the child", 12, 0) == 12);
        CHECK(pi_recv(ends.client, octets, sizeof octets, 0) == 6);
        /* The transports are the parent's. */
        FAILS(connecting(unconnected, &ends.address), EOPNOTSUPP);
        FAILS(pi_stream(ends.client), EOPNOTSUPP);
        int accepted = pi_accept(ends.listener, NULL, NULL);
        CHECK(accepted >= 0);
        CHECK(pi_recv(accepted, octets, sizeof octets, 0) == 6 && !memcmp(octets, "second", 6));
        CHECK(pi_send(accepted, "seen", 4, 0) == 4);
        CHECK(pi_recv(accepted, octets, sizeof octets, 0) == 0);
        /* Not by exit(3): the sanitizer would look for what the parent's thread refers to. */
        _exit(0);
    }
    CHECK(pi_recv(ends.server, octets, sizeof octets, 0) == 12);
    CHECK(pi_send(ends.server, "answer", 6, 0) == 6);
    int second = new_socket();
    CHECK(connecting(second, &ends.address) == 0);
    CHECK(pi_send(second, "second", 6, 0) == 6);
    CHECK(pi_recv(second, octets, sizeof octets, 0) == 4);
    CHECK(pi_close(second) == 0);
    wait_for(child);
    /* The connection is still the parent's. */
    CHECK(pi_send(ends.client, "on", 2, 0) == 2);
    CHECK(pi_recv(ends.server, octets, sizeof octets, 0) == 2);
    CHECK(pi_close(unconnected) == 0);
    close_ends(&ends);
}

/* A server whose children accept: they serve many connections, one after the other. */
static void a_child_accepts_again_and_again(void) {
    enum { CONNECTIONS = 150 };
    int listener = new_socket();
    struct sockaddr_in address = listening(listener);
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        for (int i = 0; i < CONNECTIONS; i++) {
            int server = pi_accept(listener, NULL, NULL);
            CHECK(server >= 0);
            ssize_t length = pi_recv(server, octets, sizeof octets, 0);
            CHECK(length == 4 && pi_send(server, octets, 4, 0) == 4);
            CHECK(pi_close(server) == 0);
        }
        _exit(0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        int client = new_socket();
        CHECK(connecting(client, &address) == 0);
        CHECK(pi_send(client, "echo", 4, 0) == 4);
        CHECK(pi_recv(client, octets, sizeof octets, 0) == 4);
        CHECK(pi_close(client) == 0);
    }
    wait_for(child);
    CHECK(pi_close(listener) == 0);
}

/* A child does not keep the parent's transports open. */
static void a_peer_sees_the_end_although_a_child_lives(void) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    int wait[2];
    CHECK(pipe(wait) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pi_close(ends.client) == 0 && close(wait[1]) == 0);
        CHECK(read(wait[0], octets, 1) == 0);
        _exit(0);
    }
    CHECK(pi_close(ends.client) == 0);
    CHECK(pi_recv(ends.server, octets, sizeof octets, 0) == 0);
    CHECK(close(wait[1]) == 0 && close(wait[0]) == 0);
    wait_for(child);
    ends.client = dup(ends.server);
    close_ends(&ends);
}

static void a_child_notices_that_the_parent_has_gone(void) {
    int ports[2];
    CHECK(pipe(ports) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        /* It has inherited a library without a thread, and must not use it: a fresh program does. */
        char number[16];
        snprintf(number, sizeof number, "%d", ports[1]);
        execl("/proc/self/exe", "processes", protocol, "parent", number, (char *)NULL);
        _exit(127);
    }
    wait_for(parent);
    CHECK(close(ports[1]) == 0);
    CHECK(read(ports[0], octets, sizeof octets) == 2 && !memcmp(octets, "ok", 2));
    CHECK(close(ports[0]) == 0);
}

static int be_a_parent_that_dies(int report) {
    struct ends ends = connect_ends(PI_RELIABLE_MESSAGES);
    if (fork() == 0) {
        alarm(120);
        FAILS(pi_recv(ends.client, octets, sizeof octets, 0), ECONNRESET);
        FAILS(pi_send(ends.client, "x", 1, 0), EPIPE);
        CHECK(write(report, "ok", 2) == 2);
        _exit(0);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[2], "parent")) {
        read_arguments(2, argv);
        return be_a_parent_that_dies(atoi(argv[3]));
    }
    read_arguments(argc, argv);
    what_was_written_outlives_the_program(argc, argv);
    duplicates_are_one_socket();
    a_child_uses_what_it_inherits();
    a_child_accepts_again_and_again();
    a_peer_sees_the_end_although_a_child_lives();
    a_child_notices_that_the_parent_has_gone();
    return 0;
}
