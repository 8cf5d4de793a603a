#include "worker_runtime/nccl/core/nccl_version.h"

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// The first version with non-blocking communicators (ncclConfig_t::blocking). Before it, a rank that waits for a
/// missing peer cannot be aborted.
constexpr int version_min = 21400;

}  // namespace

std::string nccl_version_text(int version) {
    // Until 2.8 the code had one digit less.
    const int unit = version >= 10000 ? 10000 : 1000;
    return cat(version / unit, ".", version % unit / 100, ".", version % 100);
}

const std::vector<std::string_view>& nccl_functions_needed() {
    static const std::vector<std::string_view> names{
        "ncclGetVersion",         "ncclGetUniqueId",  "ncclGetErrorString", "ncclGetLastError",
        "ncclCommInitRankConfig", "ncclCommFinalize", "ncclCommDestroy",    "ncclCommAbort",
        "ncclCommGetAsyncError",  "ncclAllReduce",    "ncclReduce",         "ncclReduceScatter",
        "ncclAllGather",          "ncclBroadcast",    "ncclSend",           "ncclRecv",
        "ncclGroupStart",         "ncclGroupEnd",     "ncclRedOpDestroy",   "ncclRedOpCreatePreMulSum"};
    return names;
}

Result<NcclFeatures> nccl_features(int version, const std::function<bool(std::string_view)>& has) {
    if (version < version_min) {
        return Error{Errc::unsupported, cat("NCCL ", nccl_version_text(version), " is too old: communicators that can ",
                                            "be aborted need ", nccl_version_text(version_min), " or newer")};
    }
    std::vector<std::string> missing;
    for (const auto name : nccl_functions_needed()) {
        if (!has(name)) missing.emplace_back(name);
    }
    if (!missing.empty()) {
        return Error{Errc::unsupported, cat("NCCL ", nccl_version_text(version), " lacks ", join(missing, ", "),
                                            ": is it NVIDIA's library?")};
    }
    NcclFeatures features{.version = version};
    features.split = version >= 21800 && has("ncclCommSplit");
    features.registration = version >= 21900 && has("ncclMemAlloc") && has("ncclMemFree") && has("ncclCommRegister") &&
                            has("ncclCommDeregister");
    features.group_abort = version >= 22200;
    features.several_roots = version >= 22300 && has("ncclCommInitRankScalable");
    features.shrink = version >= 22700 && has("ncclCommShrink");
    return features;
}

std::string features_text(const NcclFeatures& features) {
    std::vector<std::string> words;
    const auto tell = [&words](bool there, std::string_view what) { words.push_back(cat(there ? "" : "no ", what)); };
    tell(features.several_roots, "scalable init");
    tell(features.split, "split");
    tell(features.registration, "registered memory");
    tell(features.group_abort, "group abort");
    tell(features.shrink, "shrink");
    return join(words, ", ");
}

}  // namespace muster::runtime
