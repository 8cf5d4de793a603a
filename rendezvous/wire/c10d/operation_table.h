// One row for each c10d operation: its name, and the shapes of its request and of the reply to it.
#pragma once

#include <algorithm>
#include <array>

#include "rendezvous/wire/c10d/operation.h"
#include "rendezvous/wire/c10d/shape.h"

namespace muster::c10d {

struct OperationRow {
    Operation operation;
    std::string_view name;
    Shape request;  ///< What follows the operation's byte.
    Shape reply;    ///< Empty: the server never answers it.
};

namespace shapes {
inline constexpr Shape none{""}, flag{"1"}, number{"8"}, value{"v"}, key{"k"}, key_and_value{"kv"};
inline constexpr Shape keys{"", Repeat::counted, "k"};
}  // namespace shapes

inline constexpr std::array operation_rows{
    OperationRow{Operation::validate, "VALIDATE", {"4"}, shapes::none},
    OperationRow{Operation::set, "SET", shapes::key_and_value, shapes::none},
    OperationRow{Operation::compare_set, "COMPARE_SET", {"kvv"}, shapes::value},
    OperationRow{Operation::get, "GET", shapes::key, shapes::value},
    OperationRow{Operation::add, "ADD", {"k8"}, shapes::number},
    OperationRow{Operation::check, "CHECK", shapes::keys, shapes::flag},
    OperationRow{Operation::wait, "WAIT", shapes::keys, shapes::flag},
    OperationRow{Operation::num_keys, "GETNUMKEYS", shapes::none, shapes::number},
    OperationRow{Operation::delete_key, "DELETE_KEY", shapes::key, shapes::number},
    OperationRow{Operation::append, "APPEND", shapes::key_and_value, shapes::none},
    OperationRow{Operation::multi_get, "MULTI_GET", shapes::keys, {"", Repeat::given, "v"}},
    OperationRow{Operation::multi_set, "MULTI_SET", {"", Repeat::counted, "kv"}, shapes::none},
    OperationRow{Operation::cancel_wait, "CANCEL_WAIT", shapes::none, shapes::flag},
    OperationRow{Operation::ping, "PING", {"4"}, {"4"}},
    OperationRow{Operation::queue_push, "QUEUE_PUSH", shapes::key_and_value, shapes::none},
    OperationRow{Operation::queue_pop, "QUEUE_POP", shapes::key, {"", Repeat::at_most_one, "v"}},
    OperationRow{Operation::queue_len, "QUEUE_LEN", shapes::key, shapes::number},
    OperationRow{Operation::list_keys, "LIST_KEYS", shapes::none, shapes::keys},
    OperationRow{Operation::barrier, "BARRIER", {"k8"}, shapes::flag},
    OperationRow{Operation::wait_get, "WAIT_GET", shapes::keys, {"1", Repeat::given, "v"}},
    OperationRow{Operation::watch_key, "WATCH_KEY", shapes::key, shapes::flag},
};

/// In the order of the enumeration, which has a gap before its last two.
constexpr const OperationRow& row_of(Operation operation) {
    const auto number = static_cast<std::size_t>(operation);
    constexpr auto count = operation_rows.size();
    return operation_rows[number < count - 2 ? number : operation == Operation::wait_get ? count - 2 : count - 1];
}
static_assert([] {
    for (const auto family : {Family::newer, Family::older}) {
        for (int byte = 0; byte < 256; ++byte) {
            const auto operation = operation_from_byte(family, static_cast<std::uint8_t>(byte));
            if (operation && row_of(*operation).operation != *operation) return false;
        }
    }
    return true;
}());

/// True for the operations that a server never answers.
constexpr bool has_no_reply(Operation operation) {
    const auto& reply = row_of(operation).reply;
    return reply.once.empty() && reply.repeat == Repeat::never;
}

}  // namespace muster::c10d
