// A worker that prints: argv[1] lines on stdout, as fast as it can, each "<LOCAL_RANK> <number> <filling>" and 80 bytes
// long, so that a reader can tell whether one is lost or split.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
    const long count = argc > 1 ? atol(argv[1]) : 1;
    const char* rank = getenv("LOCAL_RANK");
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    for (long i = 0; i < count; ++i) {
        const int written = printf("%s %ld ", rank != NULL ? rank : "-", i);
        for (int column = written; column < 79; ++column) putchar('x');
        putchar('\n');
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
