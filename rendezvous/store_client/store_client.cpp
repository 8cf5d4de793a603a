#include "rendezvous/store_client/store_client.h"

#include <map>

#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/store_connector.h"

namespace muster::rendezvous {

using c10d::Operation;
using c10d::Request;
using std::chrono::steady_clock;

namespace {

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
    std::map<Operation, bool> supported;  ///< Results of probing.

    Instant deadline(Timeout timeout) const { return steady_clock::now() + timeout.value_or(options.timeout); }

    /// Sends one request and receives its reply. Errors name the request, the first key and the server.
    Result<void> exchange(const Request& request, Instant until) {
        if (store.core.progress() == StoreClientCore::Progress::failed) return named(request, store.core.error());
        if (auto fits = check_limits(request); !fits) return named(request, fits.error());
        const auto bytes = store.core.request(request);
        if (auto done = run_exchange(store.socket, store.core, bytes, until); !done)
            return named(request, done.error());
        return {};
    }
    Error named(const Request& request, const Error& error) const {
        const auto key = request.keys.empty() ? request.key : request.keys.front();
        const auto more = request.keys.size() > 1 ? cat(" and ", request.keys.size() - 1, " more") : std::string{};
        return with_context(error, cat(name(request.operation), key.empty() ? "" : " ", key, more, " at ",
                                       store.address.numeric(), " port ", endpoint.port));
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

    Result<void> require(Operation operation, Instant until);
    Result<bool> probe(Operation operation, Instant until);
};

// Asks the server, on a separate connection, whether it supports the operation.
Result<bool> StoreClient::Impl::probe(Operation operation, Instant until) {
    auto scratch = open_store(store.address, until);
    if (!scratch) return scratch.error();
    Request request;
    request.operation = operation;
    request.key = c10d::probe_key;
    const auto ask = scratch->core.request(request);  // a BARRIER with a world of 0 completes at once
    const auto asked = run_exchange(scratch->socket, scratch->core, ask, until);
    if (!asked) return asked.error().code == Errc::peer_closed ? Result<bool>(false) : Result<bool>(asked.error());
    if (operation != Operation::barrier) return true;
    request.operation = Operation::delete_key;
    const auto forget = scratch->core.request(request);
    const auto forgotten = run_exchange(scratch->socket, scratch->core, forget, until);
    return forgotten ? Result<bool>(true) : Result<bool>(forgotten.error());
}

Result<void> StoreClient::Impl::require(Operation operation, Instant until) {
    if (store.core.server_is_ours()) return {};
    auto known = supported.find(operation);
    if (known == supported.end()) {
        const auto answer = probe(operation, until);
        if (!answer) return with_context(answer.error(), cat("ask for ", name(operation)));
        known = supported.emplace(operation, *answer).first;
    }
    if (known->second) return {};
    return Error{Errc::unsupported, cat("the store at ", store.address.numeric(), " port ", endpoint.port,
                                        " does not know ", name(operation), ": use a newer PyTorch there, or musterd")};
}

StoreClient::StoreClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreClient::StoreClient(StoreClient&&) noexcept = default;
StoreClient& StoreClient::operator=(StoreClient&&) noexcept = default;
StoreClient::~StoreClient() = default;

Result<StoreClient> StoreClient::connect(const Endpoint& endpoint, const StoreClientOptions& options) {
    auto store = connect_store(endpoint, options);
    if (!store) return store.error();
    return StoreClient(std::make_unique<Impl>(Impl{endpoint, options, std::move(*store), {}}));
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

Result<void> StoreClient::append(std::string_view key, std::string_view value, Timeout timeout) {
    return impl_->with_key(Operation::append, key, value, timeout);
}

Result<void> StoreClient::multi_set(const Pairs& pairs, Timeout timeout) {
    Keys keys;
    keys.reserve(pairs.size());
    Request request;
    request.operation = Operation::multi_set;
    for (const auto& [key, value] : pairs) {
        keys.push_back(wire_key(key));
        request.values.push_back(value);
    }
    request.keys.assign(keys.begin(), keys.end());
    return impl_->exchange(request, impl_->deadline(timeout));
}

Result<std::string> StoreClient::get(std::string_view key, Timeout timeout) {
    auto values = multi_get({std::string(key)}, timeout);
    if (!values) return values.error();
    return std::move(values->front());
}

Result<std::vector<std::string>> StoreClient::multi_get(const Keys& keys, Timeout timeout) {
    const auto until = impl_->deadline(timeout);
    if (impl_->store.core.server_is_ours()) {
        if (auto done = impl_->with_keys(Operation::wait_get, keys, until); !done) return done.error();
    } else {
        if (auto there = impl_->with_keys(Operation::wait, keys, until); !there) return there.error();
        if (auto done = impl_->with_keys(Operation::multi_get, keys, until); !done) return done.error();
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

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                             Timeout timeout) {
    const auto full_key = wire_key(key);
    Request request;
    request.operation = Operation::compare_set;
    request.key = full_key;
    request.expected = expected;
    request.value = desired;
    if (auto done = impl_->exchange(request, impl_->deadline(timeout)); !done) return done.error();
    return std::move(impl_->store.core.reply().blobs.front());
}

Result<bool> StoreClient::delete_key(std::string_view key, Timeout timeout) {
    if (auto done = impl_->with_key(Operation::delete_key, key, {}, timeout); !done) return done.error();
    return impl_->store.core.reply().number > 0;
}

Result<std::int64_t> StoreClient::num_keys(Timeout timeout) {
    Request request;
    request.operation = Operation::num_keys;
    if (auto done = impl_->exchange(request, impl_->deadline(timeout)); !done) return done.error();
    return impl_->store.core.reply().number;
}

Result<void> StoreClient::queue_push(std::string_view key, std::string_view value, Timeout timeout) {
    // QUEUE_LEN is probed for all three operations: they were added together, and it changes nothing.
    if (auto known = impl_->require(Operation::queue_len, impl_->deadline(timeout)); !known) return known;
    return impl_->with_key(Operation::queue_push, key, value, timeout);
}

Result<std::optional<std::string>> StoreClient::queue_pop(std::string_view key, Timeout timeout) {
    if (auto known = impl_->require(Operation::queue_len, impl_->deadline(timeout)); !known) return known.error();
    if (auto done = impl_->with_key(Operation::queue_pop, key, {}, timeout); !done) return done.error();
    auto& blobs = impl_->store.core.reply().blobs;
    if (blobs.empty()) return std::optional<std::string>{};
    return std::optional(std::move(blobs.front()));
}

Result<std::int64_t> StoreClient::queue_length(std::string_view key, Timeout timeout) {
    if (auto known = impl_->require(Operation::queue_len, impl_->deadline(timeout)); !known) return known.error();
    if (auto done = impl_->with_key(Operation::queue_len, key, {}, timeout); !done) return done.error();
    return impl_->store.core.reply().number;
}

Result<std::vector<std::string>> StoreClient::list_keys(Timeout timeout) {
    const auto until = impl_->deadline(timeout);
    if (auto known = impl_->require(Operation::list_keys, until); !known) return known.error();
    Request request;
    request.operation = Operation::list_keys;
    if (auto done = impl_->exchange(request, until); !done) return done.error();
    std::vector<std::string> keys;
    for (auto& key : impl_->store.core.reply().blobs)
        if (key.starts_with("/")) keys.push_back(key.substr(1));
    return keys;
}

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world, Timeout timeout) {
    const auto until = impl_->deadline(timeout);
    const auto known = impl_->require(Operation::barrier, until);
    if (known) return impl_->with_key(Operation::barrier, key, {}, until - steady_clock::now(), world);
    if (known.error().code != Errc::unsupported) return known;
    const auto arrived = add(key, 1, until - steady_clock::now());
    if (!arrived) return arrived.error();
    const auto done = cat(key, "/done");
    if (*arrived == world) return set(done, "1", until - steady_clock::now());
    return wait({done}, until - steady_clock::now());
}

}  // namespace muster::rendezvous
