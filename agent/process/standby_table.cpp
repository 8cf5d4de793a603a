#include "agent/process/standby_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::string name_of(const std::string& variable) {
    return variable.substr(0, variable.find('='));
}

/// What the workers of all local ranks have in common.
std::vector<std::string> shared_environment(const WorkerCommand& command) {
    auto variables = lasting_environment(command);
    std::erase_if(variables, [](const auto& variable) { return name_of(variable) == variable_of_a_slot; });
    return variables;
}

/// The first difference that an import may have seen. Empty: none.
std::string difference(const WorkerCommand& standby, const WorkerCommand& worker) {
    if (standby.argv != worker.argv) return "its command differs";
    if (standby.cpus != worker.cpus || standby.memory_nodes != worker.memory_nodes) return "its CPUs differ";
    if (standby.ignored_signal != worker.ignored_signal) return "its ignored signal differs";
    const auto before = shared_environment(standby);
    const auto after = shared_environment(worker);
    std::vector<std::string> changed;
    std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(),
                                  std::back_inserter(changed));
    return changed.empty() ? std::string() : cat("its environment differs in ", name_of(changed.front()));
}

std::string still_importing(Duration age) {
    return cat("its standby process is still importing after ",
               std::chrono::duration_cast<std::chrono::seconds>(age).count(), " s");
}

}  // namespace

std::vector<std::string> lasting_environment(const WorkerCommand& command) {
    auto variables = command.environment;
    const auto passing = variables_of_a_round();
    std::erase_if(variables, [&](const std::string& variable) {
        return std::ranges::find(passing, name_of(variable)) != passing.end();
    });
    std::ranges::sort(variables);
    return variables;
}

StandbyTable::Choice StandbyTable::take(const WorkerCommand& command, Instant now) {
    Choice choice;
    if (count_ == 0) return choice;
    // Its socket is served from the end of `import torch` on, and belongs to a round.
    if (std::ranges::any_of(command.environment,
                            [](const auto& one) { return one.starts_with("MUSTER_TORCH_SOCKET="); }))
        return choice;
    auto& slot = slots_[command.local_rank];
    const bool expected = slot.is_next && command.local_rank < count_;
    slot.worker = command;
    slot.is_next = true;
    make_room(now, choice);
    if (slot.state != State::none)
        if (auto why = difference(slot.standby, command); !why.empty()) discard(slot, std::move(why), choice);
    if (slot.state == State::ready) {
        slot.state = State::none;
        choice.id = std::exchange(slot.id, 0);
        return choice;
    }
    if (slot.state == State::importing)
        choice.why_not = still_importing(now - slot.since);
    else if (!slot.why.empty())
        choice.why_not = std::exchange(slot.why, {});
    else if (expected)
        choice.why_not = "its standby process was not started yet";
    take_from_another(command, choice);
    return choice;
}

void StandbyTable::discard(Slot& slot, std::string why, Choice& choice) {
    slot.state = State::none;
    slot.why = std::move(why);
    choice.discarded.push_back(std::exchange(slot.id, 0));
}

/// One that failed or hangs must not stand in the place of another one for as long as the worker of its own local rank
/// lives: with --on-worker-failure=keep that is the rest of the job.
void StandbyTable::make_room(Instant now, Choice& choice) {
    for (auto& [local_rank, slot] : slots_) {
        if (slot.state == State::failed) slot.state = State::none;
        if (slot.state == State::importing && now - slot.since >= standby_import_max)
            discard(slot, still_importing(now - slot.since), choice);
    }
}

void StandbyTable::take_from_another(const WorkerCommand& command, Choice& choice) {
    for (auto& [local_rank, slot] : slots_) {
        if (slot.state != State::ready) continue;
        if (slot.of_own_slot) {
            if (choice.why_not.empty())
                choice.why_not = cat("the standby process of local rank ", local_rank,
                                     " serves no other one: its imports have read ", variable_of_a_slot);
            continue;
        }
        if (!difference(slot.standby, command).empty()) continue;
        slot.state = State::none;
        choice.id = std::exchange(slot.id, 0);
        choice.why_not.clear();
        return;
    }
}

void StandbyTable::expect(const WorkerCommand& command) {
    auto& slot = slots_[command.local_rank];
    slot.worker = command;
    slot.is_next = true;
}

std::optional<WorkerCommand> StandbyTable::next(Instant now) const {
    if (is_importing(now)) return std::nullopt;
    if (std::ranges::count_if(slots_, [](const auto& one) { return one.second.state != State::none; }) >= count_)
        return std::nullopt;
    for (const auto& [local_rank, slot] : slots_)
        if (slot.is_next && slot.state == State::none) return slot.worker;
    return std::nullopt;
}

bool StandbyTable::is_importing(Instant now) const {
    return std::ranges::any_of(slots_, [now](const auto& one) {
        return one.second.state == State::importing && now - one.second.since < standby_import_max;
    });
}

void StandbyTable::started(std::uint32_t local_rank, std::uint64_t id, Instant now) {
    auto& slot = slots_[local_rank];
    slot.state = State::importing;
    slot.id = id;
    slot.since = now;
    slot.why.clear();
    slot.standby = slot.worker;
}

void StandbyTable::ready(std::uint64_t id, bool of_own_slot) {
    for (auto& [local_rank, slot] : slots_) {
        if (slot.state != State::importing || slot.id != id) continue;
        slot.state = State::ready;
        slot.of_own_slot = of_own_slot;
    }
}

bool StandbyTable::ended(std::uint64_t id, std::string why) {
    for (auto& [local_rank, slot] : slots_) {
        if (slot.id != id) continue;
        slot.state = State::failed;
        slot.id = 0;
        slot.why = std::move(why);
        return true;
    }
    return false;
}

void StandbyTable::lose() {
    for (auto& [local_rank, slot] : slots_) {
        if (slot.id != 0) slot.why = "its standby process ended with the guardian";
        slot.state = State::none;
        slot.id = 0;
    }
}

}  // namespace muster::agent
