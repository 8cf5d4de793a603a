#include "launcher/commands/status_command.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "launcher/commands/job_command.h"
#include "launcher/commands/plot_timeline.h"
#include "launcher/commands/status_source.h"
#include "launcher/report/command_output.h"
#include "launcher/status/status_reader.h"
#include "launcher/status/status_text.h"
#include "launcher/status/terminal.h"
#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view status_usage =
    "usage: muster status [JOB] [--watch[=SECONDS]] [--once] [--json] [--plot FILE.svg] [--rdzv-endpoint HOST[:PORT]]\n"
    "                     [--insecure]\n"
    "Shows the jobs of a daemon, or one job with its nodes, those in trouble first. JOB is the job's --rdzv-id.\n"
    "--watch redraws the screen every 2 s, or every SECONDS, until q or Ctrl-C; without a terminal it prints the\n"
    "text again. --once prints the text once (the default). --json prints the daemon's /status page, of JOB only if "
    "it\n"
    "is given. --plot draws the rounds, failures, checkpoints and steps of JOB over time. The daemon is at "
    "--rdzv-endpoint, default 127.0.0.1:29400. Of another host's daemon with a secret it\n"
    "needs the secret: set MUSTER_SECRET_FILE. --insecure asks in clear text where no key of this node is accepted.\n";

constexpr Duration page_limit = 5s;

std::optional<Duration> seconds_in(std::string_view text) {
    double seconds = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (failure != std::errc{} || end != text.data() + text.size() || !(seconds >= 0.1 && seconds <= 3600))
        return std::nullopt;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// The page with one job. Nothing: it has none of that name.
std::optional<std::string> json_of(const std::string& page, const std::string& job) {
    auto read = nlohmann::json::parse(page, nullptr, false);
    if (job.empty() || !read.is_object()) return std::string(trim(page));
    auto& jobs = read["jobs"];
    for (auto at = jobs.begin(); at != jobs.end();) at = at->value("id", "") == job ? std::next(at) : jobs.erase(at);
    if (jobs.empty()) return std::nullopt;
    return read.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const std::vector<StatusLine>& lines) {
    std::string text;
    for (const auto& line : lines) text += cat(line.text, '\n');
    return text;
}

int print_once(const StatusOptions& options, const StatusSource& source) {
    const auto page = source.ask(page_limit);
    if (!page)
        return print_error("status", 1,
                           cat(source.name(), ": ", page.error().context,
                               "; give --rdzv-endpoint HOST:PORT of musterd, or of the job's first node"));
    const auto facts = read_status_facts(*page);
    if (!facts) return print_error("status", 1, cat(source.name(), ": ", facts.error().context));
    if (!options.job.empty() && !has_job(*facts, printable_line(options.job)))
        return print_error("status", 1, unknown_job(*facts, options.job));
    if (options.json) return answer("status", cat(json_of(*page, options.job).value_or("{}"), '\n'));
    // A pipe has no width: nothing is cut there.
    const StatusSize size = ::isatty(STDOUT_FILENO) == 1 ? StatusSize{Terminal::size().columns, 0} : StatusSize{160, 0};
    return answer("status", text_of(status_lines(*facts, printable_line(options.job), size)));
}

/// Of a job that is over the status page may know nothing any more, but its events are kept.
int plot(const StatusOptions& options, const StatusSource& source) {
    const auto fail = [&](std::string why) { return print_error("status", 1, cat(source.name(), ": ", why)); };
    const auto page = source.ask(page_limit);
    const auto facts = page ? read_status_facts(*page) : Result<StatusFacts>(page.error());
    if (!facts) return fail(facts.error().context);
    auto job = options.job;
    if (job.empty() && facts->jobs.size() == 1) job = facts->jobs.front().id;
    if (job.empty()) return fail(unknown_job(*facts, job));
    const auto found = std::ranges::find(facts->jobs, printable_line(job), &StatusJob::id);
    const auto drawn = plot_timeline(job, found == facts->jobs.end() ? std::string() : found->goodput, options.plot,
                                     [&](const std::string& target) { return source.ask(page_limit, target); });
    return drawn ? answer("status", cat("the timeline of job '", printable_line(job), "' is in ",
                                        printable_line(options.plot), '\n'))
                 : fail(drawn.error().context);
}

/// Without a terminal: the text again and again.
int print_again(const StatusOptions& options, const StatusSource& source) {
    for (;;) {
        if (const int code = print_once(options, source); code == exit_codes::internal) return code;
        std::this_thread::sleep_for(*options.watch);
    }
}

Screen screen_of(const StatusOptions& options, const LatestStatus& status, const std::string& daemon) {
    const auto size = Terminal::size();
    std::vector<StatusLine> lines;
    if (!status.trouble.empty())
        lines.push_back(
            no_answer_line(daemon, std::chrono::steady_clock::now() - status.answered_at, status.trouble, size));
    const auto& facts = status.reader.facts();
    const auto job = printable_line(options.job);
    if (status.has_facts && !options.job.empty() && !has_job(facts, job))
        lines.push_back({cut_to(unknown_job(facts, options.job), size.columns), LineStyle::attention});
    if (status.has_facts)
        for (auto& line : status_lines(facts, job, {size.columns, size.rows - std::min(size.rows, lines.size())}))
            lines.push_back(std::move(line));
    return screen_of(lines, size);
}

int watch(const StatusOptions& options, const StatusSource& source) {
    std::optional<StatusPoll> poll;  // It ends after the terminal, which is whole again by then.
    Terminal terminal;
    poll.emplace(source, *options.watch);
    LatestStatus status(std::chrono::steady_clock::now());
    for (;;) {
        const auto next = terminal.wait(no_deadline, poll->descriptor());
        if (next == Terminal::Wait::quit || (next == Terminal::Wait::key && terminal.key() == Key{.text = "q"}))
            return terminal.signal() == 0 ? 0 : 128 + terminal.signal();
        if (auto answer = poll->take()) status.take(*std::move(answer), std::chrono::steady_clock::now());
        terminal.draw(screen_of(options, status, source.name()));
    }
}

}  // namespace

