#include "agent/evidence/health_check.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/process/side_process.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Beyond a check's limit, for muster-check to kill it: more than it takes for that.
constexpr Duration slack = 5s;

}  // namespace

void HealthCheck::run(std::optional<Round> last_round, std::function<void(HealthVerdict)> done) {
    drop();
    verdict_ = {HealthVerdict::State::healthy, {}};
    passes_again_ = false;
    variables_ = {cat("MUSTER_JOB=", config_.job), cat("MUSTER_WHEN=", last_round ? "between" : "join"),
                  cat("MUSTER_ROUND=", last_round ? cat(*last_round) : std::string())};
    done_ = std::move(done);
    deadline_ = std::chrono::steady_clock::now() + config_.limit;
    std::error_code failure;
    const bool is_missing = config_.folder_is_usual && !std::filesystem::exists(config_.folder, failure) && !failure;
    if (config_.folder.empty() || is_missing) return begin(true);
    runs_.start({side_program("muster-check"), "--folder", config_.folder}, config_.limit,
                [this](const auto& output) { begin(note_folder(output)); });
}

void HealthCheck::begin(bool has_all) {
    if (!config_.command.empty()) waiting_.push_back({"--health-check", {"/bin/sh", "-c", config_.command}});
    // A check that was taken away cannot pass. One that is refused is still there.
    passes_again_ =
        has_all && !sick_by_.empty() && std::ranges::find(waiting_, sick_by_, &Program::name) == waiting_.end();
    run_next();
}

bool HealthCheck::note_folder(std::string_view output) {
    constexpr std::string_view check = "check ", refused = "refused ", note = "note ";
    bool is_whole = false, has_refused = false;
    for (const auto line : split(output, '\n')) {
        is_whole = is_whole || line == "end";
        if (line.starts_with(check)) waiting_.push_back({std::string(line.substr(check.size())), {}});
        if (line.starts_with(refused)) {
            has_refused = true;
            note_unknown(printable_line(line.substr(refused.size())));
        }
        if (!line.starts_with(note)) continue;
        note_unknown(printable_line(line.substr(note.size())));
        return false;
    }
    if (is_whole) return !has_refused;
    waiting_.clear();
    note_unknown(cat("the checks in ", printable_line(config_.folder), " are not run: no answer within ",
                     muster::describe(config_.limit), " from the directory or a file in it (--health-timeout)"));
    return false;
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
        if (verdict_.state == HealthVerdict::State::unknown && passes_again_)
            verdict_.state = HealthVerdict::State::healthy;
        if (verdict_.state == HealthVerdict::State::healthy) sick_by_.clear();
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
    const auto limit_ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
    const auto runner = side_program("muster-check");
    std::vector<std::string> words{runner, cat(limit_ms), cat(::getpid())};
    // Judged again behind its own limit: others have run since the folder was read.
    if (program.words.empty()) words.insert(words.end(), {runner, "--start", cat(config_.folder, '/', program.name)});
    words.emplace_back("/usr/bin/env");
    words.insert(words.end(), variables_.begin(), variables_.end());
    words.insert(words.end(), program.words.begin(), program.words.end());
    runs_.start(std::move(words), limit + slack, [this, name = std::move(program.name)](const auto& output) {
        auto verdict = read_health(output, muster::describe(config_.limit));
        passes_again_ = passes_again_ || (verdict.state == HealthVerdict::State::healthy && name == sick_by_);
        verdict.why = cat(name, ": ", verdict.why);
        if (verdict.state == HealthVerdict::State::sick) {
            waiting_.clear();
            sick_by_ = name;
            verdict_ = std::move(verdict);
        } else if (verdict.state == HealthVerdict::State::unknown) {
            note_unknown(verdict.why);
        }
        run_next();
    });
}

}  // namespace muster::agent
