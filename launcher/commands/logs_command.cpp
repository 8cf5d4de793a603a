#include "launcher/commands/logs_command.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "launcher/commands/log_view.h"
#include "launcher/config/option_values.h"
#include "launcher/report/command_output.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view logs_usage =
    "usage: muster logs DIR... [options]\n"
    "Shows the log files (stdout.log, stderr.log) below DIR, the folder of --log-dir, as one stream in order of time.\n"
    "A line that many ranks print is shown once, then the ranks that printed it.\n"
    "  --rank RANKS       only these ranks, such as 0-7,31\n"
    "  --failed FILE      only workers that ended badly: FILE is the job's report (--report), or has its events\n"
    "  --stream out|err   only this stream\n"
    "  --round N|last     only this round\n"
    "  --since TIME       only the last TIME: 90 (seconds), 10m, 2h\n"
    "  -i, --include RE   only lines that match this regular expression (ECMAScript); may be given again\n"
    "  -e, --exclude RE   without lines that match\n"
    "  -n, --last N       only the last N lines\n"
    "  -f, --follow       go on with what is written from now on, until Ctrl-C\n"
    "  --all              every line of every rank\n"
    "  --times            with the time of each line; implies --all\n";

constexpr auto poll_interval = 100ms;
constexpr std::size_t end_max_bytes = 16 << 20;
constexpr std::size_t failed_file_bytes_max = 64 << 20;
constexpr int polls_between_searches = 5;  ///< For files of workers that have just been started.

std::int64_t now_ns() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Error wrong(std::string why) {
    return {Errc::invalid_argument, std::move(why)};
}

Result<std::set<std::uint32_t>> read_ranks(std::string_view text) {
    constexpr std::int64_t rank_max = 1'000'000;
    std::set<std::uint32_t> ranks;
    for (const std::string_view piece : split(text, ',')) {
        const auto dash = piece.find('-');
        const auto first = whole_number(piece.substr(0, dash), 0, rank_max);
        const auto last = dash == std::string_view::npos ? first : whole_number(piece.substr(dash + 1), 0, rank_max);
        if (!first || !last || *first > *last)
            return wrong(cat("--rank: '", text, "' is no list of ranks such as 0-7,31"));
        for (auto rank = *first; rank <= *last; ++rank) ranks.insert(static_cast<std::uint32_t>(rank));
    }
    return ranks;
}

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
        if (!ranks) return ranks.error();
        request.ranks = std::move(*ranks);
    } else if (option == "--failed") {
        auto failed = read_failed_ranks(read_start_of_file(value, failed_file_bytes_max));
        if (!failed) return wrong(cat("--failed: ", value, ": ", failed.error().context));
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
        const auto age = read_age(value);
        if (!age) return age.error();
        request.since = *age;
    } else if (option == "-n" || option == "--last") {
        const auto lines = whole_number(value, 1, 1'000'000);
        if (!lines) return wrong(cat(option, ": '", value, "' is no number of lines from 1 to 1000000"));
        request.last = static_cast<std::size_t>(*lines);
    } else {
        auto pattern = read_pattern(option, value);
        if (!pattern) return pattern.error();
        (option == "-i" || option == "--include" ? request.include : request.exclude).push_back(std::move(*pattern));
    }
    return {};
}

Result<LogRequest> read_request(const std::vector<std::string>& words) {
    static constexpr std::string_view with_value[] = {"--rank", "--failed", "--stream",  "--round", "--since",  "-n",
                                                      "--last", "-i",       "--include", "-e",      "--exclude"};
    LogRequest request;
    for (std::size_t at = 0; at < words.size(); ++at) {
        std::string word = words[at];
        std::optional<std::string> value;
        if (const auto equals = word.find('='); word.starts_with("--") && equals != std::string::npos) {
            value = word.substr(equals + 1);
            word.resize(equals);
        }
        if (std::ranges::find(with_value, word) != std::end(with_value)) {
            if (!value && at + 1 == words.size()) return wrong(cat(word, " needs a value (see muster logs --help)"));
            if (!value) value = words[++at];
            if (auto taken = read_value(word, *value, request); !taken) return taken.error();
        } else if (!value && (word == "-f" || word == "--follow")) {
            request.follow = true;
        } else if (!value && (word == "--all" || word == "--times")) {
            request.fold = false;
            request.times = request.times || word == "--times";
        } else if (word.starts_with('-')) {
            return wrong(cat("unknown option '", words[at], "' (see muster logs --help)"));
        } else {
            std::error_code trouble;
            if (!std::filesystem::is_directory(word, trouble))
                return wrong(cat("'", word, "' is no folder; write muster logs DIR with the folder of --log-dir"));
            request.folders.push_back(word);
        }
    }
    if (request.folders.empty()) return wrong("the folder is missing; write muster logs DIR");
    return request;
}

/// 0, or the error number of stdout: EPIPE if nobody reads any more.
int print(std::string_view text) {
    while (!text.empty()) {
        const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return errno;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

int exit_code(int error_number) {
    if (error_number == 0 || error_number == EPIPE) return exit_codes::success;
    return print_error(
        "logs", exit_codes::internal,
        cat("stdout takes no more: ", errno_text(error_number), "; the rest of the lines is missing there"));
}

std::string_view last_lines(std::string_view text, std::size_t count) {
    auto from = text.size();
    for (; count > 0 && from > 0; --count) {
        const auto end = from < 2 ? std::string_view::npos : text.rfind('\n', from - 2);
        from = end == std::string_view::npos ? 0 : end + 1;
    }
    return text.substr(from);
}

/// The launcher ignores SIGPIPE: a reader that goes, such as `head`, is seen when it does not take a line, or here.
bool wait_for_more() {
    pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
    ::poll(&out, 1, static_cast<int>(poll_interval / 1ms));
    return (out.revents & (POLLERR | POLLNVAL)) == 0;
}

}  // namespace

int run_logs(const std::vector<std::string>& arguments) {
    if (asks_for_help(arguments)) return answer("logs", logs_usage);
    auto request = read_request(arguments);
    if (!request) return print_error("logs", exit_codes::usage, request.error().context);
    raise_open_files_limit();
    auto last = request->last;
    const bool follow = request->follow;
    const auto folder = request->folders.front();
    LogView view(*request, now_ns());
    std::string end;  // as much as may belong to the last lines
    int trouble = 0;
    const auto sink = [&](std::string_view lines) {
        if (!last) return (trouble = print(lines)) == 0;
        end += lines;
        if (end.size() > end_max_bytes) end = std::string(last_lines(end, *last));
        return true;
    };
    for (int turn = 0;; ++turn) {
        if (turn % polls_between_searches == 0) {
            if (auto found = view.find(); !found) return print_error("logs", exit_codes::usage, found.error().context);
            if (view.file_count() == 0 && !follow)
                return print_error("logs", exit_codes::usage,
                                   cat(folder,
                                       ": no stdout.log or stderr.log below it; give --log-dir and -r 3 or -t 3 "
                                       "to muster, so that the workers' output goes to files"));
        }
        auto wanted = view.read(now_ns(), sink);
        if (!wanted) return print_error("logs", exit_codes::usage, wanted.error().context);
        if (!follow) view.finish(sink);
        if (last) trouble = print(last_lines(end, *last));
        last.reset();
        if (!follow || trouble != 0 || !*wanted || !wait_for_more()) return exit_code(trouble);
    }
}

}  // namespace muster::launcher
