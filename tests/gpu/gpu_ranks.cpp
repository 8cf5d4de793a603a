#include "tests/gpu/gpu_ranks.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "tests/support/ranks.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/nccl/libraries/nccl_table.h"

namespace muster::test {

using namespace runtime;

namespace {

std::string variable(const char* name) {
    const char* const value = ::getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace

Result<Communicator> join_gpu_group(GroupTerms group, int device, Duration timeout) {
    group.meeting_timeout = 60s;
    NcclTerms terms{.device = device};
    CommunicatorBody::Terms body{
        .group = group, .timeout = timeout, .make_transport = [terms](const GroupTerms& wanted) {
            return make_nccl_transport(wanted, terms);
        }};
    auto transport = body.make_transport(group);
    if (!transport) return transport.error();
    return Communicator(std::make_shared<CommunicatorBody>(std::move(body), std::move(*transport)));
}

void pretend_to_be_host(int number) {
    ::setenv("NCCL_HOSTID", cat("muster-gpu-test-", number).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    for (const char* const name : {"NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) ::setenv(name, "1", 1);
    ::setenv("NCCL_MNNVL_ENABLE", "0", 1);  // hosts that share a fabric of NVLink are not what is pretended
    ::setenv("NCCL_MAX_CTAS", "2", 1);
}

std::string on_one_gpu(int size, const std::function<std::string(Communicator&, int rank)>& body) {
    RankProcesses ranks(size, [&](const GroupTerms& group) {
        if (size > 1) pretend_to_be_host(group.rank);
        auto world = join_gpu_group(group, 0);
        const std::string wrong = world ? body(*world, group.rank) : world.error().context;
        if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", group.rank, wrong.c_str());
        return wrong.empty() ? 0 : 1;
    });
    std::string text;
    for (const auto& end : ranks.join(std::chrono::seconds(120))) {
        if (!end.exited || end.code != 0) text += cat(end.exited ? "exit code " : "signal ", end.code, "; ");
    }
    return text;
}

Result<std::unique_ptr<GpuMemoryAccess>> GpuMemoryAccess::open(int device) {
    auto cuda = CudaTable::load(variable("MUSTER_CUDA_LIBRARY"));
    if (!cuda) return cuda.error();
    auto access = std::make_unique<GpuMemoryAccess>();
    access->cuda_ = std::move(*cuda);
    const auto& table = access->cuda_;
    if (auto set = table.check(table.set_device(device), "use the GPU"); !set) return set.error();
    auto made = table.check(table.stream_create(&access->stream_, cudaStreamNonBlocking), "make a stream");
    if (made) made = table.check(table.event_create(&access->done_, cudaEventDisableTiming), "make an event");
    if (!made) return made.error();
    return access;
}

Result<void> GpuMemoryAccess::finish() {
    if (auto marked = cuda_.check(cuda_.event_record(done_, stream_), "record an event"); !marked) return marked;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    for (;;) {
        const auto state = cuda_.event_query(done_);
        if (state != cudaErrorNotReady) return cuda_.check(state, "copy");
        if (std::chrono::steady_clock::now() > deadline) return Error{Errc::timed_out, "a copy did not end in 60 s"};
        std::this_thread::yield();
    }
}

Result<void> GpuMemoryAccess::write(void* device_memory, const void* from, std::size_t size_bytes) {
    auto begun = cuda_.check(cuda_.copy(device_memory, from, size_bytes, cudaMemcpyDefault, stream_), "copy");
    return begun ? finish() : begun;
}

Result<void> GpuMemoryAccess::read(void* to, const void* device_memory, std::size_t size_bytes) {
    auto begun = cuda_.check(cuda_.copy(to, device_memory, size_bytes, cudaMemcpyDefault, stream_), "copy");
    return begun ? finish() : begun;
}

Result<void*> GpuMemoryAccess::begin_fill(void* device_memory, int byte, std::size_t size_bytes) {
    auto begun = cuda_.check(cuda_.fill(device_memory, byte, size_bytes, stream_), "fill");
    if (begun) begun = cuda_.check(cuda_.event_record(done_, stream_), "record an event");
    if (!begun) return begun.error();
    return static_cast<void*>(done_);
}

Result<void*> GpuMemoryAccess::begin_copy(void* to, const void* from, std::size_t size_bytes) {
    auto begun = cuda_.check(cuda_.copy(to, from, size_bytes, cudaMemcpyDefault, stream_), "copy");
    if (begun) begun = cuda_.check(cuda_.event_record(done_, stream_), "record an event");
    if (!begun) return begun.error();
    return static_cast<void*>(done_);
}

int gpu_count(std::string& why) {
    int pipe_ends[2];
    if (::pipe(pipe_ends) != 0) return 0;
    const pid_t child = ::fork();
    if (child == 0) {
        std::string said;
        int count = 0;
        const auto cuda = CudaTable::load(variable("MUSTER_CUDA_LIBRARY"));
        const auto nccl = NcclTable::load(variable("MUSTER_NCCL_LIBRARY"));
        if (!cuda) {
            said = cuda.error().context;
        } else if (const auto found = cuda->check(cuda->device_count(&count), "no usable GPU"); !found) {
            said = found.error().context;
            count = 0;
        } else if (!nccl) {
            said = nccl.error().context;
            count = 0;
        } else {
            said = cat(cuda->versions(), ", NCCL ", nccl_version_text(nccl->features.version), " (",
                       features_text(nccl->features), ")");
        }
        const auto written = ::write(pipe_ends[1], said.data(), said.size());
        ::_exit(written < 0 ? 0 : count);
    }
    ::close(pipe_ends[1]);
    char text[512];
    for (ssize_t got = 0; (got = ::read(pipe_ends[0], text, sizeof text)) > 0;) {
        why.append(text, static_cast<std::size_t>(got));
    }
    ::close(pipe_ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status)) why = cat("looking for a GPU ended with signal ", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace muster::test
