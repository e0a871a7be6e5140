/* Faults of disk, clock and machine for one process, between it and the C library.
 *
 * Loaded with LD_PRELOAD into every process of a pool. One that was started with `--config
 * FOLDER/NAME.json`, and for which $LARDER_FAULTS/NAME.control exists, is steered by that file. It
 * is mapped, so that a change counts at once and costs no call; its words are listed in control.rs.
 * Every other process is left alone.
 *
 * Only files below the watched folder are delayed, limited and remembered. For each of them the
 * table holds how many bytes the last sync made durable and whether the sync of its folder did so
 * with its name, which is what a loss of power leaves.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { HOLD = 1, SYNC_DELAY_MS, WRITE_DELAY_MS, IS_LIMITED, ROOM_BYTES, CLOCK_OFFSET_NS, BOOT, NETWORK_OF };
enum { SYNCS = 16, WRITES, REFUSED, DELAYED, CLOCK_READS, BOOT_READS, HELD_PID, LAST_SYNC_NS, IS_TABLE_FULL };
enum { FOLDER_WORD = 32, TABLE_WORD = 128, SLOT_WORDS = 4, SLOTS = 1024 };
enum { INODE, FOLDER_INODE, SYNCED_BYTES, FLAGS };
/* The file's name is durable; the file is a piece of the log. */
enum { IS_LINKED = 1, IS_LOG = 2 };
#define WORDS (TABLE_WORD + SLOT_WORDS * SLOTS)
#define DESCRIPTORS 65536

static _Atomic int64_t *words;
static const char *folder;
static size_t folder_length;
static char name[128];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
/* Slot + 1 of each open file that is watched. */
static _Atomic uint16_t watched[DESCRIPTORS];

