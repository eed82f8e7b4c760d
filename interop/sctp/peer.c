/* One association of Linux's own SCTP: sends and checks the same pattern as its counterpart.
 *
 * A message on stream s, the n-th there, of any length, is the pattern from place s * 31 + n * 7 on; so
 * whoever receives knows from stream and count alone what must be in it. The last line printed is
 * a summary of NAME=VALUE; the exit status is 0 when everything went as expected.
 *
 *   peer --bind ADDR[,ADDR] --port P (--listen | --connect ADDR[,ADDR]) [what to do]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/sctp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 1 << 16, MOST_STREAMS = 1 << 16, MOST_ADDRESSES = 8, LARGEST = 1 << 21 };

struct options {
    struct sockaddr_storage bind[MOST_ADDRESSES], connect[MOST_ADDRESSES];
    int binds, connects, port, to_port;
    bool listen, unordered, interleave, abort, stay;
    int streams, count, size, sizes, expect, limit_s, pace_us;
    uint32_t lifetime_ms;
    bool timed;
    const char *add, *remove, *primary;
    int change_after_ms, reset_after;
};

static uint8_t pattern[PERIOD * 2 + LARGEST];
static uint32_t sent_on[MOST_STREAMS], got_on[MOST_STREAMS];
static unsigned long sent, sent_bytes, got, got_bytes, wrong, failed_sends, resets, path_changes;
static const char *ended = "";

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static socklen_t length_of(const struct sockaddr_storage *a) {
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void parse_address(const char *text, int port, struct sockaddr_storage *out) {
    struct sockaddr_in *v4 = (void *)out;
    struct sockaddr_in6 *v6 = (void *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
    } else {
        fprintf(stderr, "not an address: %s\n", text);
        exit(2);
    }
}

static int parse_list(char *text, int port, struct sockaddr_storage *out) {
    int count = 0;
    for (char *one = strtok(text, ","); one && count < MOST_ADDRESSES; one = strtok(NULL, ","))
        parse_address(one, port, &out[count++]);
    return count;
}

/* Addresses one after another without gaps, as sctp_bindx and sctp_connectx want them. */
static uint8_t *packed(const struct sockaddr_storage *list, int count) {
    static uint8_t room[MOST_ADDRESSES * sizeof(struct sockaddr_storage)];
    uint8_t *at = room;
    for (int i = 0; i < count; i++) {
        memcpy(at, &list[i], length_of(&list[i]));
        at += length_of(&list[i]);
    }
    return room;
}

static void set(int fd, int option, const void *value, socklen_t length, const char *what) {
    if (setsockopt(fd, IPPROTO_SCTP, option, value, length) < 0)
        die(what);
}

static int open_socket(const struct options *o) {
    int family = o->bind[0].ss_family;
    int fd = socket(family, SOCK_STREAM, IPPROTO_SCTP);
    if (fd < 0)
        die("socket");
    struct sctp_initmsg init = {.sinit_num_ostreams = o->streams, .sinit_max_instreams = 65535};
    set(fd, SCTP_INITMSG, &init, sizeof init, "SCTP_INITMSG");
    struct sctp_event_subscribe events = {.sctp_association_event = 1,
                                          .sctp_address_event = 1,
                                          .sctp_send_failure_event = 1,
                                          .sctp_shutdown_event = 1,
                                          .sctp_stream_reset_event = 1};
    set(fd, SCTP_EVENTS, &events, sizeof events, "SCTP_EVENTS");
    struct sctp_assoc_value value = {.assoc_id = 0, .assoc_value = SCTP_ENABLE_STRRESET_MASK};
    setsockopt(fd, IPPROTO_SCTP, SCTP_ENABLE_STREAM_RESET, &value, sizeof value);
    int on = 1;
    set(fd, SCTP_RECVRCVINFO, &on, sizeof on, "SCTP_RECVRCVINFO");
    set(fd, SCTP_NODELAY, &on, sizeof on, "SCTP_NODELAY");
    if (o->interleave) {
        int level = 2;
        set(fd, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level, "SCTP_FRAGMENT_INTERLEAVE");
        struct sctp_assoc_value yes = {.assoc_value = 1};
        set(fd, SCTP_INTERLEAVING_SUPPORTED, &yes, sizeof yes, "SCTP_INTERLEAVING_SUPPORTED");
    }
    int room = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (sctp_bindx(fd, (struct sockaddr *)packed(o->bind, o->binds), o->binds, SCTP_BINDX_ADD_ADDR) < 0)
        die("bind");
    return fd;
}

