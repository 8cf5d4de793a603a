#include "launcher/commands/job_command.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "agent/commands/command_address.h"
#include "launcher/commands/daemon_command.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/find_secret.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

constexpr std::uint16_t default_port = 29'400;

constexpr Duration answer_limit = 10s;  // The agent may be reconnecting to its daemon.
/// A running agent accepts at once. A stopped one does not, and connect() blocks when its queue is full.
constexpr Duration connect_limit = 2s;
constexpr std::size_t answer_bytes_max = 16 * 1024;

struct Agent {
    agent::CommandAddress address;
    FileDescriptor socket;  ///< Belongs to the address's user. Not valid: the agent did not accept at once.
};

std::string describe_agent(const agent::CommandAddress& address) {
    return cat("the agent of pid ", address.pid);
}

enum class Waits { no, yes };

/// Connects to the socket of that name. Fails with bad_frame if it belongs to a user whom the name does not state:
/// every user can bind every name.
Result<FileDescriptor> connect_to(const agent::CommandAddress& agent, Waits waits) {
    const auto address = agent::write_command_address(agent);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    FileDescriptor socket(
        ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (waits == Waits::no ? SOCK_NONBLOCK : 0), 0));
    const timeval limit{.tv_sec = connect_limit / 1s, .tv_usec = 0};  // for connect() and send()
    ucred owner{};
    socklen_t owner_size = sizeof owner;
    if (!socket.valid() || ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 ||
        ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &owner, &owner_size) != 0)
        return errno != EAGAIN ? error_from_errno(errno, cat("ask ", describe_agent(agent)))
                               : Error{Errc::timed_out, cat(describe_agent(agent),
                                                            " accepts no command and its queue is full; it was "
                                                            "probably stopped: send SIGCONT to continue it")};
    if (owner.uid == agent.user) return socket;
    return Error{Errc::bad_frame,
                 cat("the socket @", address, " belongs to user ", owner.uid, " (pid ", owner.pid, "), not to user ",
                     agent.user, "; it was ignored: probably that process pretends to be an agent")};
}

/// Connects to each agent. Those that do not accept at once come last. `impostors` gets a line for each other socket.
std::vector<Agent> real_agents(const std::vector<agent::CommandAddress>& addresses, std::string& impostors) {
    std::vector<Agent> agents;
    for (const auto& address : addresses) {
        auto socket = connect_to(address, Waits::no);
        if (socket)
            agents.push_back({address, std::move(*socket)});
        else if (socket.error().code == Errc::bad_frame)
            impostors += cat("; ", socket.error().context);
        else
            agents.push_back({address, {}});
    }
    std::ranges::stable_partition(agents, [](const auto& one) { return one.socket.valid(); });
    return agents;
}

/// The job's agents on this host that accept commands of this user.
Result<std::vector<Agent>> find_agents(const JobAddress& address) {
    constexpr const char* table = "/proc/net/unix";
    if (::access(table, R_OK) != 0)
        return error_from_errno(errno, cat("find the agents of this host: ", table,
                                           " is not there (this container or chroot has no /proc: mount it)"));
    auto addresses = agent::command_addresses(read_file(table));
    const auto user = ::geteuid();
    if (user != 0) std::erase_if(addresses, [&](const auto& one) { return one.user != user; });
    std::string impostors;
    auto agents = real_agents(addresses, impostors);
    std::set<std::string> jobs;
    for (const auto& one : agents) jobs.insert(one.address.job);
    const auto all = join({jobs.begin(), jobs.end()}, ", ");
    const auto no = [&](std::string_view why) { return Error{Errc::not_found, cat(why, impostors)}; };
    if (jobs.empty())
        return no("no agent of this user runs on this host; run the command on a node of the job, as the job's user");
    if (address.job.empty() && jobs.size() > 1)
        return no(cat("several jobs run on this host; write --job ID with one of ", all));
    const auto job = address.job.empty() ? *jobs.begin() : agent::job_in_address(address.job);
    std::erase_if(agents, [&](const auto& one) { return one.address.job != job; });
    if (agents.empty())
        return no(cat("no job '", address.job, "' has an agent on this host; jobs on this host: ", all));
    return agents;
}

