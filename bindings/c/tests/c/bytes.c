/* Byte streams, with a peer that has plain sockets. */
#include "check.h"

enum { LENGTH = 3000000 };

/* Returns what it reads until the end, and the end. */
static void *echo(void *argument) {
    int listener = *(int *)argument, peer = accept(listener, NULL, NULL);
    char octets[8192];
    CHECK(peer >= 0);
    for (ssize_t length; (length = recv(peer, octets, sizeof octets, 0)) > 0;)
        CHECK(send(peer, octets, (size_t)length, MSG_NOSIGNAL) == length);
    close(peer);
    return NULL;
}

static void *write_all(void *argument) {
    int socket = *(int *)argument;
    static char octets[100000];
    for (int sent = 0; sent < LENGTH;) {
        int wanted = LENGTH - sent < (int)sizeof octets ? LENGTH - sent : (int)sizeof octets;
        memset(octets, sent / 100000, sizeof octets);
        ssize_t length = pi_send(socket, octets, (size_t)wanted, 0);
        CHECK(length == wanted);
        sent += wanted;
    }
    CHECK(pi_shutdown(socket, SHUT_WR) == 0);
    FAILS(pi_send(socket, "x", 1, 0), EPIPE);
    return NULL;
}

static void a_plain_peer_echoes(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    pthread_t peer, writer;
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    CHECK(pthread_create(&peer, NULL, echo, &listener) == 0);
    int client = new_socket_with(PI_RELIABLE_BYTES);
    CHECK(connecting(client, &address) == 0);
    CHECK(pthread_create(&writer, NULL, write_all, &client) == 0);
    unsigned char octets[1000];
    int got = 0;
    /* Reading less than there is loses nothing. */
    for (ssize_t read; (read = pi_recv(client, octets, got % 7 ? sizeof octets : 3, 0)) != 0; got += (int)read) {
        CHECK(read > 0);
        CHECK(octets[0] == (unsigned char)(got / 100000));
    }
    CHECK(got == LENGTH);
    CHECK(pthread_join(writer, NULL) == 0 && pthread_join(peer, NULL) == 0);
    CHECK(pi_close(client) == 0);
    close(listener);
}

static void a_plain_peer_connects_and_resets(void) {
    int listener = new_socket_with(PI_RELIABLE_BYTES), peer = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = listening(listener);
    char octets[8];
    CHECK(connect(peer, (struct sockaddr *)&address, sizeof address) == 0);
    int server = pi_accept(listener, NULL, NULL);
    CHECK(server >= 0);
    CHECK(send(peer, "hello", 5, 0) == 5);
    CHECK(pi_recv(server, octets, 5, MSG_WAITALL) == 5 && !memcmp(octets, "hello", 5));
    /* read(2) and write(2) are for byte streams, too. */
    CHECK(write(server, "hi", 2) == 2 && recv(peer, octets, 2, MSG_WAITALL) == 2);
    struct linger now = {.l_onoff = 1};
    CHECK(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(peer) == 0);
    CHECK(ready(server, POLLIN, LONG) & POLLHUP);
    CHECK(pi_recv(server, octets, sizeof octets, 0) == -1 && (errno == ECONNRESET || errno == ECONNABORTED));
    CHECK(pi_recv(server, octets, sizeof octets, 0) == 0);
    CHECK(pi_close(server) == 0 && pi_close(listener) == 0);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    a_plain_peer_echoes();
    a_plain_peer_connects_and_resets();
    return 0;
}
