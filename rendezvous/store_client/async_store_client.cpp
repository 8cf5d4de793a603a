#include "rendezvous/store_client/async_store_client.h"

#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/async_store_session.h"

namespace muster::rendezvous {

using c10d::Operation;
using c10d::Reply;

AsyncStoreClient::AsyncStoreClient(boost::asio::io_context& io, Endpoint endpoint, StoreClientOptions options)
    : session_(std::make_shared<AsyncStoreSession>(io, std::move(endpoint), options)) {
    session_->start();
}

AsyncStoreClient::~AsyncStoreClient() {
    session_->stop();
}

bool AsyncStoreClient::server_is_ours() const {
    return session_->server_is_ours();
}

void AsyncStoreClient::when_connected(Handler<void> handler) {
    session_->when_connected(std::move(handler));
}

namespace {

/// Converts the reply to the result type of the call.
template <class T, class Take>
std::function<void(Result<Reply>)> taking(std::function<void(Result<T>)> handler, Take take) {
    return [handler = std::move(handler), take](Result<Reply> reply) {
        if (!reply) return handler(reply.error());
        if constexpr (std::is_void_v<T>) {
            handler({});
        } else {
            handler(take(*reply));
        }
    };
}

std::function<void(Result<Reply>)> ignoring(std::function<void(Result<void>)> handler) {
    return taking<void>(std::move(handler), 0);
}

std::string wire_key(std::string_view key) {
    return cat('/', key);
}

std::vector<std::string> wire_keys(const AsyncStoreClient::Keys& keys) {
    std::vector<std::string> out;
    for (const auto& key : keys) out.push_back(wire_key(key));
    return out;
}

OwnedRequest with_key(Operation operation, std::string_view key, std::string_view value = {}, std::int64_t number = 0) {
    return {.operation = operation,
            .key = wire_key(key),
            .value = std::string(value),
            .expected = {},
            .number = number,
            .keys = {},
            .values = {}};
}

OwnedRequest with_keys(Operation operation, const AsyncStoreClient::Keys& keys) {
    OwnedRequest request;
    request.operation = operation;
    request.keys = wire_keys(keys);
    return request;
}

}  // namespace

void AsyncStoreClient::set(std::string_view key, std::string_view value, Handler<void> handler, Timeout timeout) {
    session_->call(with_key(Operation::set, key, value), timeout, ignoring(std::move(handler)));
}

void AsyncStoreClient::append(std::string_view key, std::string_view value, Handler<void> handler, Timeout timeout) {
    session_->call(with_key(Operation::append, key, value), timeout, ignoring(std::move(handler)));
}

void AsyncStoreClient::multi_set(const Pairs& pairs, Handler<void> handler, Timeout timeout) {
    OwnedRequest request;
    request.operation = Operation::multi_set;
    for (const auto& [key, value] : pairs) {
        request.keys.push_back(wire_key(key));
        request.values.push_back(value);
    }
    session_->call(std::move(request), timeout, ignoring(std::move(handler)));
}

void AsyncStoreClient::get(std::string_view key, Handler<std::string> handler, Timeout timeout) {
    session_->call(with_keys(Operation::wait_get, {std::string(key)}), timeout,
                   taking<std::string>(std::move(handler), [](Reply& reply) { return reply.blobs.front(); }));
}

void AsyncStoreClient::multi_get(const Keys& keys, Handler<std::vector<std::string>> handler, Timeout timeout) {
    session_->call(with_keys(Operation::wait_get, keys), timeout,
                   taking<std::vector<std::string>>(std::move(handler), [](Reply& reply) { return reply.blobs; }));
}

void AsyncStoreClient::wait(const Keys& keys, Handler<void> handler, Timeout timeout) {
    session_->call(with_keys(Operation::wait, keys), timeout, ignoring(std::move(handler)));
}

void AsyncStoreClient::check(const Keys& keys, Handler<bool> handler, Timeout timeout) {
    session_->call(with_keys(Operation::check, keys), timeout,
                   taking<bool>(std::move(handler), [](Reply& reply) { return reply.flag == c10d::ready; }));
}

void AsyncStoreClient::add(std::string_view key, std::int64_t delta, Handler<std::int64_t> handler, Timeout timeout) {
    session_->call(with_key(Operation::add, key, {}, delta), timeout,
                   taking<std::int64_t>(std::move(handler), [](Reply& reply) { return reply.number; }));
}

void AsyncStoreClient::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                   Handler<std::string> handler, Timeout timeout) {
    auto request = with_key(Operation::compare_set, key, desired);
    request.expected = expected;
    session_->call(std::move(request), timeout,
                   taking<std::string>(std::move(handler), [](Reply& reply) { return reply.blobs.front(); }));
}

void AsyncStoreClient::delete_key(std::string_view key, Handler<bool> handler, Timeout timeout) {
    session_->call(with_key(Operation::delete_key, key), timeout,
                   taking<bool>(std::move(handler), [](Reply& reply) { return reply.number > 0; }));
}

void AsyncStoreClient::num_keys(Handler<std::int64_t> handler, Timeout timeout) {
    OwnedRequest request;
    request.operation = Operation::num_keys;
    session_->call(std::move(request), timeout,
                   taking<std::int64_t>(std::move(handler), [](Reply& reply) { return reply.number; }));
}

void AsyncStoreClient::queue_push(std::string_view key, std::string_view value, Handler<void> handler,
                                  Timeout timeout) {
    session_->call(with_key(Operation::queue_push, key, value), timeout, ignoring(std::move(handler)));
}

void AsyncStoreClient::queue_pop(std::string_view key, Handler<std::optional<std::string>> handler, Timeout timeout) {
    session_->call(with_key(Operation::queue_pop, key), timeout,
                   taking<std::optional<std::string>>(std::move(handler), [](Reply& reply) {
                       return reply.blobs.empty() ? std::nullopt : std::optional(reply.blobs.front());
                   }));
}

void AsyncStoreClient::barrier(std::string_view key, std::int64_t world, Handler<void> handler, Timeout timeout) {
    session_->call(with_key(Operation::barrier, key, {}, world), timeout, ignoring(std::move(handler)));
}

}  // namespace muster::rendezvous
