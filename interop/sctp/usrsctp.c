/* One association of usrsctp's, over UDP (RFC 6951): sends and checks the same pattern as its counterpart
 * (peer.h), or measures.
 *
 *   usrsctp --udp PORT [--to-udp PORT] --bind ADDR[,ADDR] --port P
 *           (--listen | --connect ADDR[,ADDR] --to-port P) [what to do]
 *
 * `--sink` takes whatever comes until the peer has ended and looks at nothing. `--measure S` sends messages of one
 * size for so many seconds.
 */
#include "peer.h"
#include <pthread.h>
#include <usrsctp.h>

/* The library knows it, its header does not. */
#define INTERLEAVING_SUPPORTED 0x1206

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static struct options o;
static bool up;
/* Of our streams, how many began anew. */
static int own_resets;
static double first_at, last_at;

static void set(struct socket *s, int option, const void *value, socklen_t length, const char *what) {
    if (usrsctp_setsockopt(s, IPPROTO_SCTP, option, value, length) < 0)
        die(what);
}

static void note(const union sctp_notification *event) {
    const struct sctp_stream_reset_event *which;
    int count;
    switch (event->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE:
        switch (event->sn_assoc_change.sac_state) {
        case SCTP_COMM_UP: up = true; break;
        case SCTP_COMM_LOST: ended = up ? "reset" : "lost"; break;
        case SCTP_SHUTDOWN_COMP: ended = "shutdown"; break;
        case SCTP_CANT_STR_ASSOC: ended = "refused"; break;
        }
        break;
    case SCTP_PEER_ADDR_CHANGE:
        path_changes++;
        break;
    case SCTP_SEND_FAILED_EVENT:
        failed_sends++;
        break;
    case SCTP_STREAM_RESET_EVENT:
        which = &event->sn_strreset_event;
        count = (which->strreset_length - sizeof *which) / sizeof *which->strreset_stream_list;
        resets++;
        if (which->strreset_flags & SCTP_STREAM_RESET_INCOMING_SSN)
            forget(next_on, which->strreset_stream_list, count, o.streams);
        if (which->strreset_flags & SCTP_STREAM_RESET_OUTGOING_SSN)
            own_resets += forget(sent_on, which->strreset_stream_list, count, o.streams);
        break;
    }
}

