/* An OpenAI-compatible server that knows when it spoke: one thread, one event a send, each stamped.
 *
 *   emitter STAMPS RATE EVENTS MODE GATE DELAY_S
 *
 * In:  requests on 127.0.0.1 (the port is printed): POST /v1/chat/completions, GET /v1/models, /health.
 *      RATE events/s and EVENTS events for each stream; MODE sync: all streams speak at the same instants,
 *      as the steps of an engine are; async: each at its own phase. GATE > 0: nobody gets an event before
 *      GATE requests are there. DELAY_S: from the request (or the gate) to the first event, at least.
 * Out: the end of stdin ends it. STAMPS then holds a line for each stream, in order of their requests:
 *      request_ns blocked_ns stamp_ns stamp_ns ...
 *      request_ns: the request's end had arrived, by the kernel's stamp; stamp_ns: CLOCK_MONOTONIC just before the event's send;
 *      blocked_ns: time for which a full socket kept this stream from sending.
 *
 * A stream's number is in its usage (`stream`), so that what a client recorded can be matched exactly.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READS = 1 << 16, AT_ONCE = 64, STDIN_KEY = -1, LISTEN_KEY = -2 };
static const int64_t SPIN_NS = 30000, PATIENCE_MS = 20000;

typedef struct {
    int64_t request_ns, blocked_ns, *stamps;
    long said;
} Stream;

typedef struct {
    char *held;         /* of a request that is not whole */
    size_t size;
    long stream;        /* that is being spoken, or -1 */
    int closes;         /* after this response */
    int64_t arrived_ns; /* what was read last */
} Connection;

typedef struct {
    int64_t due_ns;
    int fd;
} Turn;

