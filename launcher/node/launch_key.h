// The key of a launch in a step of Slurm's whose nodes find none: the first node makes it, and gives it to the others
// in munge credentials over the port of the rendezvous (OPERATING.md, Sources of the secret).
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/process/side_runs.h"
#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/node/node_run.h"
#include "launcher/scheduler/munge_key.h"
#include "rendezvous/base/endpoint.h"

namespace muster::launcher {

/// Completes a configuration that take_key has left with `awaits_key`: config.key is set afterwards. Without munge on
/// the first node it is ~/.muster/key, which that node makes if it does not exist, and another one only uses. `daemons`
/// are the numeric addresses of the endpoint. Blocks until the first node answers, for at most config.join_timeout, or
/// until `is_stopping`, polled every 20 ms; then the key is one that nobody else has.
std::optional<NotLaunched> agree_on_key(LaunchConfig& config, const Environment& environment,
                                        const std::vector<Endpoint>& daemons, const std::function<bool()>& is_stopping);

/// Gives the key of this node's job to the nodes of the step that ask for it. On `loop`'s thread.
class KeyGiver {
  public:
    /// HTTP's status, and the credential or why there is none: 404 without a program munge, or 503 where the same
    /// question may be answered later.
    using Answer = std::function<void(unsigned status, std::string body)>;

    /// Nothing if this node does not serve a step's job, or the job has no key. `loop` outlives it.
    static std::unique_ptr<KeyGiver> make(boost::asio::io_context& loop, const LaunchConfig& config,
                                          const Environment& environment);

    /// One at a time for each source (an address), so that one host does not keep the others waiting.
    void ask(const std::string& source, std::string nonce, Answer answer);

  private:
    struct Question {
        std::string source;
        std::string nonce;
        Answer answer;
    };
    KeyGiver(boost::asio::io_context& loop, MungeKeyTerms terms, std::string key, LaunchKey source)
        : runs_(loop), terms_(std::move(terms)), key_(std::move(key)), source_(source) {}
    void begin_next();
    void answer(const Question& question, const std::string& printed);

    agent::SideRuns runs_;
    MungeKeyTerms terms_;
    const std::string key_;  ///< The text form.
    const LaunchKey source_;
    std::deque<Question> waiting_;
    std::set<std::string> sources_;  ///< Of those that wait, and of those under way.
    std::size_t under_way_ = 0;
};

}  // namespace muster::launcher
