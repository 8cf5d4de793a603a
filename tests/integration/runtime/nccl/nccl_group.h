// A communicator over NCCL, for ranks of tests that are processes: with the stand-ins in the place of CUDA and NCCL.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <string>
#include <vector>

#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/ranks.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

struct NcclSetting {
    std::string fault{};  ///< as tests/stand_ins/nccl.cpp takes it
    bool old_library = false;
    bool hidden = false;             ///< the host cannot touch memory of the GPU
    bool kernels = true;             ///< code for the GPU can be loaded
    std::string nccl_library{};      ///< a file in the place of the stand-in
    int device = -1;                 ///< instead of the rank's own
    Duration timeout = 60s;          ///< of operations
    Duration meeting_timeout = 60s;  ///< of the communicator's making
    runtime::NcclTerms terms{.abort_limit = 10s, .close_limit = 5s};
};

/// Meets the other ranks of `group`. Changes this process's environment.
Result<Communicator> join_nccl_group(runtime::GroupTerms group, const NcclSetting& setting = {});

/// Runs `body` as each rank of a group, in processes; what each found wrong in one text. A rank that could not make its
/// communicator, or that ended by itself, says so, but for the `lost`: those may end as they like, or are ended here.
std::string run_nccl_ranks(
    int size, const std::function<std::string(Communicator&, int rank)>& body,
    const std::function<NcclSetting(int rank)>& setting = [](int) { return NcclSetting{}; },
    const std::vector<int>& lost = {});

/// Calls a function of a stand-in that this process has loaded.
template <class T, class... Arguments>
T call_stand_in(const char* function, Arguments... arguments) {
    void* found = nullptr;
    for (const char* const library : {STANDIN_CUDA, STANDIN_NCCL})
        if (void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD); loaded != nullptr && found == nullptr)
            found = ::dlsym(loaded, function);
    return reinterpret_cast<T (*)(Arguments...)>(found)(arguments...);
}

/// Publishes what a rank found wrong, for wrong_of(). Returns the rank's exit code.
int publish_wrong(const runtime::GroupTerms& group, const std::string& wrong);

/// Waits for the ranks' ends, and collects what they published with publish_wrong().
std::string wrong_of(RankProcesses& ranks, int size, const std::vector<int>& lost = {});

/// What a rank published under `key`; empty when it did not.
std::string read_published(const RankProcesses& ranks, std::string key);

/// "" when `result` is a failure whose text has all of `words`.
template <class T>
std::string told(const Result<T>& result, const std::vector<std::string>& words) {
    if (result) return "no error";
    for (const auto& word : words) {
        if (result.error().context.find(word) == std::string::npos) {
            return cat("no \"", word, "\" in: ", result.error().context);
        }
    }
    return "";
}

/// An all_reduce over `count` elements of host memory.
Result<void> sum(Communicator& world, std::size_t count = 100);

}  // namespace muster::test
