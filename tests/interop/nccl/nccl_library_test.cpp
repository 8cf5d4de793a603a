// NVIDIA's own NCCL and CUDA runtime on a host without a GPU: they load, tell their versions, make unique ids that
// travel through the store, and say exactly why nothing more can be done.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/nccl/core/nccl_roots.h"
#include "worker_runtime/nccl/libraries/cuda_table.h"
#include "worker_runtime/nccl/libraries/nccl_table.h"
#include "worker_runtime/nccl/plugin.h"

namespace muster {

using namespace runtime;
using Catch::Contains;

namespace {

const NcclTable& nccl() {
    static const NcclTable table = NcclTable::load(NCCL_LIBRARY).value();
    return table;
}

const CudaTable& cuda() {
    static const CudaTable table = CudaTable::load(CUDA_LIBRARY).value();
    return table;
}

bool is_there_a_gpu() {
    int count = 0;
    return cuda().device_count(&count) == cudaSuccess && count > 0;
}

}  // namespace

TEST_CASE("the real NCCL has every function of the table, and the version of its headers") {
    const auto& features = nccl().features;
    CHECK(features.version == NCCL_VERSION_CODE);
    CHECK((features.split && features.registration && features.group_abort && features.several_roots));
    CHECK(features.shrink);
    CHECK_THAT(nccl().path, Contains("libnccl.so.2"));
}

TEST_CASE("the real CUDA runtime has every function of the table, and tells that there is no driver") {
    CHECK_THAT(cuda().versions(), Contains("CUDA runtime 12."));
    if (!is_there_a_gpu()) CHECK_THAT(cuda().versions(), Contains("no driver"));
}

TEST_CASE("unique ids of the real NCCL travel through the store to other processes") {
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    test::RankProcesses ranks(3, [](const GroupTerms& group) {
        const auto table = NcclTable::load(NCCL_LIBRARY);
        if (!table) return 1;
        // Two roots, as in a large world.
        const NcclRoots roots{.size = group.size, .count = 2};
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        if (const int root = roots.held_by(group.rank); root >= 0) {
            ncclUniqueId id{};
            if (table->unique_id(&id) != ncclSuccess) return 2;
            const std::string text(id.internal, sizeof id.internal);
            if (!group.place->publish(nccl_root_key(group.id, root), text, deadline)) return 3;
        }
        const auto ids = group.place->collect(nccl_root_keys(group.id, roots), deadline);
        if (!ids || ids->size() != 2) return 4;
        if ((*ids)[0].size() != NCCL_UNIQUE_ID_BYTES || (*ids)[0] == (*ids)[1]) return 5;
        // The root's process stays until all have seen its id.
        const auto met = exchange(group, "seen", cat((*ids)[0], (*ids)[1]), deadline);
        return met && (*met)[0] == (*met)[1] && (*met)[1] == (*met)[2] ? 0 : 6;
    });
    for (const auto& end : ranks.join()) CHECK((end.exited && end.code == 0));
}

TEST_CASE("without a GPU the plugin says so in CUDA's words, on every rank, and nobody waits") {
    if (is_there_a_gpu()) return;  // the tests labelled gpu run then
    test::RankProcesses ranks(2, [](const GroupTerms& group) {
        ::setenv("MUSTER_NCCL_PLUGIN", NCCL_PLUGIN, 1);
        ::setenv("MUSTER_CUDA_LIBRARY", CUDA_LIBRARY, 1);
        ::setenv("MUSTER_NCCL_LIBRARY", NCCL_LIBRARY, 1);
        GroupTerms terms = group;
        terms.meeting_timeout = 60s;
        const auto made = make_nccl_transport(terms, {.device = group.rank});
        const std::string text = made ? "a transport" : made.error().context;
        [[maybe_unused]] const auto told = group.place->publish(cat("said/", group.rank), text, no_deadline);
        const bool right =
            text.find(
                "no usable GPU: CUDA driver version is insufficient for CUDA runtime version "
                "(CUDA error 35)") != std::string::npos ||
            text.find("no usable GPU: no CUDA-capable device is detected (CUDA error 100)") != std::string::npos;
        return right ? 0 : 1;
    });
    const auto ends = ranks.join();
    test::MeetingInFolder place(ranks.file(""));
    const auto said = place.collect({"said/0", "said/1"}, std::chrono::steady_clock::now());
    INFO((said ? (*said)[0] + "\n" + (*said)[1] : said.error().context));
    for (const auto& end : ends) CHECK((end.exited && end.code == 0));
}

TEST_CASE("the real NCCL's own words for a missing GPU come through") {
    if (is_there_a_gpu()) return;
    ncclUniqueId id{};
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    REQUIRE(nccl().unique_id(&id) == ncclSuccess);
    ncclComm_t communicator = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto done = nccl().check(nccl().init(&communicator, 1, id, 0, &config), "ncclCommInitRank", nullptr);
    REQUIRE(done.has_error());
    CHECK_THAT(done.error().context, Contains("ncclCommInitRank: NCCL reports \"unhandled cuda error"));
}

}  // namespace muster
