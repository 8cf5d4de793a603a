// NCCL's unique ids, encoded for the store. A unique id has the address of NCCL's own listener and the number that NCCL
// knows its ranks by, so where the ranks have a key, nobody else reads it there.
#pragma once

#include <nccl.h>

#include <cstring>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/transport/sealed_text.h"

namespace muster::runtime {

/// `key`: where it goes in the store.
inline std::string text_of(const ncclUniqueId& id, const WireSecurity& security, std::string_view key) {
    return seal_text(security, key, {id.internal, sizeof id.internal});
}

inline Result<ncclUniqueId> id_of(const std::string& text, const WireSecurity& security, std::string_view key) {
    ncclUniqueId id;
    const auto opened = MUSTER_TRY(open_text(security, key, text));
    if (opened.size() != sizeof id.internal) {
        return Error{Errc::bad_frame, cat("the store holds no unique id of NCCL, but ", opened.size(), " bytes")};
    }
    std::memcpy(id.internal, opened.data(), sizeof id.internal);
    return id;
}

}  // namespace muster::runtime
