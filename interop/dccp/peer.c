/* One connection of Linux's own DCCP: sends and checks the same messages as its counterpart (src/main.rs).
 *
 *   peer --local ADDR (--listen --port P | --connect ADDR --to-port P) [what to do]
 *
 * The last line says how it ended. The exit status is 0 when no message was altered or came twice.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/dccp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What the C library has no names for. */
#define DCCP_SOCKET 6
#define DCCP_PROTOCOL 33
#define DCCP_LEVEL 269

#define MAX_MESSAGES (1 << 20)
#define MAX_LENGTH 2048

static struct {
    const char *local, *connect;
    int listen, port, to_port, service, ccid, other, send, size, pace, idle, limit, coverage, close, reset;
} o = {.ccid = 2, .size = 100, .idle = 700, .limit = 30, .service = 1};

static int sent, got, wrong, twice;
static char seen[MAX_MESSAGES];
static const char *ended = "open";
static char failure[32];

static int64_t now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

static void die(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void set(int fd, int option, const void *value, socklen_t length) {
    if (setsockopt(fd, DCCP_LEVEL, option, value, length) < 0)
        die("setsockopt");
}

static int get(int fd, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    if (getsockopt(fd, DCCP_LEVEL, option, &value, &length) < 0)
        return -1;
    return value;
}

static struct sockaddr_storage address(const char *text, int port, socklen_t *length) {
    struct sockaddr_storage result = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    struct sockaddr_in *four = (struct sockaddr_in *)&result;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&result;
    bool is_four = result.ss_family == AF_INET;
    /* Both families have the port at the same offset. */
    four->sin_port = htons(port);
    *length = is_four ? sizeof *four : sizeof *six;
    if (inet_pton(result.ss_family, text, is_four ? (void *)&four->sin_addr : (void *)&six->sin6_addr) != 1)
        die("address");
    return result;
}

/* How the connection ended, by the error of the socket. */
static void end_by_error(int code) {
    snprintf(failure, sizeof failure, "error:%d", code);
    ended = failure;
}

static int open_connection(void) {
    socklen_t length;
    struct sockaddr_storage local = address(o.local, o.port, &length);
    int fd = socket(local.ss_family, DCCP_SOCKET, DCCP_PROTOCOL);
    if (fd < 0)
        die("socket");
    int on = 1, room = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    uint32_t service = htonl(o.service);
    set(fd, DCCP_SOCKOPT_SERVICE, &service, sizeof service);
    uint8_t ccids[2] = {o.ccid, o.other};
    set(fd, DCCP_SOCKOPT_CCID, ccids, o.other ? 2 : 1);
    if (o.coverage) {
        set(fd, DCCP_SOCKOPT_SEND_CSCOV, &o.coverage, sizeof o.coverage);
        set(fd, DCCP_SOCKOPT_RECV_CSCOV, &o.coverage, sizeof o.coverage);
    }
    if (bind(fd, (struct sockaddr *)&local, length) < 0)
        die("bind");
    if (!o.listen) {
        struct sockaddr_storage remote = address(o.connect, o.to_port, &length);
        if (connect(fd, (struct sockaddr *)&remote, length) < 0) {
            end_by_error(errno);
            return -1;
        }
        return fd;
    }
    if (listen(fd, 4) < 0)
        die("listen");
    printf("listening\n");
    fflush(stdout);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, o.limit * 1000) <= 0) {
        ended = "waiting";
        return -1;
    }
    int taken = accept(fd, NULL, NULL);
    if (taken < 0)
        die("accept");
    close(fd);
    return taken;
}

static uint8_t byte_of(uint32_t number, int at) {
    return (uint8_t)(number * 31 + at);
}

