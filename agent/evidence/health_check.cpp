#include "agent/evidence/health_check.h"

#include <utility>

#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

void HealthCheck::run(std::optional<Round> last_round, std::function<void(HealthVerdict)> done) {
    drop();
    if (config_.command.empty()) return done({HealthVerdict::State::healthy, {}});
    // The inner shell may exit by itself, or be replaced by the check.
    const auto script = cat("echo ", health_begin_line, "; /bin/sh -c \"$1\" 2>&1; code=$?; echo; echo \"",
                            health_exit_line, "$code\"");
    std::vector<std::string> words{"/usr/bin/env"};
    for (const char* name : agents_own_variables) words.insert(words.end(), {"-u", name});
    words.insert(words.end(), {cat("MUSTER_JOB=", config_.job), cat("MUSTER_WHEN=", last_round ? "between" : "join"),
                               cat("MUSTER_ROUND=", last_round ? cat(*last_round) : std::string()), "/bin/sh", "-c",
                               script, "sh", config_.command});
    runs_.start(std::move(words), config_.limit,
                [limit = config_.limit, done = std::move(done)](const std::string& output) {
                    done(read_health(output, muster::describe(limit)));
                });
}

}  // namespace muster::agent
