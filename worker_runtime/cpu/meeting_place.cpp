#include "worker_runtime/cpu/meeting_place.h"

#include "rendezvous/base/text.h"

namespace muster::runtime {

Result<std::vector<std::string>> exchange(const GroupTerms& terms, std::string_view what, std::string_view value,
                                          Instant deadline) {
    const auto key = [&](int rank) { return cat(terms.id, "/", what, "/", rank); };
    const auto context = [&](const Error& error) {
        return with_context(error, cat("communicator ", terms.id, ", rank ", terms.rank, " of ", terms.size));
    };
    if (auto published = terms.place->publish(key(terms.rank), value, deadline); !published) {
        return context(published.error());
    }
    std::vector<std::string> keys;
    for (int rank = 0; rank < terms.size; ++rank) keys.push_back(key(rank));
    auto values = terms.place->collect(keys, deadline);
    if (!values) return context(values.error());
    return values;
}

}  // namespace muster::runtime
