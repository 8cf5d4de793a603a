#include "launcher/drain_command.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "agent/command_address.h"
#include "launcher/complaint.h"
#include "launcher/daemon_command.h"
#include "launcher/exit_code.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/job_secret.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

constexpr std::string_view usage =
    "usage: muster drain NODE [--job ID] [--rdzv-endpoint HOST[:PORT]]\n"
    "NODE (HOST, or HOST:PID where several agents are on one host) stops its workers, with their grace, and leaves "
    "the\n"
    "job, which goes on elsewhere. To be given on any node of the job, by its user or by root. The id (--rdzv-id) is\n"
    "needed where agents of several jobs run on this host. With --rdzv-endpoint the command may be given anywhere, "
    "and\n"
    "needs the job's secret: MUSTER_SECRET_FILE in the environment.\n";

constexpr std::uint16_t default_port = 29'400;

constexpr Duration answer_limit = 10s;  // the agent may be looking for its daemon
constexpr std::size_t answer_bytes_max = 16 * 1024;

struct Order {
    std::string node;
    std::string job;       ///< empty: the only one here
    std::string endpoint;  ///< empty: through an agent on this host
};

/// The order, or an error for the person.
Result<Order> read_order(const std::vector<std::string>& words) {
    Order order;
    const auto wrong = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
    for (std::size_t at = 0; at < words.size(); ++at) {
        const std::string_view word = words[at];
        if ((word == "--job" || word == "--rdzv-endpoint") && at + 1 == words.size())
            return wrong(cat(word, ": a value is missing"));
        if (word == "--job")
            order.job = words[++at];
        else if (word.starts_with("--job="))
            order.job = word.substr(6);
        else if (word == "--rdzv-endpoint")
            order.endpoint = words[++at];
        else if (word.starts_with("--rdzv-endpoint="))
            order.endpoint = word.substr(16);
        else if (word.starts_with('-'))
            return wrong(cat("unknown option '", word, "' (muster drain --help lists all)"));
        else if (!order.node.empty())
            return wrong(cat("one node at a time: got '", order.node, "' and '", word, "'"));
        else
            order.node = word;
    }
    if (order.node.empty()) return wrong("which node? write: muster drain NODE");
    if (order.node.size() > 255 || order.job.size() > 255) return wrong("names have at most 255 bytes");
    return order;
}

/// Agents on this host that would listen to us, of the job that is meant.
Result<std::vector<agent::CommandAddress>> find_agents(const Order& order) {
    std::ifstream file("/proc/net/unix");
    std::ostringstream text;
    text << file.rdbuf();
    auto agents = agent::command_addresses(text.str());
    const auto user = ::geteuid();
    if (user != 0) std::erase_if(agents, [&](const auto& one) { return one.user != user; });
    std::set<std::string> jobs;
    for (const auto& one : agents) jobs.insert(one.job);
    const auto all = join({jobs.begin(), jobs.end()}, ", ");
    const auto no = [](std::string why) { return Error{Errc::not_found, std::move(why)}; };
    if (jobs.empty()) return no("no agent of yours runs on this host; give the command on a node of the job");
    if (order.job.empty() && jobs.size() > 1) return no(cat("which job? write --job ID; on this host there are ", all));
    const auto job = order.job.empty() ? *jobs.begin() : agent::job_in_address(order.job);
    std::erase_if(agents, [&](const auto& one) { return one.job != job; });
    if (agents.empty()) return no(cat("no job '", order.job, "' has an agent on this host; there are ", all));
    return agents;
}

/// Asks one agent; an error where it does not answer.
Result<native::CommandAnswer> ask(const agent::CommandAddress& agent, const native::Command& command) {
    const auto address = agent::write_command_address(agent);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    const FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    std::string frame;
    native::append_frame(frame, command);
    const auto who = cat("the agent of pid ", agent.pid);
    if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 ||
        ::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) < 0)
        return error_from_errno(errno, cat("ask ", who));
    pollfd waited{socket.get(), POLLIN, 0};
    if (::poll(&waited, 1, static_cast<int>(answer_limit / 1ms)) != 1)
        return Error{Errc::timed_out, cat(who, " did not answer within ", describe(answer_limit),
                                          ": it may have lost its rendezvous; what was asked is not known to be done")};
    std::string bytes(answer_bytes_max, '\0');
    const auto got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return Error{Errc::peer_closed, cat(who, " closed the connection without an answer")};
    native::FrameReader reader(native::Sender::daemon);
    reader.append(std::string_view(bytes).substr(0, static_cast<std::size_t>(got)));
    auto message = reader.next();
    if (auto* answer = message && message.value() ? std::get_if<native::CommandAnswer>(&*message.value()) : nullptr)
        return std::move(*answer);
    return Error{Errc::bad_frame, cat(who, " answered in another language; is it of another version?")};
}

int tell(const native::CommandAnswer& answer) {
    if (!answer.done) return complain("drain", 1, answer.text);
    std::printf("%s\n", answer.text.c_str());
    return exit_codes::success;
}

int drain_through_daemon(const Order& order, const native::Command& command, const std::string& secret_file) {
    if (order.job.empty())
        return complain("drain", exit_codes::usage, "which job? with --rdzv-endpoint write --job ID, too");
    const auto endpoint = parse_endpoint(order.endpoint, default_port);
    if (!endpoint) return complain("drain", exit_codes::usage, cat("--rdzv-endpoint: ", endpoint.error().context));
    if (secret_file.empty())
        return complain(
            "drain", exit_codes::usage,
            "--rdzv-endpoint needs the job's secret: set MUSTER_SECRET_FILE, or give the command on a node of "
            "the job without --rdzv-endpoint");
    const auto secret = rendezvous::read_job_secret(secret_file);
    if (!secret) return complain("drain", exit_codes::usage, cat("MUSTER_SECRET_FILE: ", secret.error().context));
    const auto answer = command_daemon(*endpoint, order.job, command, *secret, answer_limit);
    return answer ? tell(*answer) : complain("drain", 1, answer.error().context);
}

}  // namespace

int run_drain(const std::vector<std::string>& arguments, const Environment& environment) {
    if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
        std::fwrite(usage.data(), 1, usage.size(), stdout);
        return exit_codes::success;
    }
    const auto order = read_order(arguments);
    if (!order) return complain("drain", exit_codes::usage, order.error().context);
    const native::Command command{1, native::CommandVerb::drain_node, order->node, "muster drain"};
    if (!order->endpoint.empty())
        return drain_through_daemon(*order, command, std::string(value_or_empty(environment, "MUSTER_SECRET_FILE")));
    const auto agents = find_agents(*order);
    if (!agents) return complain("drain", 1, agents.error().context);
    std::string trouble;
    for (const auto& agent : *agents) {
        const auto answer = ask(agent, command);
        if (!answer) {
            trouble = answer.error().context;
            continue;  // it may just have gone
        }
        return tell(*answer);
    }
    return complain("drain", 1, trouble);
}

}  // namespace muster::launcher