/// Sends the command to one agent. Fails if it does not answer.
Result<native::CommandAnswer> ask(Agent& agent, const native::Command& command) {
    const auto who = describe_agent(agent.address);
    if (!agent.socket.valid()) {
        auto connected = connect_to(agent.address, Waits::yes);
        if (!connected) return connected.error();
        agent.socket = std::move(*connected);
    }
    std::string frame;
    native::append_frame(frame, command);
    const auto& socket = agent.socket;
    if (::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) < 0)
        return error_from_errno(errno, cat("ask ", who));
    pollfd waited{socket.get(), POLLIN, 0};
    if (::poll(&waited, 1, static_cast<int>(answer_limit / 1ms)) != 1)
        return Error{Errc::timed_out,
                     cat(who, " did not answer within ", describe(answer_limit),
                         "; it may have lost its rendezvous; the command may or may not have been executed")};
    std::string bytes(answer_bytes_max, '\0');
    const auto got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return Error{Errc::peer_closed, cat(who, " closed the connection without an answer")};
    native::FrameReader reader(native::Sender::daemon);
    reader.append(std::string_view(bytes).substr(0, static_cast<std::size_t>(got)));
    auto message = reader.next();
    if (auto* answer = message && message.value() ? std::get_if<native::CommandAnswer>(&*message.value()) : nullptr)
        return std::move(*answer);
    return Error{Errc::bad_frame, cat(who, " sent an unknown answer; is it a different version of muster?")};
}

int tell(std::string_view verb, const native::CommandAnswer& heard) {
    if (!heard.done) return print_error(verb, 1, heard.text);
    return answer(verb, cat(printable(heard.text), "\n"));
}

int give_to_daemon(std::string_view verb, const JobAddress& address, const native::Command& command,
                   const Environment& environment) {
    const auto wrong = [verb](std::string_view why) { return print_error(verb, exit_codes::usage, why); };
    if (address.job.empty()) return wrong("--job is missing; write --job ID with --rdzv-endpoint");
    std::vector<Endpoint> daemons;
    for (const auto place : split(address.endpoint, ',')) {
        const auto endpoint = parse_endpoint(trim(place), default_port);
        if (!endpoint) return wrong(cat("--rdzv-endpoint: ", endpoint.error().context));
        daemons.push_back(*endpoint);
    }
    auto secret = rendezvous::find_secret(value_of(environment));
    if (!secret) return print_error(verb, exit_codes::configuration, secret.error().context);
    if (secret->text.empty())
        return wrong(
            "--rdzv-endpoint needs the job's secret: set MUSTER_SECRET_FILE or MUSTER_KEY (see muster key --help), or "
            "run the command on a node of the job without --rdzv-endpoint");
    const auto heard =
        command_daemon(daemons, address.job, command, rendezvous::job_key(*secret, address.job), answer_limit);
    return heard ? tell(verb, *heard) : print_error(verb, 1, heard.error().context);
}

int give_to_agent(std::string_view verb, const JobAddress& address, const native::Command& command) {
    auto agents = find_agents(address);
    if (!agents) return print_error(verb, 1, agents.error().context);
    // Root reaches the agents of all users. Each user's job is its own: one user's answer is no answer for another's.
    struct Outcome {
        std::optional<native::CommandAnswer> done;
        std::vector<std::string> troubles;
    };
    std::map<std::uint32_t, Outcome> outcomes;
    for (auto& agent : *agents) {
        auto& [done, troubles] = outcomes[agent.address.user];
        // If one agent fails, the next one may succeed: the first may have exited, or is a spare.
        if (done) continue;
        auto heard = ask(agent, command);
        if (heard && heard->done) {
            done = std::move(*heard);
            continue;
        }
        auto trouble = heard ? heard->text : heard.error().context;
        if (std::ranges::find(troubles, trouble) == troubles.end()) troubles.push_back(std::move(trouble));
    }
    int code = 0;
    for (const auto& [user, outcome] : outcomes) {
        const auto whose = outcomes.size() > 1 ? cat("user ", user, ": ") : std::string();
        const int own = outcome.done ? answer(verb, cat(printable(cat(whose, outcome.done->text)), "\n"))
                                     : print_error(verb, 1, cat(whose, join(outcome.troubles, "; ")));
        code = std::max(code, own);
    }
    return code;
}

}  // namespace

Result<bool> take_value(const std::vector<std::string>& words, std::size_t& at, std::string_view name,
                        std::string& value) {
    const std::string_view word = words[at];
    if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) {
        value = word.substr(name.size() + 1);
        return true;
    }
    if (word != name) return false;
    if (at + 1 == words.size()) return Error{Errc::invalid_argument, cat(name, ": a value is missing")};
    value = words[++at];
    return true;
}

Result<bool> take_address(const std::vector<std::string>& words, std::size_t& at, JobAddress& address) {
    const auto taken = take_value(words, at, "--job", address.job);
    if (!taken || *taken) {
        if (taken && address.job.size() > 255) return Error{Errc::invalid_argument, "names have at most 255 bytes"};
        return taken;
    }
    return take_value(words, at, "--rdzv-endpoint", address.endpoint);
}

int give_command(std::string_view verb, const JobAddress& address, const native::Command& command,
                 const Environment& environment) {
    if (address.endpoint.empty()) return give_to_agent(verb, address, command);
    return give_to_daemon(verb, address, command, environment);
}

}  // namespace muster::launcher
