#include "rendezvous/wire/c10d/store_client_core.h"

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/c10d/limits.h"
#include "rendezvous/wire/c10d/operation_table.h"

namespace muster::rendezvous {

using c10d::Operation;

namespace {

bool is_wait(Operation operation) {
    return operation == Operation::wait || operation == Operation::wait_get || operation == Operation::barrier;
}

}  // namespace

Result<void> check_limits(const c10d::Request& request) {
    const auto refused = [](std::string_view what, std::size_t size, std::size_t max) {
        return Error{Errc::limit_exceeded, cat(what, " of ", size, ", at most ", max, " are possible")};
    };
    const auto key_fits = [](std::string_view key) { return key.size() <= c10d::key_bytes_max; };
    if (!key_fits(request.key)) return refused("a key", request.key.size(), c10d::key_bytes_max);
    if (request.keys.size() > c10d::keys_per_request_max)
        return refused("a number of keys", request.keys.size(), c10d::keys_per_request_max);
    std::size_t size = 0;
    for (const auto key : request.keys) {
        if (!key_fits(key)) return refused("a key", key.size(), c10d::key_bytes_max);
        size += key.size() + sizeof(std::uint64_t);
    }
    for (const auto value : {request.value, request.expected})
        if (value.size() > c10d::value_bytes_max) return refused("a value", value.size(), c10d::value_bytes_max);
    for (const auto value : request.values) {
        if (value.size() > c10d::value_bytes_max) return refused("a value", value.size(), c10d::value_bytes_max);
        size += value.size() + sizeof(std::uint64_t);
    }
    if (size > c10d::request_bytes_max) return refused("a request", size, c10d::request_bytes_max);
    return {};
}

void StoreClientCore::expect(State state, Operation operation, std::size_t key_count) {
    state_ = state;
    progress_ = Progress::more;
    operation_ = operation;
    key_count_ = key_count;
    scanner_.start(operation, key_count);
}

std::string StoreClientCore::open(Greeting greeting, std::uint32_t nonce) {
    MUSTER_CHECK(state_ == State::idle && !error_);
    std::string out;
    c10d::Request next;
    next.nonce = c10d::handshake_magic;
    encode_request(c10d::Family::newer, next, out);
    if (greeting == Greeting::with_ping) {
        next.operation = Operation::ping;
        next.nonce = nonce_ = nonce;
        encode_request(c10d::Family::newer, next, out);
    }
    next.operation = Operation::check;
    next.keys = {c10d::probe_key};
    encode_request(c10d::Family::newer, next, out);
    if (greeting == Greeting::with_ping) {
        expect(State::pinging, Operation::ping, 0);
    } else {
        expect(State::probing, Operation::check, 1);
    }
    return out;
}

std::string StoreClientCore::request(const c10d::Request& request) {
    MUSTER_CHECK(state_ == State::idle && !error_, name(request.operation));
    std::string out;
    encode_request(c10d::Family::newer, request, out);
    if (has_no_reply(request.operation)) {
        progress_ = Progress::done;
        reply_ = {};
    } else {
        expect(State::replying, request.operation, request.keys.size());
    }
    return out;
}

StoreClientCore::Progress StoreClientCore::receive(std::string_view bytes) {
    if (progress_ == Progress::failed) return progress_;
    input_.append(bytes);
    while (progress_ == Progress::more) {
        const auto scanned = scanner_.scan(input_);
        if (scanned == c10d::Scan::incomplete) return progress_;
        if (scanned == c10d::Scan::refused) {
            fail({Errc::limit_exceeded, cat("the reply to ", name(operation_), " has ", scanner_.refusal())});
            return progress_;
        }
        const auto size = scanner_.needed();
        const bool decoded = decode_reply(operation_, key_count_, std::string_view(input_).substr(0, size), reply_);
        if (!decoded) {
            fail({Errc::bad_frame, cat("the reply to ", name(operation_), " cannot be read")});
            return progress_;
        }
        input_.erase(0, size);
        advance();
    }
    if (progress_ != Progress::failed && !input_.empty())
        fail({Errc::bad_frame, cat("the server sent ", input_.size(), " bytes that answer nothing")});
    return progress_;
}

// One whole reply has been read.
StoreClientCore::Progress StoreClientCore::advance() {
    switch (state_) {
        case State::pinging:
            if (reply_.nonce != nonce_) {
                fail({Errc::bad_frame, "the answer to PING is another one: not a c10d store"});
            } else {
                expect(State::probing, Operation::check, 1);
            }
            break;
        case State::probing:
            server_is_ours_ = reply_.flag == c10d::ready;
            state_ = State::idle;
            progress_ = Progress::done;
            break;
        case State::replying:
            state_ = State::idle;
            progress_ = Progress::done;
            break;
        case State::cancelling:
            // The first byte decides; a late WAIT_GET brings its values before the answer to CANCEL_WAIT.
            if (reply_.flag == c10d::wait_canceled) {
                state_ = State::idle;
                progress_ = Progress::expired;
            } else if (waited_ == Operation::wait_get) {
                expect(State::late_stop, Operation::multi_get, key_count_);
            } else {
                expect(State::late_stop, Operation::cancel_wait, 0);
            }
            break;
        case State::late_stop:
            if (operation_ == Operation::multi_get) {
                expect(State::late_stop, Operation::cancel_wait, 0);
            } else {
                state_ = State::idle;
                progress_ = Progress::expired;
            }
            break;
        case State::idle: break;
    }
    return progress_;
}

std::string StoreClientCore::timed_out() {
    if (progress_ != Progress::more || is_cancelling()) return {};
    if (state_ != State::replying || !is_wait(operation_) || !input_.empty()) {
        fail({Errc::timed_out, cat("no answer to ", name(operation_), " in time")});
        return {};
    }
    waited_ = operation_;
    const auto key_count = key_count_;
    expect(State::cancelling, Operation::cancel_wait, 0);
    key_count_ = key_count;
    std::string out;
    c10d::Request cancel;
    cancel.operation = Operation::cancel_wait;
    encode_request(c10d::Family::newer, cancel, out);
    return out;
}

void StoreClientCore::closed(std::string_view why) {
    fail({Errc::peer_closed, cat("the connection ended: ", why)});
}

void StoreClientCore::fail(Error error) {
    if (!error_) error_ = std::move(error);
    progress_ = Progress::failed;
    state_ = State::idle;
    input_.clear();
}

}  // namespace muster::rendezvous
