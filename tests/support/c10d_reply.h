// Writes a c10d reply as a server would, for what reads replies. The server itself has the append_ functions.
#pragma once

#include <string>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/wire/c10d/operation_table.h"
#include "rendezvous/wire/c10d/reply.h"

namespace muster::c10d {

inline void encode_reply(Operation operation, const Reply& reply, std::string& out) {
    const Shape shape = row_of(operation).reply;
    ByteWriter writer(out);
    std::size_t next_blob = 0;
    for (const char field : shape.once) {
        switch (field) {
            case '1': writer.number(reply.flag); break;
            case '4': writer.number(reply.nonce); break;
            case '8': writer.number(reply.number); break;
            default: writer.blob<std::uint64_t>(reply.blobs.at(next_blob++));
        }
    }
    if (shape.repeat == Repeat::counted || shape.repeat == Repeat::at_most_one) writer.number(reply.number);
    if (shape.repeat == Repeat::never) return;
    for (; next_blob < reply.blobs.size(); ++next_blob) writer.blob<std::uint64_t>(reply.blobs[next_blob]);
}

}  // namespace muster::c10d
