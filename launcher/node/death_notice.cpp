#include "launcher/node/death_notice.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "launcher/commands/daemon_talk.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

enum class Outcome { taken, stands_by, failed };

Outcome send_to(const SocketAddress& daemon, const native::Hello& hello, const native::Message& last,
                const std::vector<rendezvous::JobKey>& keys, Instant deadline) {
    std::optional<std::string> leader;
    auto talk = DaemonTalk::begin(daemon, hello, keys, deadline, &leader);
    if (!talk) return leader ? Outcome::stands_by : Outcome::failed;
    if (!talk->say(last)) return Outcome::failed;
    // A daemon that has heard it may end in any way.
    (void)talk->end();
    return talk->leader() ? Outcome::stands_by : Outcome::taken;
}

constexpr std::chrono::milliseconds between_tries{50};  // for the election of a leader

}  // namespace

std::string write_death_notice(const DeathNoticePlan& plan) {
    std::vector<std::string> daemons;
    for (const auto& daemon : plan.daemons) daemons.push_back(describe(daemon));
    std::string notice = cat(join(daemons, " "), '\n', static_cast<char>(plan.keys.size()));
    for (const auto& key : plan.keys) notice += cat(static_cast<char>(key.size()), key);
    native::append_frame(notice, plan.hello);
    native::append_frame(notice, native::AgentDied{.why = plan.why});
    return notice;
}

void deliver_death_notice(std::string_view notice, Duration limit) {
    const auto line_end = notice.find('\n');
    if (line_end == std::string_view::npos || line_end + 1 == notice.size()) return;
    auto rest = notice.substr(line_end + 2);
    std::vector<rendezvous::JobKey> keys(static_cast<unsigned char>(notice[line_end + 1]));
    for (auto& key : keys) {
        const std::size_t size = rest.empty() ? 0 : static_cast<unsigned char>(rest.front());
        if (rest.size() <= size) return;
        key = rest.substr(1, size);
        rest.remove_prefix(1 + size);
    }
    std::vector<SocketAddress> daemons;
    for (const auto word : split(notice.substr(0, line_end), ' ')) {
        const auto endpoint = parse_endpoint(word, 0);
        const auto address = endpoint && endpoint->port != 0
                                 ? SocketAddress::from_numeric(endpoint->host, endpoint->port)
                                 : std::nullopt;
        if (address) daemons.push_back(*address);
    }
    native::FrameReader reader(native::Sender::agent);
    reader.append(rest);
    const auto first = reader.next();
    const auto last = reader.next();
    const auto* hello = first && first.value() ? std::get_if<native::Hello>(&*first.value()) : nullptr;
    if (hello == nullptr || !last || !last.value()) return;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto end = now() + limit;
    for (bool any_follower = true; any_follower && now() < end;) {
        any_follower = false;
        for (const auto& daemon : daemons) {
            const auto share = now() + limit / static_cast<std::int64_t>(daemons.size());
            const auto outcome = send_to(daemon, *hello, *last.value(), keys, std::min(share, end));
            if (outcome == Outcome::taken) return;
            any_follower = any_follower || outcome == Outcome::stands_by;
        }
        if (any_follower) std::this_thread::sleep_for(between_tries);
    }
}

}  // namespace muster::launcher
