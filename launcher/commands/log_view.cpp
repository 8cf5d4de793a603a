#include "launcher/commands/log_view.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <queue>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

namespace fs = std::filesystem;
using agent::LineFold;
using agent::LogLine;
using agent::LogOwner;
using agent::LogReader;

constexpr std::size_t batch_bytes = 64 << 10;

Instant instant(std::int64_t time_ns) {
    return Instant(std::chrono::nanoseconds(time_ns));
}

/// "18:02:11.482", in local time.
std::string clock_text(std::int64_t time_ns) {
    const auto seconds = static_cast<std::time_t>(time_ns / 1'000'000'000);
    std::tm parts{};
    char text[32];
    ::localtime_r(&seconds, &parts);
    std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                  static_cast<int>(time_ns / 1'000'000 % 1000));
    return text;
}

/// A file without an index is of the local rank that its folder is named after.
LogOwner owner_by_folder(const fs::path& path) {
    LogOwner owner;
    const auto name = path.parent_path().filename().string();
    std::from_chars(name.data(), name.data() + name.size(), owner.rank);
    return owner;
}

}  // namespace

LogView::LogView(LogRequest request, std::int64_t now_ns)
    : request_(std::move(request)), fold_(LineFold::Limits{.ranks = "ranks"}) {
    if (request_.since) since_ns_ = now_ns - std::chrono::nanoseconds(*request_.since).count();
}

Result<void> LogView::find() {
    for (const auto& folder : request_.folders) {
        std::error_code trouble;
        const auto options = fs::directory_options::skip_permission_denied;
        for (auto entry = fs::recursive_directory_iterator(folder, options, trouble);
             !trouble && entry != fs::recursive_directory_iterator(); entry.increment(trouble)) {
            const auto name = entry->path().filename();
            if (!(request_.out && name == "stdout.log") && !(request_.err && name == "stderr.log")) continue;
            if (sources_.contains(entry->path().string())) continue;
            if (auto opened = open(entry->path().string()); !opened) return opened;
        }
        if (trouble) return Error{Errc::invalid_argument, cat(folder, ": ", trouble.message())};
    }
    if (request_.last_round && !request_.round) choose_last_round();
    return {};
}

Result<void> LogView::open(const std::string& path) {
    auto reader = LogReader::open(path, owner_by_folder(path));
    if (!reader) return reader.error();
    if (since_ns_ > 0) reader->skip_to(since_ns_);
    sources_.emplace(path, Source{.reader = std::move(*reader), .line = {}, .folded = {}, .folded_owner = {}});
    return {};
}

void LogView::choose_last_round() {
    std::uint64_t round = 0;
    for (const auto& [path, source] : sources_) round = std::max(round, agent::last_round(agent::log_index_path(path)));
    request_.round = round;
}

bool LogView::wanted(const LogLine& line) const {
    if (request_.ranks && !request_.ranks->contains(line.owner->rank)) return false;
    if (request_.failed && !request_.failed->ranks.contains({line.owner->round, line.owner->rank})) return false;
    if (request_.round && line.owner->round != *request_.round) return false;
    if (line.time_ns < since_ns_) return false;
    const auto matches = [&](const std::regex& pattern) { return std::regex_search(line.text, pattern); };
    if (!request_.include.empty() && std::ranges::none_of(request_.include, matches)) return false;
    return std::ranges::none_of(request_.exclude, matches);
}

/// The next line of `source` that is wanted.
Result<void> LogView::advance(Source& source) {
    for (LogLine line;;) {
        const auto more = source.reader.next(line);
        if (!more) return more.error();
        if (!*more) break;
        if (!wanted(line)) continue;
        source.line = std::move(line);
        return {};
    }
    source.line.reset();
    return {};
}

Result<bool> LogView::read(std::int64_t now_ns, const Sink& sink) {
    const auto later = [](const Source* a, const Source* b) { return a->line->time_ns > b->line->time_ns; };
    std::priority_queue<Source*, std::vector<Source*>, decltype(later)> waiting(later);
    for (auto& [path, source] : sources_) {
        if (auto advanced = advance(source); !advanced) return advanced.error();
        if (!source.line) continue;
        ranks_.insert(source.line->owner->rank);
        waiting.push(&source);
    }
    while (!waiting.empty()) {
        auto& source = *waiting.top();
        waiting.pop();
        // A chunk's lines stay together.
        for (const auto time_ns = source.line->time_ns; source.line && source.line->time_ns == time_ns;) {
            show(source);
            if (auto advanced = advance(source); !advanced) return advanced.error();
        }
        if (source.line) waiting.push(&source);
        if (text_.size() + fold_.size() >= batch_bytes && !give(sink)) return false;
    }
    if (request_.fold && request_.follow) fold_.show_due(instant(now_ns));
    return give(sink);
}

bool LogView::give(const Sink& sink) {
    const auto text = std::exchange(text_, {}) + fold_.take();
    return text.empty() || sink(text);
}

void LogView::finish(const Sink& sink) {
    for (auto& [path, source] : sources_) {
        LogLine rest;
        if (!source.reader.take_rest(rest) || !wanted(rest)) continue;
        source.line = std::move(rest);
        show(source);
    }
    fold_.show_all(Instant{});
    give(sink);
}

void LogView::show(Source& source) {
    const auto& line = *source.line;
    if (request_.fold) return show_folded(source, instant(line.time_ns));
    if (request_.times) text_ += cat(line.time_ns == 0 ? "--:--:--.---" : clock_text(line.time_ns), " ");
    text_ += cat("[", line.owner->rank, "]: ", line.text, "\n");
}

void LogView::show_folded(Source& source, Instant time) {
    const auto& line = *source.line;
    fold_.show_due(time);
    if (source.folded_owner != line.owner) {
        if (source.folded) fold_.close(*source.folded, time);
        ranks_.insert(line.owner->rank);
        source.folded_owner = line.owner;
        source.folded =
            fold_.open(line.owner->rank, static_cast<std::uint32_t>(ranks_.size()), cat("[", line.owner->rank, "]: "));
    }
    const auto ending = line.is_bar ? LineFold::Ending::carriage_return : LineFold::Ending::newline;
    fold_.add(*source.folded, line.text, ending, time);
}

}  // namespace muster::launcher
