#include "worker_runtime/core/environment.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Reads variables one after another; the first trouble stays.
class Reader {
  public:
    /// `given`: a variable that is set, so that the others have to be.
    Reader(const Lookup& lookup, std::string_view given) : lookup_(lookup), given_(given) {}

    template <class Number>
    Number number(const char* name, std::optional<Number> otherwise, Number least) {
        const auto text = lookup_(name);
        if (!text && otherwise) return *otherwise;
        Number value = least;
        if (!text) {
            add_error(cat(name, " is not set, though ", given_, " is; a launcher (muster, torchrun) sets all of them"));
        } else if (!parse_number(std::string_view(*text), value) || value < least) {
            add_error(cat(name, "=", *text, " is not a whole number >= ", least));
        }
        return value;
    }

    void below(const char* name, int value, const char* limit_name, int limit) {
        if (value >= limit) {
            add_error(cat(name, "=", value, " contradicts ", limit_name, "=", limit, ": it must be smaller"));
        }
    }
    void at_most(const char* name, int value, const char* limit_name, int limit) {
        if (value > limit) {
            add_error(cat(name, "=", value, " contradicts ", limit_name, "=", limit, ": it must not be larger"));
        }
    }

    void add_error(std::string trouble) {
        if (trouble_.empty()) trouble_ = std::move(trouble);
    }
    [[nodiscard]] const std::string& trouble() const { return trouble_; }

  private:
    const Lookup& lookup_;
    const std::string_view given_;
    std::string trouble_;
};

}  // namespace

Result<Environment> read_environment(const Lookup& lookup) {
    Environment out;
    const auto text = [&](const char* name) { return lookup(name).value_or(std::string()); };
    out.job = text("TORCHELASTIC_RUN_ID");
    out.agent_socket = text("MUSTER_AGENT_SOCKET");
    out.agent_token = text("MUSTER_AGENT_TOKEN");
    // Outside muster it may hold what a user writes there for muster: a name.
    if (!parse_number(text("MUSTER_PREEMPTION_SIGNAL"), out.preemption_signal)) out.preemption_signal = 0;
    // MASTER_ADDR and MASTER_PORT alone stand in many a shell's start-up file.
    constexpr std::string_view own[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    const auto* const given =
        std::find_if(std::begin(own), std::end(own), [&](auto name) { return lookup(name.data()).has_value(); });
    if (given == std::end(own)) return out;

    Reader reader(lookup, *given);
    const std::optional<int> required;
    out.world_size = reader.number("WORLD_SIZE", required, 1);
    out.rank = reader.number("RANK", required, 0);
    out.local_world_size = reader.number("LOCAL_WORLD_SIZE", required, 1);
    out.local_rank = reader.number("LOCAL_RANK", required, 0);
    out.group_rank = reader.number("GROUP_RANK", std::optional(0), 0);
    out.restart_count = reader.number("TORCHELASTIC_RESTART_COUNT", std::optional<std::int64_t>(0), std::int64_t{0});
    out.round = reader.number("MUSTER_ROUND", std::optional(out.restart_count), std::int64_t{0});
    reader.below("RANK", out.rank, "WORLD_SIZE", out.world_size);
    reader.below("LOCAL_RANK", out.local_rank, "LOCAL_WORLD_SIZE", out.local_world_size);
    reader.at_most("LOCAL_WORLD_SIZE", out.local_world_size, "WORLD_SIZE", out.world_size);
    if (out.local_world_size == out.world_size && out.local_rank != out.rank) {
        reader.add_error(cat("LOCAL_RANK=", out.local_rank, " contradicts RANK=", out.rank, ": all ", out.world_size,
                             " ranks are on this node (LOCAL_WORLD_SIZE is WORLD_SIZE), so the two must be equal"));
    }
    // Those of a node have their local ranks in the order of their ranks.
    if (out.rank < out.local_rank) {
        reader.add_error(cat("LOCAL_RANK=", out.local_rank, " contradicts RANK=", out.rank, ": its node has ",
                             out.local_rank, " lower ranks, but the world only ", out.rank));
    }
    out.ranks_security = text("MUSTER_RANKS_SECURITY");
    if (!out.ranks_security.empty() && out.ranks_security != "auth" && out.ranks_security != "encrypt")
        reader.add_error(cat("MUSTER_RANKS_SECURITY=", out.ranks_security, "; accepted: auth, encrypt"));
    const int behind = out.local_world_size - 1 - out.local_rank;
    if (out.world_size - 1 - out.rank < behind) {
        reader.add_error(cat("RANK=", out.rank, " contradicts LOCAL_WORLD_SIZE=", out.local_world_size,
                             ": its node has ", behind, " higher ranks, but the world of ", out.world_size, " only ",
                             out.world_size - 1 - out.rank));
    }
    if (out.world_size > 1) {
        out.store_host = text("MASTER_ADDR");
        if (out.store_host.empty()) reader.add_error("MASTER_ADDR is not set; it is the host of the workers' store");
        out.store_port = reader.number("MASTER_PORT", std::optional<std::uint16_t>(), std::uint16_t{1});
        out.store_is_served = text("TORCHELASTIC_USE_AGENT_STORE") != "False";
    }
    if (!reader.trouble().empty()) return Error{Errc::invalid_argument, reader.trouble()};
    return out;
}

}  // namespace muster::runtime
