// A worker that does one thing, named by its arguments; for the tests of the process host.
//
//   exit N | raise N | pause           end so, or never
//   stubborn                           ignores SIGTERM, prints "ready", never ends
//   say TEXT [CODE]                    prints TEXT without a line end on stdout and stderr, exits
//   say-wait TEXT                      prints TEXT, never ends
//   session CODE                       leaves a child in a session of its own, "ready", then exits CODE; -1: never ends
//   daemon CODE                        the same with a child that was forked twice and whose parent is gone
//   holder CODE                        leaves a child that keeps stdout and stderr open and is silent, exits CODE
//   wrapper FILE MS                    a shell that did not exec: its child, in its group, takes MS after SIGTERM,
//   appends
//                                      "saved" to FILE and ends; it itself dies of the signal at once
//   flood                              prints for ever
//   terminal                           prints whether stderr is a terminal, and its size, on stdout
//   facts                              prints session, group, signal mask and ignored signals, open descriptors
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void wait_forever(void) {
    for (;;) pause();
}

static void say(int fd, const char* text) {
    if (write(fd, text, strlen(text)) < 0) _exit(99);
}

static void leave_behind(int own_session, int forks) {
    int ready[2];
    char byte;
    if (pipe(ready) != 0) _exit(98);
    for (int i = 0; i < forks; ++i) {
        const pid_t child = fork();
        if (child != 0) {
            if (i == 0) break;
            _exit(0);
        }
        if (own_session) setsid();
        if (i + 1 == forks) {
            signal(SIGHUP, SIG_IGN);
            signal(SIGTERM, SIG_IGN);
            if (write(ready[1], "r", 1) != 1) _exit(97);
            wait_forever();
        }
    }
    if (read(ready[0], &byte, 1) != 1) _exit(96);
    close(ready[0]);
    close(ready[1]);
}

static volatile sig_atomic_t stop_requested = 0;

static void note_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

static void save_when_told(const char* file, int ms) {
    const struct timespec work = {ms / 1000, ms % 1000 * 1000000L};
    while (!stop_requested) usleep(1000);
    nanosleep(&work, NULL);
    const int fd = open(file, O_WRONLY | O_APPEND | O_CREAT, 0666);
    say(fd, "saved\n");
    _exit(0);
}

static void wrap(const char* file, int ms) {
    int ready[2];
    char byte;
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &before);  // so that it does not die before the child is ready to be told
    if (pipe(ready) != 0) _exit(98);
    if (fork() == 0) {
        signal(SIGTERM, note_stop);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (write(ready[1], "r", 1) != 1) _exit(97);
        save_when_told(file, ms);
    }
    if (read(ready[0], &byte, 1) != 1) _exit(96);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void finish(const char* code) {
    say(1, "ready\n");
    if (atoi(code) < 0) wait_forever();
    _exit(atoi(code));
}

static void tell_facts(void) {
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    int blocked = 0, ignored = 0, descriptors = 0;
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction action;
        if (sigismember(&mask, number) == 1) ++blocked;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN) ++ignored;
    }
    DIR* directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL) ++descriptors;
    printf("leader %d group %d blocked %d ignored %d descriptors %d\n", getsid(0) == getpid(), getpgrp() == getpid(),
           blocked, ignored, descriptors - 3);  // ".", ".." and the directory itself
}

int main(int argc, char** argv) {
    const char* what = argc > 1 ? argv[1] : "";
    const char* first = argc > 2 ? argv[2] : "0";
    if (strcmp(what, "exit") == 0) return atoi(first);
    if (strcmp(what, "raise") == 0) raise(atoi(first));
    if (strcmp(what, "stubborn") == 0) {
        signal(SIGTERM, SIG_IGN);
        finish("-1");
    }
    if (strcmp(what, "say") == 0) {
        say(1, first);
        say(2, first);
        return argc > 3 ? atoi(argv[3]) : 0;
    }
    if (strcmp(what, "say-wait") == 0) say(1, first);
    if (strcmp(what, "session") == 0 || strcmp(what, "daemon") == 0) {
        leave_behind(1, strcmp(what, "daemon") == 0 ? 2 : 1);
        finish(first);
    }
    if (strcmp(what, "holder") == 0) {
        leave_behind(0, 1);
        finish(first);
    }
    if (strcmp(what, "wrapper") == 0) {
        wrap(first, argc > 3 ? atoi(argv[3]) : 0);
        finish("-1");
    }
    if (strcmp(what, "flood") == 0) {
        for (;;) say(1, "0123456789012345678901234567890123456789012345678901234567890123456789\n");
    }
    if (strcmp(what, "terminal") == 0) {
        struct winsize size = {0};
        ioctl(2, TIOCGWINSZ, &size);
        printf("%d %d %d\n", isatty(2), size.ws_row, size.ws_col);
        return 0;
    }
    if (strcmp(what, "facts") == 0) {
        tell_facts();
        return 0;
    }
    wait_forever();
}
