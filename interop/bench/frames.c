/* Frames from one interface to another at a steady rate, and how long each was under way.
 *
 *     frames FROM TO RATE SECONDS SIZE
 *
 * Each frame carries the time at which it was sent; the kernel stamps it when it comes. Prints frames sent and received,
 * the rate that was sent, and quantiles of the time under way in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum { AT_ONCE = 32, ROOM = 2048, BUFFER = 32 << 20, TYPE = 0x88b5, HEADER = 14, DRAINED = 500000 };

static unsigned char out[AT_ONCE][ROOM], in[AT_ONCE][ROOM];
static char controls[AT_ONCE][64];
static struct mmsghdr out_headers[AT_ONCE], in_headers[AT_ONCE];
static struct iovec out_vectors[AT_ONCE], in_vectors[AT_ONCE];

static long long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_at(const char *name, int protocol) {
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol)};
    int bytes = BUFFER, on = 1, opened = socket(AF_PACKET, SOCK_RAW, 0);
    if (opened < 0)
        fail("socket");
    address.sll_ifindex = if_nametoindex(name);
    if (!address.sll_ifindex)
        fail(name);
    if (setsockopt(opened, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0 ||
        setsockopt(opened, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0 ||
        setsockopt(opened, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0)
        fail("setsockopt");
    if (bind(opened, (struct sockaddr *)&address, sizeof address) < 0)
        fail("bind");
    return opened;
}

/* Reads what has come; returns how many frames, with the time of each under way. */
static long drain(int from, long long *times, long room) {
    long count = 0;
    for (;;) {
        for (int i = 0; i < AT_ONCE; i++) {
            in_vectors[i] = (struct iovec){in[i], ROOM};
            in_headers[i].msg_hdr = (struct msghdr){.msg_iov = &in_vectors[i], .msg_iovlen = 1,
                                                    .msg_control = controls[i], .msg_controllen = sizeof controls[i]};
        }
        int got = recvmmsg(from, in_headers, AT_ONCE, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got && count < room; i++) {
            struct cmsghdr *message = CMSG_FIRSTHDR(&in_headers[i].msg_hdr);
            struct timespec stamp;
            long long sent;
            if (!message || message->cmsg_type != SO_TIMESTAMPNS || in_headers[i].msg_len < HEADER + sizeof sent)
                continue;
            memcpy(&stamp, CMSG_DATA(message), sizeof stamp);
            memcpy(&sent, in[i] + HEADER, sizeof sent);
            times[count++] = stamp.tv_sec * 1000000000LL + stamp.tv_nsec - sent;
        }
        if (got < AT_ONCE)
            return count;
    }
}

static int by_size(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: frames FROM TO RATE SECONDS SIZE\n");
        return 2;
    }
    double rate = atof(argv[3]), seconds = atof(argv[4]);
    size_t size = strtoul(argv[5], NULL, 10);
    if (rate <= 0 || seconds <= 0 || size < HEADER + 8 || size > ROOM) {
        fprintf(stderr, "frames: expected a rate, a time, and 22 to %d octets\n", ROOM);
        return 2;
    }
    int to = open_at(argv[1], 0), from = open_at(argv[2], TYPE);
    long total = (long)(rate * seconds), sent = 0, received = 0;
    long long *times = mmap(NULL, sizeof *times * total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                            -1, 0);
    if (times == MAP_FAILED)
        fail("mmap");
    for (int i = 0; i < AT_ONCE; i++) {
        unsigned char header[HEADER] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, TYPE >> 8, TYPE & 0xff};
        memcpy(out[i], header, HEADER);
        out_vectors[i] = (struct iovec){out[i], size};
        out_headers[i].msg_hdr = (struct msghdr){.msg_iov = &out_vectors[i], .msg_iovlen = 1};
    }
    long long begun = now(CLOCK_MONOTONIC), looked = begun;
    while (sent < total) {
        long long time = now(CLOCK_MONOTONIC);
        long due = (long)((time - begun) * rate / 1e9) + 1 - sent;
        if (due > total - sent)
            due = total - sent;
        if (due > AT_ONCE)
            due = AT_ONCE;
        if (due > 0) {
            long long stamp = now(CLOCK_REALTIME);
            for (long i = 0; i < due; i++)
                memcpy(out[i] + HEADER, &stamp, sizeof stamp);
            int done = sendmmsg(to, out_headers, due, 0);
            if (done < 0)
                fail("sendmmsg");
            sent += done;
        }
        if (time - looked > 200000) {
            received += drain(from, times + received, total - received);
            looked = time;
        }
    }
    double took = (now(CLOCK_MONOTONIC) - begun) / 1e9;
    for (long long end = now(CLOCK_MONOTONIC) + DRAINED * 1000LL; now(CLOCK_MONOTONIC) < end;)
        received += drain(from, times + received, total - received);
    qsort(times, received, sizeof *times, by_size);
    printf("sent=%ld received=%ld rate=%.0f", sent, received, sent / took);
    const double shares[] = {0, 0.5, 0.99, 0.999, 1};
    const char *names[] = {"min", "p50", "p99", "p99_9", "max"};
    for (int i = 0; i < 5 && received > 0; i++)
        printf(" %s=%.1f", names[i], times[(long)(shares[i] * (received - 1))] / 1e3);
    printf("\n");
    return 0;
}
