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
    static_assert(static_cast<int>(Errc::invalid_argument) + 1 == MUSTER_INVALID_ARGUMENT);
    static_assert(static_cast<int>(Errc::io) + 1 == MUSTER_IO && last_errc == Errc::round_ended);
    return code == Errc::round_ended ? MUSTER_ROUND_ENDED : static_cast<muster_status>(code) + 1;
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
    static constexpr const char* names[] = {"ok",
                                            "invalid_argument",
                                            "timed_out",
                                            "refused",
                                            "unreachable",
                                            "peer_closed",
                                            "bad_frame",
                                            "limit_exceeded",
                                            "not_found",
                                            "already_exists",
                                            "permission_denied",
                                            "cancelled",
                                            "unsupported",
                                            "io",
                                            "out_of_memory",
                                            "internal",
                                            "round_ended"};
    return status >= MUSTER_OK && status <= MUSTER_ROUND_ENDED ? names[status] : "unknown";
}

const char* muster_last_error(void) {
    return muster::capi::last_sentence;
}
}
