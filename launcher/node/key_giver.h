// The first node of a step of Slurm's gives its job's key to the other nodes, in munge credentials over the port of the
// rendezvous. launch_key.h has the other end.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "agent/process/side_runs.h"
#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/scheduler/munge_key.h"

namespace muster::launcher {

struct KeyGiverLimits {
    Duration run = munge_limit;
    Duration question = munge_answer_limit;
};

/// Gives the key of this node's job to the nodes of the step that ask for it. On `loop`'s thread.
class KeyGiver {
  public:
    /// HTTP's status, and the credential or why there is none: 404 without a program munge, or 503 where the same
    /// question may be answered later.
    using Answer = std::function<void(unsigned status, std::string body)>;
    /// True once the asker's connection has ended.
    using Gone = std::shared_ptr<const std::atomic<bool>>;

    /// Nothing if this node does not serve a step's job, or the job has no key. `loop` outlives it.
    static std::unique_ptr<KeyGiver> make(boost::asio::io_context& loop, const LaunchConfig& config,
                                          const Environment& environment, KeyGiverLimits limits = {});

    /// One at a time for each source_of(source), so that one host does not keep the others waiting. It starts at most
    /// four munge at one time, and one each 4 ms. It starts none for a question that is older than its asker waits, or
    /// whose asker has gone.
    void ask(const std::string& source, std::string nonce, Gone gone, Answer answer);

  private:
    struct Question {
        std::string source;
        std::string nonce;
        Gone gone;
        Answer answer;
        std::chrono::steady_clock::time_point asked;
    };
    KeyGiver(boost::asio::io_context& loop, MungeKeyTerms terms, std::string key, LaunchKey source,
             KeyGiverLimits limits)
        : runs_(loop), pause_(loop), terms_(std::move(terms)), key_(std::move(key)), source_(source), limits_(limits) {}
    void forget_gone();
    void begin_next();
    void start(Question question);
    void answer(const Question& question, const std::string& printed);

    agent::SideRuns runs_;
    boost::asio::steady_timer pause_;
    bool pauses_ = false;
    MungeKeyTerms terms_;
    const std::string key_;  ///< The text form.
    const LaunchKey source_;
    const KeyGiverLimits limits_;
    std::deque<Question> waiting_;
    std::set<std::string> sources_;  ///< Of those that wait, and of those under way.
    std::size_t under_way_ = 0;
};

}  // namespace muster::launcher
