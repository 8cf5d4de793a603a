// A worker for the elastic tests. It writes what it was given as one line to $ELASTIC_LOG, then waits.
//
//   elastic [--ignore-term | --save FILE MS] [--grandchild] [--resident MIB] [--fail-on FILE CODE [TEXT]] --until FILE
//
// --until FILE       exit 0 as soon as FILE exists
// --fail-on FILE N   print TEXT to stderr and exit N as soon as FILE exists (looked at before --until)
// --ignore-term      take no notice of SIGTERM
// --save FILE MS     after SIGTERM work for MS, write the number of SIGTERMs to FILE, and exit 0
// --resident MIB     touch so much memory before the start line, as the kernel has to tear it down at the end
// --grandchild       leave a child in a session of its own, which ignores SIGTERM and SIGHUP too
//
// Lines:  start rank= world= local= group= groups= round= restart= role= master= pid= at=   (CLOCK_MONOTONIC, ns)
//         grandchild pid=
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void say(const char* line) {
    const char* path = getenv("ELASTIC_LOG");
    if (path == NULL) return;
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, strlen(line)) < 0) _exit(98);
    close(fd);
}

static const char* variable(const char* name) {
    const char* value = getenv(name);
    return value == NULL ? "-" : value;
}

static void say_start(void) {
    char line[1024];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(line, sizeof line,
             "start rank=%s world=%s local=%s group=%s groups=%s round=%s restart=%s role=%s master=%s:%s pid=%d "
             "at=%lld\n",
             variable("RANK"), variable("WORLD_SIZE"), variable("LOCAL_RANK"), variable("GROUP_RANK"),
             variable("GROUP_WORLD_SIZE"), variable("MUSTER_ROUND"), variable("TORCHELASTIC_RESTART_COUNT"),
             variable("ROLE_NAME"), variable("MASTER_ADDR"), variable("MASTER_PORT"), getpid(),
             now.tv_sec * 1000000000LL + now.tv_nsec);
    say(line);
}

static void sleep_ms(long ms) {
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static volatile sig_atomic_t terms = 0;

static void count_term(int signal_number) {
    (void)signal_number;
    ++terms;
}

static void save(const char* path, long ms) {
    for (; ms > 0; --ms) sleep_ms(1);
    FILE* file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%d\n", (int)terms) < 0 || fclose(file) != 0) _exit(96);
    _exit(0);
}

static void leave_grandchild(void) {
    const pid_t pid = fork();
    if (pid != 0) return;
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    char line[64];
    snprintf(line, sizeof line, "grandchild pid=%d\n", getpid());
    say(line);
    sleep_ms(600000);
    _exit(0);
}

static void take_memory(size_t bytes) {
    char* memory = malloc(bytes);
    if (memory == NULL) _exit(95);
    for (size_t at = 0; at < bytes; at += 4096) ((volatile char*)memory)[at] = 1;
}

int main(int argc, char** argv) {
    const char* until = NULL;
    const char* fail_on = NULL;
    const char* text = "";
    const char* save_to = NULL;
    long save_ms = 0;
    int code = 1;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--ignore-term") == 0)
            signal(SIGTERM, SIG_IGN);
        else if (strcmp(argv[i], "--save") == 0 && i + 2 < argc) {
            signal(SIGTERM, count_term);
            save_to = argv[++i];
            save_ms = atol(argv[++i]);
        } else if (strcmp(argv[i], "--grandchild") == 0)
            leave_grandchild();
        else if (strcmp(argv[i], "--resident") == 0 && i + 1 < argc)
            take_memory(strtoul(argv[++i], NULL, 10) << 20);
        else if (strcmp(argv[i], "--until") == 0 && i + 1 < argc)
            until = argv[++i];
        else if (strcmp(argv[i], "--fail-on") == 0 && i + 2 < argc) {
            fail_on = argv[++i];
            code = atoi(argv[++i]);
            if (i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) text = argv[++i];
        } else
            return 99;
    }
    say_start();
    // Seldom where it has waited for long: a hundred of these stand beside each other.
    for (long ms = 0, pause = 10; ms < 600000; ms += pause) {
        if (save_to != NULL && terms > 0) save(save_to, save_ms);
        if (fail_on != NULL && access(fail_on, F_OK) == 0) {
            fprintf(stderr, "%s\n", text);
            return code;
        }
        if (until != NULL && access(until, F_OK) == 0) return 0;
        pause = ms < 1000 ? 10 : ms < 10000 ? ms / 100 : 100;
        sleep_ms(pause);
    }
    return 97;
}
