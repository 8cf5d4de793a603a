// Encodes NCCL's unique ids for the store.
#pragma once

#include <nccl.h>

#include <cstring>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

inline std::string text_of(const ncclUniqueId& id) {
    return {id.internal, sizeof id.internal};
}

inline Result<ncclUniqueId> id_of(const std::string& text) {
    ncclUniqueId id;
    if (text.size() != sizeof id.internal) {
        return Error{Errc::bad_frame, cat("the store holds no unique id of NCCL, but ", text.size(), " bytes")};
    }
    std::memcpy(id.internal, text.data(), sizeof id.internal);
    return id;
}

}  // namespace muster::runtime
