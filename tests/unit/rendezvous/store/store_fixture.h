// A store server with recorded connections, and short words to write c10d requests in.
#pragma once

#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/wire/c10d/request.h"

namespace muster::rendezvous::test {

using c10d::Operation;

inline std::string u64(std::uint64_t value) {
    std::string out;
    ByteWriter(out).number(value);
    return out;
}
inline std::string i64(std::int64_t value) {
    return u64(static_cast<std::uint64_t>(value));
}
inline std::string blob(std::string_view bytes) {
    return u64(bytes.size()) + std::string(bytes);
}
inline const std::string stop("\0", 1);
inline const std::string canceled("\1", 1);

inline std::string encoded(c10d::Family family, const c10d::Request& request) {
    std::string out;
    encode_request(family, request, out);
    return out;
}

/// Requests of one family.
struct Words {
    c10d::Family family = c10d::Family::newer;

    std::string key(Operation operation, std::string_view key, std::int64_t number = 0) const {
        return make(operation, [&](auto& r) { r.key = key, r.number = number; });
    }
    std::string put(Operation operation, std::string_view key, std::string_view value) const {
        return make(operation, [&](auto& r) { r.key = key, r.value = value; });
    }
    std::string keys(Operation operation, std::initializer_list<std::string_view> keys) const {
        return make(operation, [&](auto& r) { r.keys = keys; });
    }
    std::string set(std::string_view k, std::string_view value) const { return put(Operation::set, k, value); }
    std::string get(std::string_view k) const { return key(Operation::get, k); }
    std::string add(std::string_view k, std::int64_t delta) const { return key(Operation::add, k, delta); }
    std::string wait(std::initializer_list<std::string_view> k) const { return keys(Operation::wait, k); }
    std::string check(std::initializer_list<std::string_view> k) const { return keys(Operation::check, k); }
    std::string wait_get(std::initializer_list<std::string_view> k) const { return keys(Operation::wait_get, k); }
    std::string arrive(std::string_view k, std::int64_t world) const { return key(Operation::barrier, k, world); }
    std::string bare(Operation operation) const {
        return make(operation, [](auto&) {});
    }
    std::string compare_set(std::string_view k, std::string_view expected, std::string_view desired) const {
        return make(Operation::compare_set, [&](auto& r) { r.key = k, r.expected = expected, r.value = desired; });
    }
    std::string multi_set(std::initializer_list<std::string_view> k, std::initializer_list<std::string_view> v) const {
        return make(Operation::multi_set, [&](auto& r) { r.keys = k, r.values = v; });
    }

  private:
    template <class Fill>
    std::string make(Operation operation, Fill fill) const {
        c10d::Request request;
        request.operation = operation;
        fill(request);
        return encoded(family, request);
    }
};

inline const Words newer{c10d::Family::newer};
inline const Words older{c10d::Family::older};
inline const std::string handshake("\x00\xCE\xF7\x85\x3C", 5);

/// One recorded connection.
class TestPeer final : public StorePeer {
  public:
    void send(std::string_view bytes) override { output += bytes, ++send_count; }
    void send(SharedValue value) override {
        output += *value, ++send_count, ++shared_count;
        if (kept != nullptr) kept->push_back(std::move(value));
    }
    void close(std::string why) override { closed = std::move(why); }

    /// What was sent since the last call.
    std::string take() { return std::exchange(output, {}); }

    StoreConnection* connection = nullptr;
    StoreFlow flow = StoreFlow::read;
    std::string output;
    int send_count = 0;
    int shared_count = 0;
    std::vector<SharedValue>* kept = nullptr;  ///< as a reader that does not read
    std::optional<std::string> closed;
};

class StoreFixture {
  public:
    explicit StoreFixture(StoreConfig config = {}) : server(config) {}

    TestPeer& open(std::string_view source = "10.0.0.1") {
        TestPeer& peer = peers_.emplace_back();
        peer.connection = server.accept(peer, source, now);
        return peer;
    }
    /// A connection that has shown the newer family.
    TestPeer& open_newer(std::string_view source = "10.0.0.1") {
        TestPeer& peer = open(source);
        tell(peer, handshake);
        return peer;
    }
    void tell(TestPeer& peer, std::string_view bytes) { peer.flow = server.receive(*peer.connection, bytes, now); }
    /// The same as a driver that reads into landing() what belongs there.
    void pour(TestPeer& peer, std::string_view bytes) {
        const auto place = server.landing(*peer.connection);
        const auto landed = bytes.copy(place.data(), place.size());
        if (landed > 0) peer.flow = server.landed(*peer.connection, landed, now);
        if (landed < bytes.size() && !peer.closed) tell(peer, bytes.substr(landed));
    }
    /// Sends and returns what this connection was answered at once.
    std::string ask(TestPeer& peer, std::string_view bytes) {
        tell(peer, bytes);
        return peer.take();
    }
    void end(TestPeer& peer) { server.ended(*std::exchange(peer.connection, nullptr)); }

    Instant now{};
    StoreServer server;

  private:
    std::deque<TestPeer> peers_;
};

}  // namespace muster::rendezvous::test