Result<StatusOptions> read_status_options(std::string_view verb, const std::vector<std::string>& words) {
    StatusOptions options;
    const auto wrong = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
    const bool is_status = verb == "status";
    for (std::size_t at = 0; at < words.size(); ++at) {
        auto taken = take_value(words, at, "--rdzv-endpoint", options.endpoint);
        if (taken && !*taken && is_status) taken = take_value(words, at, "--plot", options.plot);
        if (!taken) return taken.error();
        if (*taken) continue;
        const std::string_view word = words[at];
        if (word == "--once") {
            options.once = true;
        } else if (word == "--insecure") {
            options.insecure = true;
        } else if (is_status && word == "--json") {
            options.json = true;
        } else if (is_status && word == "--watch") {
            options.watch = 2s;
        } else if (is_status && word.starts_with("--watch=")) {
            options.watch = seconds_in(word.substr(8));
            if (!options.watch)
                return wrong(
                    cat("--watch: got '", word.substr(8), "'; accepted is a number of seconds from 0.1 to 3600"));
        } else if (word.starts_with('-')) {
            return wrong(cat("unknown option '", word, "' (see muster ", verb, " --help)"));
        } else if (!options.job.empty()) {
            return wrong(cat("one job at a time: got '", options.job, "' and '", word, "'"));
        } else {
            options.job = word;
        }
    }
    if (options.once && options.watch) return wrong("--once and --watch contradict each other; write one of them");
    if (!options.plot.empty() && options.watch) return wrong("--plot draws once; leave out --watch");
    return options;
}

std::optional<StatusSource> find_status_source(std::string_view verb, const StatusOptions& options,
                                               const Environment& environment, int& code) {
    auto source = StatusSource::find(options.endpoint, environment, options.insecure);
    if (source) return *std::move(source);
    const bool is_usage = source.error().code == Errc::invalid_argument;
    code = print_error(verb, is_usage ? exit_codes::usage : exit_codes::configuration, source.error().context);
    return std::nullopt;
}

int run_status(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("status", status_usage);
    const auto options = read_status_options("status", arguments);
    if (!options) return print_error("status", exit_codes::usage, options.error().context);
    int code = 0;
    const auto source = find_status_source("status", *options, environment, code);
    if (!source) return code;
    std::signal(SIGPIPE, SIG_IGN);
    if (!options->plot.empty()) return plot(*options, *source);
    if (!options->watch) return print_once(*options, *source);
    return ::isatty(STDOUT_FILENO) == 1 && !options->json ? watch(*options, *source) : print_again(*options, *source);
}

}  // namespace muster::launcher
