/* A wall clock that can be stepped while a program runs: cc -shared -fPIC -o clock_step.so clock_step.c

   In:  CLOCK_STEP_FILE, whose text is the seconds to add (LD_PRELOAD brings this into a process).
   Out: CLOCK_REALTIME, gettimeofday, time and the kernel's stamps on received packets so far off;
   every other clock, and every sleep, as it is. (libfaketime 0.9.10 breaks the absolute sleeps that
   Python uses, and leaves the kernel's stamps alone.) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step_s(void) {
    const char *path = getenv("CLOCK_STEP_FILE");
    char text[32] = {0};
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && id == CLOCK_REALTIME) at->tv_sec += step_s();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    if (got < 0) return got;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SO_TIMESTAMPNS) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(at), sizeof stamp);
        stamp.tv_sec += step_s();
        memcpy(CMSG_DATA(at), &stamp, sizeof stamp);
    }
    return got;
}
