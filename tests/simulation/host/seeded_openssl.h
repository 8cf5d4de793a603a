// OpenSSL's random numbers, from a seed: so that one seed is one run with TLS, too.
#pragma once

#include <cstdint>

namespace muster::simulation {

/// From now on, for the whole process.
void seed_openssl(std::uint64_t seed);

}  // namespace muster::simulation
