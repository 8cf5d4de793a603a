#include "tests/integration/runtime/nccl/nccl_group.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/communicator/communicator_body.h"

namespace muster::test {

using namespace runtime;

namespace {

std::string library_of(const NcclSetting& setting) {
    if (!setting.nccl_library.empty()) return setting.nccl_library;
    return setting.old_library ? STANDIN_NCCL_OLD : STANDIN_NCCL;
}

bool is_among(const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

Result<Communicator> join_nccl_group(GroupTerms group, const NcclSetting& setting) {
    ::setenv("MUSTER_NCCL_PLUGIN", NCCL_PLUGIN, 1);
    ::setenv("MUSTER_CUDA_LIBRARY", STANDIN_CUDA, 1);
    ::setenv("MUSTER_NCCL_LIBRARY", library_of(setting).c_str(), 1);
    ::setenv("MUSTER_STANDIN_FAULT", setting.fault.c_str(), 1);
    ::setenv("MUSTER_STANDIN_KERNELS", setting.kernels ? "1" : "0", 1);
    ::setenv("MUSTER_STANDIN_HIDDEN", setting.hidden ? "1" : "0", 1);
    NcclTerms terms = setting.terms;
    terms.device = setting.device >= 0 ? setting.device : group.rank;
    group.meeting_timeout = setting.meeting_timeout;
    CommunicatorBody::Terms body{
        .group = group, .timeout = setting.timeout, .make_transport = [terms](const GroupTerms& wanted) {
            return make_nccl_transport(wanted, terms);
        }};
    auto transport = body.make_transport(group);
    if (!transport) return transport.error();
    return Communicator(std::make_shared<CommunicatorBody>(std::move(body), std::move(*transport)));
}

std::string read_published(const RankProcesses& ranks, std::string key) {
    std::replace(key.begin(), key.end(), '/', '+');
    std::stringstream text;
    text << std::ifstream(ranks.file(key)).rdbuf();
    return text.str();
}

int publish_wrong(const GroupTerms& group, const std::string& wrong) {
    if (wrong.empty()) return 0;
    [[maybe_unused]] const auto published = group.place->publish(cat("wrong/", group.rank), wrong, no_deadline);
    return 1;
}

std::string wrong_of(RankProcesses& ranks, int size, const std::vector<int>& lost) {
    // The lost ones may be stopped; they are ended once the others have.
    const auto limit = std::chrono::steady_clock::now() + 100s;
    const auto others_run = [&] {
        for (int rank = 0; rank < size; ++rank) {
            if (!is_among(lost, rank) && !ranks.ended(rank)) return true;
        }
        return false;
    };
    while (others_run() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
    for (const int rank : lost) ::kill(ranks.pid(rank), SIGKILL);
    const auto ends = ranks.join(std::chrono::seconds(20));
    std::string text;
    for (int rank = 0; rank < size; ++rank) {
        const auto& end = ends[static_cast<std::size_t>(rank)];
        if ((end.exited && end.code == 0) || is_among(lost, rank)) continue;
        text += cat("rank ", rank, end.exited ? " exited " : " was ended by signal ", end.code, ": ",
                    read_published(ranks, cat("wrong/", rank)), "\n");
    }
    return text;
}

std::string run_nccl_ranks(int size, const std::function<std::string(Communicator&, int rank)>& body,
                           const std::function<NcclSetting(int rank)>& setting, const std::vector<int>& lost) {
    RankProcesses ranks(size, [&](const GroupTerms& group) {
        auto world = join_nccl_group(group, setting(group.rank));
        return publish_wrong(group, world ? body(*world, group.rank) : cat("no communicator: ", world.error().context));
    });
    return wrong_of(ranks, size, lost);
}

Result<void> sum(Communicator& world, std::size_t count) {
    std::vector<float> values(count, 1.0f);
    return world.run(all_reduce(buffer(std::span(values)), ReduceOp::sum));
}

}  // namespace muster::test
