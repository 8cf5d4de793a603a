// Prepares the workers of one round: directories, channels, environments. Collects the files of a failed one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/channel/agent_channel.h"
#include "agent/channel/checkpoint_progress.h"
#include "agent/driver/agent_config.h"
#include "agent/evidence/flight_files.h"
#include "agent/evidence/hang_watcher.h"
#include "agent/evidence/torch_hook.h"
#include "agent/output/log_directory.h"

namespace muster::agent {

class WorkerCommands {
  public:
    /// All three outlive it.
    WorkerCommands(boost::asio::io_context& loop, const AgentConfig& config, LogDirectory& logs)
        : loop_(loop), config_(config), logs_(logs) {}

    /// What these commands mean for the person at the launcher.
    std::function<void(const Event&)> on_event;
    /// What a worker says about being kept (AgentChannel::on_keeping).
    std::function<void(std::uint32_t local_rank, const local::Message&)> on_keeping;

    /// One command for each worker of this node that is not among `kept`, directories made and channels open; those get
    /// Resumed. An error names what could not be made.
    Result<std::vector<WorkerCommand>> make(const native::Assigned& assignment, const std::vector<std::uint32_t>& kept);
    /// The commands of a round that is not known yet, as far as standby processes need them. Empty: they cannot be
    /// made.
    [[nodiscard]] std::vector<WorkerCommand> expected() const;
    /// From now on these workers stay when the round ends: forget_round() leaves their connections open.
    void keep(std::vector<std::uint32_t> local_ranks) { kept_ = std::move(local_ranks); }
    /// The log files of those.
    [[nodiscard]] std::vector<std::string> kept_logs() const;
    /// The command for the worker of `local_rank` once more, the `count`-th time in this round. It gets the snapshots
    /// of its predecessor.
    Result<WorkerCommand> make_again(std::uint32_t local_rank, std::uint32_t count);

    /// Message, paths: what the files of the worker that just failed say. Reads error_file_bytes_max at most. Of one
    /// that a signal ended, which may have kept it from saying more, the failure in its flight record counts as the
    /// message.
    void describe(const WorkerEnded& ended, WorkerNotes& notes) const;

    /// What that worker tells about itself, in words on its channel and in its flight record.
    [[nodiscard]] HangWatcher::WorkerInput told(std::uint32_t local_rank) const;
    /// Of that worker in this round, also after its end.
    [[nodiscard]] StepSample steps_of(std::uint32_t local_rank) const;
    [[nodiscard]] std::uint32_t rank_of(std::uint32_t local_rank) const { return assignment_.rank_base + local_rank; }

    /// Hears all workers before their round's end is judged: who has just said that it can be kept is kept.
    void catch_up();
    /// On every channel that a worker opened, but those of workers that are kept.
    void send_to_all(const local::Message& message);
    void send_to_kept(const local::Message& message);
    /// Nothing of the round's workers is left, and it did not end well: what they gave of their flight records goes
    /// into files beside their logs.
    void keep_flight_records();
    [[nodiscard]] FlightFiles& flight_files() { return flight_files_; }
    /// Of the newest checkpoint in --checkpoint-dir, in this node's memory or on its --checkpoint-local-dir; -1: there
    /// is none.
    [[nodiscard]] std::int64_t checkpoint_step();
    /// What is known of each tier now. After a new save it has a thread look into the checkpoint directory, and a later
    /// call has the answer.
    [[nodiscard]] native::TierSteps tiers();
    /// It is as new as what this node's memory has.
    [[nodiscard]] bool newest_is_on_local_disk();
    /// By local rank: what workers of rounds that ended have given.
    [[nodiscard]] const std::map<std::uint32_t, std::vector<MemoryHandover>>& snapshots() const { return snapshots_; }
    /// Whose output the worker prints in that round.
    [[nodiscard]] LogOwner log_owner(const native::Assigned& assignment, std::uint32_t local_rank) const;
    /// The last round that make() was for.
    [[nodiscard]] Round last_round() const { return last_round_; }
    /// Closes the round's channels. Snapshots of its workers are kept for those of the next round.
    void forget_round();

  private:
    [[nodiscard]] std::int64_t snapshot_step() const;
    [[nodiscard]] std::int64_t local_step();
    void send_progress(const native::Assigned& assignment);
    Result<WorkerCommand> make_one(std::uint32_t local_rank, std::uint32_t again_count);
    [[nodiscard]] WorkerCommand lasting_command(std::uint32_t local_rank, std::vector<std::string> environment) const;
    Result<std::vector<std::string>> make_environment(std::uint32_t local_rank, const WorkerLogs& logs,
                                                      std::uint32_t again_count);
    Result<void> resume(std::uint32_t local_rank);
    [[nodiscard]] bool is_kept(std::uint32_t local_rank) const;
    std::string open_channel(std::uint32_t local_rank);
    void take_gifts(std::uint32_t local_rank);
    void keep_flight_record(std::uint32_t local_rank, const std::string& ending);

    boost::asio::io_context& loop_;
    const AgentConfig& config_;
    LogDirectory& logs_;
    FlightFiles flight_files_;
    TorchHook torch_{config_.workers.environment};
    CheckpointProgress progress_{config_.lease / 5};  // a silence that no agent minds
    CheckpointProgress local_progress_{
        config_.lease / 5, [directory = config_.workers.checkpoint_dir, count = config_.workers.worker_count](
                               const std::string& local) { return newest_local_save(local, directory, count); }};
    native::Assigned assignment_;                                      // of the current round
    std::string ranks_key_;                                            // of the current round; empty: none
    std::string attempt_;                                              // directory of the current round; empty: none
    std::vector<WorkerLogs> workers_;                                  // by local rank, of the current round
    std::vector<ClosingPtr<AgentChannel>> channels_;                   // by local rank; null where none could be opened
    std::vector<std::uint32_t> kept_;                                  // local ranks that stay
    std::map<std::uint32_t, ClosingPtr<AgentChannel>> kept_channels_;  // of those, once their round is forgotten
    Round last_round_ = no_round;
    std::map<std::uint32_t, std::vector<MemoryHandover>>
        snapshots_;                  // by local rank: given in a round before, for the next one's worker
    std::int64_t saved_step_ = -1;   // by rank 0 of this round, when its directory was last looked at
    std::int64_t shared_step_ = -1;  // and what was there
    bool wants_look_ = false;        // It has saved since the last look began.
    bool looks_ = false;             // The answer of that look is to come.
    std::map<std::uint32_t, std::vector<MemoryHandover>> copies_;  // the same of ranks on other nodes
};

}  // namespace muster::agent
