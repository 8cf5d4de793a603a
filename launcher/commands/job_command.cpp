#include "launcher/commands/job_command.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "agent/commands/command_address.h"
#include "launcher/commands/daemon_command.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

constexpr std::uint16_t default_port = 29'400;

constexpr Duration answer_limit = 10s;  // The agent may be reconnecting to its daemon.
/// A running agent accepts at once. The queue of a stopped one fills up.
constexpr Duration connect_limit = 2s;
constexpr Duration connect_pause = 20ms;
constexpr std::size_t answer_bytes_max = 16 * 1024;

struct Agent {
    agent::CommandAddress address;  ///< with the user who owns the socket, as the kernel reports it
    FileDescriptor socket;          ///< not valid: the agent has not accepted yet
};

std::string describe_agent(const agent::CommandAddress& address) {
    return cat("the agent of pid ", address.pid);
}

/// In a user namespace an agent names itself by another number than the one that it has here.
bool lives_in_another_namespace(pid_t pid) {
    const auto space_of = [](std::string_view process) {
        std::error_code failure;
        return std::filesystem::read_symlink(cat("/proc/", process, "/ns/user"), failure);
    };
    const auto theirs = space_of(cat(pid));
    return !theirs.empty() && theirs != space_of("self");
}

/// The effective user of a process by its number, before anything is said to it.
bool is_process_of(uid_t user, std::int32_t pid) {
    const auto status = read_file(cat("/proc/", pid, "/status"));
    for (const auto line : split(status, '\n')) {
        uid_t effective = 0;
        const auto fields = split(line, '\t');
        if (fields.size() > 2 && fields[0] == "Uid:") return parse_number(fields[2], effective) && effective == user;
    }
    return false;
}

/// Connects to the socket of that name, without waiting, and writes into `agent` whose it is. Fails with bad_frame if
/// it belongs to a user whom the name does not state (every user can bind every name), and with timed_out if the queue
/// is full.
Result<FileDescriptor> connect_to(agent::CommandAddress& agent) {
    const auto address = agent::write_command_address(agent);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ucred owner{};
    socklen_t owner_size = sizeof owner;
    if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 ||
        ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &owner, &owner_size) != 0)
        return errno != EAGAIN ? error_from_errno(errno, cat("ask ", describe_agent(agent)))
                               : Error{Errc::timed_out, cat(describe_agent(agent),
                                                            " accepts no command and its queue is full; it was "
                                                            "probably stopped: send SIGCONT to continue it")};
    const auto user = one_user(owner.uid);
    if (user && (*user == agent.user || *user == ::geteuid() || lives_in_another_namespace(owner.pid))) {
        agent.user = *user;
        return socket;
    }
    return Error{Errc::bad_frame,
                 cat("the socket @", address, " belongs to ",
                     user ? cat("user ", *user) : "a user without a number here", " (pid ", owner.pid,
                     "), not to user ", agent.user, "; it was ignored: probably that process pretends to be an agent")};
}

/// Connects to each agent. Those that do not accept at once come last. `impostors` gets a line for each other socket.
std::vector<Agent> real_agents(const std::vector<agent::CommandAddress>& addresses, std::string& impostors) {
    std::vector<Agent> agents;
    for (const auto& address : addresses) {
        Agent one{address, {}};
        auto socket = connect_to(one.address);
        if (!socket && socket.error().code == Errc::bad_frame) {
            impostors += cat("; ", socket.error().context);
            continue;
        }
        if (socket) one.socket = std::move(*socket);
        agents.push_back(std::move(one));
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
    // Read twice: the kernel may skip a socket when another one is closed between two pieces of the table.
    auto addresses = agent::command_addresses(cat(read_file(table), read_file(table)));
    const auto user = ::geteuid();
    if (user != 0)
        std::erase_if(addresses, [&](const auto& one) { return one.user != user && !is_process_of(user, one.pid); });
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

int print_answer(std::string_view verb, const native::CommandAnswer& heard) {
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
    const auto keys = rendezvous::find_job_keys(value_of(environment), address.job);
    if (!keys) return print_error(verb, exit_codes::configuration, keys.error().context);
    if (keys->empty())
        return wrong(
            "--rdzv-endpoint needs the job's secret: set MUSTER_SECRET_FILE or MUSTER_KEY (see muster key --help), or "
            "run the command on a node of the job without --rdzv-endpoint");
    const auto heard = command_daemon(daemons, address.job, command, *keys, answer_limit);
    return heard ? print_answer(verb, *heard) : print_error(verb, 1, heard.error().context);
}

/// Of one user's agents. Root reaches those of all users. Each user's job is its own: one user's answer is no answer
/// for another's.
struct Outcome {
    std::optional<native::CommandAnswer> done;
    std::vector<std::string> troubles;  ///< each once
    void note(std::string trouble) {
        if (std::ranges::find(troubles, trouble) == troubles.end()) troubles.push_back(std::move(trouble));
    }
};
using Outcomes = std::map<std::uint32_t, Outcome>;

/// If one agent fails, the next one may succeed: the first may have exited, or is a spare.
void ask_for(Outcomes& outcomes, Agent& agent, const native::Command& command) {
    auto& outcome = outcomes[agent.address.user];
    if (outcome.done) return;
    auto heard = ask(agent, command);
    if (heard && heard->done)
        outcome.done = std::move(*heard);
    else
        outcome.note(heard ? std::move(heard->text) : std::move(heard.error().context));
}

/// Tries those again whose queues are full, all together for connect_limit: any user can open many such sockets.
void ask_late(Outcomes& outcomes, std::span<Agent> agents, const native::Command& command) {
    const auto until = std::chrono::steady_clock::now() + connect_limit;
    for (bool last = false;; ::poll(nullptr, 0, connect_pause / 1ms)) {
        last = std::chrono::steady_clock::now() >= until;
        bool all_done = true;
        for (auto& agent : agents) {
            if (agent.socket.valid() || outcomes[agent.address.user].done) continue;
            auto socket = connect_to(agent.address);
            if (socket) {
                agent.socket = std::move(*socket);
                ask_for(outcomes, agent, command);
            } else if (last) {
                outcomes[agent.address.user].note(std::move(socket.error().context));
            } else {
                all_done = false;
            }
        }
        if (all_done || last) return;
    }
}

int give_to_agent(std::string_view verb, const JobAddress& address, const native::Command& command) {
    auto agents = find_agents(address);
    if (!agents) return print_error(verb, 1, agents.error().context);
    Outcomes outcomes;
    for (auto& agent : *agents)
        if (agent.socket.valid()) ask_for(outcomes, agent, command);
    ask_late(outcomes, *agents, command);
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

int give_command(std::string_view verb, const JobAddress& address, const native::Command& command,
                 const Environment& environment) {
    if (address.job.size() > 255) return print_error(verb, exit_codes::usage, "names have at most 255 bytes");
    if (address.endpoint.empty()) return give_to_agent(verb, address, command);
    return give_to_daemon(verb, address, command, environment);
}

}  // namespace muster::launcher