static int associate(const struct options *o) {
    int fd = open_socket(o);
    if (!o->listen) {
        sctp_assoc_t id;
        if (sctp_connectx(fd, (struct sockaddr *)packed(o->connect, o->connects), o->connects, &id) < 0)
            die("connect");
        return fd;
    }
    if (listen(fd, 4) < 0)
        die("listen");
    printf("listening\n");
    fflush(stdout);
    int taken = accept(fd, NULL, NULL);
    if (taken < 0)
        die("accept");
    close(fd);
    return taken;
}

static int next_size(const struct options *o) {
    if (o->sizes <= 1)
        return o->size;
    /* From one octet up to the size, in even steps. */
    return 1 + (int)((long)(o->size - 1) * (sent % o->sizes) / (o->sizes - 1));
}

/* Sends one message if there is room. */
static bool send_one(int fd, const struct options *o) {
    uint16_t stream = sent % o->streams;
    int size = next_size(o);
    struct sctp_sendv_spa how = {.sendv_flags = SCTP_SEND_SNDINFO_VALID};
    how.sendv_sndinfo.snd_sid = stream;
    how.sendv_sndinfo.snd_flags = o->unordered ? SCTP_UNORDERED : 0;
    how.sendv_sndinfo.snd_ppid = htonl(sent);
    if (o->timed) {
        how.sendv_flags |= SCTP_SEND_PRINFO_VALID;
        how.sendv_prinfo.pr_policy = SCTP_PR_SCTP_TTL;
        how.sendv_prinfo.pr_value = o->lifetime_ms;
    }
    struct iovec bytes = {pattern + (stream * 31u + sent_on[stream] * 7u) % PERIOD, size};
    if (sctp_sendv(fd, &bytes, 1, NULL, 0, &how, sizeof how, SCTP_SENDV_SPA, MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN)
            return false;
        die("send");
    }
    sent_on[stream]++;
    sent++;
    sent_bytes += size;
    return true;
}

static void note(const uint8_t *bytes) {
    const union sctp_notification *event = (const void *)bytes;
    switch (event->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE:
        if (event->sn_assoc_change.sac_state == SCTP_COMM_LOST)
            ended = "lost";
        else if (event->sn_assoc_change.sac_state == SCTP_SHUTDOWN_COMP)
            ended = "shutdown";
        else if (event->sn_assoc_change.sac_state == SCTP_RESTART)
            printf("restart\n");
        break;
    case SCTP_PEER_ADDR_CHANGE:
        path_changes++;
        printf("path %d\n", event->sn_paddr_change.spc_state);
        break;
    case SCTP_SEND_FAILED:
        failed_sends++;
        break;
    case SCTP_STREAM_RESET_EVENT: {
        const struct sctp_stream_reset_event *reset = (const void *)bytes;
        resets++;
        /* Numbers begin anew, and so does the pattern. */
        if (reset->strreset_flags & SCTP_STREAM_RESET_INCOMING_SSN)
            memset(got_on, 0, sizeof got_on);
        if (reset->strreset_flags & SCTP_STREAM_RESET_OUTGOING_SSN)
            memset(sent_on, 0, sizeof sent_on);
        break;
    }
    }
}

