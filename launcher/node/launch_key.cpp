#include "launcher/node/launch_key.h"

#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "launcher/config/option_values.h"
#include "launcher/host/program_output.h"
#include "launcher/node/embedded_daemon.h"
#include "launcher/node/job_access.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/store_client/blocking_socket.h"

namespace muster::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::BlockingSocket;

constexpr Duration connect_limit = 2s;      // to one address, before the next one's turn
constexpr Duration look_interval = 20ms;    // for a stop signal
constexpr Duration retry_interval = 100ms;  // between questions
constexpr Duration foreign_interval = 1s;   // the same, where each answer costs an unmunge
constexpr Duration told_after = 10s;        // of waiting
constexpr std::size_t answer_bytes_max = 16 * 1024;
constexpr std::size_t line_bytes_max = 400;  // of an answer that is shown
constexpr int munge_tries = 2;               // munged may be starting again

constexpr std::string_view cut_short = "its answer was cut short";
constexpr std::string_view foreign_answer = "something else than this job's muster answers there";

void wipe(std::string& text) {
    ::explicit_bzero(text.data(), text.size());
    text.clear();
}

void use_key(LaunchConfig& config, std::string text) {
    ::prctl(PR_SET_DUMPABLE, 0);  // as read_private_file does
    use_secrets(config, {{.text = std::move(text), .origin = "munge"}});
}

/// For a launch that is being stopped.
void use_key_of_nobody(LaunchConfig& config) {
    use_key(config, rendezvous::job_key_text(rendezvous::random_nonce()));
}

/// ~/.muster/key, as on nodes without Slurm.
std::optional<NotLaunched> make_other_key(LaunchConfig& config, const Environment& environment) {
    const auto made = make_key(config, environment);
    if (!made) return NotLaunched{exit_codes::configuration, made.error().context};
    for (const auto& line : *made) log(LogLevel::warning, line);
    return std::nullopt;
}

std::string unmunge(std::string_view credential, const IsStopping& is_stopping) {
    return program_output(unmunge_command(), munge_limit, is_stopping, credential).value_or(std::string());
}

/// Whether munge on this node can give other nodes of the step a key.
struct Probe {
    std::string wrong;  ///< Empty: it can.
    LaunchKey otherwise = LaunchKey::home;
    bool has_program = true;
};

/// munge takes any user number to restrict to. Whether this process has it for munged too, only unmunge tells: not so
/// in a container whose user numbers are mapped.
Probe probe_munge(MungeKeyTerms terms, const std::string& key, const IsStopping& is_stopping) {
    terms.nonce = hexadecimal(rendezvous::random_nonce());
    auto text = munge_key_text(terms, key);
    const auto printed =
        program_output(munge_command(::geteuid()), munge_limit, is_stopping, text).value_or(std::string());
    wipe(text);
    if (auto wrong = wrong_with_munge(printed); !wrong.empty())
        return {.wrong = std::move(wrong), .has_program = printed != no_munge_program};
    auto decoded = unmunge(munge_credential(printed), is_stopping);
    auto found = munged_key(decoded, terms, ::geteuid());
    wipe(decoded);
    if (!found) return {.wrong = found.error().context, .otherwise = LaunchKey::home_alone};
    wipe(*found);
    return {};
}

std::optional<NotLaunched> make_launch_key(LaunchConfig& config, const Environment& environment,
                                           const IsStopping& is_stopping) {
    auto key = rendezvous::job_key_text(rendezvous::random_nonce());
    Probe probe;
    for (int i = 0; i < munge_tries; ++i) {
        if (i > 0) std::this_thread::sleep_for(retry_interval);
        probe = probe_munge(munge_key_terms(config.job, environment), key, is_stopping);
        if (is_stopping() || probe.wrong.empty() || !probe.has_program) break;
    }
    if (is_stopping()) {
        use_key_of_nobody(config);
        return std::nullopt;
    }
    if (probe.wrong.empty()) {
        use_key(config, std::move(key));
        config.launch_key = LaunchKey::munge;
        return std::nullopt;
    }
    config.launch_key = probe.otherwise;
    if (probe.has_program)
        log(LogLevel::warning, "munge does not work on this node (", probe.wrong,
            "), so the key of this job is ~/.muster/key, which its nodes have only with one home directory; start "
            "munged, or copy the key to the other nodes (muster key)");
    return make_other_key(config, environment);
}

