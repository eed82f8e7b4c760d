/* A switch with true delays, for routers in network namespaces.
 *
 *     ether LINKS.json PREFIX
 *
 * Opens a TAP device named "uplink" in the namespace PREFIX<id> of each node of the file and delivers every frame that
 * a node sends to all its present neighbours, whatever its destination, as radio or a hub does. The file has meshnet-lab's
 * form: {"nodes": [{"id": ..}], "links": [{"source": .., "target": .., "delay_ms": .., "rate_mbit": .., "loss": ..}]};
 * a missing delay, rate or loss is none. Links are for both directions, each with a queue of its own. When another
 * file takes its name, the links become those of the new one; what is on its way over a link that is gone is lost.
 *
 * Prints "ready" once all devices are there, and after each SIGUSR1 a line of JSON with the counts of each node.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_NODES = 1024, MAX_LINKS = 65536, MAX_FRAME = 2048, FRAMES_AT_ONCE = 32, ID = 32, FIRST_NODE = 16 };
enum { TIMER, CHANGE, SIGNAL };
/* A frame that would wait longer than this for the frames before it is dropped. */
static const uint64_t MAX_WAIT = 20 * 1000 * 1000ull;

struct frame {
    int users, length;
    unsigned char octets[MAX_FRAME];
};

/* One direction of a link. */
struct link {
    int from, to;
    uint64_t delay;      /* ns */
    double octet_time;   /* ns, 0 for no limit */
    double loss;         /* share */
    uint64_t busy_until; /* ns */
};

struct node {
    char id[ID];
    int file, first, count; /* its links lie in order of `from` */
    uint64_t sent_octets, sent_frames, got_octets, got_frames, lost, full;
};

/* A frame on its way; the earliest is at the root of the heap. */
struct event {
    uint64_t at, number;
    int from, to;
    struct frame *frame;
};

static struct node nodes[MAX_NODES];
static struct link links[2 * MAX_LINKS];
static int node_count, link_count;
static struct event *heap;
static size_t events, room;
static uint64_t numbers, random_state = 0x9e3779b97f4a7c15ull;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("ether: ", stderr);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* xorshift64: the same losses in each run. */
static double uniform(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) / 9007199254740992.0;
}

/* ---- the file ---- */

static const char *text;

static void space(void) {
    while (isspace((unsigned char)*text))
        text++;
}

static int next_is(char c) {
    space();
    if (*text != c)
        return 0;
    text++;
    return 1;
}

static void expect(char c) {
    if (!next_is(c)) {
        errno = 0;
        fail("expected '%c' in the file, got \"%.20s\"", c, text);
    }
}

/* Copies a string, number or word, which is all that is read of a value here; without `into` skips any value. */
static void scalar(char *into, size_t size) {
    size_t length = 0;
    space();
    int quoted = *text == '"';
    text += quoted;
    while (*text && (quoted ? *text != '"' : isalnum((unsigned char)*text) || strchr("+-._", *text))) {
        if (quoted && *text == '\\' && text[1])
            text++;
        if (into && length + 1 < size)
            into[length++] = *text;
        text++;
    }
    if (into)
        into[length] = 0;
    if (quoted)
        expect('"');
}

static void skip(void) {
    space();
    if (*text == '{' || *text == '[') {
        char close = *text++ == '{' ? '}' : ']';
        while (!next_is(close)) {
            if (!*text)
                expect(close);
            skip();
            if (!next_is(':'))
                next_is(',');
        }
    } else {
        const char *before = text;
        scalar(NULL, 0);
        if (text == before)
            expect('"');
    }
}

static int node_of(const char *id) {
    for (int i = 0; i < node_count; i++)
        if (strcmp(nodes[i].id, id) == 0)
            return i;
    return -1;
}

static void read_node(int first) {
    char key[ID], id[ID] = "";
    expect('{');
    while (!next_is('}')) {
        scalar(key, sizeof key);
        expect(':');
        if (strcmp(key, "id") == 0)
            scalar(id, sizeof id);
        else
            skip();
        next_is(',');
    }
    if (!first)
        return;
    errno = 0;
    if (node_count == MAX_NODES)
        fail("more than %d nodes", MAX_NODES);
    strcpy(nodes[node_count++].id, id);
}

