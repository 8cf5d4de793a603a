#include "launcher/commands/commands.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "agent/output/log_files.h"
#include "launcher/commands/failed_ranks.h"
#include "launcher/commands/followed_job.h"
#include "launcher/commands/job_events.h"
#include "launcher/commands/job_logs.h"
#include "launcher/commands/job_stacks.h"
#include "launcher/commands/log_view.h"
#include "launcher/commands/log_wish.h"
#include "launcher/commands/status_command.h"
#include "launcher/report/command_output.h"
#include "launcher/status/status_reader.h"
#include "launcher/status/status_text.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/control_key.h"

namespace muster::launcher {

namespace {

constexpr std::string_view logs_usage = R"(usage: muster logs JOB [--rdzv-endpoint HOST[:PORT]] [options]
       muster logs DIR... [options]
Shows the log files (stdout.log, stderr.log) of all workers as one stream in order of time: of a running job, from
the agents of all of its nodes (start it with --log-dir DIR and -r 3 or -t 3), or those below DIR, the folder of
--log-dir. JOB is the job's --rdzv-id. The daemon at --rdzv-endpoint, default 127.0.0.1:29400, says where the
agents are; on other hosts than theirs it takes the job's secret: set MUSTER_SECRET_FILE.
A line that many ranks print is shown once, then the ranks that printed it.
  --job JOB          the job, also where there is a folder of its name here
  --rank RANKS       only these ranks, such as 0-7,31
  --node NAMES       only these nodes, such as gpu01,gpu02
  --failed           only workers of a running job that have failed by now, in the rounds in which they did
  --failed-in FILE   the same by FILE, which is the job's report (--report), or has its events (--events)
  --stream out|err   only this stream
  --round N|last     only this round; -f stays with the one that is the last at its start
  --since TIME       only the last TIME: 90 (seconds), 10m, 2h
  -i, --include RE   only lines that match this regular expression (ECMAScript); may be given again
  -e, --exclude RE   without lines that match
  -n, --last N       only the last N lines, of what is written at the start; of a rank no more than its last N
  -f, --follow       go on with what is written from now on, until Ctrl-C
  --all              every line of every rank; --fold overrides it
  --stacks           in place of lines, the frames of a running job's workers (of --rank and --node): where they are;
                     equal ones once
  --times            with the time of each line; implies --all
  --insecure         ask other hosts in clear text where no key of this node is accepted
A line that comes after later ones, because its node was slow, begins with '~'.
)";

constexpr auto poll_interval = 100ms;
constexpr std::size_t end_max_bytes = 16 << 20;
constexpr Duration daemon_limit = 5s;
constexpr Duration wait_for_lines = 50ms;
constexpr std::size_t names_shown_max = 20;
constexpr int polls_between_searches = 5;  ///< For files of workers that have just been started.

/// 0, or the error number of stdout: EPIPE if nobody reads any more.
int print(std::string_view text) {
    return write_whole(STDOUT_FILENO, text) ? 0 : errno;
}

int exit_code(int error_number) {
    if (error_number == 0 || error_number == EPIPE) return exit_codes::success;
    return print_error(
        "logs", exit_codes::internal,
        cat("stdout takes no more: ", errno_text(error_number), "; the rest of the lines is missing there"));
}

std::string_view last_lines(std::string_view text, std::size_t count) {
    auto from = text.size();
    while (count > 0 && from > 0) {
        const auto end = from < 2 ? std::string_view::npos : text.rfind('\n', from - 2);
        from = end == std::string_view::npos ? 0 : end + 1;
        if (!text.substr(from).starts_with("  [")) --count;  // "  [same from ranks 1-3]" goes with the line before.
    }
    return text.substr(from);
}

/// A reader that goes, such as `head`, is seen when it does not take a line, or here.
bool wait_for_more(Duration time) {
    pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
    ::poll(&out, 1, static_cast<int>(time / 1ms));
    return (out.revents & (POLLERR | POLLNVAL)) == 0;
}

/// Prints lines as they come, or the last ones of the first read.
class LinePrinter {
  public:
    explicit LinePrinter(std::optional<std::size_t> last) : last_(last) {}

