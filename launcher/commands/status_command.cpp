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
#include "launcher/report/command_output.h"
#include "launcher/status/http_get.h"
#include "launcher/status/status_facts.h"
#include "launcher/status/status_text.h"
#include "launcher/status/terminal.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/find_secret.h"
#include "rendezvous/secret/job_key.h"

namespace muster::launcher {

namespace {

constexpr std::string_view status_usage =
    "usage: muster status [JOB] [--watch[=SECONDS]] [--once] [--json] [--plot FILE.svg] [--rdzv-endpoint HOST[:PORT]]\n"
    "Shows the jobs of a daemon, or one job with its nodes, those in trouble first. JOB is the job's --rdzv-id.\n"
    "--watch redraws the screen every 2 s, or every SECONDS, until q or Ctrl-C; without a terminal it prints the\n"
    "text again. --once prints the text once (the default). --json prints the daemon's /status page, of JOB only if "
    "it\n"
    "is given. --plot draws the rounds, failures, checkpoints and steps of JOB over time. The daemon is at "
    "--rdzv-endpoint, default 127.0.0.1:29400. Of another host's daemon with a secret it\n"
    "needs the secret: set MUSTER_SECRET_FILE.\n";

constexpr std::uint16_t usual_port = 29'400;
constexpr Duration page_limit = 5s;
/// A screen must not ignore Ctrl-C for long, and asks again anyway.
constexpr Duration answer_limit_of_watch = 2s;

struct Wish {
    std::string job;
    std::string endpoint = "127.0.0.1";
    std::optional<Duration> watch;  ///< Nothing: once.
    std::string plot;               ///< A file for the picture. Empty: none.
    bool json = false;
};

std::optional<Duration> seconds_in(std::string_view text) {
    double seconds = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (failure != std::errc{} || end != text.data() + text.size() || !(seconds >= 0.1 && seconds <= 3600))
        return std::nullopt;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Result<Wish> read_wish(const std::vector<std::string>& words) {
    Wish wish;
    bool once = false;
    const auto wrong = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
    Result<bool> taken = false;
    for (std::size_t at = 0; at < words.size(); ++at) {
        for (const auto& [name, value] :
             {std::pair{"--rdzv-endpoint", &wish.endpoint}, std::pair{"--plot", &wish.plot}}) {
            taken = take_value(words, at, name, *value);
            if (!taken) return taken.error();
            if (*taken) break;
        }
        if (*taken) continue;
        const std::string_view word = words[at];
        if (word == "--json") {
            wish.json = true;
        } else if (word == "--once") {
            once = true;
        } else if (word == "--watch") {
            wish.watch = 2s;
        } else if (word.starts_with("--watch=")) {
            wish.watch = seconds_in(word.substr(8));
            if (!wish.watch)
                return wrong(
                    cat("--watch: got '", word.substr(8), "'; accepted is a number of seconds from 0.1 to 3600"));
        } else if (word.starts_with('-')) {
            return wrong(cat("unknown option '", word, "' (see muster status --help)"));
        } else if (!wish.job.empty()) {
            return wrong(cat("one job at a time: got '", wish.job, "' and '", word, "'"));
        } else {
            wish.job = word;
        }
    }
    if (once && wish.watch) return wrong("--once and --watch contradict each other; write one of them");
    if (!wish.plot.empty() && wish.watch) return wrong("--plot draws once; leave out --watch");
    return wish;
}

/// The daemon that is asked, and what it said last.
class Source {
  public:
    Source(Endpoint endpoint, std::string token) : endpoint_(std::move(endpoint)), token_(std::move(token)) {}

    /// The /status page, or another one. Errors are sentences without the endpoint.
    Result<std::string> ask(Duration limit, const std::string& target = "/status") const {
        const auto deadline = std::chrono::steady_clock::now() + limit;
        const auto addresses = look_up(endpoint_, deadline);
        if (!addresses) return addresses.error();
        const bool is_near =
            std::ranges::all_of(*addresses, [](const auto& one) { return is_loopback(one.numeric()); });
        auto got = http_get(*addresses, target, is_near ? std::string() : token_, deadline);
        if (!got) return got.error();
        if (got->status == 200) return std::move(got->body);
        if (got->status == 401 && token_.empty())
            return Error{Errc::permission_denied,
                         "it has a secret; set MUSTER_SECRET_FILE to it, or run the command on the daemon's host"};
        return Error{Errc::refused, cat("it answers ", got->status, ": ", printable_line(trim(got->body)))};
    }
    [[nodiscard]] std::string name() const { return describe(endpoint_); }

  private:
    Endpoint endpoint_;
    std::string token_;
};

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

int print_once(const Wish& wish, const Source& source) {
    const auto page = source.ask(page_limit);
    if (!page)
        return print_error("status", 1,
                           cat(source.name(), ": ", page.error().context,
                               "; give --rdzv-endpoint HOST:PORT of musterd, or of the job's first node"));
    const auto facts = read_status_facts(*page);
    if (!facts) return print_error("status", 1, cat(source.name(), ": ", facts.error().context));
    const auto has_job = std::ranges::find(facts->jobs, printable_line(wish.job), &StatusJob::id) != facts->jobs.end();
    if (!wish.job.empty() && !has_job) return print_error("status", 1, unknown_job(*facts, wish.job));
    if (wish.json) return answer("status", cat(json_of(*page, wish.job).value_or("{}"), '\n'));
    // A pipe has no width: nothing is cut there.
    const StatusSize size = ::isatty(STDOUT_FILENO) == 1 ? StatusSize{Terminal::size().columns, 0} : StatusSize{160, 0};
    return answer("status", text_of(status_lines(*facts, printable_line(wish.job), size)));
}

/// Of a job that is over the status page may know nothing any more, but its events are kept.
int plot(const Wish& wish, const Source& source) {
    const auto fail = [&](std::string why) { return print_error("status", 1, cat(source.name(), ": ", why)); };
    const auto page = source.ask(page_limit);
    const auto facts = page ? read_status_facts(*page) : Result<StatusFacts>(page.error());
    if (!facts) return fail(facts.error().context);
    auto job = wish.job;
    if (job.empty() && facts->jobs.size() == 1) job = facts->jobs.front().id;
    if (job.empty()) return fail(unknown_job(*facts, job));
    const auto found = std::ranges::find(facts->jobs, printable_line(job), &StatusJob::id);
    const auto drawn = plot_timeline(job, found == facts->jobs.end() ? std::string() : found->goodput, wish.plot,
                                     [&](const std::string& target) { return source.ask(page_limit, target); });
    return drawn ? answer("status", cat("the timeline of job '", printable_line(job), "' is in ",
                                        printable_line(wish.plot), '\n'))
                 : fail(drawn.error().context);
}

/// Without a terminal: the text again and again.
int print_again(const Wish& wish, const Source& source) {
    for (;;) {
        if (const int code = print_once(wish, source); code == exit_codes::internal) return code;
        std::this_thread::sleep_for(*wish.watch);
    }
}

int watch(const Wish& wish, const Source& source) {
    Terminal terminal;
    std::optional<StatusFacts> facts;
    auto answered_at = std::chrono::steady_clock::now();
    std::string trouble;
    for (;;) {
        const auto asked_at = std::chrono::steady_clock::now();
        auto page = source.ask(answer_limit_of_watch);
        auto read = page ? read_status_facts(*page) : Result<StatusFacts>(page.error());
        if (read) {
            facts = *std::move(read);
            answered_at = std::chrono::steady_clock::now();
            trouble.clear();
        } else {
            trouble = read.error().context;
        }
        for (auto next = Terminal::Wait::redraw; next == Terminal::Wait::redraw;) {
            const auto size = Terminal::size();
            std::vector<StatusLine> lines;
            if (!trouble.empty())
                lines.push_back(
                    no_answer_line(source.name(), std::chrono::steady_clock::now() - answered_at, trouble, size));
            const auto job = printable_line(wish.job);
            const bool has_job = facts && std::ranges::find(facts->jobs, job, &StatusJob::id) != facts->jobs.end();
            if (facts && !wish.job.empty() && !has_job)
                lines.push_back({cut_to(unknown_job(*facts, wish.job), size.columns), LineStyle::attention});
            if (facts)
                for (auto& line :
                     status_lines(*facts, job, {size.columns, size.rows - std::min(size.rows, lines.size())}))
                    lines.push_back(std::move(line));
            terminal.draw(lines);
            next = terminal.wait(asked_at + *wish.watch);
            if (next == Terminal::Wait::quit) return terminal.signal() == 0 ? 0 : 128 + terminal.signal();
        }
    }
}

}  // namespace

int run_status(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("status", status_usage);
    const auto wish = read_wish(arguments);
    if (!wish) return print_error("status", exit_codes::usage, wish.error().context);
    const auto endpoint = parse_endpoint(wish->endpoint, usual_port);
    if (!endpoint) return print_error("status", exit_codes::usage, cat("--rdzv-endpoint: ", endpoint.error().context));
    const auto secret = rendezvous::find_secret(value_of(environment));
    if (!secret) return print_error("status", exit_codes::configuration, secret.error().context);
    const Source source(
        *endpoint, secret->text.empty() ? std::string() : rendezvous::status_token(rendezvous::job_key(*secret, {})));
    std::signal(SIGPIPE, SIG_IGN);
    if (!wish->plot.empty()) return plot(*wish, source);
    if (!wish->watch) return print_once(*wish, source);
    return ::isatty(STDOUT_FILENO) == 1 && !wish->json ? watch(*wish, source) : print_again(*wish, source);
}

}  // namespace muster::launcher
