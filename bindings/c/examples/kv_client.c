/* The client of the key-value service:
 *
 *   kv_client [-p PROTOCOL] [-t TRUST] HOST:PORT put KEY VALUE | get KEY | watch
 */
#include "kv.h"

static int watch(int socket) {
    struct kv_message change;
    int changes = kv_watch(socket), received;
    if (changes < 0) return kv_fail("watch");
    while ((received = kv_receive(changes, &change, 0)) == 1) {
        printf("%s = %.*s\n", change.key, (int)change.length, (char *)change.value);
        fflush(stdout);
        /* Whoever sets it ends the watches. The requests of this client go on. */
        if (!strcmp(change.key, "end")) return pi_abort(changes);
    }
    if (received < 0) kv_fail("watch");
    pi_close(changes);
    return received;
}

int main(int argc, char **argv) {
    struct kv_options options = {0};
    kv_read_options(argc, argv, &options);
    argv += optind;
    argc -= optind;
    int is_put = argc == 4 && !strcmp(argv[1], "put"), is_get = argc == 3 && !strcmp(argv[1], "get");
    if (!is_put && !is_get && (argc != 2 || strcmp(argv[1], "watch"))) {
        fprintf(stderr, "usage: kv_client [-p PROTOCOL] [-t TRUST] HOST:PORT put KEY VALUE | get KEY | watch\n");
        return 2;
    }
    int socket = kv_open(argv[0], &options), status = -1;
    if (socket < 0) return kv_fail(argv[0]), 1;
    if (is_put) {
        status = kv_put(socket, argv[2], argv[3], strlen(argv[3]));
    } else if (is_get) {
        struct kv_message message;
        status = kv_get(socket, argv[2], &message);
        if (status == 0) printf("there is no %s\n", argv[2]);
        if (status == 1) printf("%.*s\n", (int)message.length, (char *)message.value);
    } else {
        status = watch(socket);
    }
    if (status < 0) kv_fail(argv[1]);
    pi_close(socket);
    return status < 0;
}
