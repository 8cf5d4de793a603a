#include "rendezvous/net/action_gate.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::rendezvous {

namespace {

/// Of a waiting step, beside its records and messages.
constexpr std::size_t step_bytes = 256;

bool says_nothing_of_the_state(const ActionGate::Actions& actions) {
    return std::ranges::all_of(actions, [](const ServerAction& action) {
        const auto* send = std::get_if<SendTo>(&action);
        return send != nullptr && (std::holds_alternative<native::Pong>(send->message) ||
                                   std::holds_alternative<native::Challenge>(send->message));
    });
}

/// An agent may wait for it without anything else to do.
bool is_decision(const native::Message& message) {
    return !std::holds_alternative<native::Pong>(message) && !std::holds_alternative<native::Challenge>(message) &&
           !std::holds_alternative<native::Peers>(message) && !std::holds_alternative<native::JobSeen>(message) &&
           !std::holds_alternative<native::CommandAnswer>(message) &&
           !std::holds_alternative<native::FaultOrdered>(message);
}

}  // namespace

void ActionGate::wait(std::uint64_t sequence, Actions actions, std::size_t record_bytes) {
    std::size_t bytes = step_bytes + record_bytes;
    for (const auto& action : actions) {
        const auto* send = std::get_if<SendTo>(&action);
        if (send == nullptr) continue;
        std::string frame;
        native::append_frame(frame, send->message);
        bytes += frame.size() + send->connections.size() * sizeof(ConnectionId);
    }
    waiting_bytes_ += bytes;
    waiting_.push_back({.sequence = sequence, .actions = std::move(actions), .bytes = bytes});
}

ActionGate::Entered ActionGate::enter(Actions actions, bool has_records, std::size_t record_bytes) {
    if (has_records) {
        const std::uint64_t sequence = ++last_sequence_;
        wait(sequence, std::move(actions), record_bytes);
        return {.sequence = sequence, .released = {}};
    }
    if (waiting_.empty() || says_nothing_of_the_state(actions)) return {.sequence = 0, .released = std::move(actions)};
    // It may tell what the steps before it decided, so it waits for the last of them.
    wait(last_sequence_, std::move(actions), 0);
    return {};
}

ActionGate::Actions ActionGate::persisted(std::uint64_t sequence) {
    MUSTER_CHECK(sequence <= last_sequence_, sequence, last_sequence_);
    MUSTER_CHECK(sequence >= persisted_, sequence, persisted_);
    persisted_ = sequence;
    Actions released;
    while (!waiting_.empty() && waiting_.front().sequence <= sequence) {
        auto& actions = waiting_.front().actions;
        std::move(actions.begin(), actions.end(), std::back_inserter(released));
        waiting_bytes_ -= waiting_.front().bytes;
        waiting_.pop_front();
    }
    return released;
}

std::set<ConnectionId> ActionGate::undecided() const {
    std::set<ConnectionId> found;
    for (const auto& step : waiting_)
        for (const auto& action : step.actions)
            if (const auto* send = std::get_if<SendTo>(&action); send != nullptr && is_decision(send->message))
                found.insert(send->connections.begin(), send->connections.end());
    return found;
}

}  // namespace muster::rendezvous