/* Takes in what there is. Messages may come in parts; parts of one message come in a row here. */
static bool receive_one(int fd, const struct options *o) {
    static uint8_t buffer[LARGEST];
    static size_t held;
    struct sctp_rcvinfo info = {0};
    struct iovec room = {buffer + held, sizeof buffer - held};
    socklen_t from_length = 0, info_length = sizeof info;
    unsigned type = 0;
    int flags = MSG_DONTWAIT;
    int n = sctp_recvv(fd, &room, 1, NULL, &from_length, &info, &info_length, &type, &flags);
    if (n < 0) {
        if (errno == EAGAIN)
            return false;
        ended = errno == ECONNRESET ? "reset" : strerror(errno);
        return false;
    }
    if (n == 0) {
        if (!*ended)
            ended = "shutdown";
        return false;
    }
    if (flags & MSG_NOTIFICATION) {
        note(buffer + held);
        return true;
    }
    held += n;
    if (!(flags & MSG_EOR))
        return true;
    uint32_t place = info.rcv_sid * 31u + got_on[info.rcv_sid]++ * 7u;
    /* Unordered or partly lost messages are known by the number their sender gave them. */
    if (o->unordered || o->timed)
        place = 0;
    else if (memcmp(buffer, pattern + place % PERIOD, held) != 0)
        wrong++;
    got++;
    got_bytes += held;
    held = 0;
    return true;
}

static void change(int fd, const struct options *o, const char *address, int flags) {
    struct sockaddr_storage one;
    parse_address(address, o->port, &one);
    if (sctp_bindx(fd, (struct sockaddr *)&one, 1, flags) < 0)
        die(flags == SCTP_BINDX_ADD_ADDR ? "add an address" : "remove an address");
    printf("changed %s\n", address);
}

static void changes(int fd, struct options *o) {
    if (o->add)
        change(fd, o, o->add, SCTP_BINDX_ADD_ADDR);
    if (o->primary) {
        struct sctp_setpeerprim prim = {0};
        struct sockaddr_storage one;
        parse_address(o->primary, o->port, &one);
        memcpy(&prim.sspp_addr, &one, sizeof one);
        set(fd, SCTP_SET_PEER_PRIMARY_ADDR, &prim, sizeof prim, "SCTP_SET_PEER_PRIMARY_ADDR");
    }
    if (o->remove)
        change(fd, o, o->remove, SCTP_BINDX_REM_ADDR);
    o->add = o->remove = o->primary = NULL;
}

static void reset_streams(int fd) {
    struct sctp_reset_streams all = {.srs_flags = SCTP_STREAM_RESET_OUTGOING};
    set(fd, SCTP_RESET_STREAMS, &all, sizeof all, "SCTP_RESET_STREAMS");
}

static void finish(int fd, const struct options *o, double limit) {
    if (o->abort) {
        struct sctp_sndinfo info = {.snd_flags = SCTP_ABORT};
        sctp_sendv(fd, NULL, 0, NULL, 0, &info, sizeof info, SCTP_SENDV_SNDINFO, 0);
        ended = "aborted";
        return;
    }
    if (!o->stay)
        shutdown(fd, SHUT_WR);
    while (!*ended && now() < limit) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        poll(&wait, 1, 100);
        while (!*ended && receive_one(fd, o))
            ;
    }
}

static void exchange(int fd, struct options *o) {
    double begun = now(), limit = begun + o->limit_s, next = begun;
    while (!*ended && now() < limit && (sent < (unsigned)o->count || got < (unsigned)o->expect)) {
        if (o->change_after_ms >= 0 && now() - begun > o->change_after_ms / 1e3)
            changes(fd, o);
        bool more = sent < (unsigned)o->count && now() >= next;
        struct pollfd wait = {.fd = fd, .events = POLLIN | (more ? POLLOUT : 0)};
        poll(&wait, 1, o->pace_us ? 1 : 100);
        for (int i = 0; i < 64 && !*ended && receive_one(fd, o); i++)
            ;
        while (!*ended && sent < (unsigned)o->count && now() >= next && send_one(fd, o)) {
            next = o->pace_us ? next + o->pace_us / 1e6 : next;
            if (o->reset_after && sent == (unsigned)o->reset_after)
                reset_streams(fd);
        }
    }
    finish(fd, o, limit);
}

