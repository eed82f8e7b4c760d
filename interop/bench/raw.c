/* Packets of SCTP's protocol number from one host to another, without any protocol: what the system's way for packets
 * costs, which SCTP over IP cannot go below.
 *
 *     raw send FROM TO SECONDS            as many packets of 1500 bytes as go, 64 in a system call
 *     raw receive PAUSE SECONDS           takes them, 32 in a system call; woken for them, or every PAUSE microseconds
 *
 * Prints packets, seconds and processor seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum { PROTOCOL = 132, PAYLOAD = 1480, SENT_AT_ONCE = 64, TAKEN_AT_ONCE = 32, BUFFER = 8 << 20, ROOM = 2048 };

static unsigned char bytes[SENT_AT_ONCE][ROOM];
static struct mmsghdr headers[SENT_AT_ONCE];
static struct iovec vectors[SENT_AT_ONCE];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_socket(int option) {
    int raw = socket(AF_INET, SOCK_RAW, PROTOCOL), size = BUFFER;
    if (raw < 0)
        fail("socket");
    if (setsockopt(raw, SOL_SOCKET, option, &size, sizeof size) < 0)
        fail("setsockopt");
    return raw;
}

static void tell(long packets, double seconds) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("packets=%ld seconds=%.3f cpu=%.3f\n", packets, seconds, cpu);
}

static struct sockaddr_in address(const char *text) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    if (!inet_aton(text, &name.sin_addr)) {
        fprintf(stderr, "raw: expected an IPv4 address, got %s\n", text);
        exit(2);
    }
    return name;
}

static void send_all(const char *from, const char *to, double seconds) {
    int raw = open_socket(SO_SNDBUFFORCE);
    struct sockaddr_in near = address(from), far = address(to);
    if (bind(raw, (struct sockaddr *)&near, sizeof near) < 0)
        fail("bind");
    for (int i = 0; i < SENT_AT_ONCE; i++) {
        vectors[i] = (struct iovec){bytes[i], PAYLOAD};
        headers[i].msg_hdr = (struct msghdr){.msg_name = &far, .msg_namelen = sizeof far, .msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    long packets = 0;
    double begun = now();
    while (now() - begun < seconds) {
        int sent = sendmmsg(raw, headers, SENT_AT_ONCE, 0);
        packets += sent > 0 ? sent : 0;
    }
    tell(packets, now() - begun);
}

static void receive_all(long pause, double seconds) {
    int raw = open_socket(SO_RCVBUFFORCE);
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < TAKEN_AT_ONCE; i++) {
        vectors[i] = (struct iovec){bytes[i], ROOM};
        headers[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    long packets = 0;
    double begun = now(), first = 0, last = 0;
    puts("ready");
    fflush(stdout);
    while (now() - begun < seconds) {
        int got = recvmmsg(raw, headers, TAKEN_AT_ONCE, MSG_DONTWAIT, NULL);
        if (got > 0) {
            last = now();
            first = packets == 0 ? last : first;
            packets += got;
        }
        if (got == TAKEN_AT_ONCE)
            continue;
        struct timespec rest = {0, pause * 1000};
        struct pollfd one = {raw, POLLIN, 0};
        if (pause > 0)
            nanosleep(&rest, NULL);
        else
            poll(&one, 1, 100);
    }
    tell(packets, last - first);
}

int main(int count, char **words) {
    if (count == 5 && strcmp(words[1], "send") == 0)
        send_all(words[2], words[3], atof(words[4]));
    else if (count == 4 && strcmp(words[1], "receive") == 0)
        receive_all(atol(words[2]), atof(words[3]));
    else {
        fprintf(stderr, "usage: raw send FROM TO SECONDS | raw receive PAUSE SECONDS\n");
        return 2;
    }
    return 0;
}
