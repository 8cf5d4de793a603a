// The features of an NCCL library, by its version and its functions. Both must agree, because a distribution may have
// patched either.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct NcclFeatures {
    int version = 0;             ///< As ncclGetVersion() returns it: 22809 for 2.28.9.
    bool split = false;          ///< ncclCommSplit, 2.18
    bool registration = false;   ///< ncclMemAlloc, ncclCommRegister and their opposites, 2.19
    bool group_abort = false;    ///< several aborts between ncclGroupStart and ncclGroupEnd, 2.22
    bool several_roots = false;  ///< ncclCommInitRankScalable, 2.23
    bool shrink = false;         ///< ncclCommShrink, 2.27
};

/// Returns a text such as "2.28.9".
std::string nccl_version_text(int version);

/// The required functions: those of a non-blocking communicator, which is the only kind that can be aborted.
const std::vector<std::string_view>& nccl_functions_needed();

/// Returns the features. unsupported names what is missing, and the version that first has it. `has` returns true if
/// the library has a function of that name.
Result<NcclFeatures> nccl_features(int version, const std::function<bool(std::string_view)>& has);

/// Returns a text for the log, such as "split, registration, no scalable init".
std::string features_text(const NcclFeatures& features);

}  // namespace muster::runtime
