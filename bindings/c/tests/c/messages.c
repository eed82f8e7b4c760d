/* Messages over one protocol: sizes, properties, streams, ends. */
#include "check.h"

static void keep_their_boundaries(struct ends *ends) {
    char octets[64];
    CHECK(pi_send(ends->client, "one", 3, 0) == 3);
    CHECK(pi_send(ends->client, "", 0, 0) == 0);
    CHECK(pi_send(ends->client, "three", 5, 0) == 5);
    if (is_datagram()) {
        /* They may overtake each other. */
        size_t sum = 0;
        for (int i = 0; i < 3; i++) sum += (size_t)pi_recv(ends->server, octets, sizeof octets, 0);
        CHECK(sum == 8);
        return;
    }
    struct iovec part = {.iov_base = octets, .iov_len = sizeof octets};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(pi_recvmsg(ends->server, &message, 0) == 3 && message.msg_flags == MSG_EOR && !memcmp(octets, "one", 3));
    /* An empty message has MSG_EOR, and the end of the connection has not. */
    CHECK(pi_recvmsg(ends->server, &message, 0) == 0 && message.msg_flags == MSG_EOR);
    CHECK(pi_recv(ends->server, octets, sizeof octets, MSG_PEEK) == 5);
    part.iov_len = 2;
    CHECK(pi_recvmsg(ends->server, &message, 0) == 2 && message.msg_flags == (MSG_EOR | MSG_TRUNC));
}