static Stream *streams;
static long n_streams, room_streams;
static Connection *connections; /* by file descriptor */
static Turn *heap;              /* the earliest first */
static long n_turns, gate, n_events;
static int *gated;              /* descriptors that wait for the gate */
static long n_gated;
static int open_gate, in_step, epoll_fd;
static int64_t period_ns, delay_ns, grid_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* From the narrowest of some brackets: one that was interrupted would be wrong by as much. */
static int64_t wall_minus_monotonic(void) {
    int64_t best = INT64_MAX, found = 0;
    for (int i = 0; i < 5 && best > 1000; i++) {
        struct timespec wall;
        int64_t before = now_ns();
        clock_gettime(CLOCK_REALTIME, &wall);
        int64_t width = now_ns() - before;
        if (width >= best) continue;
        best = width;
        found = wall.tv_sec * 1000000000LL + wall.tv_nsec - (before + width / 2);
    }
    return found;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* ---- turns: whose event is due when -------------------------------------------------------- */
static void push(int64_t due_ns, int fd) {
    long at = n_turns++;
    for (; at && heap[(at - 1) / 2].due_ns > due_ns; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = (Turn){due_ns, fd};
}

static Turn pop(void) {
    Turn first = heap[0], last = heap[--n_turns];
    long at = 0;
    for (;;) {
        long child = 2 * at + 1;
        if (child >= n_turns) break;
        if (child + 1 < n_turns && heap[child + 1].due_ns < heap[child].due_ns) child++;
        if (heap[child].due_ns >= last.due_ns) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

/* When the stream speaks first: at the next instant of the common grid, shifted by its own phase. */
static int64_t first_due(int64_t from_ns, long number) {
    int64_t phase = 0;
    if (!in_step) {
        double golden = number * 0.6180339887498949;
        phase = (int64_t)((golden - (long)golden) * period_ns);
    }
    int64_t steps = (from_ns - grid_ns + period_ns - 1) / period_ns;
    return grid_ns + steps * period_ns + phase;
}

/* ---- connections ---------------------------------------------------------------------------- */
static void drop(int fd) {
    free(connections[fd].held);
    connections[fd] = (Connection){0};
    close(fd);
}

/* 0, or -1 when nobody reads there any more. */
static int send_all(int fd, const char *data, size_t size) {
    Connection *c = &connections[fd];
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent > 0) {
            data += sent;
            size -= sent;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return -1;
        struct pollfd full = {fd, POLLOUT, 0};
        int64_t begin = now_ns();
        int ready = poll(&full, 1, PATIENCE_MS);
        if (c->stream >= 0) streams[c->stream].blocked_ns += now_ns() - begin;
        if (ready <= 0) return -1;
    }
    return 0;
}

static int send_chunk(int fd, const char *text) {
    char out[1024];
    int size = snprintf(out, sizeof out, "%zx\r\n%s\r\n", strlen(text), text);
    return send_all(fd, out, size);
}

static const char *event(char *out, size_t room, long number, const char *choices, const char *rest) {
    snprintf(out, room,
             "data: {\"id\":\"chatcmpl-%032ld\",\"object\":\"chat.completion.chunk\",\"created\":1764460800,"
             "\"model\":\"emitter\",\"system_fingerprint\":\"vllm-0.32.0-emitter\",\"choices\":[%s]%s}\n\n",
             number, choices, rest);
    return out;
}

static int speak_end(int fd, long number) {
    char text[800], usage[200];
    snprintf(usage, sizeof usage,
             ",\"usage\":{\"prompt_tokens\":16,\"total_tokens\":%ld,\"completion_tokens\":%ld,\"stream\":%ld}",
             16 + n_events, n_events, number);
    if (send_chunk(fd, event(text, sizeof text, number, "", usage))) return -1;
    if (send_chunk(fd, "data: [DONE]\n\n")) return -1;
    return send_all(fd, "0\r\n\r\n", 5);
}

static void request_at_end(int fd);

static void speak(Turn turn) {
    Connection *c = &connections[turn.fd];
    Stream *s = &streams[c->stream];
    char text[800], choices[400];
    long number = c->stream;
    int failed = 0;
    if (!s->said)
        failed = send_chunk(turn.fd, event(text, sizeof text, number,
                            "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                            "\"logprobs\":null,\"finish_reason\":null}", ""));
    int last = s->said + 1 == n_events;
    snprintf(choices, sizeof choices,
             "{\"index\":0,\"delta\":{\"content\":\" w%05ld\"},\"logprobs\":null,\"finish_reason\":%s,"
             "\"stop_reason\":null,\"token_ids\":null}", s->said, last ? "\"length\"" : "null");
    event(text, sizeof text, number, choices, "");
    if (!failed) {
        s->stamps[s->said++] = now_ns();
        failed = send_chunk(turn.fd, text);
    }
    if (!failed && !last) {
        push(turn.due_ns + period_ns, turn.fd);
        return;
    }
    if (!failed) failed = speak_end(turn.fd, number);
    c->stream = -1;
    if (failed || c->closes) drop(turn.fd);
    else request_at_end(turn.fd);
}

static void begin_stream(int fd) {
    if (n_streams == room_streams) {
        room_streams = room_streams ? 2 * room_streams : 1024;
        streams = realloc(streams, room_streams * sizeof *streams);
    }
    Stream *s = &streams[n_streams];
    *s = (Stream){.request_ns = connections[fd].arrived_ns, .stamps = malloc(n_events * sizeof(int64_t))};
    if (!s->stamps) fail("memory");
    memset(s->stamps, 0xff, n_events * sizeof(int64_t)); /* touched now, not when it is to be quick */
    connections[fd].stream = n_streams++;
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    if (send_all(fd, head, sizeof head - 1)) {
        drop(fd);
        return;
    }
    if (!gate || open_gate) {
        push(first_due(now_ns() + delay_ns, connections[fd].stream), fd);
        return;
    }
    gated[n_gated++] = fd;
    if (n_gated < gate) return;
    open_gate = 1;
    grid_ns = now_ns() + delay_ns;
    for (long i = 0; i < n_gated; i++) push(first_due(grid_ns, connections[gated[i]].stream), gated[i]);
}

static void reply(int fd, const char *status, const char *body) {
    char out[1024];
    int size = snprintf(out, sizeof out,
                        "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        status, strlen(body), body);
    if (send_all(fd, out, size) || connections[fd].closes) drop(fd);
}

/* The head ends in an empty line and the body has the length it says: serve it, keep what follows. */
static void request_at_end(int fd) {
    Connection *c = &connections[fd];
    char *head_end = c->size ? memmem(c->held, c->size, "\r\n\r\n", 4) : NULL;
    if (!head_end) return;
    *head_end = 0;
    char *length = strcasestr(c->held, "\r\nContent-Length:");
    size_t body = length ? strtoul(length + 17, NULL, 10) : 0;
    size_t whole = head_end - c->held + 4 + body;
    if (c->size < whole) {
        *head_end = '\r';
        return;
    }
    c->closes = strcasestr(c->held, "\r\nConnection: close") != NULL;
    int chat = !strncmp(c->held, "POST /v1/chat/completions ", 26);
    int models = !strncmp(c->held, "GET /v1/models ", 15);
    int health = !strncmp(c->held, "GET /health ", 12);
    int streams_it = chat && (memmem(head_end + 4, body, "\"stream\":true", 13) ||
                              memmem(head_end + 4, body, "\"stream\": true", 14));
    memmove(c->held, c->held + whole, c->size - whole);
    c->size -= whole;
    if (streams_it) begin_stream(fd);
    else if (chat)
        reply(fd, "200 OK", "{\"id\":\"chatcmpl-0\",\"object\":\"chat.completion\",\"created\":1764460800,"
              "\"model\":\"emitter\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"w\"},"
              "\"finish_reason\":\"length\"}],"
              "\"usage\":{\"prompt_tokens\":16,\"total_tokens\":17,\"completion_tokens\":1}}");
    else if (models)
        reply(fd, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"emitter\",\"object\":\"model\","
              "\"created\":1764460800,"
              "\"owned_by\":\"benchmark\",\"max_model_len\":131072}]}");
    else reply(fd, health ? "200 OK" : "404 Not Found", "{}");
}

/* As recv; notes when the bytes arrived: the kernel's stamp, on the monotonic clock. */
static ssize_t receive(int fd, char *into, size_t room) {
    union { char space[CMSG_SPACE(sizeof(struct timespec))]; struct cmsghdr aligned; } control;
    struct iovec piece = {into, room};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, 0);
    if (got <= 0) return got;
    connections[fd].arrived_ns = now_ns();
    struct cmsghdr *found = CMSG_FIRSTHDR(&message);
    if (found && found->cmsg_level == SOL_SOCKET && found->cmsg_type == SCM_TIMESTAMPNS) {
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(found), sizeof stamp);
        int64_t t = stamp.tv_sec * 1000000000LL + stamp.tv_nsec - wall_minus_monotonic();
        if (t <= connections[fd].arrived_ns) connections[fd].arrived_ns = t;
    }
    return got;
}

static void readable(int fd) {
    Connection *c = &connections[fd];
    if (!c->held) c->held = malloc(READS);
    ssize_t got = c->size < READS ? receive(fd, c->held + c->size, READS - c->size) : 0;
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) {
        c->size += got;
        if (c->stream < 0) request_at_end(fd);
        return;
    }
    if (c->stream < 0) drop(fd); /* a stream in work learns of it by its next send */
    else epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void watch(int fd, int64_t key) {
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = (uint64_t)key};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &wanted)) fail("epoll_ctl");
}