/* Sends one message. Whether there was room for it. */
static bool send_one(int fd) {
    uint8_t bytes[MAX_LENGTH];
    uint32_t number = htonl(sent);
    memcpy(bytes, &number, sizeof number);
    for (int at = sizeof number; at < o.size; at++)
        bytes[at] = byte_of(sent, at);
    if (send(fd, bytes, o.size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        sent++;
        return true;
    }
    /* Linux reports ENOTCONN for a Reset that comes within send, and keeps its cause for the next recv. */
    if (errno != EAGAIN && errno != ENOTCONN)
        end_by_error(errno);
    return false;
}

/* Reads one message. Whether there was one. */
static bool receive_one(int fd) {
    uint8_t bytes[MAX_LENGTH];
    ssize_t length = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length < 0) {
        if (errno != EAGAIN)
            end_by_error(errno);
        return false;
    }
    if (length == 0) {
        /* A Reset is read as an end, too. */
        int code = 0;
        socklen_t size = sizeof code;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
        ended = "finished";
        if (code)
            end_by_error(code);
        return false;
    }
    uint32_t number = 0;
    if (length >= (ssize_t)sizeof number)
        memcpy(&number, bytes, sizeof number);
    number = ntohl(number);
    bool right = length >= (ssize_t)sizeof number && number < MAX_MESSAGES;
    for (ssize_t at = sizeof number; right && at < length; at++)
        right = bytes[at] == byte_of(number, at);
    if (!right)
        wrong++;
    else if (seen[number])
        twice++;
    else
        got++;
    if (right)
        seen[number] = 1;
    return true;
}

static bool is_open(void) {
    return strcmp(ended, "open") == 0;
}

static void talk(int fd) {
    int64_t due = now_us(), busy = due, end = due + o.limit * 1000000LL;
    while (is_open() && now_us() < end) {
        while (receive_one(fd))
            busy = now_us();
        bool room = true;
        while (is_open() && room && sent < o.send && due <= now_us()) {
            room = send_one(fd);
            due += room ? o.pace : 0;
            busy = now_us();
        }
        int64_t idle = busy + o.idle * 1000LL;
        if (is_open() && sent == o.send && (o.close || o.reset) && now_us() >= idle) {
            struct linger hard = {.l_onoff = 1, .l_linger = 0};
            if (o.reset)
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            ended = o.reset ? "reset" : "finished";
            return;
        }
        struct pollfd ready = {.fd = fd, .events = POLLIN | (room ? 0 : POLLOUT)};
        int64_t next = sent < o.send && room ? due : idle;
        int64_t left = (next - now_us() + 999) / 1000;
        poll(&ready, 1, left < 1 ? 1 : left > 100 ? 100 : (int)left);
    }
}

/* Reads the command line. Whether it was understood. */
static bool parse(int count, char **words) {
    const struct {
        const char *name;
        const char **text;
        int *number;
        bool flag;
    } known[] = {
        {"--local", &o.local, NULL, false},       {"--connect", &o.connect, NULL, false},
        {"--port", NULL, &o.port, false},         {"--to-port", NULL, &o.to_port, false},
        {"--service", NULL, &o.service, false},   {"--ccid", NULL, &o.ccid, false},
        {"--other", NULL, &o.other, false},       {"--send", NULL, &o.send, false},
        {"--size", NULL, &o.size, false},         {"--pace", NULL, &o.pace, false},
        {"--idle", NULL, &o.idle, false},         {"--limit", NULL, &o.limit, false},
        {"--coverage", NULL, &o.coverage, false}, {"--close", NULL, &o.close, true},
        {"--reset", NULL, &o.reset, true},        {"--listen", NULL, &o.listen, true},
    };
    const size_t names = sizeof known / sizeof *known;
    for (int i = 1; i < count; i++) {
        size_t n = 0;
        while (n < names && strcmp(words[i], known[n].name) != 0)
            n++;
        if (n == names || (!known[n].flag && i + 1 == count))
            return false;
        if (known[n].flag)
            *known[n].number = 1;
        else if (known[n].text)
            *known[n].text = words[++i];
        else
            *known[n].number = (int)strtoul(words[++i], NULL, 0);
    }
    return o.local && (o.listen || o.connect) && o.size >= 4 && o.size <= MAX_LENGTH && o.send <= MAX_MESSAGES;
}

int main(int count, char **words) {
    if (!parse(count, words)) {
        printf("usage: peer --local ADDR (--listen --port P | --connect ADDR --to-port P) [what to do]\n");
        return 2;
    }
    int fd = open_connection(), tx = -1, rx = -1, mps = -1;
    if (fd >= 0) {
        tx = get(fd, DCCP_SOCKOPT_TX_CCID);
        rx = get(fd, DCCP_SOCKOPT_RX_CCID);
        mps = get(fd, DCCP_SOCKOPT_GET_CUR_MPS);
        talk(fd);
        close(fd);
    }
    printf("peer ended=%s sent=%d got=%d wrong=%d twice=%d tx=%d rx=%d mps=%d\n", ended, sent, got, wrong, twice, tx, rx, mps);
    return wrong || twice;
}
