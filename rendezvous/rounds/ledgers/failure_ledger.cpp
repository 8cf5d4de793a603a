#include "rendezvous/rounds/ledgers/failure_ledger.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/rounds/ledgers/verdict.h"

namespace muster::rendezvous {

namespace {

/// Which worker or node it is about (FNV-1a). Whoever makes two collide hides one of its own failures.
std::uint64_t fingerprint(const Failure& failure) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    const auto absorb = [&hash](std::uint64_t word) {
        for (int i = 0; i < 8; ++i, word >>= 8) hash = (hash ^ (word & 0xff)) * 0x100000001b3u;
    };
    for (const char c : failure.host) absorb(static_cast<unsigned char>(c));
    for (const auto number : {failure.pid, failure.rank, failure.group_rank})
        absorb(static_cast<std::uint32_t>(number));
    absorb(failure.kind == FailureKind::node_lost ? 1 : 0);
    return hash;
}

}  // namespace

FailureLedger::FailureLedger(std::vector<Failure> kept, std::set<std::uint64_t> known, std::size_t count,
                             FailureGroups groups)
    : kept_(std::move(kept)),
      known_(std::move(known)),
      count_(count),
      revision_(kept_.size()),
      groups_(std::move(groups)) {
    for (const auto& failure : kept_) known_.insert(fingerprint(failure));
}

FailureLedger FailureLedger::on_clock(Duration ahead) const {
    FailureLedger moved = *this;
    // A time that cannot be moved was none to begin with.
    for (auto& failure : moved.kept_)
        if (std::int64_t at = 0; !__builtin_add_overflow(failure.at_ns, ahead.count(), &at)) failure.at_ns = at;
    return moved;
}

bool FailureLedger::add(Failure failure) {
    const bool room = known_.size() < known_max;
    const auto name = fingerprint(failure);
    if (room ? !known_.insert(name).second : known_.contains(name)) return false;
    ++count_;
    groups_.add(failure);
    kept_.push_back(std::move(failure));
    const auto kind = kept_.back().kind;
    const auto same_kind = [kind](const Failure& other) { return other.kind == kind; };
    ++revision_;
    if (static_cast<std::size_t>(std::ranges::count_if(kept_, same_kind)) <= kept_per_kind_max) return true;
    auto latest = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it)
        if (same_kind(*it) && (latest == kept_.end() || it->at_ns >= latest->at_ns)) latest = it;
    if (latest == std::prev(kept_.end())) --revision_;
    kept_.erase(latest);
    return true;
}

const Failure& FailureLedger::first_cause(Duration victim_window) const {
    return rendezvous::first_cause(kept_, victim_window);
}

bool FailureLedger::has_own_fault() const {
    return std::ranges::any_of(kept_, [](const Failure& failure) {
        return failure.kind != FailureKind::communication_error && failure.kind != FailureKind::node_lost;
    });
}

}  // namespace muster::rendezvous
