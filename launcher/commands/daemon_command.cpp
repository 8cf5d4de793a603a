#include "launcher/commands/daemon_command.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "launcher/commands/daemon_talk.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/reachable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// Timeout for one of several daemons: another one may be the leader.
constexpr Duration attempt_limit = 3s;
/// Pause between two passes over all daemons. An election takes 1 to 2 s.
constexpr Duration ask_again_after = 200ms;

struct Attempt {
    Result<native::CommandAnswer> answer;
    std::string leader;  ///< The leader's endpoint as the daemon reported it.
    bool is_last = false;
};

Attempt ask_one(const Endpoint& endpoint, const std::string& job, const native::Command& command,
                const std::vector<rendezvous::JobKey>& keys, Instant deadline) {
    const auto named = [&](const Error& error) {
        return Error{error.code, cat(describe(endpoint), ": ", error.context)};
    };
    const auto addresses = look_up(endpoint, deadline);
    if (!addresses) return {named(addresses.error()), {}, false};
    native::Hello hello;
    hello.job = job;
    hello.node = {host_name(), ::getpid(), 0};
    Error last{Errc::not_found, cat(endpoint.host, " has no address")};
    for (const auto& address : rendezvous::reachable_first(*addresses, deadline)) {
        std::optional<std::string> leader;
        auto talk = DaemonTalk::begin(address, hello, keys, deadline, &leader);
        if (!talk) {
            last = talk.error();
            // A standby daemon takes no command. A refusal is final.
            if (leader) return {named(last), *leader, false};
            if (last.code == Errc::permission_denied) return {named(last), {}, true};
            continue;
        }
        // From here on the command may have been executed.
        const auto said = talk->say(command);
        auto answer = said ? talk->hear<native::CommandAnswer>() : Result<native::CommandAnswer>(said.error());
        if (answer) return {std::move(answer), {}, true};
        return {named(answer.error()), talk->leader().value_or(""), !talk->leader()};
    }
    return {named(last), {}, false};
}

}  // namespace

Result<native::CommandAnswer> command_daemon(const std::vector<Endpoint>& daemons, const std::string& job,
                                             const native::Command& command,
                                             const std::vector<rendezvous::JobKey>& keys, Duration limit) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto deadline = now() + limit;
    std::vector<std::string> said(daemons.size());
    for (;;) {
        std::optional<Endpoint> leader;
        for (std::size_t i = 0; i < daemons.size() && now() < deadline; ++i) {
            const auto until = daemons.size() == 1 ? deadline : std::min(deadline, now() + attempt_limit);
            auto attempt = ask_one(daemons[i], job, command, keys, until);
            if (attempt.answer || attempt.is_last) return std::move(attempt.answer);
            said[i] = attempt.answer.error().context;
            if (auto place = parse_endpoint(attempt.leader, 0); place && place->port != 0) leader = *std::move(place);
            if (!leader) continue;
            attempt = ask_one(*leader, job, command, keys, std::min(deadline, now() + attempt_limit));
            if (attempt.answer || attempt.is_last) return std::move(attempt.answer);
            leader.reset();  // It has lost the leadership.
        }
        if (daemons.size() == 1 || now() + ask_again_after >= deadline)
            return Error{Errc::unreachable, muster::join(said, "; ")};
        std::this_thread::sleep_for(ask_again_after);
    }
}

}  // namespace muster::launcher
