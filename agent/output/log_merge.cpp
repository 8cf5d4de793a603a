#include "agent/output/log_merge.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <queue>
#include <system_error>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t sentences_max = 100;
constexpr std::string_view was_cut =
    " was cut while it was read, and is read from its beginning; what was cut is missing";

/// A file without an index is of the local rank that its folder is named after.
LogOwner owner_by_folder(const fs::path& path) {
    LogOwner owner;
    const auto name = path.parent_path().filename().string();
    std::from_chars(name.data(), name.data() + name.size(), owner.rank);
    return owner;
}

}  // namespace

Result<void> LogMerge::find() {
    for (const auto& folder : selection_.folders) {
        std::error_code trouble;
        const auto options = fs::directory_options::skip_permission_denied;
        for (auto entry = fs::recursive_directory_iterator(folder, options, trouble);
             !trouble && entry != fs::recursive_directory_iterator(); entry.increment(trouble)) {
            const auto name = entry->path().filename();
            if (!(selection_.out && name == "stdout.log") && !(selection_.err && name == "stderr.log")) continue;
            if (sources_.contains(entry->path().string())) continue;
            auto name_here = entry->path().string().substr(std::min(folder.size() + 1, entry->path().string().size()));
            if (auto opened = open(entry->path().string(), std::move(name_here)); !opened)
                MUSTER_TRY(leave_out(opened.error()));
        }
        // The iterator passes over what it may not read, the folder itself included.
        if (!trouble && ::faccessat(AT_FDCWD, folder.c_str(), R_OK | X_OK, AT_EACCESS) != 0 && errno == EACCES)
            trouble = std::make_error_code(std::errc::permission_denied);
        if (trouble)
            if (auto left_out = leave_out({Errc::invalid_argument, cat(folder, ": ", trouble.message())}); !left_out)
                return left_out;
    }
    if (selection_.last_round && !selection_.round) choose_last_round();
    selection_.last.reset();
    return {};
}

Result<void> LogMerge::open(const std::string& path, std::string name) {
    if (selection_.may_open) MUSTER_TRY(selection_.may_open(name));
    auto reader = MUSTER_TRY(LogReader::open(path, owner_by_folder(path)));
    if (const auto known = selection_.resume.find(name); known != selection_.resume.end())
        reader.resume_at(known->second);
    else if (selection_.since_ns > 0)
        reader.skip_to(selection_.since_ns);
    else if (selection_.round)
        reader.skip_to_round(*selection_.round);
    else if (selection_.last && !selection_.last_round && !selection_.ranks && !selection_.wanted)
        reader.skip_to_last(*selection_.last, selection_.passed_over);
    names_.push_back(std::move(name));
    sources_.emplace(path, Source{.reader = std::move(reader), .number = sources_.size()});
    return {};
}

Result<void> LogMerge::leave_out(const Error& why) {
    if (!selection_.trouble) return why;
    // One that is gone again is missed by nobody.
    if (why.code != Errc::not_found) say(why.context);
    return {};
}

void LogMerge::say(const std::string& sentence) {
    if (said_.size() < sentences_max && said_.insert(sentence).second) selection_.trouble(sentence);
}

void LogMerge::choose_last_round() {
    std::uint64_t round = 0;
    for (const auto& [path, source] : sources_) round = std::max(round, last_round(log_index_path(path)));
    if (sources_.empty()) return;
    selection_.round = round;
    for (auto& [path, source] : sources_)
        if (selection_.since_ns == 0) source.reader.skip_to_round(round);
}

bool LogMerge::wants(const LogLine& line) const {
    if (selection_.ranks && !selection_.ranks->contains(line.owner->rank)) return false;
    if (selection_.round && line.owner->round != *selection_.round) return false;
    const bool is_untimed = selection_.untimed && line.time_ns == 0;
    if (line.time_ns < selection_.since_ns && !is_untimed) return false;
    return !selection_.wanted || selection_.wanted(line);
}

/// The next line of `source` that is wanted.
Result<void> LogMerge::advance(Source& source) {
    for (LogLine line;;) {
        const auto more = source.reader.next(line);
        if (!more) {
            source.line.reset();
            return leave_out({more.error().code, cat(names_[source.number], ": ", more.error().context)});
        }
        if (source.reader.was_cut() && selection_.trouble) say(cat(names_[source.number], was_cut));
        if (!*more || (selection_.round && line.owner->round > *selection_.round)) break;  // Rounds only grow.
        if (!wants(line)) {
            if (selection_.passed_over) selection_.passed_over();
            continue;
        }
        source.line = std::move(line);
        return {};
    }
    source.line.reset();
    return {};
}

/// A line that many ranks print is known to be that of all when those that have not printed yet count. Those of earlier
/// rounds print no more.
void LogMerge::note_ranks() {
    std::uint64_t last = 0;
    for (const auto& [path, source] : sources_)
        if (const auto owner = source.reader.owner()) last = std::max(last, owner->round);
    for (const auto& [path, source] : sources_) {
        const auto owner = source.line ? source.line->owner : source.reader.owner();
        if (!owner || ranks_.contains(owner->rank)) continue;
        if (source.line || (owner->round == last &&
                            wants({.text = {}, .time_ns = std::numeric_limits<std::int64_t>::max(), .owner = owner})))
            ranks_.insert(owner->rank);
    }
}

Result<bool> LogMerge::read(const Sink& sink, std::int64_t until_ns) {
    const auto later = [](const Source* a, const Source* b) { return a->line->time_ns > b->line->time_ns; };
    std::priority_queue<Source*, std::vector<Source*>, decltype(later)> waiting(later);
    for (auto& [path, source] : sources_) {
        source.holds_none = false;
        if (!source.line) MUSTER_TRY(advance(source));
        if (source.line) waiting.push(&source);
    }
    note_ranks();
    while (!waiting.empty()) {
        auto& source = *waiting.top();
        waiting.pop();
        const bool is_early = source.line->time_ns > until_ns;
        if (is_early && !source.holds_none && !std::exchange(source.is_held, true)) continue;
        // Of a clock that is ahead, or of a file that was cut, which has the time of its last write: what is behind
        // the line is early as well, and would wait for one read after the other.
        source.holds_none |= std::exchange(source.is_held, false) && (is_early || source.line->cut_bytes);
        // A chunk's lines stay together.
        for (const auto time_ns = source.line->time_ns; source.line && source.line->time_ns == time_ns;) {
            const bool goes_on = sink(source.number, *std::exchange(source.line, std::nullopt));
            MUSTER_TRY(advance(source));
            if (!goes_on) return false;
        }
        if (source.line) waiting.push(&source);
    }
    return true;
}

void LogMerge::finish(const Sink& sink) {
    for (auto& [path, source] : sources_) {
        LogLine rest;
        if (running_.contains(path)) continue;
        if (source.reader.take_rest(rest) && wants(rest) && !sink(source.number, std::move(rest))) return;
    }
}

}  // namespace muster::agent
