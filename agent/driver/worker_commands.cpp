#include "agent/driver/worker_commands.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/diagnosis/error_file.h"
#include "agent/evidence/flight_sample.h"
#include "agent/output/log_index.h"
#include "agent/process/signal_handlers.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/known_step.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/local/codec.h"

namespace muster::agent {

namespace {

/// Held by a worker that was kept: its output and its error file stay where its process was started.
constexpr std::string_view variable_of_a_process = "TORCHELASTIC_ERROR_FILE";

/// The variables that differ between rounds as Resumed has them. An error: one does not fit.
Result<std::vector<std::string>> round_variables(const std::vector<std::string>& environment) {
    std::vector<std::string> out;
    for (const auto& name : variables_of_a_round()) {
        if (name == variable_of_a_process) continue;
        const auto found =
            std::ranges::find_if(environment, [&](const std::string& one) { return one.starts_with(cat(name, '=')); });
        out.push_back(found == environment.end() ? std::string(name) : *found);
        if (out.back().size() > local::variable_bytes_max)
            return Error{Errc::limit_exceeded,
                         cat("the variable ", name, " has more than ", local::variable_bytes_max, " bytes")};
    }
    return out;
}

}  // namespace

Result<std::vector<WorkerCommand>> WorkerCommands::make(const native::Assigned& assignment,
                                                        const std::vector<std::uint32_t>& kept) {
    send_progress(assignment);
    const auto run = MUSTER_TRY(logs_.run_directory());
    attempt_ = attempt_directory(run, assignment.restart_count);
    assignment_ = assignment;
    wants_look_ = looks_ = false;
    saved_step_ = shared_step_ = -1;  // Another node may have had rank 0 since, and saved more.
    ranks_key_ = config_.ranks_key ? config_.ranks_key(assignment.secret) : std::string();
    if (config_.ranks_key && ranks_key_.empty())
        return Error{Errc::refused, cat("the rendezvous gave no secret for round ", assignment.round,
                                        ", although the job has a key: its daemon probably runs without one. Start the "
                                        "daemon with the job's key (MUSTER_SECRET_FILE)")};
    forget_round();
    workers_.resize(config_.workers.worker_count);
    channels_.resize(config_.workers.worker_count);
    if (torch_.wanted())
        if (auto laid = torch_.lay(run); !laid) log(LogLevel::info, laid.error().context);
    std::vector<WorkerCommand> commands;
    for (std::uint32_t local_rank = 0; local_rank < config_.workers.worker_count; ++local_rank) {
        if (std::ranges::find(kept, local_rank) != kept.end()) {
            MUSTER_TRY(resume(local_rank));
            continue;
        }
        workers_[local_rank] = {};
        commands.push_back(MUSTER_TRY(make_one(local_rank, 0)));
    }
    kept_channels_.clear();
    last_round_ = assignment.round;
    return commands;
}

Result<WorkerCommand> WorkerCommands::make_again(std::uint32_t local_rank, std::uint32_t count) {
    // Not among the records (*.ring) that are compared at the round's end: the new worker's takes that place.
    keep_flight_record(local_rank, cat(".start-", count));
    take_gifts(local_rank);
    return make_one(local_rank, count);
}

Result<WorkerCommand> WorkerCommands::make_one(std::uint32_t local_rank, std::uint32_t again_count) {
    WorkerLogs logs = worker_logs(config_.logs, attempt_,
                                  {.host = config_.supervisor.host,
                                   .role = config_.workers.role,
                                   .rank = assignment_.rank_base + local_rank,
                                   .local_rank = local_rank,
                                   .round = static_cast<std::uint64_t>(assignment_.round)});
    if (!logs.directory.empty()) {
        if (auto made = LogDirectory::make(logs.directory); made.has_error()) return made.error();
        if (last_round_ != no_round)
            LogDirectory::set_aside(logs.error_file, again_count == 0
                                                         ? cat("round-", last_round_)
                                                         : cat("round-", last_round_, "-start-", again_count));
    }
    auto environment = MUSTER_TRY(make_environment(local_rank, logs, again_count));
    workers_[local_rank] = logs;
    auto command = lasting_command(local_rank, std::move(environment));
    command.heading = again_count == 0 ? cat(log_heading, assignment_.round, " ---")
                                       : cat(log_heading, assignment_.round, ", start ", again_count + 1, " ---");
    command.owner = log_owner(assignment_, local_rank);
    command.stdout_plan = std::move(logs.stdout_plan);
    command.stderr_plan = std::move(logs.stderr_plan);
    return command;
}

LogOwner WorkerCommands::log_owner(const native::Assigned& assignment, std::uint32_t local_rank) const {
    return {.round = static_cast<std::uint64_t>(assignment.round),
            .rank = assignment.rank_base + local_rank,
            .host = config_.supervisor.host};
}

/// What of a command is the same in every round.
WorkerCommand WorkerCommands::lasting_command(std::uint32_t local_rank, std::vector<std::string> environment) const {
    const auto& placements = config_.workers.placements;
    const auto placement = placements.empty() ? Placement{} : placements[local_rank];
    WorkerCommand command;
    command.local_rank = local_rank;
    command.argv = worker_argv(config_.workers, local_rank);
    command.environment = std::move(environment);
    command.cpus = placement.cpus;
    command.memory_nodes = placement.memory_nodes;
    command.ignored_signal = ignored_by_workers(config_.workers.preemption_signal);
    return command;
}

std::vector<WorkerCommand> WorkerCommands::expected() const {
    // Such workers get what only a round has, a socket and a hook, so no standby process fits them.
    if (torch_.wanted()) return {};
    // Stands for what a round will set, which standby processes do not look at.
    native::Assigned unknown;
    unknown.store_addresses = {"127.0.0.1"};
    WorkerFiles files;
    files.has_ranks_key = static_cast<bool>(config_.ranks_key);
    std::vector<WorkerCommand> commands;
    for (std::uint32_t local_rank = 0; local_rank < config_.workers.worker_count; ++local_rank) {
        auto environment = worker_environment(config_.workers, unknown, local_rank, files);
        if (environment.has_error()) return {};  // the start in a round reports it
        commands.push_back(lasting_command(local_rank, std::move(environment.value())));
    }
    return commands;
}

/// With a channel that is open.
Result<std::vector<std::string>> WorkerCommands::make_environment(std::uint32_t local_rank, const WorkerLogs& logs,
                                                                  std::uint32_t again_count) {
    const auto snapshot_count = snapshots_[local_rank].size() + copies_[local_rank].size();
    auto agent_socket = open_channel(local_rank);
    const auto& channel = channels_[local_rank];
    return worker_environment(config_.workers, assignment_, local_rank,
                              {.error_file = logs.error_file,
                               .agent_socket = std::move(agent_socket),
                               .has_ranks_key = !ranks_key_.empty(),
                               .agent_token = channel ? channel->token() : "",
                               .snapshot_count = snapshot_count,
                               .torch_hook = torch_.directory(),
                               .torch_socket = torch_.socket(local_rank),
                               .again_count = again_count});
}

/// What a new process finds in its environment, a held one gets by Resumed.
Result<void> WorkerCommands::resume(std::uint32_t local_rank) {
    const auto environment = MUSTER_TRY(make_environment(local_rank, workers_[local_rank], 0));
    auto variables = MUSTER_TRY(round_variables(environment));
    const auto before = std::move(kept_channels_[local_rank]);
    kept_channels_.erase(local_rank);
    if (before) before->send(local::Resumed{std::move(variables)});
    return {};
}

std::vector<std::string> WorkerCommands::kept_logs() const {
    std::vector<std::string> files;
    for (const auto local_rank : kept_) {
        if (local_rank >= workers_.size()) continue;
        for (const auto* plan : {&workers_[local_rank].stdout_plan, &workers_[local_rank].stderr_plan})
            if (!plan->file.empty()) files.push_back(plan->file);
    }
    return files;
}

bool WorkerCommands::is_kept(std::uint32_t local_rank) const {
    return std::ranges::find(kept_, local_rank) != kept_.end();
}

/// At a restart, on one node: all see the same directory.
void WorkerCommands::send_progress(const native::Assigned& assignment) {
    const auto& directory = config_.workers.checkpoint_dir;
    if (last_round_ == no_round || directory.empty() || assignment.group_rank != 0) return;
    const auto newest = progress_.newest(directory);
    const auto on_disk = newest ? cat(directory, '/', newest->folder) : cat("the start: no checkpoint in ", directory);
    const auto disk_step = newest ? newest->step : -1;
    const auto kept = snapshot_step(), local = local_step();
    std::string nearer;
    if (kept > disk_step) nearer = cat("the agents' copy of step ", kept, ", else from ");
    if (local > disk_step) nearer += cat("step ", local, " on the local disks, else from ");
    on_event({.kind = EventKind::checkpoint_loading,
              .text = cat("round ", assignment.round, " resumes from ", nearer, on_disk),
              .facts = {.checkpoint_step = std::max({kept, local, disk_step})},
              .place = EventPlace::notice_and_stream,
              .round = assignment.round});
}

std::int64_t WorkerCommands::local_step() {
    const auto& local = config_.workers.checkpoint_local_dir;
    if (local.empty() || config_.workers.checkpoint_dir.empty()) return -1;
    const auto newest = local_progress_.newest(local);
    return newest ? newest->step : -1;
}

std::int64_t WorkerCommands::snapshot_step() const {
    std::int64_t newest = -1;
    for (const auto& [local_rank, snapshots] : snapshots_) {
        if (!snapshots.empty()) newest = std::max(newest, snapshots.back().step);
    }
    return newest;
}

native::TierSteps WorkerCommands::tiers() {
    native::TierSteps tiers;
    const auto least = [this](std::int64_t WorkerFacts::*step) {
        std::int64_t lowest = channels_.empty() ? -1 : step_max;
        for (const auto& channel : channels_) lowest = std::min(lowest, channel ? channel->facts().*step : -1);
        return lowest;
    };
    tiers.memory = least(&WorkerFacts::snapshot_step);
    tiers.neighbour = least(&WorkerFacts::copy_step);
    if (assignment_.rank_base != 0) return tiers;
    const auto saved = steps_of(0).tally.checkpoint_step;
    const auto& directory = config_.workers.checkpoint_dir;
    const bool has_local = !config_.workers.checkpoint_local_dir.empty();
    if (has_local) tiers.local = saved;
    if (std::exchange(saved_step_, saved) != saved && saved >= 0) {
        if (!has_local) shared_step_ = saved;
        wants_look_ = has_local && !directory.empty();
    }
    // The loop does not wait for a file system. A look that began before the newest save does not count for it.
    if (looks_ && progress_.has_ended()) {
        looks_ = false;
        shared_step_ = progress_.known() ? progress_.known()->step : -1;
    }
    if (wants_look_ && !looks_ && progress_.begin(directory)) {
        wants_look_ = false;
        looks_ = true;
    }
    tiers.shared = shared_step_;
    return tiers;
}

bool WorkerCommands::newest_is_on_local_disk() {
    const auto kept = snapshot_step();
    return kept >= 0 && local_step() >= kept;
}

std::int64_t WorkerCommands::checkpoint_step() {
    const auto& directory = config_.workers.checkpoint_dir;
    const auto newest = directory.empty() ? std::nullopt : progress_.newest(directory);
    return std::max({newest ? newest->step : -1, snapshot_step(), local_step()});
}

/// Its address; empty when there is none. Then a worker runs as usual, unless it uses the runtime and the round's ranks
/// have a key.
std::string WorkerCommands::open_channel(std::uint32_t local_rank) {
    auto channel = AgentChannel::open(loop_, local_rank, std::exchange(snapshots_[local_rank], {}),
                                      std::exchange(copies_[local_rank], {}));
    if (channel.has_error()) {
        log(LogLevel::warning, "local rank ", local_rank,
            " starts without a channel to its agent: ", muster::describe(channel.error()),
            ", most likely because this host has no free descriptors or memory",
            ranks_key_.empty()
                ? "; it runs without snapshots and progress reports"
                : "; it cannot get the key of this round's ranks, so a program that uses muster's runtime fails",
            "; raise the limit (ulimit -n) or free memory, and start the node again");
        return {};
    }
    channels_[local_rank] = std::move(channel.value());
    channels_[local_rank]->set_ranks_key(ranks_key_);
    channels_[local_rank]->on_keeping([this, local_rank](const local::Message& message) {
        if (on_keeping) on_keeping(local_rank, message);
    });
    return channels_[local_rank]->address();
}

/// Closes the channel of a worker that has ended, and keeps its snapshots for the next one in its place.
void WorkerCommands::take_gifts(std::uint32_t local_rank) {
    auto channel = std::exchange(channels_[local_rank], nullptr);
    if (!channel) return;
    snapshots_[local_rank] = channel->take_snapshots();
    copies_[local_rank] = channel->take_copies();
    if (is_kept(local_rank)) kept_channels_[local_rank] = std::move(channel);
}

void WorkerCommands::forget_round() {
    torch_.remove();
    for (std::uint32_t local_rank = 0; local_rank < channels_.size(); ++local_rank) take_gifts(local_rank);
    channels_.clear();
}

void WorkerCommands::catch_up() {
    for (std::size_t local_rank = 0; local_rank < channels_.size(); ++local_rank)
        if (channels_[local_rank]) channels_[local_rank]->catch_up();
}

void WorkerCommands::send_to_all(const local::Message& message) {
    for (std::uint32_t local_rank = 0; local_rank < channels_.size(); ++local_rank)
        if (channels_[local_rank] && !is_kept(local_rank)) channels_[local_rank]->send(message);
    // Of workers that were held and are released.
    for (const auto& [local_rank, channel] : kept_channels_)
        if (!is_kept(local_rank)) channel->send(message);
}

void WorkerCommands::send_to_kept(const local::Message& message) {
    for (const auto local_rank : kept_)
        if (local_rank < channels_.size() && channels_[local_rank]) channels_[local_rank]->send(message);
}

void WorkerCommands::keep_flight_records() {
    for (std::uint32_t local_rank = 0; local_rank < channels_.size(); ++local_rank)
        keep_flight_record(local_rank, ".ring");
}

void WorkerCommands::keep_flight_record(std::uint32_t local_rank, const std::string& ending) {
    const auto& channel = channels_[local_rank];
    const int memory = channel ? channel->gift(local::HandoverKind::flight_record) : -1;
    if (memory < 0 || attempt_.empty()) return;
    const auto path = cat(attempt_, "/flight_", assignment_.rank_base + local_rank, ending);
    if (auto kept = flight_files_.keep(memory, path); !kept) log(LogLevel::warning, kept.error().context);
}

HangWatcher::WorkerInput WorkerCommands::told(std::uint32_t local_rank) const {
    if (local_rank >= channels_.size() || !channels_[local_rank]) return {};
    const auto& channel = *channels_[local_rank];
    const int memory = channel.gift(local::HandoverKind::flight_record);
    const auto& facts = channel.facts();
    const auto& directory = workers_[local_rank].directory;
    return {.section = facts.section,
            .section_limit = facts.section_limit,
            .heartbeats = facts.heartbeats,
            .operation = memory < 0 ? std::nullopt : sample_flight_record(memory),
            .steps = steps_of(local_rank),
            .sections = facts.sections_at(std::chrono::steady_clock::now()),
            .torch_socket = torch_.socket(local_rank),
            .torch_file = directory.empty() ? std::string() : cat(directory, "/torch_flight.json")};
}

/// By its record, else by its messages.
StepSample WorkerCommands::steps_of(std::uint32_t local_rank) const {
    if (local_rank >= channels_.size() || !channels_[local_rank]) return {};
    const auto& channel = *channels_[local_rank];
    const int memory = channel.step_record();
    auto sample = (memory < 0 ? std::nullopt : sample_step_record(memory)).value_or(StepSample{});
    const auto& facts = channel.facts();
    if (sample.last_step >= 0 || !facts.step) return sample;
    sample.last_step = *facts.step;
    sample.last_at = facts.stepped_at;
    sample.tally.first_step = *facts.first_step;
    sample.tally.step_count =
        static_cast<std::uint64_t>(std::max<std::int64_t>(*facts.step - *facts.first_step, 0)) + 1;
    return sample;
}

void WorkerCommands::describe(const WorkerEnded& ended, WorkerNotes& notes) const {
    const auto local_rank = ended.local_rank;
    if (local_rank >= workers_.size()) return;
    if (std::holds_alternative<Signaled>(ended.end) && local_rank < channels_.size() && channels_[local_rank])
        notes.message = flight_failure(channels_[local_rank]->gift(local::HandoverKind::flight_record));
    if (const auto last = steps_of(local_rank).last_step; last >= 0) {
        const auto& section = channels_[local_rank]->facts().section;
        notes.stepped = true;
        log(LogLevel::info, "local rank ", local_rank, " had done step ", last, section.empty() ? "" : " and was in ",
            section);
    }
    const WorkerLogs& logs = workers_[local_rank];
    // With neither -r nor -t nor an error file there is nothing to be found in it.
    std::error_code failure;
    if (!logs.directory.empty() && !std::filesystem::is_empty(logs.directory, failure) && !failure)
        notes.log_directory = logs.directory;
    if (!std::filesystem::exists(logs.error_file, failure)) return;
    // One byte more than is allowed, so that a longer file is known as one.
    const auto text = read_start_of_file(logs.error_file, error_file_bytes_max + 1);
    notes.error_file = logs.error_file;
    auto error = parse_error_file(text);
    notes.message = std::move(error.message);
    // The exception's own time, unless that worker's clock is no clock.
    if (error.timestamp_s > 0 && error.timestamp_s <= notes.wall_time_s) notes.wall_time_s = error.timestamp_s;
}

}  // namespace muster::agent
