/* What the two C peers share: options, the pattern, what is counted and the summary.
 *
 * The n-th message on stream s, whatever its length, is the pattern from place s * 31 + n * 7 on, and its
 * payload protocol id is n with the highest bit set (low ones mean protocols). So a receiver knows what must be in it, and what is missing, doubled or out of order.
 * The last line printed is a summary of NAME=VALUE; the exit status is 0 when all went as expected.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 1 << 16, MOST_STREAMS = 1 << 16, MOST_ADDRESSES = 8, LARGEST = 1 << 21, MOST_NUMBERED = 1 << 24 };

struct options {
    struct sockaddr_storage bind[MOST_ADDRESSES], connect[MOST_ADDRESSES];
    int binds, connects, port, to_port, udp, to_udp;
    bool listen, unordered, interleave, abort, stay, timed, sink;
    int streams, count, size, sizes, expect, limit_s, pace_us;
    double measure_s;
    uint32_t lifetime_ms;
    const char *add, *remove, *primary;
    int change_after_ms, reset_after, buffer;
};

static uint8_t pattern[PERIOD * 2 + LARGEST];
/* By stream: how many were sent, and the number that is next to come. */
static uint32_t sent_on[MOST_STREAMS], next_on[MOST_STREAMS];
static uint8_t seen[MOST_NUMBERED / 8];
static unsigned long sent, sent_bytes, got, got_bytes, wrong, failed_sends, resets, path_changes;
static const char *volatile ended = "";

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
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

/* Addresses one after another without gaps, as bindx and connectx want them. */
static void *packed(const struct sockaddr_storage *list, int count) {
    static uint8_t room[MOST_ADDRESSES * sizeof(struct sockaddr_storage)];
    uint8_t *at = room;
    for (int i = 0; i < count; i++) {
        memcpy(at, &list[i], length_of(&list[i]));
        at += length_of(&list[i]);
    }
    return room;
}

static int next_size(const struct options *o) {
    if (o->sizes <= 1)
        return o->size;
    /* From one octet up to the size, in even steps. */
    return 1 + (int)((long)(o->size - 1) * (sent % o->sizes) / (o->sizes - 1));
}

/* Where in the pattern a message begins. */
static const uint8_t *content(uint32_t stream, uint32_t number) {
    return pattern + (stream * 31u + number * 7u) % PERIOD;
}

/* What goes next, on the streams in turn. */
static const uint8_t *next_message(const struct options *o, uint16_t *stream, uint32_t *number, int *size) {
    *stream = sent % o->streams;
    *number = sent_on[*stream];
    *size = next_size(o);
    return content(*stream, *number);
}

static void was_sent(uint16_t stream, int size) {
    sent_on[stream]++;
    sent++;
    sent_bytes += size;
}

/* The payload protocol id of a message. */
static uint32_t ppid_of(uint32_t number) {
    return htonl(number | UINT32_C(1) << 31);
}

static uint32_t number_of(uint32_t ppid) {
    return ntohl(ppid) & INT32_MAX;
}

/* A message is there: is it the right one? */
static void take(const struct options *o, uint16_t stream, uint32_t number, const uint8_t *bytes, size_t length) {
    bool right = memcmp(bytes, content(stream, number), length) == 0;
    if (o->unordered) {
        size_t place = (size_t)number * o->streams + stream;
        right = right && place < MOST_NUMBERED && !(seen[place / 8] >> place % 8 & 1);
        if (right)
            seen[place / 8] |= 1 << place % 8;
    } else {
        /* With a lifetime some may be missing, yet never one out of turn. */
        right = right && (o->timed ? number >= next_on[stream] : number == next_on[stream]);
        next_on[stream] = number + 1;
    }
    if (!right && !wrong++)
        fprintf(stderr, "wrong: message %u of %zu bytes on stream %u\n", number, length, stream);
    got++;
    got_bytes += length;
}