static void take_connections(int listener, long limit) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= limit) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        connections[fd] = (Connection){.stream = -1};
        watch(fd, fd);
    }
}

static int listen_somewhere(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one); /* what it accepts inherits it */
    if (bind(fd, (struct sockaddr *)&here, size) || listen(fd, 4096)) fail("listen");
    getsockname(fd, (struct sockaddr *)&here, &size);
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    return fd;
}

/* Until something is to be read or the next event is due; the last microseconds without sleeping. */
static int wait_for(struct epoll_event *found) {
    int64_t left = n_turns ? heap[0].due_ns - now_ns() : 100000000;
    if (left > SPIN_NS) {
        struct pollfd any = {epoll_fd, POLLIN, 0};
        struct timespec rest = {(left - SPIN_NS) / 1000000000, (left - SPIN_NS) % 1000000000};
        ppoll(&any, 1, &rest, NULL);
    }
    return epoll_wait(epoll_fd, found, AT_ONCE, 0);
}

static void write_stamps(const char *path) {
    FILE *out = fopen(path, "w");
    if (!out) fail(path);
    for (long i = 0; i < n_streams; i++) {
        fprintf(out, "%lld %lld", (long long)streams[i].request_ns, (long long)streams[i].blocked_ns);
        for (long k = 0; k < streams[i].said; k++) fprintf(out, " %lld", (long long)streams[i].stamps[k]);
        fputc('\n', out);
    }
    if (fclose(out)) fail(path);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: emitter STAMPS RATE EVENTS sync|async GATE DELAY_S\n");
        return 2;
    }
    period_ns = (int64_t)(1e9 / atof(argv[2]));
    n_events = atol(argv[3]);
    in_step = !strcmp(argv[4], "sync");
    gate = atol(argv[5]);
    delay_ns = (int64_t)(atof(argv[6]) * 1e9);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1000);
    connections = calloc(files.rlim_cur, sizeof *connections);
    heap = calloc(files.rlim_cur, sizeof *heap);
    gated = calloc(files.rlim_cur, sizeof *gated);
    epoll_fd = epoll_create1(0);
    grid_ns = now_ns();
    int listener = listen_somewhere();
    watch(listener, LISTEN_KEY);
    watch(0, STDIN_KEY);
    for (;;) {
        struct epoll_event found[AT_ONCE];
        int n = wait_for(found);
        for (int i = 0; i < n; i++) {
            int64_t key = (int64_t)found[i].data.u64;
            if (key == LISTEN_KEY) take_connections(listener, files.rlim_cur);
            else if (key != STDIN_KEY) readable((int)key);
            else if (read(0, (char[1]){0}, 1) <= 0) {
                write_stamps(argv[1]);
                return 0;
            }
        }
        for (long left = n_turns; left-- && n_turns && heap[0].due_ns <= now_ns();) speak(pop());
    }
}