static void read_link(void) {
    char key[ID], value[ID], source[ID] = "", target[ID] = "";
    double delay = 0, rate = 0, loss = 0;
    expect('{');
    while (!next_is('}')) {
        scalar(key, sizeof key);
        expect(':');
        space();
        if (*text == '{' || *text == '[') {
            skip();
        } else {
            scalar(value, sizeof value);
            if (strcmp(key, "source") == 0)
                strcpy(source, value);
            else if (strcmp(key, "target") == 0)
                strcpy(target, value);
            else if (strcmp(key, "delay_ms") == 0)
                delay = atof(value);
            else if (strcmp(key, "rate_mbit") == 0)
                rate = atof(value);
            else if (strcmp(key, "loss") == 0)
                loss = atof(value);
        }
        next_is(',');
    }
    int a = node_of(source), b = node_of(target);
    errno = 0;
    if (a < 0 || b < 0)
        fail("a link between unknown nodes \"%s\" and \"%s\"", source, target);
    if (link_count + 2 > 2 * MAX_LINKS)
        fail("more than %d links", MAX_LINKS);
    for (int way = 0; way < 2; way++)
        links[link_count++] = (struct link){.from = way ? b : a, .to = way ? a : b, .delay = delay * 1e6,
                                            .octet_time = rate > 0 ? 8e3 / rate : 0, .loss = loss};
}

static int by_source(const void *a, const void *b) {
    const struct link *left = a, *right = b;
    return left->from != right->from ? left->from - right->from : left->to - right->to;
}

/* Reads the file; nodes only the first time. "nodes" must stand before "links". */
static void load(const char *path, int first) {
    static char *content;
    FILE *file = fopen(path, "r");
    if (!file)
        fail("%s", path);
    free(content);
    content = NULL;
    size_t size = 0;
    if (getdelim(&content, &size, 0, file) < 0)
        fail("%s", path);
    fclose(file);
    text = content;
    link_count = 0;
    expect('{');
    while (!next_is('}')) {
        char key[ID];
        scalar(key, sizeof key);
        expect(':');
        int is_nodes = strcmp(key, "nodes") == 0, is_links = strcmp(key, "links") == 0;
        if (is_nodes || is_links) {
            expect('[');
            while (!next_is(']')) {
                if (is_nodes)
                    read_node(first);
                else
                    read_link();
                next_is(',');
            }
        } else {
            skip();
        }
        next_is(',');
    }
    qsort(links, link_count, sizeof *links, by_source);
    for (int i = 0; i < node_count; i++)
        nodes[i].first = nodes[i].count = 0;
    for (int i = link_count - 1; i >= 0; i--) {
        nodes[links[i].from].first = i;
        nodes[links[i].from].count++;
    }
}

/* ---- frames on their way ---- */

