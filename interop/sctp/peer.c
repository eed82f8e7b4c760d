/* One association of Linux's own SCTP: sends and checks the same pattern as its counterpart (peer.h).
 *
 *   peer --bind ADDR[,ADDR] --port P (--listen | --connect ADDR[,ADDR] --to-port P) [what to do]
 */
#include "peer.h"
#include <netinet/sctp.h>
#include <poll.h>

/* How far our reset of streams is (RFC 6525). */
static enum { NONE, WANTED, ASKED, DONE } reset;

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
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &o->buffer, sizeof o->buffer);
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

/* Sends one message if there is room. */
static bool send_one(int fd, const struct options *o) {
    uint16_t stream;
    uint32_t number;
    int size;
    const uint8_t *message = next_message(o, &stream, &number, &size);
    struct sctp_sendv_spa how = {.sendv_flags = SCTP_SEND_SNDINFO_VALID};
    how.sendv_sndinfo.snd_sid = stream;
    how.sendv_sndinfo.snd_flags = o->unordered ? SCTP_UNORDERED : 0;
    how.sendv_sndinfo.snd_ppid = ppid_of(number);
    if (o->timed) {
        how.sendv_flags |= SCTP_SEND_PRINFO_VALID;
        how.sendv_prinfo.pr_policy = SCTP_PR_SCTP_TTL;
        how.sendv_prinfo.pr_value = o->lifetime_ms;
    }
    struct iovec bytes = {(void *)message, size};
    if (sctp_sendv(fd, &bytes, 1, NULL, 0, &how, sizeof how, SCTP_SENDV_SPA, MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN)
            return false;
        die("send");
    }
    was_sent(stream, size);
    return true;
}

static void note(const uint8_t *bytes, const struct options *o) {
    const union sctp_notification *event = (const void *)bytes;
    switch (event->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE:
        if (event->sn_assoc_change.sac_state == SCTP_COMM_LOST)
            ended = "reset";
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
        const struct sctp_stream_reset_event *which = (const void *)bytes;
        int count = (which->strreset_length - sizeof *which) / sizeof *which->strreset_stream_list;
        if (which->strreset_flags & (SCTP_STREAM_RESET_DENIED | SCTP_STREAM_RESET_FAILED)) {
            /* Refused while a request of the peer's is under way: then later. */
            reset = reset == ASKED ? WANTED : reset;
            break;
        }
        resets++;
        if (which->strreset_flags & SCTP_STREAM_RESET_INCOMING_SSN)
            forget(next_on, which->strreset_stream_list, count, o->streams);
        if (which->strreset_flags & SCTP_STREAM_RESET_OUTGOING_SSN) {
            forget(sent_on, which->strreset_stream_list, count, o->streams);
            reset = DONE;
        }
        break;
    }
    }
}

/* Takes in what there is. */
static bool receive_one(int fd, const struct options *o) {
    static uint8_t part[LARGEST];
    struct sctp_rcvinfo info = {0};
    struct iovec room = {part, sizeof part};
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
        note(part, o);
        return true;
    }
    take_part(o, info.rcv_sid, info.rcv_ppid, part, n, flags & MSG_EOR);
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

/* Asks for it; false while something is still to be sent. */
static bool reset_streams(int fd) {
    struct sctp_reset_streams all = {.srs_flags = SCTP_STREAM_RESET_OUTGOING};
    if (setsockopt(fd, IPPROTO_SCTP, SCTP_RESET_STREAMS, &all, sizeof all) == 0)
        return true;
    if (errno != EAGAIN)
        die("SCTP_RESET_STREAMS");
    return false;
}

static void finish(int fd, const struct options *o, double limit) {
    if (o->abort) {
        /* RFC 6458 section 4.1.4: a close that does not linger is an ABORT. */
        struct linger at_once = {.l_onoff = 1};
        if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) < 0)
            die("SO_LINGER");
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
        /* Nothing goes until a reset is over. */
        if (reset == WANTED && reset_streams(fd))
            reset = ASKED;
        bool more = sent < (unsigned)o->count && now() >= next && (reset == NONE || reset == DONE);
        struct pollfd wait = {.fd = fd, .events = POLLIN | (more ? POLLOUT : 0)};
        poll(&wait, 1, o->pace_us ? 1 : 100);
        for (int i = 0; i < 64 && !*ended && receive_one(fd, o); i++)
            ;
        while (more && !*ended && sent < (unsigned)o->count && now() >= next && send_one(fd, o)) {
            next = o->pace_us ? next + o->pace_us / 1e6 : next;
            if (o->reset_after && sent == (unsigned)o->reset_after) {
                reset = WANTED;
                break;
            }
        }
    }
    finish(fd, o, limit);
}

int main(int argc, char **argv) {
    struct options o = parse(argc, argv);
    int fd = associate(&o);
    double begun = now();
    exchange(fd, &o);
    double seconds = now() - begun;
    struct sctp_status status = {0};
    socklen_t length = sizeof status;
    getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &length);
    close(fd);
    return summary(&o, status.sstat_instrms, status.sstat_outstrms, seconds);
}
