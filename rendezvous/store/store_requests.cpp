// What each request does. The bytes of the replies are those of rendezvous/wire/c10d/C10D.md.
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/store/store_server_impl.h"
#include "rendezvous/wire/c10d/reply.h"

namespace muster::rendezvous {

using c10d::Operation;

namespace {

// Values of a list by reference where copies would amplify a short request too much.
std::size_t share_from(std::size_t key_count) {
    return key_count > 64 ? shared_bytes_min_in_lists : shared_bytes_min;
}

/// The job whose torchrun agent uses the key; empty: it may be anybody's. The c10d back end looks at its one state key
/// once a second while it waits; static says each agent's role.
std::string_view job_of_torchrun(std::string_view key) {
    constexpr std::string_view state = "/torch.rendezvous.", role = "/torchelastic/role_info";
    if (key.starts_with(state))
        return key.find('/', 1) == std::string_view::npos ? key.substr(state.size()) : std::string_view();
    const auto at = key.find(role);
    return at == std::string_view::npos || at == 0 ? std::string_view() : key.substr(1, at - 1);
}

}  // namespace

void StoreServer::Impl::act(StoreConnection& connection, std::string_view head, const std::string* tail,
                            ReplyWriter& replies) {
    const auto family = connection.scanner.family();
    MUSTER_CHECK(c10d::decode_request(family, head, tail, request), head.size());
    // The older family has no CANCEL_WAIT: its clients time out and simply go on, and would take a late STOP_WAITING
    // for the next reply.
    if (family == c10d::Family::older) end_wait(connection);
    if (config.on_torchrun)
        if (const auto job = job_of_torchrun(request.key); !job.empty())
            config.on_torchrun(std::string(job), connection.source);
    NewValue value{request.value, tail == nullptr ? nullptr : &connection.tail};
    std::string refusal = carry_out(connection, value, replies);
    if (!map.released().empty()) answer_released(connection, replies);
    if (refusal.empty()) return;
    replies.flush();
    close(connection, cat(name(request.operation), ": ", refusal));
}

std::string StoreServer::Impl::carry_out(StoreConnection& connection, NewValue value, ReplyWriter& replies) {
    const auto refusal_of = [](auto& result) { return result ? std::string{} : std::move(result.error().context); };
    switch (request.operation) {
        case Operation::validate: return "sent a second time";
        case Operation::set: {
            auto done = map.set(request.key, value);
            return refusal_of(done);
        }
        case Operation::append: {
            auto done = map.append(request.key, request.value);
            return refusal_of(done);
        }
        case Operation::multi_set: {
            for (std::size_t i = 0; i < request.keys.size(); ++i) {
                auto done = map.set(request.keys[i], {request.values[i]});
                if (!done) return refusal_of(done);
            }
            return {};
        }
        case Operation::queue_push: {
            auto done = map.push(request.key, value);
            return refusal_of(done);
        }
        case Operation::add: {
            auto sum = map.add(request.key, request.number);
            if (sum) replies.number(*sum);
            return refusal_of(sum);
        }
        case Operation::compare_set: {
            auto now = map.compare_set(request.key, request.expected, value);
            if (!now) return refusal_of(now);
            *now == nullptr ? replies.blob(request.expected) : replies.blob(*now);
            return {};
        }
        case Operation::get: replies.blob(map.get(request.key)); return {};
        case Operation::multi_get:
            for (const auto key : request.keys) replies.blob(map.get(key), share_from(request.keys.size()));
            return {};
        case Operation::check: {
            bool all = true;
            for (const auto key : request.keys) all = all && (map.exists(key) || key == c10d::probe_key);
            replies.byte(all ? c10d::ready : c10d::not_ready);
            return {};
        }
        case Operation::wait:
        case Operation::wait_get:
        case Operation::barrier: return wait(connection, replies);
        case Operation::cancel_wait:
            end_wait(connection);
            replies.byte(c10d::wait_canceled);
            return {};
        case Operation::num_keys: replies.number(static_cast<std::int64_t>(map.value_count())); return {};
        case Operation::delete_key: replies.number(std::int64_t{map.erase(request.key)}); return {};
        case Operation::ping: replies.number(request.nonce); return {};
        case Operation::queue_len: replies.number(static_cast<std::int64_t>(map.queue_length(request.key))); return {};
        case Operation::queue_pop: {
            std::size_t length = 0;
            const SharedValue head = map.pop(request.key, length);
            replies.number(static_cast<std::int64_t>(length));
            if (head != nullptr) replies.blob(head);
            return {};
        }
        case Operation::list_keys: return list_keys(replies);
        case Operation::watch_key: replies.byte(c10d::key_watched); return {};
    }
    return "unknown operation";
}

// One wait a connection: a later one takes the place of an earlier one that is still parked.
std::string StoreServer::Impl::wait(StoreConnection& connection, ReplyWriter& replies) {
    end_wait(connection);
    auto there = request.operation == Operation::barrier ? map.arrive(request.key, request.number, connection.waits)
                                                         : map.wait(request.keys, connection.waits);
    if (!there) return std::move(there.error().context);
    const bool wants_values = request.operation == Operation::wait_get;
    if (!*there) return keep_wait(connection, wants_values);
    replies.byte(c10d::stop_waiting);
    if (!wants_values) return {};
    for (const auto key : request.keys) replies.blob(map.get(key), share_from(request.keys.size()));
    return {};
}

/// Charges what a parked wait holds beside the keys of the map: its links, and copies of a WAIT_GET's keys.
std::string StoreServer::Impl::keep_wait(StoreConnection& connection, bool wants_values) {
    std::size_t cost = connection.waits.held_bytes();
    if (wants_values)
        for (const auto key : request.keys) cost += sizeof(std::string) + key.size() + 1;
    if (auto room = map.take_bytes(cost); !room) {
        map.cancel(connection.waits);
        return std::move(room.error().context);
    }
    connection.wait_charged_bytes = cost;
    if (wants_values) connection.wait_get_keys.assign(request.keys.begin(), request.keys.end());
    return {};
}

std::string StoreServer::Impl::list_keys(ReplyWriter& replies) {
    const auto keys = map.keys();
    std::size_t size = sizeof(std::int64_t);
    for (const auto key : keys) size += sizeof(std::uint64_t) + key.size();
    if (auto room = map.take_bytes(size); !room) return std::move(room.error().context);
    map.give_bytes(size);
    std::string bytes;
    bytes.reserve(size);
    ByteWriter writer(bytes);
    writer.number(static_cast<std::int64_t>(keys.size()));
    for (const auto key : keys) writer.blob<std::uint64_t>(key);
    replies.whole(charged_bytes(std::move(bytes), map.memory()));
    return {};
}

void StoreServer::Impl::answer_released(StoreConnection& serving, ReplyWriter& replies) {
    static constexpr std::string_view stop(&c10d::stop_waiting, 1);
    for (WaitSet* set : map.released()) {
        auto& connection = *static_cast<StoreConnection*>(set->owner());
        if (connection.wait_get_keys.empty()) {
            end_wait(connection);
            &connection == &serving ? replies.byte(c10d::stop_waiting) : connection.peer->send(stop);
            continue;
        }
        ReplyWriter other(released_buffer);
        other.begin(*connection.peer);
        ReplyWriter& out = &connection == &serving ? replies : other;
        out.byte(c10d::stop_waiting);
        for (const auto& key : connection.wait_get_keys)
            out.blob(map.get(key), share_from(connection.wait_get_keys.size()));
        end_wait(connection);
        other.flush();
    }
    map.released().clear();
}

}  // namespace muster::rendezvous