/* A message, or a part of one, is there. Parts of several streams may come in turns (RFC 8260). */
static void take_part(const struct options *o, uint16_t stream, uint32_t ppid, const uint8_t *bytes, size_t length,
                      bool end) {
    static struct {
        uint8_t *bytes;
        size_t length;
    } held[MOST_STREAMS];
    if (!held[stream].length && end) {
        take(o, stream, number_of(ppid), bytes, length);
        return;
    }
    if (!held[stream].bytes && !(held[stream].bytes = malloc(LARGEST)))
        die("memory");
    if (held[stream].length + length > LARGEST) {
        wrong++;
        held[stream].length = 0;
        return;
    }
    memcpy(held[stream].bytes + held[stream].length, bytes, length);
    held[stream].length += length;
    if (end) {
        take(o, stream, number_of(ppid), held[stream].bytes, held[stream].length);
        held[stream].length = 0;
    }
}

/* Streams begin anew (RFC 6525), all if none is named, and so do their numbers. Gives how many. */
static int forget(uint32_t *numbers, const uint16_t *streams, int count, int all) {
    if (!count)
        memset(numbers, 0, MOST_STREAMS * sizeof *numbers);
    for (int i = 0; i < count; i++)
        numbers[streams[i]] = 0;
    return count ? count : all;
}

static struct options parse(int argc, char **argv) {
    struct options o = {.streams = 1, .size = 1000, .sizes = 1, .limit_s = 30, .buffer = 4 << 20, .change_after_ms = -1};
    static const struct option names[] = {
        {"bind", 1, 0, 'b'},       {"port", 1, 0, 'p'},     {"connect", 1, 0, 'c'},      {"to-port", 1, 0, 'P'},
        {"listen", 0, 0, 'l'},     {"streams", 1, 0, 's'},  {"count", 1, 0, 'n'},        {"size", 1, 0, 'z'},
        {"sizes", 1, 0, 'Z'},      {"expect", 1, 0, 'e'},   {"limit", 1, 0, 't'},        {"unordered", 0, 0, 'u'},
        {"interleave", 0, 0, 'i'}, {"lifetime", 1, 0, 'T'}, {"abort", 0, 0, 'a'},        {"stay", 0, 0, 'y'},
        {"add", 1, 0, 'A'},        {"remove", 1, 0, 'R'},   {"peer-primary", 1, 0, 'm'}, {"change-after", 1, 0, 'C'},
        {"reset-after", 1, 0, 'r'}, {"pace", 1, 0, 'w'},    {"udp", 1, 0, 'v'},          {"to-udp", 1, 0, 'V'},
        {"measure", 1, 0, 'M'},    {"sink", 0, 0, 'S'},     {"buffer", 1, 0, 'B'},       {0}};
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
        case 'v': o.udp = atoi(optarg); break;
        case 'V': o.to_udp = atoi(optarg); break;
        case 'M': o.measure_s = atof(optarg); break;
        case 'S': o.sink = true; break;
        case 'B': o.buffer = atoi(optarg); break;
        default: exit(2);
        }
    }
    if (!bind || (!o.listen && !connect) || o.size < 1 || o.size > LARGEST || o.streams < 1 || o.streams > 65535) {
        fprintf(stderr, "%s: --bind, and --listen or --connect\n", argv[0]);
        exit(2);
    }
    o.binds = parse_list(bind, o.port, o.bind);
    if (connect)
        o.connects = parse_list(connect, o.to_port, o.connect);
    for (size_t i = 0; i < sizeof pattern; i++) {
        size_t place = i % PERIOD;
        pattern[i] = (uint8_t)((place * 31) ^ (place >> 8));
    }
    return o;
}

/* The exit status. */
static int summary(const struct options *o, int in, int out, double seconds) {
    printf("sent=%lu sent_bytes=%lu got=%lu got_bytes=%lu wrong=%lu failed=%lu resets=%lu paths=%lu in=%d out=%d "
           "seconds=%.3f cpu=%.3f ended=%s\n",
           sent, sent_bytes, got, got_bytes, wrong, failed_sends, resets, path_changes, in, out, seconds, cpu(),
           *ended ? ended : "not");
    return sent >= (unsigned)o->count && got >= (unsigned)o->expect && wrong == 0 ? 0 : 1;
}
