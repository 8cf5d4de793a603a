/* C, through pkg-config. */
#include <muster/muster.h>
#include <stdio.h>

int main(void) {
    printf("version %d of the C API, made for %d\n", muster_api_version(), MUSTER_API_VERSION);
    return muster_api_version() < MUSTER_API_VERSION;
}
