#include "worker_runtime/context/rank_claim.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// What is read here was written just after the number that says that it is there.
constexpr Duration patience = std::chrono::seconds(5);
/// For what is there or is not.
constexpr Duration probe_timeout = std::chrono::milliseconds(100);
/// More ranks than this need no names.
constexpr std::size_t named_max = 8;

struct Life {
    char state = '?';
    std::string start;  ///< Ticks since boot. Distinguishes two processes with the same pid. Empty: not available.
};

Life life_of(int pid) {
    const auto stat = read_file(cat("/proc/", pid, "/stat"));
    const auto name_end = stat.rfind(") ");
    if (name_end == std::string::npos) return {};
    // After the name: state, ppid, ...; the start is the 20th.
    const auto fields = split(std::string_view(stat).substr(name_end + 2), ' ');
    if (fields.size() < 20 || fields[0].empty()) return {};
    return {.state = fields[0][0], .start = std::string(fields[19])};
}

enum class ClaimState { lives, ended, unseen };

/// A process, in words and so that others can look whether it lives.
struct Holder {
    std::string kernel;  ///< Boot id.
    std::string pids;    ///< Its pid namespace.
    int pid = 0;
    std::string start;
    std::string host;

    static Holder of_this_process() {
        struct stat space {};
        (void)::stat("/proc/self/ns/pid", &space);
        const int pid = ::getpid();
        return {.kernel = boot_id(),
                .pids = cat(space.st_ino),
                .pid = pid,
                .start = life_of(pid).start,
                .host = host_name()};
    }
    [[nodiscard]] std::string encode() const { return cat(kernel, " ", pids, " ", pid, " ", start, " ", host); }
    static Holder decode(const std::string& text) {
        auto words = split(text, ' ');
        words.resize(5);
        Holder holder{.kernel = std::string(words[0]),
                      .pids = std::string(words[1]),
                      .start = std::string(words[3]),
                      .host = std::string(words[4])};
        (void)parse_number(words[2], holder.pid);
        return holder;
    }
    [[nodiscard]] std::string words() const { return cat("pid ", pid, " on ", host); }

    [[nodiscard]] ClaimState fate(const Holder& self) const {
        if (kernel == claim_is_over) return ClaimState::ended;
        if (self.kernel == "unknown" || kernel != self.kernel || pids != self.pids || pid <= 0)
            return ClaimState::unseen;
        if (pid == self.pid || (::kill(pid, 0) != 0 && errno == ESRCH)) return ClaimState::ended;
        const auto now = life_of(pid);
        return now.state == 'Z' || now.state == 'X' || now.start != start ? ClaimState::ended : ClaimState::lives;
    }
};

/// Worlds of different sizes have numbers of their own: torchrun can make another one without counting a restart.
std::string counter_key(int world_size, int rank) {
    return cat(world_size, "/rank/", rank);
}

/// Of a process that is gone before it has said anything, nothing: it has ended.
Result<Holder> holder_at(Store& store, std::string_view key) {
    const auto said = store.get(key, patience);
    if (said) return Holder::decode(*said);
    if (said.error().code != Errc::timed_out) return said.error();
    return Holder::decode(std::string(claim_is_over));
}

Result<HeldRank> take_number(Store& store, const RankClaim& claim, const Holder& self) {
    const std::string counter = counter_key(claim.world_size, claim.rank);
    const auto number = MUSTER_TRY(store.add(counter, 1));
    HeldRank held{.opening = number, .key = cat(counter, "/", number), .before = {}};
    MUSTER_TRY(store.set(held.key, self.encode()));
    if (number == 1) return held;
    const auto before = MUSTER_TRY(holder_at(store, cat(counter, "/", number - 1)));
    const auto fate = before.fate(self);
    if (fate == ClaimState::unseen) held.before = before.words();
    if (fate != ClaimState::lives) return held;
    return Error{Errc::invalid_argument,
                 cat("RANK=", claim.rank, " is the rank of two processes of this round, this one (", self.words(),
                     ") and ", before.words(), ": each process needs its own rank")};
}

/// Whoever comes first says what it was told. For each opening: one after another may be told different things.
Result<void> compare(Store& store, const RankClaim& claim, const HeldRank& held, const Holder& self) {
    const std::vector<std::string> mine{cat(claim.world_size), claim.transport, claim.transport_name, cat(claim.rank),
                                        held.key};
    const std::string key = cat("first/", held.opening);
    const auto say = [&] { return store.set(key, join(mine, "\n")); };
    if (MUSTER_TRY(store.add(cat("come/", held.opening), 1)) == 1) return say();
    const auto first = store.get(key, patience);
    // It is gone before it has said anything: the meeting tells of that.
    if (!first) return first.error().code == Errc::timed_out ? Result<void>() : first.error();
    const auto theirs = split(*first, '\n');
    if (theirs.size() != mine.size() || (theirs[0] == mine[0] && theirs[1] == mine[1])) return {};
    const auto teller = MUSTER_TRY(holder_at(store, theirs[4]));
    // Of a process that has ended, or may have, it may be another world's.
    const auto fate = teller.fate(self);
    if (fate == ClaimState::unseen) return {};
    if (fate == ClaimState::ended) return say();
    const bool worlds_differ = theirs[0] != mine[0];
    const std::string self_text = worlds_differ ? cat("WORLD_SIZE=", mine[0]) : cat(mine[2], "=", mine[1]);
    const std::string other_text = worlds_differ ? cat("WORLD_SIZE=", theirs[0]) : cat(theirs[2], "=", theirs[1]);
    return Error{Errc::invalid_argument,
                 cat(self_text, " on rank ", mine[3], " (", self.words(), ") contradicts ", other_text, " on rank ",
                     theirs[3], " (", teller.words(), "): all ranks need the same")};
}

}  // namespace

Result<HeldRank> claim_rank(Store& store, const RankClaim& claim) {
    const auto self = Holder::of_this_process();
    auto held = take_number(store, claim, self);
    if (!held) return held;
    if (auto same = compare(store, claim, *held, self); !same) {
        (void)store.set(held->key, claim_is_over);
        return same.error();
    }
    return held;
}

std::string obstacles_to_meeting(Store& store, const RankClaim& claim, const HeldRank& held) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::vector<std::string> words;
    for (int rank = 0; rank < claim.world_size && words.size() < named_max; ++rank) {
        if (std::chrono::steady_clock::now() >= deadline) break;
        const auto count = store.get(counter_key(claim.world_size, rank), probe_timeout);
        if (!count && count.error().code != Errc::timed_out) break;
        std::int64_t number = 0;
        if (rank == claim.rank || !count || !parse_number(std::string_view(*count), number)) continue;
        if (number == held.opening) continue;
        words.push_back(cat("rank ", rank, " opens its context ", number, " of this round, this rank its context ",
                            held.opening, "; only contexts of equal number meet"));
    }
    if (!held.before.empty())
        words.push_back(cat("RANK=", claim.rank, " was the rank of ", held.before,
                            " before, and it is unknown whether that process still runs"));
    return join(words, "; ");
}

}  // namespace muster::runtime
