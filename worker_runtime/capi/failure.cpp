#include "worker_runtime/capi/failure.h"

#include <cstring>
#include <exception>
#include <new>

namespace muster::capi {

namespace {

/// A sentence that is longer is cut: keeping it must not need memory.
constexpr std::size_t sentence_bytes_max = 4096;
thread_local char last_sentence[sentence_bytes_max] = "";

struct Sentence {
    std::size_t size = 0;

    void add(std::string_view part) {
        part = part.substr(0, sentence_bytes_max - 1 - size);
        std::memcpy(last_sentence + size, part.data(), part.size());
        size += part.size();
        last_sentence[size] = 0;
    }
};

}  // namespace

muster_status status_of(Errc code) {
    switch (code) {
        case Errc::invalid_argument: return MUSTER_INVALID_ARGUMENT;
        case Errc::timed_out: return MUSTER_TIMED_OUT;
        case Errc::refused: return MUSTER_REFUSED;
        case Errc::unreachable: return MUSTER_UNREACHABLE;
        case Errc::peer_closed: return MUSTER_PEER_CLOSED;
        case Errc::bad_frame: return MUSTER_BAD_FRAME;
        case Errc::limit_exceeded: return MUSTER_LIMIT_EXCEEDED;
        case Errc::not_found: return MUSTER_NOT_FOUND;
        case Errc::already_exists: return MUSTER_ALREADY_EXISTS;
        case Errc::permission_denied: return MUSTER_PERMISSION_DENIED;
        case Errc::cancelled: return MUSTER_CANCELLED;
        case Errc::unsupported: return MUSTER_UNSUPPORTED;
        case Errc::io: return MUSTER_IO;
        case Errc::round_ended: return MUSTER_ROUND_ENDED;
    }
    return MUSTER_INTERNAL;
}

std::optional<Errc> code_of(muster_status status) {
    for (int code = 0; code <= static_cast<int>(last_errc); ++code)
        if (status_of(static_cast<Errc>(code)) == status) return static_cast<Errc>(code);
    return std::nullopt;
}

muster_status fail(const char* function, muster_status status, std::string_view why) noexcept {
    // `why` may be the sentence itself, as when a callback hands one through.
    char kept[sentence_bytes_max];
    why = why.substr(0, sizeof kept);
    std::memcpy(kept, why.data(), why.size());
    Sentence sentence;
    sentence.add(function);
    sentence.add(": ");
    sentence.add({kept, why.size()});
    return status;
}

muster_status fail_with_exception(const char* function) noexcept {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return fail(function, MUSTER_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& exception) {
        return fail(function, MUSTER_INTERNAL, exception.what());
    } catch (...) {
        return fail(function, MUSTER_INTERNAL, "an exception of an unknown kind");
    }
}

}  // namespace muster::capi

extern "C" {

int muster_api_version(void) {
    return MUSTER_API_VERSION;
}

const char* muster_status_name(muster_status status) {
    switch (status) {
        case MUSTER_OK: return "ok";
        case MUSTER_OUT_OF_MEMORY: return "out_of_memory";
        case MUSTER_INTERNAL: return "internal";
        default: break;
    }
    const auto code = muster::capi::code_of(status);
    return code ? muster::name(*code).data() : "unknown";  // the names are literals, so a 0 follows them
}

const char* muster_last_error(void) {
    return muster::capi::last_sentence;
}
}
