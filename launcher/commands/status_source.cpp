#include "launcher/commands/status_source.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/base/check.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "rendezvous/secret/job_key.h"

namespace muster::launcher {

namespace {

constexpr std::uint16_t usual_port = 29'400;
/// A screen tells soon that there is no answer, and asks again anyway.
constexpr Duration polled_limit = 2s;

}  // namespace

Result<std::vector<Way>> find_ways(const Environment& environment, std::string_view job,
                                   rendezvous::ControlKey (*key_of)(const rendezvous::JobKey&), bool insecure) {
    const auto keys = rendezvous::find_job_keys(value_of(environment), job);
    if (!keys) return Error{Errc::permission_denied, keys.error().context};
    std::vector<Way> ways;
    for (const auto& key : *keys) ways.emplace_back(key_of(key));
    if (ways.empty() || insecure) ways.emplace_back();
    return ways;
}

Result<StatusSource> StatusSource::find(std::string_view where, const Environment& environment, bool insecure) {
    const auto endpoint = parse_endpoint(where, usual_port);
    if (!endpoint) return Error{Errc::invalid_argument, cat("--rdzv-endpoint: ", endpoint.error().context)};
    StatusSource source(*endpoint);
    source.ways_ = MUSTER_TRY(find_ways(environment, {}, rendezvous::status_key, insecure));
    return source;
}

Result<std::string> StatusSource::ask(Duration limit, const std::string& target, Interruption* interruption) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    const auto addresses = MUSTER_TRY(look_up(endpoint_, deadline));
    auto got = MUSTER_TRY(http_get(addresses, target, ways_, *accepted_, deadline, interruption));
    if (got.status == 401)
        return Error{Errc::permission_denied,
                     cat(ways_.front() ? "it has another secret than this node" : "it has a secret",
                         "; set MUSTER_SECRET_FILE to it, or run the command on the daemon's host")};
    *accepted_ = got.way;
    if (got.status == 200) return std::move(got.body);
    return Error{got.status == 404 ? Errc::not_found : Errc::refused,
                 cat("it answers ", got.status, ": ", printable_line(trim(got.body)))};
}

StatusPoll::StatusPoll(const StatusSource& source, Duration interval, std::string target)
    : source_(source),
      interval_(interval),
      target_(std::move(target)),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    auto started = start_thread("muster-status", [this] { run(); });
    if (started)
        thread_ = *std::move(started);
    else
        tell(started.error());
}

StatusPoll::~StatusPoll() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    ended_.notify_one();
    interruption_.stop();
    if (thread_.joinable()) thread_.join();
}

void StatusPoll::set_interval(Duration interval) {
    const std::lock_guard lock(mutex_);
    interval_ = interval;
    ended_.notify_one();
}

std::optional<Result<std::string>> StatusPoll::take() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    if (::read(news_.get(), &count, sizeof count) < 0) return std::nullopt;  // There are no news.
    return std::exchange(answer_, std::nullopt);
}

void StatusPoll::tell(Result<std::string> answer) {
    answer_ = std::move(answer);
    constexpr std::uint64_t one = 1;
    const auto written = ::write(news_.get(), &one, sizeof one);
    MUSTER_CHECK(written == sizeof one, "an event counter of news does not overflow");
}

void StatusPoll::run() {
    for (;;) {
        const auto asked_at = std::chrono::steady_clock::now();
        auto answer = source_.ask(polled_limit, target_, &interruption_);
        std::unique_lock lock(mutex_);
        tell(std::move(answer));
        while (!is_ending_ && std::chrono::steady_clock::now() < asked_at + interval_)
            ended_.wait_until(lock, asked_at + interval_);
        if (is_ending_) return;
    }
}

}  // namespace muster::launcher