struct Reply {
    unsigned status = 0;  ///< 0: there is no whole answer.
    std::string body{};
    std::string why{};  ///< Without a whole answer, if there is a part of one.
};

Reply read_reply(std::string_view text) {
    constexpr std::string_view version = "HTTP/1.1 ";
    const auto body = text.find("\r\n\r\n");
    if (text.empty()) return {};
    if (!text.starts_with(version)) return {.why = std::string(foreign_answer)};
    if (body == std::string_view::npos) return {.why = std::string(cut_short)};
    const auto status = whole_number(text.substr(version.size(), 3), 100, 599);
    Reply reply{.status = static_cast<unsigned>(status.value_or(0)), .body = std::string(text.substr(body + 4))};
    for (const auto line : split(text.substr(0, body), '\n')) {
        constexpr std::string_view length = "Content-Length: ";
        if (!line.starts_with(length)) continue;
        const auto size = whole_number(trim(line.substr(length.size())), 0, answer_bytes_max);
        if (size != static_cast<std::int64_t>(reply.body.size())) return {.why = std::string(cut_short)};
    }
    return reply;
}

Reply ask_at(const SocketAddress& address, const std::string& nonce, const IsStopping& is_stopping) {
    const auto until = Clock::now() + munge_answer_limit;
    const auto next_look = [] { return Clock::now() + look_interval; };
    auto socket = BlockingSocket::begin_to_connect(address);
    if (!socket) return {};
    const auto connected_by = Clock::now() + connect_limit;
    for (;;) {
        const auto connected = socket->wait_until_connected(next_look());
        if (connected) break;
        if (connected.error().code != Errc::timed_out || is_stopping() || Clock::now() >= connected_by) return {};
    }
    if (!socket->send(cat("GET /key?nonce=", nonce, " HTTP/1.0\r\n\r\n"), until)) return {};
    std::string text;
    while (text.size() < answer_bytes_max && Clock::now() < until && !is_stopping()) {
        const auto piece = socket->receive(next_look());
        if (piece)
            text.append(*piece);
        else if (piece.error().code != Errc::timed_out)
            break;
    }
    return read_reply(text);
}

/// The first whole answer of one of these.
Reply ask_all(const std::vector<Endpoint>& daemons, const std::string& nonce, const IsStopping& is_stopping) {
    Reply part;
    for (const auto& daemon : daemons) {
        const auto address = SocketAddress::from_numeric(daemon.host, daemon.port);
        if (!address) continue;
        auto reply = ask_at(*address, nonce, is_stopping);
        if (reply.status != 0) return reply;
        if (!reply.why.empty()) part = std::move(reply);
    }
    return part;
}

/// Nothing: config.key is set. Else why not; `exit_code` 0: ask again, because another program may have answered.
struct Refusal {
    int exit_code = 0;
    std::string why;
};

std::optional<Refusal> take_from(const Reply& reply, LaunchConfig& config, const MungeKeyTerms& terms,
                                 const IsStopping& is_stopping) {
    const auto credential = munge_credential(reply.body);
    if (credential.empty()) return Refusal{.why = std::string(foreign_answer)};
    auto printed = unmunge(credential, is_stopping);
    if (is_stopping()) {
        wipe(printed);
        use_key_of_nobody(config);
        return std::nullopt;
    }
    auto key = munged_key(printed, terms, ::geteuid());
    wipe(printed);
    const auto wrong = key ? rendezvous::wrong_with_job_key(*key) : std::string();
    if (key && wrong.empty() && rendezvous::is_job_key(*key)) {
        use_key(config, *std::move(key));
        return std::nullopt;
    }
    const bool may_wait = !key && (key.error().code == Errc::unreachable || key.error().code == Errc::timed_out);
    const bool is_foreign = !key && key.error().code == Errc::refused;
    return Refusal{is_foreign ? 0
                   : may_wait ? exit_codes::retry
                              : exit_codes::configuration,
                   cat("the munge credential with this job's key, from ", describe(config.endpoint),
                       ", cannot be used: ", key ? std::string("it holds no key") : key.error().context)};
}

