#include "worker_runtime/transport/meeting_place.h"

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// How long the place is asked for each key once the deadline has passed: the answer is there or it is not.
constexpr Duration probe_timeout = 100ms;
/// More absent ranks than this need no names.
constexpr std::size_t named_max = 8;

/// "rank 3 did not join", for ranks whose key is not there now.
std::string absentees(const GroupTerms& terms, const std::vector<std::string>& keys) {
    std::vector<std::string> ranks;
    for (std::size_t rank = 0; rank < keys.size() && ranks.size() <= named_max; ++rank) {
        const auto found = terms.place->collect({keys[rank]}, std::chrono::steady_clock::now() + probe_timeout);
        if (!found && found.error().code == Errc::timed_out) ranks.push_back(cat(rank));
    }
    if (ranks.empty()) return "the last rank joined too late";
    if (ranks.size() > named_max) ranks.back() = "others";
    return cat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "), " did not join");
}

}  // namespace

Result<std::vector<std::string>> exchange(const GroupTerms& terms, std::string_view what, std::string_view value,
                                          const MeetingWait& wait) {
    const auto key = [&](int rank) { return cat(terms.id, "/", what, "/", rank); };
    const auto context = [&](const Error& error) {
        return with_context(error, cat("communicator ", terms.id, ", rank ", terms.rank, " of ", terms.size));
    };
    if (auto published = terms.place->publish(key(terms.rank), value, wait.deadline); !published) {
        return context(published.error());
    }
    std::vector<std::string> keys;
    for (int rank = 0; rank < terms.size; ++rank) keys.push_back(key(rank));
    auto values = terms.place->collect(keys, wait);
    if (values) return values;
    if (auto stands = wait.check_alive(); !stands) return stands.error();
    if (values.error().code != Errc::timed_out) return context(values.error());
    return context({Errc::timed_out, cat(absentees(terms, keys), " (", values.error().context, ")")});
}

}  // namespace muster::runtime
