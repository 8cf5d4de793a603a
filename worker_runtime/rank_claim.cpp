#include "worker_runtime/rank_claim.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <string_view>
#include <vector>

#include "rendezvous/base/boot_id.h"
#include "rendezvous/base/text.h"

namespace muster::runtime {

namespace {

/// What is read here was written just after the number that says that it is there.
constexpr Duration patience = std::chrono::seconds(5);

/// A process, in words and so that others can look whether it lives.
struct Holder {
    std::string kernel;  ///< boot id
    std::string pids;    ///< of its pid namespace
    int pid = 0;
    std::string host;

    static Holder of_this_process() {
        struct stat space {};
        (void)::stat("/proc/self/ns/pid", &space);
        char host[65] = {};
        (void)::gethostname(host, sizeof host - 1);
        return {.kernel = boot_id(), .pids = cat(space.st_ino), .pid = ::getpid(), .host = host};
    }
    [[nodiscard]] std::string encode() const { return cat(kernel, " ", pids, " ", pid, " ", host); }
    static Holder decode(const std::string& text) {
        auto words = split(text, ' ');
        words.resize(4);
        Holder holder{.kernel = std::string(words[0]), .pids = std::string(words[1]), .host = std::string(words[3])};
        (void)parse_number(words[2], holder.pid);
        return holder;
    }
    [[nodiscard]] std::string words() const { return cat("pid ", pid, " on ", host); }
};

bool can_be_seen(const Holder& holder, const Holder& self) {
    return self.kernel != "unknown" && holder.kernel == self.kernel && holder.pids == self.pids && holder.pid > 0;
}

/// Where it cannot be seen, it lives.
bool has_ended(const Holder& holder, const Holder& self) {
    if (!can_be_seen(holder, self)) return false;
    return holder.pid == self.pid || (::kill(holder.pid, 0) != 0 && errno == ESRCH);
}

/// Worlds of different sizes have numbers of their own: torchrun can make another one without counting a restart.
Result<std::int64_t> take_number(Store& store, const RankClaim& claim, const Holder& self) {
    const std::string key = cat(claim.world_size, "/rank/", claim.rank);
    const auto number = store.add(key, 1);
    if (!number) return number.error();
    if (auto said = store.set(cat(key, "/", *number), self.encode()); !said) return said.error();
    if (*number == 1) return number;
    const auto before = store.get(cat(key, "/", *number - 1), patience);
    if (!before) return before.error();
    const auto holder = Holder::decode(*before);
    if (has_ended(holder, self)) return number;
    return Error{Errc::invalid_argument,
                 cat("RANK=", claim.rank, " is the rank of two processes of this round, this one (", self.words(),
                     ") and ", holder.words(), ": each needs its own")};
}

/// Whoever comes first says what it was told.
Result<void> compare(Store& store, const RankClaim& claim, const Holder& self) {
    const std::vector<std::string> mine{cat(claim.world_size), claim.transport, cat(claim.rank), self.encode()};
    const auto say = [&] { return store.set("first", join(mine, "\n")); };
    const auto come = store.add("come", 1);
    if (!come) return come.error();
    if (*come == 1) return say();
    const auto first = store.get("first", patience);
    // It is gone before it has said anything: the meeting tells of that.
    if (!first) return first.error().code == Errc::timed_out ? Result<void>() : first.error();
    const auto theirs = split(*first, '\n');
    if (theirs.size() != mine.size()) return {};
    const auto teller = Holder::decode(std::string(theirs[3]));
    constexpr std::string_view names[] = {"WORLD_SIZE", "MUSTER_TRANSPORT"};
    for (std::size_t i = 0; i < std::size(names); ++i) {
        if (theirs[i] == mine[i]) continue;
        // Of a process that has ended, or may have, it may be another world's.
        if (!can_be_seen(teller, self)) return {};
        if (has_ended(teller, self)) return say();
        return Error{Errc::invalid_argument,
                     cat(names[i], "=", mine[i], " on rank ", mine[2], " (", self.words(), ") contradicts ", names[i],
                         "=", theirs[i], " on rank ", theirs[2], " (", teller.words(), "): all ranks need the same")};
    }
    return {};
}

}  // namespace

Result<std::int64_t> claim_rank(Store& store, const RankClaim& claim) {
    const auto self = Holder::of_this_process();
    auto number = take_number(store, claim, self);
    if (!number) return number;
    if (auto same = compare(store, claim, self); !same) return same.error();
    return number;
}

}  // namespace muster::runtime
