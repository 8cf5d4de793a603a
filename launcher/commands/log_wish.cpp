#include "launcher/commands/log_wish.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <utility>

#include "launcher/commands/command_words.h"
#include "launcher/commands/log_query.h"
#include "launcher/config/option_values.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t failed_file_bytes_max = 64 << 20;
constexpr std::array<std::string_view, 16> line_options{
    "-f",      "--follow", "--all", "--fold", "--times", "--failed",  "--failed-in", "--stream",
    "--round", "--since",  "-n",    "--last", "-i",      "--include", "-e",          "--exclude"};

/// Seconds, or a number with s, m, h or d.
Result<Duration> read_age(std::string_view text) {
    const auto unit = text.empty() ? 's' : text.back();
    const auto factor = unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86400 : 1;
    const bool has_unit = unit == 's' || factor > 1;
    const auto number = seconds(has_unit ? text.substr(0, text.size() - 1) : text);
    constexpr auto most = std::chrono::hours(24 * 3650);
    if (!number || *number > most / factor) return wrong(cat("--since: '", text, "' is no time such as 90, 10m or 2h"));
    return *number * factor;
}

Result<std::regex> read_pattern(std::string_view option, const std::string& text) {
    try {
        return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
        return wrong(cat(option, ": '", text, "' is no regular expression: ", error.what()));
    }
}

Result<void> read_value(std::string_view option, const std::string& value, LogRequest& request) {
    if (option == "--rank") {
        auto ranks = read_ranks(value);
        if (!ranks) return wrong(cat("--rank: '", value, "' is no list of ranks such as 0-7,31, of at most 100,000"));
        request.ranks = std::move(*ranks);
    } else if (option == "--node") {
        for (const auto name : split(value, ',')) {
            if (name.empty()) return wrong(cat("--node: '", value, "' is no list of nodes such as gpu01,gpu02"));
            request.nodes.emplace(name);
        }
    } else if (option == "--failed-in") {
        auto failed = read_failed_ranks(read_start_of_file(value, failed_file_bytes_max));
        if (!failed) return wrong(cat("--failed-in: ", value, ": ", failed.error().context));
        request.failed = std::move(*failed);
    } else if (option == "--stream") {
        if (value != "out" && value != "err") return wrong(cat("--stream: '", value, "' is neither out nor err"));
        request.out = value == "out";
        request.err = value == "err";
    } else if (option == "--round") {
        const auto round = whole_number(value, 0, std::numeric_limits<std::int64_t>::max());
        if (!round && value != "last") return wrong(cat("--round: '", value, "' is neither a round's number nor last"));
        request.last_round = !round;
        if (round) request.round = static_cast<std::uint64_t>(*round);
    } else if (option == "--since") {
        request.since = MUSTER_TRY(read_age(value));
    } else if (option == "-n" || option == "--last") {
        const auto lines = whole_number(value, 1, 1'000'000);
        if (!lines) return wrong(cat(option, ": '", value, "' is no number of lines from 1 to 1000000"));
        request.last = static_cast<std::size_t>(*lines);
    } else {
        auto pattern = MUSTER_TRY(read_pattern(option, value));
        (option == "-i" || option == "--include" ? request.include : request.exclude).push_back(std::move(pattern));
    }
    return {};
}

/// Folders, or one job, if --job has not named it.
Result<void> read_places(const std::vector<std::string>& places, LogWish& wish) {
    if (!wish.job.empty() && !places.empty())
        return wrong(cat("--job names what is shown; leave '", places.front(), "' out"));
    for (const auto& place : places) {
        std::error_code trouble;
        if (std::filesystem::is_directory(place, trouble))
            wish.request.folders.push_back(place);
        else if (places.size() > 1 || place.find('/') != std::string::npos)
            return wrong(
                cat("'", place, "' is no folder; write muster logs with the folders of --log-dir, or one job"));
        else
            wish.job = place;
    }
    if (places.empty() && wish.job.empty())
        return wrong("the job or the folder is missing; write muster logs JOB, or muster logs DIR");
    return {};
}

}  // namespace

Result<LogWish> read_log_wish(const std::vector<std::string>& words) {
    LogWish wish;
    auto& request = wish.request;
    bool all = false, fold = false;
    std::vector<WordOption> options{{"--rdzv-endpoint", &wish.endpoint}, {"--job", &wish.job},
                                    {"--insecure", &wish.insecure},      {"-f", &request.follow},
                                    {"--follow", &request.follow},       {"--all", &all},
                                    {"--times", &request.times},         {"--failed", &wish.failed}};
    options.insert(options.end(), {{"--fold", &fold}, {"--stacks", &wish.stacks}});
    for (const std::string_view name : {"--rank", "--node", "--failed-in", "--stream", "--round", "--since", "-n",
                                        "--last", "-i", "--include", "-e", "--exclude"})
        options.push_back(
            {name, [name, &request](const std::string& value) { return read_value(name, value, request); }});
    const auto places = MUSTER_TRY(read_words("logs", words, options));
    request.fold = (fold || !all) && !request.times;
    MUSTER_TRY(read_places(places, wish));
    request.job = wish.job;
    if (wish.failed && wish.job.empty())
        return wrong(
            "--failed: only a running job's daemon knows who failed; for folders write --failed-in FILE, with the "
            "job's report (--report) or events (--events)");
    if (wish.failed && request.follow)
        return wrong(
            "--failed shows who has failed by now, so that -f has nothing to wait for; leave one of the two out");
    if (wish.stacks && wish.job.empty()) return wrong("--stacks asks the agents of a running job; write JOB");
    for (const auto& word : words)
        if (const auto name = word.substr(0, word.find('=')); wish.stacks && std::ranges::count(line_options, name) > 0)
            return wrong(cat("--stacks shows no lines, among which ", name, " chooses; leave one of the two out"));
    if (!wish.job.empty() && log_target(request).size() > log_target_bytes_max)
        return wrong("--rank: too many single ranks to ask agents for them; give ranges such as 0-999, or fewer ranks");
    return wish;
}

}  // namespace muster::launcher
