#include "agent/evidence/health_check.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "agent/evidence/health_folder.h"
#include "agent/process/side_process.h"
#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Beyond a check's limit, for muster-check to kill it: more than it takes for that.
constexpr Duration slack = 5s;

}  // namespace

void HealthCheck::run(std::optional<Round> last_round, std::function<void(HealthVerdict)> done) {
    drop();
    verdict_ = {HealthVerdict::State::healthy, {}};
    variables_ = {cat("MUSTER_JOB=", config_.job), cat("MUSTER_WHEN=", last_round ? "between" : "join"),
                  cat("MUSTER_ROUND=", last_round ? cat(*last_round) : std::string())};
    if (!config_.folder.empty()) {
        auto found = read_health_folder(config_.folder);
        for (const auto& path : found.programs) waiting_.push_back({std::string(base_name(path)), {}});
        for (const auto& why : found.refused) note_unknown(why);
    }
    if (!config_.command.empty()) waiting_.push_back({"--health-check", {"/bin/sh", "-c", config_.command}});
    done_ = std::move(done);
    deadline_ = std::chrono::steady_clock::now() + config_.limit;
    run_next();
}

Duration HealthCheck::time_left() const {
    return std::chrono::duration_cast<Duration>(deadline_ - std::chrono::steady_clock::now());
}

void HealthCheck::drop() {
    done_ = nullptr;
    waiting_.clear();
    runs_.drop_all();
}

void HealthCheck::note_unknown(const std::string& why) {
    verdict_.state = HealthVerdict::State::unknown;
    verdict_.why += cat(verdict_.why.empty() ? "" : "; ", why);
}

void HealthCheck::run_next() {
    if (waiting_.empty()) {
        if (auto done = std::exchange(done_, nullptr)) done(std::move(verdict_));
        return;
    }
    const auto limit = time_left();
    if (limit <= Duration::zero()) {
        note_unknown(cat(waiting_.front().name, " and what follows it did not run within ",
                         muster::describe(config_.limit), " (--health-timeout)"));
        waiting_.clear();
        return run_next();
    }
    auto program = std::move(waiting_.front());
    waiting_.pop_front();
    if (program.words.empty()) {
        // Others have run since the folder was read.
        auto found = check_to_run(cat(config_.folder, '/', program.name));
        if (!found.refused.empty()) {
            note_unknown(found.refused);
            return run_next();
        }
        program.words = {std::move(found.program)};
    }
    const auto limit_ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
    std::vector<std::string> words{side_program("muster-check"), cat(limit_ms), cat(::getpid()), "/usr/bin/env"};
    for (const char* own : agents_own_variables) words.insert(words.end(), {"-u", own});
    words.insert(words.end(), variables_.begin(), variables_.end());
    words.insert(words.end(), program.words.begin(), program.words.end());
    runs_.start(std::move(words), limit + slack, [this, name = std::move(program.name)](const auto& output) {
        auto verdict = read_health(output, muster::describe(config_.limit));
        verdict.why = cat(name, ": ", verdict.why);
        if (verdict.state == HealthVerdict::State::sick) {
            waiting_.clear();
            verdict_ = std::move(verdict);
        } else if (verdict.state == HealthVerdict::State::unknown) {
            note_unknown(verdict.why);
        }
        run_next();
    });
}

}  // namespace muster::agent
