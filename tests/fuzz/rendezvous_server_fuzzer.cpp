// The daemon's core against agents that say anything in any order: no sequence may break one of its checks, answer a
// closed connection, or seal a round that is not whole.
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "rendezvous/base/check.h"
#include "rendezvous/rounds/server.h"

namespace {

using namespace muster;
using namespace muster::rendezvous;

/// Numbers drawn from the input; zeros after its end.
class Dice {
  public:
    Dice(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    [[nodiscard]] bool empty() const { return at_ >= size_; }
    std::uint32_t below(std::uint32_t limit) { return empty() ? 0 : data_[at_++] % limit; }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

class Mischief {
  public:
    explicit Mischief(Dice dice) : dice_(dice) {
        ServerConfig config;
        config.start_hold = dice_.below(2) == 1 ? StartHold::until_full : StartHold::none;
        config.jobs_max = 1;  // so that all assignments of one step belong to one seal
        config.nodes_max = 5;
        server_ = std::make_unique<Server>(config, now_);
        terms_.nodes_min = 1 + dice_.below(2);
        terms_.nodes_max = terms_.nodes_min + dice_.below(3);
        terms_.spares = dice_.below(2);
        terms_.restarts_max = dice_.below(3);
        terms_.fixed_world = dice_.below(4) == 0;
        terms_.last_call_ms = 1'000;
        terms_.lease_ms = 1'000;
        terms_.lost_timeout_ms = 5'000;
    }

    void run() {
        while (!dice_.empty()) {
            switch (dice_.below(4)) {
                case 0: pass_time(); break;
                case 1: connect(); break;
                default: speak(); break;
            }
        }
        (void)server_->status_json(now_);
    }

  private:
    void pass_time() {
        now_ += std::chrono::milliseconds(10 << dice_.below(10));
        if (dice_.below(4) == 0 || server_->deadline() <= now_) step(Elapsed{});
    }

    void connect() {
        const auto connection = ++last_connection_;
        open_.insert(connection);
        step(ConnectionAccepted{connection, "10.0.0.1"});
        native::Hello hello;
        hello.job = dice_.below(8) == 0 ? "other" : "job";
        const auto agent = dice_.below(6);
        hello.node = {std::string("n") + std::to_string(agent), 1, agent};
        hello.connection = dice_.below(8) == 0 ? 1 : ++connection_count_[agent];
        step(Received{connection, hello});
    }

    native::Join join() {
        native::Join join;
        join.terms = terms_;
        if (dice_.below(16) == 0) join.terms.nodes_max += 1;
        join.last_round = static_cast<Round>(dice_.below(4)) - 1;
        join.slots = dice_.below(4);
        join.arguments_hash = join.slots;  // drawn together, so that older inputs mean what they did
        join.node_rank = static_cast<std::int32_t>(dice_.below(5)) - 1;
        return join;
    }

    native::Message message() {
        const auto round = static_cast<Round>(dice_.below(4));
        switch (dice_.below(9)) {
            case 0: return native::Ping{};
            case 1:
            case 2: return join();
            case 3: {
                native::Resume resume{round, dice_.below(2) == 1, join(), {}};
                resume.as_assigned.round = round;
                resume.as_assigned.group_rank = dice_.below(3);
                resume.as_assigned.group_world_size = dice_.below(4);
                return resume;
            }
            case 4: {
                native::WorkersFailed failed{round, {}};
                if (dice_.below(2) == 1) failed.failures.emplace_back().kind = static_cast<FailureKind>(dice_.below(4));
                return failed;
            }
            case 5: return native::WorkersSucceeded{round};
            case 6: return native::RoundReport{round, {}, 1, -1};
            case 7: return native::EndAcknowledged{};
            default:
                return dice_.below(2) == 0 ? native::Message(native::Leave{}) : native::Message(native::AgentDied{});
        }
    }

    void speak() {
        if (open_.empty()) return;
        auto at = open_.begin();
        std::advance(at, dice_.below(static_cast<std::uint32_t>(open_.size())));
        const auto connection = *at;
        if (dice_.below(8) == 0) {
            open_.erase(at);
            return step(ConnectionEnded{connection, "reset"});
        }
        step(Received{connection, message()});
    }

    void step(const ServerEvent& event) {
        const auto done = server_->step(event, now_);
        std::set<std::uint32_t> ranks;
        std::uint32_t world = 0;
        for (const auto& action : done.actions) {
            if (const auto* send = std::get_if<SendTo>(&action)) {
                for (const auto to : send->connections) MUSTER_CHECK(to != 0 && to <= last_connection_, to);
                if (const auto* assigned = std::get_if<native::Assigned>(&send->message)) {
                    MUSTER_CHECK(ranks.insert(assigned->group_rank).second, assigned->group_rank);
                    MUSTER_CHECK(assigned->group_rank < assigned->group_world_size, assigned->group_rank);
                    MUSTER_CHECK(assigned->group_world_size <= terms_.nodes_max + 1, assigned->group_world_size);
                    world = assigned->group_world_size;
                }
            } else if (const auto* closed = std::get_if<CloseConnection>(&action)) {
                closing_.insert(closed->connection);
            }
        }
        // One Assigned alone may be a repetition; several are a seal, and a seal is whole.
        MUSTER_CHECK(ranks.size() <= 1 || ranks.size() == world, ranks.size(), world);
        for (const auto closed : closing_)
            if (open_.erase(closed) > 0) (void)server_->step(ConnectionEnded{closed, "closed"}, now_);
        closing_.clear();
    }

    Dice dice_;
    Instant now_ = Instant(1000s);
    native::JobTerms terms_;
    std::unique_ptr<Server> server_;
    ConnectionId last_connection_ = 0;
    std::set<ConnectionId> open_;
    std::set<ConnectionId> closing_;
    std::map<std::uint32_t, std::uint32_t> connection_count_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size <= 4096) Mischief(Dice(data, size)).run();
    return 0;
}