/* Takes what arrives, on a thread of its own. */
static void *receive(void *socket) {
    static uint8_t buffer[LARGEST];
    while (!*ended) {
        struct sctp_rcvinfo info = {0};
        socklen_t from_length = 0, info_length = sizeof info;
        unsigned type = 0;
        int flags = 0;
        ssize_t n = usrsctp_recvv(socket, buffer, sizeof buffer, NULL, &from_length, &info, &info_length,
                                  &type, &flags);
        if (o.sink && n > 0 && !(flags & MSG_NOTIFICATION)) {
            if (!got_bytes)
                first_at = now();
            got += (flags & MSG_EOR) != 0;
            got_bytes += n;
            continue;
        }
        last_at = now();
        pthread_mutex_lock(&lock);
        if (n <= 0) {
            if (!*ended)
                ended = n == 0 ? "shutdown" : errno == ECONNRESET ? "reset" : strerror(errno);
        } else if (flags & MSG_NOTIFICATION) {
            note((void *)buffer);
        } else {
            take_part(&o, info.rcv_sid, info.rcv_ppid, buffer, n, flags & MSG_EOR);
        }
        pthread_cond_broadcast(&news);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void prepare(struct socket *s) {
    struct sctp_initmsg init = {.sinit_num_ostreams = o.streams, .sinit_max_instreams = 65535};
    set(s, SCTP_INITMSG, &init, sizeof init, "SCTP_INITMSG");
    static const uint16_t events[] = {SCTP_ASSOC_CHANGE, SCTP_PEER_ADDR_CHANGE, SCTP_SEND_FAILED_EVENT,
                                      SCTP_SHUTDOWN_EVENT, SCTP_STREAM_RESET_EVENT};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct sctp_event event = {.se_assoc_id = SCTP_FUTURE_ASSOC, .se_type = events[i], .se_on = 1};
        set(s, SCTP_EVENT, &event, sizeof event, "SCTP_EVENT");
    }
    struct sctp_assoc_value resets_too = {.assoc_value = SCTP_ENABLE_VALUE_MASK};
    set(s, SCTP_ENABLE_STREAM_RESET, &resets_too, sizeof resets_too, "SCTP_ENABLE_STREAM_RESET");
    int on = 1;
    set(s, SCTP_NODELAY, &on, sizeof on, "SCTP_NODELAY");
    set(s, SCTP_RECVRCVINFO, &on, sizeof on, "SCTP_RECVRCVINFO");
    if (o.interleave) {
        int level = 2;
        set(s, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level, "SCTP_FRAGMENT_INTERLEAVE");
        struct sctp_assoc_value yes = {.assoc_value = 1};
        set(s, INTERLEAVING_SUPPORTED, &yes, sizeof yes, "INTERLEAVING_SUPPORTED");
    }
    if (o.to_udp) {
        struct sctp_udpencaps encapsulation = {.sue_port = htons(o.to_udp)};
        encapsulation.sue_address.ss_family = o.bind[0].ss_family;
        set(s, SCTP_REMOTE_UDP_ENCAPS_PORT, &encapsulation, sizeof encapsulation, "SCTP_REMOTE_UDP_ENCAPS_PORT");
    }
    /* Where throughput is measured, as much as Ringway has; the library is not quicker with more. */
    int room = o.sink || o.measure_s > 0 ? 1 << 20 : 4 << 20;
    usrsctp_setsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    usrsctp_setsockopt(s, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
}

static struct socket *associate(void) {
    struct socket *s = usrsctp_socket(o.bind[0].ss_family, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
    if (!s)
        die("socket");
    prepare(s);
    if (usrsctp_bindx(s, packed(o.bind, o.binds), o.binds, SCTP_BINDX_ADD_ADDR) < 0)
        die("bind");
    if (!o.listen) {
        sctp_assoc_t id;
        if (usrsctp_connectx(s, packed(o.connect, o.connects), o.connects, &id) < 0)
            die("connect");
        return s;
    }
    if (usrsctp_listen(s, 4) < 0)
        die("listen");
    printf("listening\n");
    fflush(stdout);
    struct socket *taken = usrsctp_accept(s, NULL, NULL);
    if (!taken)
        die("accept");
    usrsctp_close(s);
    return taken;
}

static bool send_one(struct socket *s) {
    uint16_t stream;
    uint32_t number;
    int size;
    pthread_mutex_lock(&lock);
    const uint8_t *message = next_message(&o, &stream, &number, &size);
    pthread_mutex_unlock(&lock);
    struct sctp_sendv_spa how = {.sendv_flags = SCTP_SEND_SNDINFO_VALID};
    how.sendv_sndinfo.snd_sid = stream;
    how.sendv_sndinfo.snd_flags = o.unordered ? SCTP_UNORDERED : 0;
    how.sendv_sndinfo.snd_ppid = ppid_of(number);
    if (o.timed) {
        how.sendv_flags |= SCTP_SEND_PRINFO_VALID;
        how.sendv_prinfo.pr_policy = SCTP_PR_SCTP_TTL;
        how.sendv_prinfo.pr_value = o.lifetime_ms;
    }
    if (usrsctp_sendv(s, message, size, NULL, 0, &how, sizeof how, SCTP_SENDV_SPA, 0) < 0)
        return false;
    was_sent(stream, size);
    return true;
}

/* Waits for news, a tenth of a second at most; the lock is held. */
static void wait_a_little(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&news, &lock, &until);
}

/* Has all streams begin anew, and waits until they do (RFC 6525). */
static void reset_streams(struct socket *s) {
    struct sctp_reset_streams all = {.srs_flags = SCTP_STREAM_RESET_OUTGOING};
    set(s, SCTP_RESET_STREAMS, &all, sizeof all, "SCTP_RESET_STREAMS");
    pthread_mutex_lock(&lock);
    while (own_resets < o.streams && !*ended)
        wait_a_little();
    pthread_mutex_unlock(&lock);
}

static void exchange(struct socket *s, double limit) {
    pthread_mutex_lock(&lock);
    while (!o.listen && !up && !*ended && now() < limit)
        wait_a_little();
    pthread_mutex_unlock(&lock);
    double stop = now() + o.measure_s;
    for (int i = 0; !*ended && (o.measure_s > 0 ? now() < stop : i < o.count); i++) {
        if (!send_one(s))
            break;
        if (o.pace_us)
            usleep(o.pace_us);
        if (o.reset_after && sent == (unsigned)o.reset_after)
            reset_streams(s);
    }
    pthread_mutex_lock(&lock);
    while (!*ended && now() < limit && (o.sink || got < (unsigned)o.expect))
        wait_a_little();
    pthread_mutex_unlock(&lock);
}

static void finish(struct socket *s, double limit) {
    if (o.abort) {
        struct sctp_sndinfo info = {.snd_flags = SCTP_ABORT};
        if (usrsctp_sendv(s, "", 0, NULL, 0, &info, sizeof info, SCTP_SENDV_SNDINFO, 0) < 0)
            die("abort");
        ended = "aborted";
        return;
    }
    if (!o.stay)
        usrsctp_shutdown(s, SHUT_WR);
    pthread_mutex_lock(&lock);
    while (!*ended && now() < limit)
        wait_a_little();
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv) {
    o = parse(argc, argv);
    usrsctp_init(o.udp, NULL, NULL);
    usrsctp_sysctl_set_sctp_blackhole(2);
    usrsctp_sysctl_set_sctp_no_csum_on_loopback(0);
    /* With as many chunks behind a gap as it keeps (512), the library drops an I-DATA chunk that would fill the gap: the
     * association stands still, however much room its window shows. */
    usrsctp_sysctl_set_sctp_max_chunks_on_queue(1 << 16);
    struct socket *s = associate();
    double begun = now(), limit = begun + o.limit_s;
    pthread_t receiver;
    if (pthread_create(&receiver, NULL, receive, s) != 0)
        die("thread");
    exchange(s, limit);
    struct sctp_status status = {0};
    socklen_t length = sizeof status;
    usrsctp_getsockopt(s, IPPROTO_SCTP, SCTP_STATUS, &status, &length);
    finish(s, limit);
    double seconds = o.sink ? last_at - first_at : now() - begun;
    if (o.abort)
        usleep(20000); /* for the packet to leave; the library does not survive a close now */
    else if (*ended) /* else it would wait for the thread that receives */
        usrsctp_close(s);
    int result = summary(&o, status.sstat_instrms, status.sstat_outstrms, seconds);
    fflush(stdout);
    /* The library needs a while to give everything up; the kernel is quicker. */
    _exit(result);
}