static int before(const struct event *a, const struct event *b) {
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void push(struct event event) {
    if (events == room) {
        room = room ? 2 * room : 4096;
        heap = realloc(heap, room * sizeof *heap);
        if (!heap)
            fail("memory");
    }
    size_t i = events++;
    for (; i > 0 && before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = event;
}

static struct event pop(void) {
    struct event root = heap[0], last = heap[--events];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < events; i = child) {
        if (child + 1 < events && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return root;
}

static void release(struct frame *frame) {
    if (--frame->users == 0)
        free(frame);
}

static struct link *link_of(int from, int to) {
    for (int i = 0; i < nodes[from].count; i++)
        if (links[nodes[from].first + i].to == to)
            return &links[nodes[from].first + i];
    return NULL;
}

/* Takes the frames that a node has sent and puts them on its links. */
static void take(int from) {
    struct node *node = &nodes[from];
    for (int n = 0; n < FRAMES_AT_ONCE; n++) {
        struct frame *frame = malloc(sizeof *frame);
        if (!frame)
            fail("memory");
        ssize_t length = read(node->file, frame->octets, MAX_FRAME);
        if (length <= 0) {
            free(frame);
            return;
        }
        frame->length = length;
        frame->users = 1;
        node->sent_octets += length;
        node->sent_frames++;
        uint64_t time = now();
        for (int i = 0; i < node->count; i++) {
            struct link *link = &links[node->first + i];
            uint64_t begin = link->busy_until > time ? link->busy_until : time;
            if (link->loss > 0 && uniform() < link->loss) {
                node->lost++;
                continue;
            }
            if (begin - time > MAX_WAIT) {
                node->full++;
                continue;
            }
            link->busy_until = begin + (uint64_t)(length * link->octet_time);
            frame->users++;
            push((struct event){link->busy_until + link->delay, numbers++, from, link->to, frame});
        }
        release(frame);
    }
}

static void deliver(uint64_t time) {
    while (events > 0 && heap[0].at <= time) {
        struct event event = pop();
        struct node *node = &nodes[event.to];
        if (link_of(event.from, event.to) &&
            write(node->file, event.frame->octets, event.frame->length) == event.frame->length) {
            node->got_octets += event.frame->length;
            node->got_frames++;
        } else {
            nodes[event.from].lost++;
        }
        release(event.frame);
    }
}

static void report(void) {
    printf("{");
    for (int i = 0; i < node_count; i++) {
        struct node *n = &nodes[i];
        printf("%s\"%s\": {\"tx\": %llu, \"tx_frames\": %llu, \"rx\": %llu, \"rx_frames\": %llu, \"lost\": %llu, \"full\": %llu}",
               i ? ", " : "", n->id, (unsigned long long)n->sent_octets, (unsigned long long)n->sent_frames,
               (unsigned long long)n->got_octets, (unsigned long long)n->got_frames, (unsigned long long)n->lost,
               (unsigned long long)n->full);
    }
    printf("}\n");
    fflush(stdout);
}

/* ---- devices ---- */

static int open_tap(const char *prefix, const char *id, int home) {
    char *path;
    if (asprintf(&path, "/run/netns/%s%s", prefix, id) < 0)
        fail("memory");
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0)
        fail("%s", path);
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    strcpy(request.ifr_name, "uplink");
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0)
        fail("uplink in %s", path);
    close(space);
    free(path);
    if (setns(home, CLONE_NEWNET) < 0)
        fail("setns");
    return tap;
}

static void watch(int poll, int file, int what) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = what};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, file, &event) < 0)
        fail("epoll_ctl");
}

/* Whether the file has taken its name since. */
static int replaced(int change, const char *name) {
    char buffer[4096] __attribute__((aligned(8)));
    int found = 0;
    ssize_t length = read(change, buffer, sizeof buffer);
    for (char *at = buffer; at < buffer + length;) {
        struct inotify_event *event = (struct inotify_event *)at;
        found |= event->len > 0 && strcmp(event->name, name) == 0;
        at += sizeof *event + event->len;
    }
    return found;
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: ether LINKS.json PREFIX\n");
        return 2;
    }
    const char *folder = dirname(strdup(words[1])), *name = basename(strdup(words[1]));
    prctl(PR_SET_TIMERSLACK, 1);
    load(words[1], 1);

    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    int poll = epoll_create1(EPOLL_CLOEXEC), signals = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int change = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (poll < 0 || signals < 0 || timer < 0 || change < 0 || home < 0 ||
        inotify_add_watch(change, folder, IN_MOVED_TO | IN_CLOSE_WRITE) < 0)
        fail("start");
    watch(poll, timer, TIMER);
    watch(poll, change, CHANGE);
    watch(poll, signals, SIGNAL);
    for (int i = 0; i < node_count; i++) {
        nodes[i].file = open_tap(words[2], nodes[i].id, home);
        watch(poll, nodes[i].file, FIRST_NODE + i);
    }
    puts("ready");
    fflush(stdout);

    uint64_t armed = 0;
    for (;;) {
        struct epoll_event ready[64];
        int found = epoll_wait(poll, ready, 64, -1);
        for (int i = 0; i < found; i++) {
            uint64_t expired;
            struct signalfd_siginfo signal;
            int what = ready[i].data.u32;
            if (what >= FIRST_NODE)
                take(what - FIRST_NODE);
            else if (what == CHANGE && replaced(change, name))
                load(words[1], 0);
            else if (what == SIGNAL && read(signals, &signal, sizeof signal) > 0)
                report();
            else if (what == TIMER && read(timer, &expired, sizeof expired) > 0)
                armed = 0;
        }
        deliver(now());
        if (events > 0 && heap[0].at != armed) {
            armed = heap[0].at;
            struct itimerspec at = {.it_value = {armed / 1000000000ull, armed % 1000000000ull}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
    }
}