/* They are longer than what a descriptor carries in a packet, and cross with each other. */
static void may_be_large(struct ends *ends) {
    enum { LENGTH = 1 << 20 };
    unsigned char *sent = malloc(LENGTH), *got = malloc(LENGTH);
    CHECK(sent && got);
    for (int i = 0; i < LENGTH; i++) sent[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int length = (64 << 10) - 1; length <= LENGTH; length = length < 65540 ? length + 1 : length * 3) {
        int used = length < LENGTH ? length : LENGTH;
        CHECK(pi_send(ends->client, sent, (size_t)used, 0) == used);
        struct iovec parts[2] = {{got, 70000}, {got + 70000, LENGTH - 70000}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        CHECK(pi_recvmsg(ends->server, &message, 0) == used && message.msg_flags == MSG_EOR);
        CHECK(!memcmp(sent, got, (size_t)used));
    }
    CHECK(pi_send(ends->server, sent, 300000, 0) == 300000);
    CHECK(pi_recv(ends->client, got, 100, MSG_TRUNC) == 300000);
    CHECK(!memcmp(sent, got, 100));
    free(sent);
    free(got);
}

static void have_a_largest_size(struct ends *ends) {
    int max = 0;
    socklen_t length = sizeof max;
    CHECK(pi_getsockopt(ends->client, PI_API, PI_MAX_MESSAGE, &max, &length) == 0 && max > 1000);
    char *octets = calloc(1, (size_t)max + 1);
    CHECK(octets);
    FAILS(pi_send(ends->client, octets, (size_t)max + 1, 0), EMSGSIZE);
    free(octets);
}

static void have_properties(struct ends *ends) {
    char octets[16];
    struct iovec parts[2] = {{"in ", 3}, {"parts", 5}};
    union {
        char space[2 * CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *property = CMSG_FIRSTHDR(&message);
    *property = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = PI_API, .cmsg_type = PI_MSG_PRIORITY};
    memcpy(CMSG_DATA(property), &(int){7}, sizeof(int));
    property = CMSG_NXTHDR(&message, property);
    *property = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = PI_API, .cmsg_type = PI_MSG_LIFETIME};
    memcpy(CMSG_DATA(property), &(int){LONG}, sizeof(int));
    CHECK(pi_sendmsg(ends->client, &message, 0) == 8);
    CHECK(pi_recv(ends->server, octets, sizeof octets, 0) == 8 && !memcmp(octets, "in parts", 8));
    property->cmsg_type = 99;
    FAILS(pi_sendmsg(ends->client, &message, 0), EINVAL);
}

static void options_tell_what_was_chosen(struct ends *ends) {
    char text[8192];
    socklen_t length = sizeof text;
    CHECK(pi_getsockopt(ends->client, PI_API, PI_PROTOCOL, text, &length) == 0 && !strcmp(text, protocol));
    length = sizeof text;
    CHECK(pi_getsockopt(ends->client, PI_API, PI_EXPLANATION, text, &length) == 0 && strlen(text) > 10);
    int services = 0;
    length = sizeof services;
    CHECK(pi_getsockopt(ends->server, PI_API, PI_SERVICES, &services, &length) == 0);
    CHECK(services & PI_MESSAGES && !!(services & PI_RELIABLE) == !is_datagram());
    strcpy(text, "connPriority");
    length = sizeof text;
    set_number(ends->client, PI_PRIORITY, 42);
    CHECK(pi_getsockopt(ends->client, PI_API, PI_PROPERTY, text, &length) == 0 && !strcmp(text, "42") && length == 3);
    length = 2;
    strcpy(text, "connPriority");
    FAILS(pi_setsockopt(ends->client, PI_API, PI_PROPERTY, "keepAlive=require", 17), EISCONN);
    set(ends->client, PI_PROPERTY, "msgPriority=5");
    struct sockaddr_in address;
    length = sizeof address;
    CHECK(pi_getpeername(ends->client, (struct sockaddr *)&address, &length) == 0 && length == sizeof address);
    CHECK(address.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && address.sin_port == ends->address.sin_port);
}

/* A stream that is cancelled leaves the connection that it belongs to. */
static void streams_are_cancelled_alone(struct ends *ends) {
    char octets[16];
    int stream = pi_stream(ends->client);
    CHECK(stream >= 0);
    set_number(stream, PI_PRIORITY, 200);
    CHECK(pi_send(stream, "stream", 6, 0) == 6);
    int other = pi_accept(ends->listener, NULL, NULL);
    CHECK(other >= 0);
    CHECK(pi_recv(other, octets, sizeof octets, 0) == 6);
    CHECK(pi_abort(stream) == 0);
    if (!is_datagram()) {
        CHECK(ready(other, POLLIN, LONG) & POLLIN);
        FAILS(pi_recv(other, octets, sizeof octets, 0), ECONNRESET);
        FAILS(pi_send(other, "x", 1, 0), EPIPE);
    }
    CHECK(pi_close(other) == 0);
    CHECK(pi_send(ends->client, "goes on", 7, 0) == 7);
    CHECK(pi_recv(ends->server, octets, sizeof octets, 0) == 7);
}

static void the_last_one_is_followed_by_the_end(struct ends *ends) {
    char octets[16];
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {"last", 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *property = CMSG_FIRSTHDR(&message);
    *property = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = PI_API, .cmsg_type = PI_MSG_FINAL};
    memcpy(CMSG_DATA(property), &(int){1}, sizeof(int));
    CHECK(pi_sendmsg(ends->client, &message, 0) == 4);
    CHECK(pi_recv(ends->server, octets, sizeof octets, 0) == 4);
    message.msg_control = NULL;
    part = (struct iovec){octets, sizeof octets};
    CHECK(pi_recvmsg(ends->server, &message, 0) == 0 && message.msg_flags == 0);
    /* The other direction goes on. */
    CHECK(pi_send(ends->server, "answer", 6, 0) == 6);
    CHECK(pi_recv(ends->client, octets, sizeof octets, 0) == 6);
    CHECK(pi_close(ends->server) == 0);
    CHECK(pi_recv(ends->client, octets, sizeof octets, 0) == 0);
    CHECK(pi_close(ends->client) == 0 && pi_close(ends->listener) == 0);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    int services = is_datagram() ? PI_DATAGRAMS : PI_RELIABLE_MESSAGES;
    struct ends ends = connect_ends(services);
    keep_their_boundaries(&ends);
    if (!is_datagram()) may_be_large(&ends);
    have_a_largest_size(&ends);
    have_properties(&ends);
    options_tell_what_was_chosen(&ends);
    streams_are_cancelled_alone(&ends);
    if (is_datagram()) close_ends(&ends);
    else the_last_one_is_followed_by_the_end(&ends);
    return 0;
}