std::string why_without_key(const Reply& reply) {
    if (reply.status == 0) return reply.why;
    const auto line = reply.body.substr(0, std::min(reply.body.find('\n'), line_bytes_max));
    if (reply.status == 503 && munge_credential(line).empty()) return printable_line(line);
    return cat(foreign_answer, " (HTTP status ", reply.status, ")");
}

/// Nothing: the question may be answered later. Else config.key is set, or the node is not launched.
std::optional<std::optional<NotLaunched>> look_at_home(const Reply& reply, LaunchConfig& config,
                                                       const Environment& environment) {
    const bool lacks_munge = reply.status == 404 && reply.body.starts_with(lacks_munge_text);
    if (!lacks_munge && !(reply.status == 503 && reply.body.starts_with(home_key_text))) return std::nullopt;
    const auto used = use_own_key(config, environment);
    if (!used) return NotLaunched{exit_codes::configuration, used.error().context};
    if (*used) return std::optional<NotLaunched>();
    if (!lacks_munge) return std::nullopt;
    return NotLaunched{exit_codes::configuration,
                       cat("the first node, ", describe(config.endpoint),
                           ", has no munge, and this node has another home directory; install munge there, or give the "
                           "job a key: copy ~/.muster/key from it (muster key show | ssh NODE muster key set), or set "
                           "MUSTER_KEY")};
}

std::optional<NotLaunched> take_launch_key(LaunchConfig& config, const Environment& environment,
                                           const std::vector<Endpoint>& daemons, const IsStopping& is_stopping) {
    auto terms = munge_key_terms(config.job, environment);
    const auto begun = Clock::now();
    bool is_told = false;
    std::string last;
    while (!is_stopping()) {
        terms.nonce = hexadecimal(rendezvous::random_nonce());
        const auto reply = ask_all(daemons, terms.nonce, is_stopping);
        auto retry_after = retry_interval;
        if (reply.status == 200) {
            auto refusal = take_from(reply, config, terms, is_stopping);
            if (!refusal) return std::nullopt;
            if (refusal->exit_code != 0) return NotLaunched{refusal->exit_code, std::move(refusal->why)};
            last = std::move(refusal->why);
            retry_after = foreign_interval;
        } else if (auto done = look_at_home(reply, config, environment)) {
            return *std::move(done);
        } else if (auto why = why_without_key(reply); !why.empty()) {
            last = std::move(why);
        }
        const auto waited = Clock::now() - begun;
        const auto why = last.empty() ? std::string("it does not answer") : last;
        if (waited >= config.join_timeout)
            return NotLaunched{exit_codes::retry,
                               cat("no key of this job from its first node, ", describe(config.endpoint), ", within ",
                                   muster::describe(config.join_timeout), ": ", why)};
        if (waited >= told_after && !std::exchange(is_told, true))
            print_notice(cat("muster: waiting for the key of this job from its first node, ", describe(config.endpoint),
                             ": ", why, "\n"));
        std::this_thread::sleep_for(retry_after);
    }
    use_key_of_nobody(config);
    return std::nullopt;
}

}  // namespace

std::optional<NotLaunched> agree_on_key(LaunchConfig& config, const Environment& environment,
                                        const std::vector<Endpoint>& daemons, const IsStopping& is_stopping) {
    if (!std::exchange(config.awaits_key, false)) return std::nullopt;
    return *config.is_host ? make_launch_key(config, environment, is_stopping)
                           : take_launch_key(config, environment, daemons, is_stopping);
}

}  // namespace muster::launcher