static struct options parse(int argc, char **argv) {
    struct options o = {.streams = 1, .size = 1000, .sizes = 1, .limit_s = 30, .change_after_ms = -1};
    static const struct option names[] = {
        {"bind", 1, 0, 'b'},      {"port", 1, 0, 'p'},     {"connect", 1, 0, 'c'},   {"to-port", 1, 0, 'P'},
        {"listen", 0, 0, 'l'},    {"streams", 1, 0, 's'},  {"count", 1, 0, 'n'},     {"size", 1, 0, 'z'},
        {"sizes", 1, 0, 'Z'},     {"expect", 1, 0, 'e'},   {"limit", 1, 0, 't'},     {"unordered", 0, 0, 'u'},
        {"interleave", 0, 0, 'i'}, {"lifetime", 1, 0, 'T'}, {"abort", 0, 0, 'a'},     {"stay", 0, 0, 'y'},
        {"add", 1, 0, 'A'},       {"remove", 1, 0, 'R'},   {"peer-primary", 1, 0, 'm'}, {"change-after", 1, 0, 'C'},
        {"reset-after", 1, 0, 'r'}, {"pace", 1, 0, 'w'},   {0}};
    char *bind = NULL, *connect = NULL;
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 'b': bind = optarg; break;
        case 'c': connect = optarg; break;
        case 'p': o.port = atoi(optarg); break;
        case 'P': o.to_port = atoi(optarg); break;
        case 'l': o.listen = true; break;
        case 's': o.streams = atoi(optarg); break;
        case 'n': o.count = atoi(optarg); break;
        case 'z': o.size = atoi(optarg); break;
        case 'Z': o.sizes = atoi(optarg); break;
        case 'e': o.expect = atoi(optarg); break;
        case 't': o.limit_s = atoi(optarg); break;
        case 'u': o.unordered = true; break;
        case 'i': o.interleave = true; break;
        case 'T': o.timed = true; o.lifetime_ms = atoi(optarg); break;
        case 'a': o.abort = true; break;
        case 'y': o.stay = true; break;
        case 'A': o.add = optarg; break;
        case 'R': o.remove = optarg; break;
        case 'm': o.primary = optarg; break;
        case 'C': o.change_after_ms = atoi(optarg); break;
        case 'r': o.reset_after = atoi(optarg); break;
        case 'w': o.pace_us = atoi(optarg); break;
        default: exit(2);
        }
    }
    if (!bind || (!o.listen && !connect) || o.size > LARGEST || o.streams < 1 || o.streams > 65535) {
        fprintf(stderr, "peer: --bind, and --listen or --connect\n");
        exit(2);
    }
    o.binds = parse_list(bind, o.port, o.bind);
    if (connect)
        o.connects = parse_list(connect, o.to_port, o.connect);
    return o;
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof pattern; i++) {
        size_t place = i % PERIOD;
        pattern[i] = (uint8_t)((place * 31) ^ (place >> 8));
    }
    struct options o = parse(argc, argv);
    int fd = associate(&o);
    double begun = now();
    exchange(fd, &o);
    double seconds = now() - begun;
    struct sctp_status status = {0};
    socklen_t length = sizeof status;
    getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &length);
    close(fd);
    printf("sent=%lu sent_bytes=%lu got=%lu got_bytes=%lu wrong=%lu failed=%lu resets=%lu paths=%lu in=%d out=%d "
           "seconds=%.3f ended=%s\n",
           sent, sent_bytes, got, got_bytes, wrong, failed_sends, resets, path_changes, status.sstat_instrms,
           status.sstat_outstrms, seconds, *ended ? ended : "not");
    bool good = sent == (unsigned)o.count && got >= (unsigned)o.expect && wrong == 0;
    return good ? 0 : 1;
}
