/* The key-value service with a server that runs: kv [-p PROTOCOL] [-t TRUST] HOST:PORT */
#include "check.h"
#include "../../examples/kv.h"

int main(int argc, char **argv) {
    struct kv_options options = {0};
    kv_read_options(argc, argv, &options);
    CHECK(argc - optind == 1);
    alarm(120);
    struct kv_message message;
    int socket = kv_open(argv[optind], &options);
    CHECK(socket >= 0);
    CHECK(kv_get(socket, "colour", &message) == 0);
    CHECK(kv_put(socket, "colour", "blue", 4) == 0);
    CHECK(kv_get(socket, "colour", &message) == 1 && message.length == 4 && !memcmp(message.value, "blue", 4));
    int watch = kv_watch(socket), cancelled = kv_watch(socket);
    CHECK(watch >= 0 && cancelled >= 0);
    CHECK(kv_put(socket, "shape", "round", 5) == 0);
    CHECK(kv_receive(watch, &message, 0) == 1 && message.kind == KV_VALUE && !strcmp(message.key, "shape"));
    /* A watch that is cancelled leaves the other one and the requests. */
    CHECK(pi_abort(cancelled) == 0);
    unsigned char size[1000];
    memset(size, 7, sizeof size);
    CHECK(kv_put(socket, "size", size, sizeof size) == 0);
    CHECK(kv_receive(watch, &message, 0) == 1 && !strcmp(message.key, "size") && message.length == sizeof size);
    CHECK(kv_get(socket, "size", &message) == 1 && !memcmp(message.value, size, sizeof size));
    CHECK(pi_close(watch) == 0 && pi_close(socket) == 0);
    return 0;
}
