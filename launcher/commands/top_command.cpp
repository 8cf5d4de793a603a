#include "launcher/commands/commands.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "launcher/commands/status_command.h"
#include "launcher/commands/status_source.h"
#include "launcher/report/command_output.h"
#include "launcher/status/terminal.h"
#include "launcher/status/top.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view top_usage = R"(usage: muster top [JOB] [--once] [--rdzv-endpoint HOST[:PORT]] [--insecure]
A screen with the jobs of a daemon, their nodes, and what is wrong: who waits for whom, who is lost, how fast the
job steps. JOB is the job's --rdzv-id. Keys: arrows or j and k, enter, esc, / (filter), s (sort), l (logs),
p (stacks), e (events), ? (help), q.
It changes nothing. --once, or without a terminal that has a cursor: the text of muster status, once.
The daemon is at --rdzv-endpoint, default 127.0.0.1:29400. Of another host's daemon with a secret it needs the
secret: set MUSTER_SECRET_FILE. --insecure asks in clear text where no key of this node is accepted.
)";

constexpr Duration top_interval = 1s;

bool can_draw() {
    const char* const term = std::getenv("TERM");
    return ::isatty(STDOUT_FILENO) == 1 && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

/// `unknown` becomes the error if the first page has no such job.
int run_screen(const StatusOptions& options, const StatusSource& source, std::string& unknown) {
    std::optional<StatusPoll> poll;  // It ends after the terminal, which is whole again by then.
    Terminal terminal;
    poll.emplace(source, options.watch.value_or(top_interval));
    Top top(source.name(), options.job, std::chrono::steady_clock::now());
    for (bool had_facts = false;;) {
        terminal.draw(top.screen(Terminal::size(), std::chrono::steady_clock::now()));
        // While there is no answer, the time since the last one goes on.
        const bool is_away = !top.status().trouble.empty();
        const auto deadline = is_away ? std::chrono::steady_clock::now() + top_interval : no_deadline;
        const auto next = terminal.wait(deadline, poll->descriptor());
        if (next == Terminal::Wait::quit) return 128 + terminal.signal();
        if (next == Terminal::Wait::key) {
            if (terminal.key().kind == KeyKind::redraw) terminal.forget();
            if (!top.press(terminal.key(), Terminal::size(), std::chrono::steady_clock::now()))
                return exit_codes::success;
            if (auto words = top.take_command(); !words.empty()) {
                words.insert(words.begin(), "muster");
                words.push_back(cat("--rdzv-endpoint=", options.endpoint));
                if (options.insecure) words.emplace_back("--insecure");
                terminal.run("/proc/self/exe", words);
            }
        }
        if (auto answer = poll->take()) top.take(*std::move(answer), std::chrono::steady_clock::now());
        if (std::exchange(had_facts, top.status().has_facts) || !top.status().has_facts) continue;
        const auto& facts = top.status().reader.facts();
        if (options.job.empty() || options.watch || find_job(facts, printable_line(options.job))) continue;
        unknown = unknown_job(facts, options.job);
        return 1;
    }
}

}  // namespace

int show_top(const StatusOptions& options, const StatusSource& source) {
    std::string unknown;
    const int code = run_screen(options, source, unknown);
    return unknown.empty() ? code : print_error("top", code, unknown);
}

int run_top(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("top", top_usage);
    const auto options = read_status_options("top", arguments);
    if (!options) return print_error("top", exit_codes::usage, options.error().context);
    if (options->once || !can_draw()) return run_status(arguments, environment);
    int code = 0;
    const auto source = find_status_source("top", options->endpoint, options->insecure, environment, code);
    if (!source) return code;
    std::signal(SIGPIPE, SIG_IGN);
    return show_top(*options, *source);
}

}  // namespace muster::launcher
