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

/// Where it cannot be looked at, it lives.
bool has_ended(const Holder& holder, const Holder& self) {
    if (self.kernel == "unknown" || holder.kernel != self.kernel || holder.pids != self.pids || holder.pid <= 0)
        return false;
    return holder.pid == self.pid || (::kill(holder.pid, 0) != 0 && errno == ESRCH);
}

Result<std::int64_t> take_number(Store& store, int rank, const Holder& self) {
    const auto number = store.add(cat("rank/", rank), 1);
    if (!number) return number.error();
    if (auto said = store.set(cat("rank/", rank, "/", *number), self.encode()); !said) return said.error();
    if (*number == 1) return number;
    const auto before = store.get(cat("rank/", rank, "/", *number - 1), patience);
    if (!before) return before.error();
    const auto holder = Holder::decode(*before);
    if (has_ended(holder, self)) return number;
    return Error{Errc::invalid_argument, cat("RANK=", rank, " is the rank of two processes of this round, this one (",
                                             self.words(), ") and ", holder.words(), ": each needs its own")};
}

}  // namespace

Result<std::int64_t> claim_rank(Store& store, const RankClaim& claim) {
    const auto self = Holder::of_this_process();
    auto number = take_number(store, claim.rank, self);
    if (!number) return number;
    // Whoever comes first says what it was told; if it is gone before it has, the meeting tells of that.
    const auto come = store.add(cat("told/", *number), 1);
    if (!come) return come.error();
    const std::string key = cat("told/", *number, "/first");
    const std::vector<std::string> mine{cat(claim.world_size), claim.transport, cat(claim.rank), self.words()};
    if (*come == 1) {
        if (auto said = store.set(key, join(mine, "\n")); !said) return said.error();
        return number;
    }
    const auto first = store.get(key, patience);
    if (!first) return first.error().code == Errc::timed_out ? number : Result<std::int64_t>(first.error());
    const auto theirs = split(*first, '\n');
    constexpr std::string_view names[] = {"WORLD_SIZE", "MUSTER_TRANSPORT"};
    for (std::size_t i = 0; i < std::size(names) && theirs.size() == mine.size(); ++i) {
        if (theirs[i] == mine[i]) continue;
        return Error{Errc::invalid_argument,
                     cat(names[i], "=", mine[i], " on rank ", mine[2], " (", mine[3], ") contradicts ", names[i], "=",
                         theirs[i], " on rank ", theirs[2], " (", theirs[3], "): all ranks need the same")};
    }
    return number;
}

}  // namespace muster::runtime