#define REAL(type, call, ...)                                                     \
    static type (*real_##call)(__VA_ARGS__);                                      \
    static void find_##call(void) { if (!real_##call) *(void **)&real_##call = dlsym(RTLD_NEXT, #call); }
REAL(int, clock_gettime, clockid_t, struct timespec *)
REAL(int, gettimeofday, struct timeval *, void *)
REAL(int, openat, int, const char *, int, mode_t)
REAL(int, close, int)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(int, ftruncate, int, off_t)
REAL(int, rename, const char *, const char *)
REAL(int, unlink, const char *)

static int64_t word(int at) { return atomic_load_explicit(&words[at], memory_order_relaxed); }
static void add(int at, int64_t by) { atomic_fetch_add_explicit(&words[at], by, memory_order_relaxed); }
static _Atomic int64_t *slot(int at) { return &words[TABLE_WORD + SLOT_WORDS * at]; }

static void wait_ms(int64_t ms) {
    if (ms <= 0) return;
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    add(DELAYED, 1);
    while (nanosleep(&time, &time) && errno == EINTR) {}
}

static int64_t monotonic_ns(void) {
    struct timespec time;
    find_clock_gettime();
    real_clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* The machine is off: nothing of the program runs until it is let go. */
static void hold(void) {
    while (word(HOLD)) {
        atomic_store(&words[HELD_PID], getpid());
        struct timespec time = { 0, 2000000 };
        nanosleep(&time, NULL);
    }
    atomic_store(&words[HELD_PID], 0);
}

static void fail(const char *what) {
    dprintf(2, "faults of %s: %s: %s\n", name, what, strerror(errno));
    _exit(97);
}

static int is_named(void) {
    static char line[8192];
    int file = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = syscall(SYS_read, file, line, sizeof line - 1);
    syscall(SYS_close, file);
    for (char *at = line; length > 0 && at < line + length; at += strlen(at) + 1) {
        if (strcmp(at, "--config")) continue;
        char *path = at + strlen(at) + 1;
        if (path >= line + length) return 0;
        char *base = strrchr(path, '/');
        base = base ? base + 1 : path;
        char *end = strrchr(base, '.');
        size_t size = end ? (size_t)(end - base) : strlen(base);
        if (size >= sizeof name) return 0;
        memcpy(name, base, size);
        return 1;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *control = getenv("LARDER_FAULTS");
    char path[4096];
    if (!control || !is_named()) return;
    snprintf(path, sizeof path, "%s/%s.control", control, name);
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *map = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (map == MAP_FAILED) fail("map the control file");
    words = map;
    folder = (const char *)&words[FOLDER_WORD];
    folder_length = strlen(folder);
    hold();
    if (word(NETWORK_OF)) {
        snprintf(path, sizeof path, "/proc/%lld/ns/net", (long long)word(NETWORK_OF));
        int network = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        if (network < 0 || setns(network, CLONE_NEWNET)) fail("enter the network namespace");
        syscall(SYS_close, network);
    }
}

/* ---- The table of files ---- */

static int find_slot(int64_t inode, int64_t of_folder, int is_made, int64_t synced_bytes, int is_log) {
    int found = -1, unused = -1;
    for (int at = 0; at < SLOTS && found < 0; at++) {
        int64_t here = atomic_load(&slot(at)[INODE]);
        if (here == inode) found = at;
        if (!here && unused < 0) unused = at;
    }
    int is_new = found < 0;
    if (is_new) found = unused;
    if (found < 0) {
        atomic_store(&words[IS_TABLE_FULL], 1);
        return -1;
    }
    if (is_new || is_made) {
        atomic_store(&slot(found)[FOLDER_INODE], of_folder);
        atomic_store(&slot(found)[SYNCED_BYTES], is_made ? 0 : synced_bytes);
        atomic_store(&slot(found)[FLAGS], (is_made ? 0 : IS_LINKED) | (is_log ? IS_LOG : 0));
        atomic_store(&slot(found)[INODE], inode);
    }
    return found;
}

static int is_watched(const char *path) {
    return words && folder_length && !strncmp(path, folder, folder_length) && path[folder_length] == '/';
}

static int64_t inode_of_folder(const char *path) {
    char above[4096];
    struct stat found;
    const char *end = strrchr(path, '/');
    if (!end || (size_t)(end - path) >= sizeof above) return 0;
    memcpy(above, path, end - path);
    above[end - path] = 0;
    return stat(above, &found) ? 0 : (int64_t)found.st_ino;
}

static void opened(int file, const char *path, int is_made) {
    struct stat found;
    if (file < 0 || file >= DESCRIPTORS || fstat(file, &found) || !S_ISREG(found.st_mode)) return;
    const char *base = strrchr(path, '/');
    int is_log = base && !strncmp(base, "/segment-", 9);
    int64_t of_folder = inode_of_folder(path);
    pthread_mutex_lock(&table);
    int at = find_slot(found.st_ino, of_folder, is_made, found.st_size, is_log);
    pthread_mutex_unlock(&table);
    watched[file] = at + 1;
}

static int slot_of(int file) {
    return words && file >= 0 && file < DESCRIPTORS ? watched[file] - 1 : -1;
}

/* A file's name goes away: what it held is room again. */
static void gone(const char *path) {
    struct stat found;
    if (!is_watched(path) || lstat(path, &found) || !S_ISREG(found.st_mode) || found.st_nlink != 1) return;
    add(ROOM_BYTES, found.st_size);
    pthread_mutex_lock(&table);
    for (int at = 0; at < SLOTS; at++)
        if (atomic_load(&slot(at)[INODE]) == (int64_t)found.st_ino) atomic_store(&slot(at)[INODE], 0);
    pthread_mutex_unlock(&table);
}

static int is_linked(int64_t inode) {
    for (int at = 0; at < SLOTS; at++)
        if (atomic_load(&slot(at)[INODE]) == inode) return atomic_load(&slot(at)[FLAGS]) & IS_LINKED;
    return 1;
}

static void link_inode(int64_t inode) {
    for (int at = 0; at < SLOTS; at++)
        if (atomic_load(&slot(at)[INODE]) == inode) atomic_fetch_or(&slot(at)[FLAGS], IS_LINKED);
}

/* How many of these bytes there is room for; -1 if for none. */
static ssize_t room_for(size_t bytes) {
    if (!word(IS_LIMITED) || !bytes) return bytes;
    int64_t room = word(ROOM_BYTES);
    if (room > 0) return room < (int64_t)bytes ? room : (ssize_t)bytes;
    add(REFUSED, 1);
    errno = ENOSPC;
    return -1;
}

/* ---- What stands in for the C library ---- */

static int boot_file(void) {
    char text[64];
    int64_t boot = word(BOOT);
    add(BOOT_READS, 1);
    int length = snprintf(text, sizeof text, "%08llx-0000-4000-8000-000000000000\n",
                          (unsigned long long)(boot & 0xffffffff));
    int file = memfd_create("boot_id", MFD_CLOEXEC);
    if (file < 0) return -1;
    find_write();
    real_write(file, text, length);
    lseek(file, 0, SEEK_SET);
    return file;
}

static int open_at(int from, const char *path, int flags, mode_t mode) {
    find_openat();
    if (words && word(BOOT) && !strcmp(path, "/proc/sys/kernel/random/boot_id")) return boot_file();
    if (!is_watched(path)) return real_openat(from, path, flags, mode);
    struct stat found;
    int was_there = !stat(path, &found);
    int file = real_openat(from, path, flags, mode);
    int error = errno;
    if (file >= 0) opened(file, path, !was_there);
    errno = error;
    return file;
}

#define MODE(flags, mode)                                     \
    mode_t mode = 0;                                          \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                  \
        va_list more;                                         \
        va_start(more, flags);                                \
        mode = va_arg(more, int);                             \
        va_end(more);                                         \
    }
int open(const char *path, int flags, ...) { MODE(flags, mode) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, mode) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int from, const char *path, int flags, ...) { MODE(flags, mode) return open_at(from, path, flags, mode); }
int openat64(int from, const char *path, int flags, ...) { MODE(flags, mode) return open_at(from, path, flags, mode); }

int close(int file) {
    find_close();
    if (file >= 0 && file < DESCRIPTORS) watched[file] = 0;
    return real_close(file);
}

ssize_t write(int file, const void *bytes, size_t length) {
    find_write();
    if (slot_of(file) < 0) return real_write(file, bytes, length);
    add(WRITES, 1);
    wait_ms(word(WRITE_DELAY_MS));
    ssize_t fits = room_for(length);
    if (fits < 0) return -1;
    ssize_t written = real_write(file, bytes, fits);
    if (written > 0) add(ROOM_BYTES, -written);
    return written;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    find_writev();
    if (slot_of(file) < 0) return real_writev(file, parts, count);
    /* A part at a time is a short write, which its caller goes on from. */
    for (int at = 0; at < count; at++)
        if (parts[at].iov_len) return write(file, parts[at].iov_base, parts[at].iov_len);
    return 0;
}

static ssize_t write_at(int file, const void *bytes, size_t length, off_t offset) {
    find_pwrite();
    if (slot_of(file) < 0) return real_pwrite(file, bytes, length, offset);
    add(WRITES, 1);
    wait_ms(word(WRITE_DELAY_MS));
    ssize_t fits = room_for(length);
    return fits < 0 ? -1 : real_pwrite(file, bytes, fits, offset);
}
ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) { return write_at(file, bytes, length, offset); }
ssize_t pwrite64(int file, const void *bytes, size_t length, off_t offset) { return write_at(file, bytes, length, offset); }

