#include "rendezvous/base/time.h"

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// `value` / 10 with one decimal, which is left out when it is 0.
std::string tenths(long long value) {
    return value % 10 == 0 ? cat(value / 10) : cat(value / 10, '.', value % 10);
}

}  // namespace

std::string describe(Duration duration) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    if (ms < 0) return cat('-', describe(-duration));
    if (ms < 1000) return cat(ms, " ms");
    if (ms < 600'000) return cat(tenths(ms / 100), " s");
    return cat(tenths(ms / 6'000), " min");
}

}  // namespace muster
