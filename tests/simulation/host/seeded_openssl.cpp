#include "tests/simulation/host/seeded_openssl.h"

// A method for random numbers is deprecated; a provider, its successor, takes ten times the code.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/rand.h>

#include "tests/simulation/host/random.h"

namespace muster::simulation {

namespace {

Random source(0);

int draw(unsigned char* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = static_cast<unsigned char>(source.next());
    return 1;
}
int is_seeded() {
    return 1;
}

}  // namespace

void seed_openssl(std::uint64_t seed) {
    static const RAND_METHOD method{nullptr, draw, nullptr, nullptr, draw, is_seeded};
    source = Random(seed);
    RAND_set_rand_method(&method);
}

}  // namespace muster::simulation
