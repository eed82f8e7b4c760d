/* The server of the key-value service, one thread with poll(2):
 *
 *   kv_server [-p PROTOCOL] [-i IDENTITY] ADDRESS PORT
 *
 * It prints the port, which is a free one if PORT is 0. A client that does not read its answers is dropped; a watcher that
 * is behind misses changes.
 */
#include "kv.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

enum { MAX_VALUES = 1000, MAX_CLIENTS = 256 };

static struct kv_message values[MAX_VALUES];
static size_t value_count;
static struct pollfd polled[1 + MAX_CLIENTS];
static int watches[1 + MAX_CLIENTS];
static nfds_t polled_count = 1;
static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static struct kv_message *find(const char *key) {
    for (size_t i = 0; i < value_count; i++)
        if (!strcmp(values[i].key, key)) return &values[i];
    return NULL;
}

static void put(const struct kv_message *message) {
    struct kv_message *value = find(message->key);
    if (!value && value_count == MAX_VALUES) return;
    if (!value) value = &values[value_count++];
    *value = *message;
    value->kind = KV_VALUE;
    for (nfds_t i = 1; i < polled_count; i++)
        if (watches[i]) kv_send(polled[i].fd, value, MSG_DONTWAIT);
}

/* Answers a client. Returns -1 when it is over. */
static int answer(nfds_t index) {
    struct kv_message message;
    int client = polled[index].fd, received = kv_receive(client, &message, MSG_DONTWAIT);
    if (received < 0 && errno == EAGAIN) return 0;
    if (received <= 0 || watches[index]) return -1;
    if (message.kind == KV_PUT) {
        put(&message);
        return kv_send_done(client, MSG_DONTWAIT);
    }
    if (message.kind == KV_GET) {
        struct kv_message *value = find(message.key);
        return value ? kv_send(client, value, MSG_DONTWAIT) : kv_send_done(client, MSG_DONTWAIT);
    }
    if (message.kind == KV_WATCH) {
        int priority = KV_PATIENT;
        watches[index] = 1;
        pi_setsockopt(client, PI_API, PI_PRIORITY, &priority, sizeof priority);
        return kv_send_done(client, MSG_DONTWAIT);
    }
    return -1;
}

static void accept_one(int listener) {
    int client = pi_accept(listener, NULL, NULL);
    if (client < 0) {
        kv_fail("accept");
    } else if (polled_count == 1 + MAX_CLIENTS) {
        pi_abort(client);
    } else {
        polled[polled_count] = (struct pollfd){.fd = client, .events = POLLIN};
        watches[polled_count++] = 0;
    }
}

int main(int argc, char **argv) {
    struct kv_options options = {0};
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found;
    kv_read_options(argc, argv, &options);
    if (argc - optind != 2 || getaddrinfo(argv[optind], argv[optind + 1], &hints, &found)) {
        fprintf(stderr, "usage: kv_server [-p PROTOCOL] [-i IDENTITY] ADDRESS PORT\n");
        return 2;
    }
    signal(SIGTERM, stop);
    int listener = kv_socket(&options);
    int failed = listener < 0 || pi_bind(listener, found->ai_addr, found->ai_addrlen) < 0 || pi_listen(listener, 16) < 0;
    freeaddrinfo(found);
    if (failed) return kv_fail("listen"), 1;

    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char port[8] = "";
    pi_getsockname(listener, (struct sockaddr *)&address, &length);
    getnameinfo((struct sockaddr *)&address, length, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    printf("listening at port %s\n", port);
    fflush(stdout);

    polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    while (!stopped && (poll(polled, polled_count, -1) > 0 || errno == EINTR)) {
        for (nfds_t i = polled_count - 1; !stopped && i > 0; i--) {
            if (!polled[i].revents || answer(i) == 0) continue;
            pi_close(polled[i].fd);
            polled[i] = polled[--polled_count];
            watches[i] = watches[polled_count];
        }
        if (!stopped && polled[0].revents) accept_one(listener);
    }
    for (nfds_t i = 0; i < polled_count; i++) pi_close(polled[i].fd);
    return 0;
}
