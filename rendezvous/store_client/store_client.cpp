#include "rendezvous/store_client/store_client.h"

#include <algorithm>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/store_connector.h"

namespace muster::rendezvous {

using c10d::Operation;
using c10d::Request;
using std::chrono::steady_clock;

namespace {

/// A GET of keys that exist is answered at once. Only a wait can be called off: without time for the answer, a key that
/// came just before the deadline would cost the connection.
constexpr Duration answer_timeout = 30s;
constexpr std::size_t shown_key_bytes_max = 128;

std::string wire_key(std::string_view key) {
    return cat('/', key);
}

std::vector<std::string> wire_keys(const StoreClient::Keys& keys) {
    std::vector<std::string> out;
    out.reserve(keys.size());
    for (const auto& key : keys) out.push_back(wire_key(key));
    return out;
}

}  // namespace

struct StoreClient::Impl {
    Endpoint endpoint;
    StoreClientOptions options;
    OpenStore store;

    Instant deadline(Timeout timeout) const { return steady_clock::now() + timeout.value_or(options.timeout); }

    /// Sends one request and receives its reply. Errors name the request, the first key and the server.
    Result<void> exchange(const Request& request, Instant until) {
        if (store.core.progress() == StoreClientCore::Progress::failed) return named(request, lost());
        if (auto fits = check_limits(request); !fits) return named(request, fits.error());
        if (store.core.is_cancelling()) {
            // A store that stood still has not yet acknowledged the end of the last call's wait.
            const auto ended = run_exchange(store.socket, store.core, {}, until);
            if (store.core.progress() != StoreClientCore::Progress::expired || steady_clock::now() >= until)
                return named(request, ended.error());
        }
        const auto bytes = store.core.request(request);
        if (auto done = run_exchange(store.socket, store.core, bytes, until); !done)
            return named(request, done.error());
        return {};
    }
    /// Why there is no connection any more. A caller asks again after timed_out, and would do so without end.
    Error lost() const {
        auto error = store.core.error();
        if (error.code == Errc::timed_out) error.code = Errc::unreachable;
        return error;
    }
    Error named(const Request& request, const Error& error) const {
        const auto key = request.keys.empty() ? request.key : request.keys.front();
        // What follows tells why, and callers may have room for some hundred bytes.
        const auto* const cut = key.size() > shown_key_bytes_max ? "..." : "";
        const auto more = request.keys.size() > 1 ? cat(" and ", request.keys.size() - 1, " more") : std::string{};
        return with_context(
            error, cat(name(request.operation), key.empty() ? "" : " ", front_of(key, shown_key_bytes_max), cut, more,
                       " at ", store.address.numeric(), " port ", endpoint.port));
    }

    Result<void> with_key(Operation operation, std::string_view key, std::string_view value, Timeout timeout,
                          std::int64_t number = 0) {
        const auto full_key = wire_key(key);
        Request request;
        request.operation = operation;
        request.key = full_key;
        request.value = value;
        request.number = number;
        return exchange(request, deadline(timeout));
    }
    Result<void> with_keys(Operation operation, const Keys& keys, Instant until) {
        const auto full_keys = wire_keys(keys);
        Request request;
        request.operation = operation;
        request.keys.assign(full_keys.begin(), full_keys.end());
        return exchange(request, until);
    }
};

StoreClient::StoreClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreClient::StoreClient(StoreClient&&) noexcept = default;
StoreClient& StoreClient::operator=(StoreClient&&) noexcept = default;
StoreClient::~StoreClient() = default;

Result<StoreClient> StoreClient::connect(const Endpoint& endpoint, const StoreClientOptions& options) {
    auto store = MUSTER_TRY(connect_store(endpoint, options));
    return StoreClient(std::make_unique<Impl>(Impl{endpoint, options, std::move(store)}));
}

void StoreClient::interrupt() const {
    impl_->store.socket.interrupt();
}

bool StoreClient::server_is_ours() const {
    return impl_->store.core.server_is_ours();
}
std::string StoreClient::address() const {
    return impl_->store.address.numeric();
}

Result<void> StoreClient::set(std::string_view key, std::string_view value, Timeout timeout) {
    return impl_->with_key(Operation::set, key, value, timeout);
}

Result<std::string> StoreClient::get(std::string_view key, Timeout timeout) {
    auto values = MUSTER_TRY(multi_get({std::string(key)}, timeout));
    return std::move(values.front());
}

Result<std::vector<std::string>> StoreClient::multi_get(const Keys& keys, Timeout timeout) {
    const auto until = impl_->deadline(timeout);
    if (impl_->store.core.server_is_ours()) {
        if (auto done = impl_->with_keys(Operation::wait_get, keys, until); !done) return done.error();
    } else {
        if (auto there = impl_->with_keys(Operation::wait, keys, until); !there) return there.error();
        const auto answer_until = std::max<Instant>(until, steady_clock::now() + answer_timeout);
        if (auto done = impl_->with_keys(Operation::multi_get, keys, answer_until); !done) return done.error();
    }
    return std::move(impl_->store.core.reply().blobs);
}

Result<void> StoreClient::wait(const Keys& keys, Timeout timeout) {
    return impl_->with_keys(Operation::wait, keys, impl_->deadline(timeout));
}

Result<bool> StoreClient::check(const Keys& keys, Timeout timeout) {
    if (auto done = impl_->with_keys(Operation::check, keys, impl_->deadline(timeout)); !done) return done.error();
    return impl_->store.core.reply().flag == c10d::ready;
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta, Timeout timeout) {
    if (auto done = impl_->with_key(Operation::add, key, {}, timeout, delta); !done) return done.error();
    return impl_->store.core.reply().number;
}

Result<bool> StoreClient::delete_key(std::string_view key, Timeout timeout) {
    if (auto done = impl_->with_key(Operation::delete_key, key, {}, timeout); !done) return done.error();
    return impl_->store.core.reply().number > 0;
}

}  // namespace muster::rendezvous
