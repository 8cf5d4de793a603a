#include "launcher/commands/status_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "launcher/commands/command_words.h"
#include "launcher/commands/job_events.h"
#include "launcher/commands/status_source.h"
#include "launcher/config/option_values.h"
#include "launcher/report/command_output.h"
#include "launcher/status/status_reader.h"
#include "launcher/status/status_text.h"
#include "launcher/status/terminal.h"
#include "launcher/status/timeline.h"
#include "launcher/status/timeline_svg.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view status_usage =
    "usage: muster status [JOB] [--watch[=SECONDS]] [--once] [--json] [--plot FILE.svg] [--events [--node HOST]]\n"
    "                     [--rdzv-endpoint HOST[:PORT]] [--insecure]\n"
    "Shows the jobs of a daemon, or one job with its nodes, those in trouble first. JOB is the job's --rdzv-id.\n"
    "--watch shows the screen of muster top, with news every 2 s, or every SECONDS; without a terminal it prints the\n"
    "text again. --once prints the text once (the default). --json prints the daemon's /status page, of JOB only if "
    "it\n"
    "is given. --plot draws the rounds, failures, checkpoints and steps of JOB over time. --events lists what happened "
    "to\n"
    "JOB, or to its node HOST; with --json as the daemon has it. --job JOB is the same as JOB. The daemon is at "
    "--rdzv-endpoint, default 127.0.0.1:29400. Of another host's daemon with a secret it\n"
    "needs the secret: set MUSTER_SECRET_FILE. --insecure asks in clear text where no key of this node is accepted.\n";

constexpr Duration page_limit = 5s;

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

/// Of a job that is over, /status knows nothing any more, but its events are kept for a while.
std::string absent_job(const std::string& job, const StatusFacts& facts, const StatusSource& source) {
    const auto lines = job_events(job, source);
    const auto text = lines ? events_text(*lines) : std::string();
    if (text.empty()) return unknown_job(facts, job);
    const auto last = trim(text);
    return cat("job '", printable_line(job),
               "' does not run; the last that is known of it: ", last.substr(last.rfind('\n') + 1),
               "; write --events to see all");
}

int print_once(const StatusOptions& options, const StatusSource& source) {
    const auto page = source.ask(page_limit);
    if (!page)
        return print_error("status", 1,
                           cat(source.name(), ": ", page.error().context,
                               "; give --rdzv-endpoint HOST:PORT of musterd, or of the job's first node"));
    const auto facts = read_status_facts(*page);
    if (!facts) return print_error("status", 1, cat(source.name(), ": ", facts.error().context));
    if (!options.job.empty() && !find_job(*facts, printable_line(options.job)))
        return print_error("status", 1, absent_job(options.job, *facts, source));
    if (options.json) return answer("status", cat(json_of(*page, options.job).value_or("{}"), '\n'));
    // A pipe has no width: nothing is cut there.
    const auto columns = ::isatty(STDOUT_FILENO) == 1 ? Terminal::size().columns : std::string::npos;
    return answer("status", text_of(status_lines(*facts, printable_line(options.job), columns)));
}

/// Draws or lists them. Of a job that is over the status page may know nothing any more, but its events are kept.
int show_events(const StatusOptions& options, const StatusSource& source) {
    const auto fail = [&](std::string why) { return print_error("status", 1, cat(source.name(), ": ", why)); };
    const auto page = source.ask(page_limit);
    const auto facts = page ? read_status_facts(*page) : Result<StatusFacts>(page.error());
    if (!facts) return fail(facts.error().context);
    auto job = options.job;
    if (job.empty() && facts->jobs.size() == 1) job = facts->jobs.front().id;
    if (job.empty()) return fail(unknown_job(*facts, job));
    const auto found = std::ranges::find(facts->jobs, printable_line(job), &StatusJob::id);
    const auto lines = job_events(job, source);
    const bool is_unknown = !lines && lines.error().code == Errc::not_found && found == facts->jobs.end();
    if (!lines) return fail(is_unknown ? unknown_job(*facts, job) : lines.error().context);
    if (options.events) {
        const auto shown = options.node.empty() ? *lines : events_of_node(*lines, options.node);
        if (shown.empty() && !options.node.empty())
            return fail(cat("no events of node '", printable_line(options.node), "'; leave out --node to see all"));
        return answer("status", options.json ? shown : events_text(shown));
    }
    const auto timeline = read_timeline(*lines, std::chrono::system_clock::now().time_since_epoch());
    if (!timeline) return fail(timeline.error().context);
    const auto goodput = found == facts->jobs.end() ? std::string() : found->goodput;
    const auto drawn = write_file(options.plot, timeline_svg(*timeline, printable_line(job), goodput));
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

}  // namespace

Result<StatusOptions> read_status_options(std::string_view verb, std::vector<std::string> words) {
    StatusOptions options;
    const auto take_watch = [&](const std::string& value) -> Result<void> {
        options.watch = seconds(value);
        if (options.watch && *options.watch >= 100ms && *options.watch <= 1h) return {};
        return wrong(cat("--watch: got '", value, "'; accepted is a number of seconds from 0.1 to 3600"));
    };
    std::vector<WordOption> known{
        {"--rdzv-endpoint", &options.endpoint}, {"--once", &options.once}, {"--insecure", &options.insecure}};
    if (verb == "status") {
        known.insert(known.end(), {{"--job", &options.job},
                                   {"--node", &options.node},
                                   {"--plot", &options.plot},
                                   {"--json", &options.json},
                                   {"--events", &options.events},
                                   {"--watch", take_watch}});
        std::ranges::replace(words, "--watch", "--watch=2");  // Its value is optional, and joined.
    }
    auto jobs = MUSTER_TRY(read_words(verb, words, known));
    if (!options.job.empty()) jobs.push_back(options.job);
    if (jobs.size() > 1) return wrong(cat("one job at a time: got '", jobs[0], "' and '", jobs[1], "'"));
    if (!jobs.empty()) options.job = jobs.front();
    if (options.once && options.watch) return wrong("--once and --watch contradict each other; write one of them");
    const bool shows_events = options.events || !options.plot.empty();
    if (shows_events && options.watch) return wrong("--plot and --events look once; leave out --watch");
    if (options.events && !options.plot.empty()) return wrong("--plot draws and --events lists; write one of them");
    if (!options.node.empty() && !options.events) return wrong("--node chooses among events; write --events, too");
    return options;
}

std::optional<StatusSource> find_status_source(std::string_view verb, const std::string& endpoint, bool insecure,
                                               const Environment& environment, int& code) {
    auto source = StatusSource::find(endpoint, environment, insecure);
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
    const auto source = find_status_source("status", options->endpoint, options->insecure, environment, code);
    if (!source) return code;
    std::signal(SIGPIPE, SIG_IGN);
    if (options->events || !options->plot.empty()) return show_events(*options, *source);
    if (!options->watch) return print_once(*options, *source);
    return ::isatty(STDOUT_FILENO) == 1 && !options->json ? show_top(*options, *source)
                                                          : print_again(*options, *source);
}

}  // namespace muster::launcher
