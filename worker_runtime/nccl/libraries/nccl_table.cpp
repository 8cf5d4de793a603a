#include "worker_runtime/nccl/libraries/nccl_table.h"

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/libraries/shared_object.h"

namespace muster::runtime {

Result<NcclTable> NcclTable::load(const std::string& named) {
    auto library = SharedObject::open(named.empty() ? "libnccl.so.2" : named);
    if (!library) return no_library("NCCL library", {"MUSTER_NCCL_LIBRARY", named}, library.error().context);
    NcclTable table;
    table.path = library->path();
    const auto get_version = reinterpret_cast<decltype(&::ncclGetVersion)>(library->find("ncclGetVersion"));
    int version = 0;
    if (get_version == nullptr || get_version(&version) != ncclSuccess) {
        return Error{Errc::unsupported, cat(table.path, " is not an NCCL library: it does not report its version")};
    }
    auto features = nccl_features(
        version, [&library](std::string_view name) { return library->find(std::string(name).c_str()) != nullptr; });
    if (!features) return with_context(features.error(), table.path);
    table.features = *features;
    const auto find = [&library](auto& place, const char* symbol) {
        place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(library->find(symbol));
    };
#define MUSTER_FIND(member, function) find(table.member, #function);
    MUSTER_NCCL_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
    return table;
}

Result<void> NcclTable::check(ncclResult_t result, std::string_view what, ncclComm_t communicator) const {
    if (result == ncclSuccess || result == ncclInProgress) return {};
    const char* const detail = last_error(communicator);
    const bool has_detail = detail != nullptr && *detail != '\0';
    // A peer's connection that ended is a symptom, whose cause NcclStatusBoard::cause_of() finds.
    return Error{result == ncclRemoteError ? Errc::peer_closed : Errc::io,
                 cat(what, ": NCCL reports \"", error_string(result), "\"", has_detail ? cat(": ", detail) : "")};
}

}  // namespace muster::runtime
