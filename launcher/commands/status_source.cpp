#include "launcher/commands/status_source.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/secret/status_key.h"

namespace muster::launcher {

namespace {

constexpr std::uint16_t usual_port = 29'400;
/// A screen tells soon that there is no answer, and asks again anyway.
constexpr Duration polled_limit = 2s;

}  // namespace

Result<StatusSource> StatusSource::find(std::string_view where, const Environment& environment) {
    const auto endpoint = parse_endpoint(where, usual_port);
    if (!endpoint) return Error{Errc::invalid_argument, cat("--rdzv-endpoint: ", endpoint.error().context)};
    StatusSource source(*endpoint);
    if (value_or_empty(environment, "MUSTER_INSECURE") != "1") {
        const auto keys = rendezvous::find_job_keys(value_of(environment), {});
        if (!keys) return Error{Errc::permission_denied, keys.error().context};
        for (const auto& key : *keys) source.keys_.emplace_back(rendezvous::status_key(key));
    }
    if (source.keys_.empty()) source.keys_.emplace_back();
    return source;
}

Result<std::string> StatusSource::ask(Duration limit, const std::string& target, Interruption* interruption) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    const auto addresses = look_up(endpoint_, deadline);
    if (!addresses) return addresses.error();
    const bool is_near = std::ranges::all_of(*addresses, [](const auto& one) { return is_loopback(one.numeric()); });
    Result<HttpAnswer> got = HttpAnswer{};
    for (const auto& key : keys_) {
        got = http_get(*addresses, target, is_near ? std::nullopt : key, deadline, interruption);
        if (got || got.error().code != Errc::permission_denied) break;
    }
    if (!got && got.error().code == Errc::permission_denied)
        return Error{Errc::permission_denied,
                     cat(got.error().context,
                         "; set MUSTER_SECRET_FILE to its secret (the key of one job is not enough), or "
                         "MUSTER_INSECURE=1 if it has none, or run the command on its host")};
    if (!got) return got.error();
    if (got->status == 200) return std::move(got->body);
    if (got->status == 401)
        return Error{Errc::permission_denied,
                     "it has a secret; set MUSTER_SECRET_FILE to it, or run the command on the daemon's host"};
    return Error{got->status == 404 ? Errc::not_found : Errc::refused,
                 cat("it answers ", got->status, ": ", printable_line(trim(got->body)))};
}

StatusPoll::StatusPoll(const StatusSource& source, Duration interval, std::string target)
    : source_(source),
      interval_(interval),
      target_(std::move(target)),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { run(); }) {}

StatusPoll::~StatusPoll() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    ended_.notify_one();
    interruption_.stop();
    thread_.join();
}

std::optional<Result<std::string>> StatusPoll::take() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    if (::read(news_.get(), &count, sizeof count) < 0) return std::nullopt;  // There are no news.
    return std::exchange(answer_, std::nullopt);
}

void StatusPoll::run() {
    for (;;) {
        const auto asked_at = std::chrono::steady_clock::now();
        auto answer = source_.ask(polled_limit, target_, &interruption_);
        std::unique_lock lock(mutex_);
        answer_ = std::move(answer);
        constexpr std::uint64_t one = 1;
        const auto written = ::write(news_.get(), &one, sizeof one);
        MUSTER_CHECK(written == sizeof one, "an event counter of news does not overflow");
        if (ended_.wait_until(lock, asked_at + interval_, [this] { return is_ending_; })) return;
    }
}

}  // namespace muster::launcher
