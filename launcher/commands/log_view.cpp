#include "launcher/commands/log_view.h"

#include <algorithm>

namespace muster::launcher {

namespace {

using agent::LogLine;

constexpr std::size_t batch_bytes = 64 << 10;
/// libstdc++ calls itself for each letter: a long line would need more stack than there is.
constexpr std::size_t matched_bytes_max = 8 << 10;

agent::LogSelection selection_of(const LogRequest& request, std::int64_t now_ns) {
    return {.folders = request.folders,
            .ranks = request.ranks,
            .out = request.out,
            .err = request.err,
            .round = request.round,
            .last_round = request.last_round,
            .since_ns = request.since ? now_ns - std::chrono::nanoseconds(*request.since).count() : 0,
            .last = request.last,
            .wanted = line_filter(request)};
}

}  // namespace

bool is_of_nodes(std::string_view host, const std::set<std::string>& nodes) {
    return nodes.empty() || std::ranges::any_of(nodes, [&](const std::string& name) {
               return host.starts_with(name) && (host.size() == name.size() || host[name.size()] == '.');
           });
}

std::function<bool(const LogLine& line)> line_filter(const LogRequest& request) {
    if (request.nodes.empty() && !request.failed && request.include.empty() && request.exclude.empty()) return {};
    return [nodes = request.nodes, failed = request.failed, include = request.include,
            exclude = request.exclude](const LogLine& line) {
        if (!is_of_nodes(line.owner->host, nodes)) return false;
        if (failed && !failed->contains({line.owner->round, line.owner->rank})) return false;
        const auto end = line.text.begin() + static_cast<std::ptrdiff_t>(std::min(line.text.size(), matched_bytes_max));
        // '$' is the end of the line alone.
        const auto flags =
            end == line.text.end() ? std::regex_constants::match_default : std::regex_constants::match_not_eol;
        const auto matches = [&](const std::regex& pattern) {
            return std::regex_search(line.text.begin(), end, pattern, flags);
        };
        if (!include.empty() && std::ranges::none_of(include, matches)) return false;
        return std::ranges::none_of(exclude, matches);
    };
}

LogShow::Form form_of(const LogRequest& request) {
    if (request.fold) return LogShow::Form::folded;
    return request.times ? LogShow::Form::lines_with_times : LogShow::Form::lines;
}

LogView::LogView(const LogRequest& request, std::int64_t now_ns)
    : follow_(request.follow), merge_(selection_of(request, now_ns)), show_(form_of(request)) {}

Result<bool> LogView::read(std::int64_t now_ns, const Sink& sink) {
    const auto show = [&](std::size_t file, const LogLine& line) {
        show_.add(file, line, merge_.ranks().size());
        return show_.size() < batch_bytes || show_.give(sink);
    };
    const auto until_ns = now_ns - agent::LogMerge::write_lag_ns;
    const auto read = follow_ ? merge_.read(show, until_ns) : merge_.read(show);
    if (!read || !*read) return read;
    if (follow_) show_.show_due(until_ns);
    return show_.give(sink);
}

void LogView::finish(const Sink& sink) {
    merge_.finish([&](std::size_t file, const LogLine& line) {
        show_.add(file, line, merge_.ranks().size());
        return true;
    });
    show_.finish();
    show_.give(sink);
}

}  // namespace muster::launcher