static int synced(int file, int (*real)(int)) {
    struct stat found;
    if (!words || fstat(file, &found)) return real(file);
    if (S_ISDIR(found.st_mode)) {
        int done = real(file);
        for (int at = 0; !done && at < SLOTS; at++)
            if (atomic_load(&slot(at)[INODE]) && atomic_load(&slot(at)[FOLDER_INODE]) == (int64_t)found.st_ino)
                atomic_fetch_or(&slot(at)[FLAGS], IS_LINKED);
        return done;
    }
    int at = slot_of(file);
    if (at < 0) return real(file);
    int64_t start_ns = monotonic_ns();
    /* Its size before: what is appended meanwhile is durable only by luck. */
    wait_ms(word(SYNC_DELAY_MS));
    int done = real(file);
    if (done) return done;
    add(SYNCS, 1);
    pthread_mutex_lock(&table);
    if (atomic_load(&slot(at)[INODE]) == (int64_t)found.st_ino) {
        atomic_store(&slot(at)[SYNCED_BYTES], found.st_size);
        /* Two syncs may overlap: the later start counts. */
        if (atomic_load(&slot(at)[FLAGS]) & IS_LOG && word(LAST_SYNC_NS) < start_ns)
            atomic_store(&words[LAST_SYNC_NS], start_ns);
    }
    pthread_mutex_unlock(&table);
    return 0;
}
int fsync(int file) { find_fsync(); return synced(file, real_fsync); }
int fdatasync(int file) { find_fdatasync(); return synced(file, real_fdatasync); }

static int cut(int file, off_t length) {
    struct stat found;
    find_ftruncate();
    int is_known = slot_of(file) >= 0 && !fstat(file, &found);
    int done = real_ftruncate(file, length);
    if (is_known && !done && found.st_size > length) add(ROOM_BYTES, found.st_size - length);
    return done;
}
int ftruncate(int file, off_t length) { return cut(file, length); }
int ftruncate64(int file, off_t length) { return cut(file, length); }

int rename(const char *from, const char *to) {
    struct stat found, former;
    find_rename();
    if (!is_watched(to)) return real_rename(from, to);
    /* Over a durable name: after a loss of power it is there, with one of the two. We take the new
       one. A new name is only there once its folder was synced. */
    int is_over = !lstat(to, &former) && is_linked(former.st_ino);
    gone(to);
    int done = real_rename(from, to);
    if (!done && is_over && !lstat(to, &found)) link_inode(found.st_ino);
    return done;
}

int unlink(const char *path) {
    find_unlink();
    if (words) gone(path);
    return real_unlink(path);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    find_clock_gettime();
    int done = real_clock_gettime(clock, time);
    if (done || !words || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return done;
    int64_t offset_ns = word(CLOCK_OFFSET_NS);
    add(CLOCK_READS, 1);
    time->tv_sec += offset_ns / 1000000000;
    return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
    find_gettimeofday();
    int done = real_gettimeofday(time, zone);
    if (!done && words) time->tv_sec += word(CLOCK_OFFSET_NS) / 1000000000;
    return done;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
