#include "worker_runtime/context/round_store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// A store that does not answer a question for so long is lost, and the connection with it.
constexpr Duration answer_timeout = 30s;
/// Between questions, at first: others are mostly as far as this rank.
constexpr Duration pause_min = 250us;

}  // namespace

RoundStore::RoundStore(rendezvous::StoreClient client, std::string prefix)
    : RoundStore(std::make_shared<Connection>(std::move(client)), std::move(prefix)) {}

RoundStore::RoundStore(std::shared_ptr<Connection> connection, std::string prefix)
    : connection_(std::move(connection)), prefix_(std::move(prefix)) {}

std::unique_ptr<RoundStore> RoundStore::below(std::string_view more) const {
    return std::unique_ptr<RoundStore>(new RoundStore(connection_, cat(prefix_, more)));
}

Result<void> RoundStore::set(std::string_view key, std::string_view value) {
    const std::lock_guard lock(connection_->mutex);
    return connection_->client.set(cat(prefix_, key), value);
}

Result<std::string> RoundStore::get(std::string_view key, Duration timeout) {
    const std::lock_guard lock(connection_->mutex);
    return connection_->client.get(cat(prefix_, key), timeout);
}

Result<std::int64_t> RoundStore::add(std::string_view key, std::int64_t delta) {
    const std::lock_guard lock(connection_->mutex);
    return connection_->client.add(cat(prefix_, key), delta);
}

Result<bool> RoundStore::erase(std::string_view key) {
    const std::lock_guard lock(connection_->mutex);
    return connection_->client.delete_key(cat(prefix_, key));
}

Result<void> RoundStore::publish(std::string_view key, std::string_view value, Instant /*deadline*/) {
    return set(cat("meeting/", key), value);
}

Result<std::vector<std::string>> RoundStore::collect(const std::vector<std::string>& keys, const MeetingWait& wait) {
    Keys full;
    for (const auto& key : keys) full.push_back(cat(prefix_, "meeting/", key));
    const bool looks = wait.parent && wait.parent->store_waits == ParentGroup::StoreWaits::look;
    const auto come = MUSTER_TRY(looks ? watch_for(full, wait) : wait_for(full, wait.deadline));
    if (come < keys.size()) return Error{Errc::timed_out, cat(keys[come], " was not published")};
    const std::lock_guard lock(connection_->mutex);
    return connection_->client.multi_get(full, std::max<Duration>(wait.deadline - Clock::now(), answer_timeout));
}

void RoundStore::post_value(std::string_view key, std::string_view value) {
    const std::unique_lock lock(connection_->mutex, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const std::string full = cat(prefix_, key);
    if (connection_->client.set(full, value, 1s)) (void)connection_->client.check({full}, 1s);
}

std::function<void()> RoundStore::interrupter() const {
    return [weak = std::weak_ptr(connection_)] {
        if (const auto connection = weak.lock()) connection->client.interrupt();
    };
}

std::string RoundStore::address() const {
    return connection_->client.address();
}

/// How many of the keys are there at the deadline, before the first that is not.
Result<std::size_t> RoundStore::wait_for(const Keys& keys, Instant deadline) {
    {
        const std::lock_guard lock(connection_->mutex);
        const auto come = connection_->client.wait(keys, std::max<Duration>(deadline - Clock::now(), 1ms));
        if (come) return keys.size();
        if (come.error().code != Errc::timed_out) return come.error();
    }
    std::size_t there = 0;
    while (there < keys.size() && MUSTER_TRY(are_there({keys[there]}))) ++there;
    return there;
}

/// The same, but looks at the parent meanwhile. It asks again and again what the store can say at once: to break off a
/// question that the store holds back takes an answer too, and one that crosses it would not be heard.
Result<std::size_t> RoundStore::watch_for(const Keys& keys, const MeetingWait& wait) {
    std::size_t there = 0;
    std::size_t step = keys.size();  // most often all have come; else one is asked for, then more and more
    for (Duration pause = pause_min; there < keys.size();) {
        const auto first = keys.begin() + static_cast<std::ptrdiff_t>(there);
        step = std::min(step, keys.size() - there);
        if (MUSTER_TRY(are_there({first, first + static_cast<std::ptrdiff_t>(step)}))) {
            there += step;
            step *= 2;
            continue;
        }
        if (std::exchange(step, 1) > 1) continue;
        MUSTER_TRY(wait.check_alive());
        const auto now = Clock::now();
        if (now >= wait.deadline) break;
        std::this_thread::sleep_until(std::min(wait.next_check(now), now + pause));
        pause = std::min<Duration>(2 * pause, 1s);
    }
    return there;
}

Result<bool> RoundStore::are_there(const Keys& keys) {
    const std::lock_guard lock(connection_->mutex);
    auto come = connection_->client.check(keys, answer_timeout);
    if (come || come.error().code != Errc::timed_out) return come;
    return Error{Errc::unreachable, cat("the store at ", connection_->client.address(), " has not answered for ",
                                        muster::describe(answer_timeout))};
}

}  // namespace muster::runtime
