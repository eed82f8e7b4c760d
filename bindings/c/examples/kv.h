/* The protocol of the key-value service: a kind, the length of a key, the key, and a value. It is that of
 * crates/services-tokio/examples/kv, so that the programs of both languages speak with each other. */
#ifndef KV_H
#define KV_H

#include <ringway_pi.h>

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kv_kind { KV_PUT = 1, KV_GET = 2, KV_WATCH = 3, KV_VALUE = 4, KV_DONE = 5 };

/* Requests are urgent and watches are not. */
enum { KV_URGENT = 10, KV_PATIENT = 200, KV_MAX = 4096 };

struct kv_message {
    enum kv_kind kind;
    char key[256];
    size_t length;
    unsigned char value[KV_MAX];
};

/* What both programs are started with. */
struct kv_options {
    const char *protocol, *trust, *identity;
};

static inline int kv_fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, pi_error());
    return -1;
}

static inline int kv_send(int socket, const struct kv_message *message, int flags) {
    unsigned char octets[2 + 255 + KV_MAX];
    size_t key = strlen(message->key);
    octets[0] = (unsigned char)message->kind;
    octets[1] = (unsigned char)key;
    memcpy(octets + 2, message->key, key);
    memcpy(octets + 2 + key, message->value, message->length);
    return pi_send(socket, octets, 2 + key + message->length, flags) < 0 ? -1 : 0;
}

static inline int kv_send_done(int socket, int flags) {
    struct kv_message done = {.kind = KV_DONE, .length = 0};
    return kv_send(socket, &done, flags);
}

/* Returns 1 with a message, 0 at the end, and -1 for an error or what is no message of the protocol. */
static inline int kv_receive(int socket, struct kv_message *message, int flags) {
    unsigned char octets[2 + 255 + KV_MAX];
    ssize_t got = pi_recv(socket, octets, sizeof octets, flags);
    if (got <= 0) return (int)got;
    size_t length = (size_t)got, key = length > 1 ? octets[1] : 0;
    if (length < 2 + key || octets[0] < KV_PUT || octets[0] > KV_DONE) return -1;
    message->kind = (enum kv_kind)octets[0];
    memcpy(message->key, octets + 2, key);
    message->key[key] = 0;
    message->length = length - 2 - key;
    memcpy(message->value, octets + 2 + key, message->length);
    return 1;
}

static inline int kv_set(int socket, int option, const char *text) {
    return text ? pi_setsockopt(socket, PI_API, option, text, (socklen_t)strlen(text)) : 0;
}

/* Returns a socket with messages, whose requests go first. */
static inline int kv_socket(const struct kv_options *options) {
    const char *protocol = options->protocol ? options->protocol : "";
    int loses = strstr(protocol, "udp") == protocol || !strcmp(protocol, "quic-datagram") || !strcmp(protocol, "dccp-udp");
    int security = options->trust || options->identity ? PI_SECURITY_REQUIRED : PI_SECURITY_NONE;
    int priority = KV_URGENT;
    int socket = pi_socket(AF_UNSPEC, loses ? PI_DATAGRAMS : PI_RELIABLE_MESSAGES);
    if (socket < 0) return -1;
    if (kv_set(socket, PI_PROTOCOL, options->protocol) < 0 || kv_set(socket, PI_TRUST_FILE, options->trust) < 0 ||
        kv_set(socket, PI_IDENTITY_FILE, options->identity) < 0 ||
        kv_set(socket, PI_PROPERTY, strcmp(protocol, "mptcp") ? NULL : "multipath=active") < 0 ||
        pi_setsockopt(socket, PI_API, PI_SECURITY, &security, sizeof security) < 0 ||
        pi_setsockopt(socket, PI_API, PI_PRIORITY, &priority, sizeof priority) < 0) {
        pi_close(socket);
        return -1;
    }
    return socket;
}

/* Reads the options -p PROTOCOL, -t TRUST and -i IDENTITY. */
static inline void kv_read_options(int argc, char **argv, struct kv_options *options) {
    for (int option; (option = getopt(argc, argv, "p:t:i:")) != -1;) {
        if (option == 'p') options->protocol = optarg;
        else if (option == 't') options->trust = optarg;
        else if (option == 'i') options->identity = optarg;
        else exit(2);
    }
}

/* Returns a connection to "host:port". */
static inline int kv_open(const char *peer, const struct kv_options *options) {
    int socket = kv_socket(options);
    if (socket < 0) return -1;
    if (kv_set(socket, PI_REMOTE, peer) < 0 || pi_connect(socket, NULL, 0) < 0) {
        pi_close(socket);
        return -1;
    }
    return socket;
}

/* Sends a request and receives its answer, in the same place. */
static inline int kv_ask(int socket, struct kv_message *message) {
    return kv_send(socket, message, 0) < 0 ? -1 : kv_receive(socket, message, 0);
}

static inline int kv_put(int socket, const char *key, const void *value, size_t length) {
    struct kv_message message = {.kind = KV_PUT, .length = length};
    if (strlen(key) > 255 || length > KV_MAX) return -1;
    strcpy(message.key, key);
    memcpy(message.value, value, length);
    return kv_ask(socket, &message) == 1 && message.kind == KV_DONE ? 0 : -1;
}

/* Returns 1 with the value in the message, 0 if there is none, and -1 for an error. */
static inline int kv_get(int socket, const char *key, struct kv_message *message) {
    *message = (struct kv_message){.kind = KV_GET, .length = 0};
    if (strlen(key) > 255) return -1;
    strcpy(message->key, key);
    if (kv_ask(socket, message) != 1) return -1;
    return message->kind == KV_VALUE ? 1 : message->kind == KV_DONE ? 0 : -1;
}

/* Returns a connection of its own in the same group, on which all changes come from now on. pi_abort cancels it. */
static inline int kv_watch(int socket) {
    struct kv_message message = {.kind = KV_WATCH, .length = 0};
    int priority = KV_PATIENT, watch = pi_stream(socket);
    if (watch < 0) return -1;
    if (pi_setsockopt(watch, PI_API, PI_PRIORITY, &priority, sizeof priority) < 0 || kv_ask(watch, &message) != 1 ||
        message.kind != KV_DONE) {
        pi_close(watch);
        return -1;
    }
    return watch;
}

#endif