    bool take(std::string_view lines) {
        if (!last_) return (trouble_ = print(lines)) == 0;
        end_ += lines;
        if (end_.size() > cut_beyond_) {
            end_ = std::string(last_lines(end_, *last_));
            // The last lines may be more than that: each byte is looked at once or twice, not with every batch.
            cut_beyond_ = std::max(end_max_bytes, 2 * end_.size());
        }
        return true;
    }
    /// The first read is over.
    void first_read() {
        if (last_) trouble_ = print(last_lines(end_, *last_));
        last_.reset();
    }
    [[nodiscard]] int trouble() const { return trouble_; }

  private:
    std::optional<std::size_t> last_;
    std::string end_;  ///< As much as may belong to the last lines.
    std::size_t cut_beyond_ = end_max_bytes;
    int trouble_ = 0;
};

int show_folders(const LogRequest& request) {
    LinePrinter printer(request.last);
    const auto sink = [&](std::string_view lines) { return printer.take(lines); };
    LogView view(request, agent::log_time_ns());
    for (int turn = 0;; ++turn) {
        if (turn % polls_between_searches == 0) {
            if (auto found = view.find(); !found) return print_error("logs", exit_codes::usage, found.error().context);
            if (view.file_count() == 0 && !request.follow)
                return print_error("logs", exit_codes::usage,
                                   cat(request.folders.front(),
                                       ": no stdout.log or stderr.log below it; give --log-dir and -r 3 or -t 3 "
                                       "to muster, so that the workers' output goes to files"));
        }
        auto wanted = view.read(agent::log_time_ns(), sink);
        if (!wanted) return print_error("logs", exit_codes::usage, wanted.error().context);
        if (!request.follow) view.finish(sink);
        printer.first_read();
        if (!request.follow || printer.trouble() != 0 || !*wanted || !wait_for_more(poll_interval))
            return exit_code(printer.trouble());
    }
}

/// The names of the jobs that there are, where this one is not among them; else what the daemon answered.
Error explained(Error answer, const std::string& job, const StatusSource& source) {
    const auto page = answer.code == Errc::not_found ? source.ask(daemon_limit) : Result<std::string>(answer);
    const auto facts = page ? read_status_facts(*page) : Result<StatusFacts>(page.error());
    if (facts && !find_job(*facts, printable_line(job))) return {Errc::not_found, unknown_job(*facts, job)};
    return answer;
}

Result<JobAgents> ask_for_agents(const std::string& job, const StatusSource& source) {
    const auto answer = source.ask(daemon_limit, agents_page(job));
    if (!answer) return explained(answer.error(), job, source);
    return read_job_agents(*answer);
}

/// More nodes are wanted than can be read at once.
std::string too_many_nodes(const JobAgents& agents, const std::set<std::string>& names) {
    const auto count =
        std::ranges::count_if(agents.agents, [&](const auto& agent) { return is_of_nodes(agent.host, names); });
    if (static_cast<std::size_t>(count) <= JobLogs::nodes_max) return {};
    return cat("these are ", count, " nodes, and ", JobLogs::nodes_max,
               " can be read at once; name some by --node, or run muster logs DIR on the nodes");
}

/// The nodes of the job, where one of the names is none of them.
std::string unknown_nodes(const JobAgents& agents, const std::set<std::string>& names) {
    std::set<std::string> hosts;
    for (const auto& agent : agents.agents) hosts.insert(agent.host);
    for (const auto& name : names) {
        if (std::ranges::any_of(hosts, [&](const auto& host) { return is_of_nodes(host, {name}); })) continue;
        std::vector<std::string> shown;
        for (const auto& host : hosts)
            if (shown.size() < names_shown_max) shown.push_back(printable_line(host));
        return cat("--node: the job has no node '", printable_line(name), "' now", shown.empty() ? "" : "; it has ",
                   join(shown, ", "),
                   hosts.size() > shown.size() ? cat(" and ", hosts.size() - shown.size(), " more") : "");
    }
    return {};
}

void tell(const std::string& sentence) {
    print_error("logs", 1, sentence);
}

int show_lines(const LogWish& wish, const StatusSource& source, const JobAgents& agents, std::vector<Way> ways) {
    LinePrinter printer(wish.request.last);
    const auto sink = [&](std::string_view lines) { return printer.take(lines); };
    JobLogs logs(wish.request, std::move(ways), tell);
    logs.meet(agents);
    std::optional<FollowedJob> followed;
    if (wish.request.follow) followed.emplace(source, wish.job, agents.agents.size(), tell);
    while (logs.read(sink, wait_for_lines) && wait_for_more(Duration::zero())) {
        // Without -f, lines that are still held back belong to the last ones, too.
        if (followed && logs.has_history()) printer.first_read();
        if (printer.trouble() != 0 || (followed ? !followed->goes_on(logs) : logs.open_count() == 0)) break;
    }
    if (printer.trouble() == 0) logs.finish(sink);
    printer.first_read();
    const bool has_all =
        followed && logs.may_go_on() ? logs.cut_off_count() == 0 && !logs.has_missed_round() : !logs.has_failed();
    const bool is_whole = printer.trouble() == EPIPE || has_all;
    const int code = exit_code(printer.trouble());
    return code == 0 && !is_whole ? 1 : code;
}

Result<FailedRanks> ask_who_failed(const std::string& job, const StatusSource& source) {
    const auto events = MUSTER_TRY(job_events(job, source));
    return events.empty() ? FailedRanks{} : read_failed_ranks(events);
}

int show_stacks(const LogWish& wish, const JobAgents& agents, const std::vector<Way>& ways) {
    bool has_all = true;
    int trouble = 0;
    job_stacks(
        wish.request, agents, ways, [&](std::string_view text) { return (trouble = print(text)) == 0; },
        [&](const auto& sentence) {
            tell(sentence);
            has_all = false;
        });
    const int code = exit_code(trouble);
    return code == 0 && !has_all ? 1 : code;
}

int show_job(LogWish wish, const Environment& environment) {
    int code = 0;
    const auto source = find_status_source("logs", wish.endpoint, wish.insecure, environment, code);
    if (!source) return code;
    auto ways = find_ways(environment, wish.job, rendezvous::logs_key, wish.insecure);
    if (!ways) return print_error("logs", exit_codes::configuration, ways.error().context);
    const auto agents = ask_for_agents(wish.job, *source);
    if (!agents)
        return print_error("logs", 1,
                           cat(source->name(), ": ", agents.error().context,
                               "; of a job that is over, muster logs DIR shows the files"));
    if (agents->is_over) return print_error("logs", 1, "the job is over; muster logs DIR shows the files");
    if (agents->agents.empty() && !wish.request.follow)
        return print_error("logs", 1,
                           wish.stacks ? "no node of the job is in a round, so that no worker runs now"
                                       : "no node of the job is in a round, so that there are no lines to show now; -f "
                                         "waits for the next round, and muster logs DIR shows the files");
    if (const auto trouble = wish.stacks ? std::string() : too_many_nodes(*agents, wish.request.nodes);
        !trouble.empty())
        return print_error("logs", 1, trouble);
    if (auto unknown = unknown_nodes(*agents, wish.request.nodes); !unknown.empty()) {
        if (!wish.request.follow) return print_error("logs", 1, unknown);
        tell(cat(unknown, "; its lines come when it joins"));
    }
    if (wish.failed) {
        auto failed = ask_who_failed(wish.job, *source);
        if (!failed) return print_error("logs", 1, cat("--failed: ", source->name(), ": ", failed.error().context));
        if (failed->empty())
            return print_error("logs", 1,
                               "no worker of the job has failed, as far as this daemon knows since its start");
        wish.request.failed = std::move(*failed);
    }
    if (wish.stacks) return show_stacks(wish, *agents, *ways);
    return show_lines(wish, *source, *agents, *std::move(ways));
}

}  // namespace

int run_logs(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("logs", logs_usage);
    const auto wish = read_log_wish(arguments);
    if (!wish) return print_error("logs", exit_codes::usage, wish.error().context);
    raise_open_files_limit();
    std::signal(SIGPIPE, SIG_IGN);
    return wish->job.empty() ? show_folders(wish->request) : show_job(*wish, environment);
}

}  // namespace muster::launcher
