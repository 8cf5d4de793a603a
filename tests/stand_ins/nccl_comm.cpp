#include "tests/stand_ins/nccl_comm.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

extern "C" int standin_frees_waiting();
extern "C" void standin_wait_until_idle();

namespace muster::stand_ins {

thread_local Group group;
thread_local std::string last_error;

namespace {

std::mutex comms_mutex;
std::map<ncclComm_t, CommPointer> comms;

}  // namespace

ncclComm_t handle_of(const CommPointer& comm) {
    return reinterpret_cast<ncclComm_t>(comm.get());
}

CommPointer find(ncclComm_t handle) {
    const std::lock_guard lock(comms_mutex);
    const auto found = comms.find(handle);
    return found == comms.end() ? nullptr : found->second;
}

void forget(const CommPointer& comm) {
    const std::lock_guard lock(comms_mutex);
    comms.erase(handle_of(comm));
}

std::string fault() {
    const char* const text = std::getenv("MUSTER_STANDIN_FAULT");
    return text != nullptr ? text : "";
}

/// "stuck:3" is due from the fourth operation on.
bool is_due(const std::string& kind, std::uint64_t operations) {
    const std::string text = fault();
    return text.starts_with(kind + ":") && operations >= std::strtoull(text.c_str() + kind.size() + 1, nullptr, 10);
}

[[noreturn]] void hang() {
    for (;;) ::pause();
}

ncclResult_t refuse(ncclResult_t result, const char* why) {
    last_error = why;
    return result;
}

/// May a call on it begin?
ncclResult_t usable(const CommPointer& comm) {
    if (!comm) return refuse(ncclInvalidArgument, "no such communicator");
    const std::lock_guard lock(comm->mutex);
    if (comm->state == ncclInProgress) {
        return refuse(ncclInvalidUsage,
                      "Attempt to use communicator before the previous operation returned ncclSuccess");
    }
    return comm->state;
}

ncclResult_t in_progress(const CommPointer& comm) {
    const std::lock_guard lock(comm->mutex);
    comm->state = ncclInProgress;
    comm->polls = polls_needed;
    return ncclInProgress;
}

struct Job {
    CommPointer comm;
    std::function<Frame()> give;
    std::function<bool(const std::vector<Frame>&)> take;  ///< false: the ranks do not do the same
};

void run_job(void* argument) {
    const std::unique_ptr<Job> job(static_cast<Job*>(argument));
    Comm& comm = *job->comm;
    if (is_due("stuck", comm.operations)) return comm.wait_until_aborted();
    if (is_due("ends_badly", comm.operations)) return comm.fail(ncclRemoteError);
    if (is_due("async_error", comm.operations)) {
        comm.fail(ncclRemoteError);
        return comm.wait_until_aborted();
    }
    ++comm.operations;
    const auto frames = comm.link.exchange(job->give());
    if (frames.empty() || !job->take(frames)) comm.wait_until_aborted();
}

std::atomic<unsigned> calls = 0;

ncclResult_t enqueue(const CommPointer& comm, cudaStream_t stream, std::function<Frame()> give,
                     std::function<bool(const std::vector<Frame>&)> take) {
    if (standin_device_of(stream) != comm->device) return refuse(ncclInvalidArgument, "the stream is of another GPU");
    auto job = std::make_unique<Job>(Job{comm, std::move(give), std::move(take)});
    // Before it runs: what it finds wrong stays.
    in_progress(comm);
    ++calls;
    return cudaLaunchHostFunc(stream, run_job, job.release()) == cudaSuccess ? ncclInProgress : ncclUnhandledCudaError;
}

extern "C" unsigned standin_communicators() {
    const std::lock_guard lock(comms_mutex);
    return static_cast<unsigned>(comms.size());
}

extern "C" unsigned standin_calls() {
    return calls;
}

/// A frame is one byte that says what it is for, and data.
Frame frame_of(char kind, const void* data, std::size_t bytes) {
    Frame frame(bytes + 1, static_cast<unsigned char>(kind));
    if (bytes > 0) std::memcpy(frame.data() + 1, data, bytes);
    return frame;
}

bool alike(const std::vector<Frame>& frames) {
    return std::all_of(frames.begin(), frames.end(), [&](const Frame& frame) {
        return frame.size() == frames.front().size() && frame.front() == frames.front().front();
    });
}

void connect(const CommPointer& comm, const std::string& hub) {
    comm->connecting = true;
    comm->hub = hub;
    comm->connector = std::thread([raw = comm.get(), hub] {
        if (fault() == "init_hangs") return raw->wait_until_aborted();
        const bool good = raw->link.connect(hub, raw->rank, raw->size);
        if (!good) return raw->wait_until_aborted();
        const std::lock_guard lock(raw->mutex);
        raw->connecting = false;
    });
    const std::lock_guard lock(comms_mutex);
    comms[handle_of(comm)] = comm;
}

bool is_good(const ncclConfig_t* config) {
    const bool known = config != nullptr && config->magic == NCCL_API_MAGIC && config->size == sizeof *config &&
                       config->version == NCCL_VERSION_CODE;
    if (!known) refuse(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (known && config->blocking != 0) refuse(ncclInvalidArgument, "the stand-in has non-blocking communicators only");
    return known && config->blocking == 0;
}

ncclResult_t init(ncclComm_t* handle, int size, int rank, const ncclUniqueId& id, const ncclConfig_t* config) {
    if (!is_good(config)) return ncclInvalidArgument;
    if (fault() == "init_fails") return refuse(ncclSystemError, "no socket interface was found");
    auto comm = std::make_shared<Comm>();
    comm->rank = rank;
    comm->size = size;
    comm->device = use_current_device();
    *handle = handle_of(comm);
    connect(comm, std::string(id.internal, strnlen(id.internal, sizeof id.internal)));
    return ncclInProgress;
}

/// The stand-ins' process is ended here by "dies_in_split:STAGE".
void dies_in_split(const char* stage) {
    if (fault() == std::string("dies_in_split:") + stage) ::raise(SIGKILL);
}

struct Choice {
    int color;
    int key;
    int rank;
    char hub[64];
};

void split(Comm& parent, int color, int key, ncclComm_t* made) {
    dies_in_split("0");
    Choice own{.color = color, .key = key, .rank = parent.rank, .hub = {}};
    const std::string hub = muster::stand_ins::open_hub();
    std::memcpy(own.hub, hub.data(), hub.size());
    const auto frames = parent.link.exchange(frame_of('s', &own, sizeof own));
    if (frames.empty() || !alike(frames)) {
        close_hub(hub);
        return parent.wait_until_aborted();
    }
    dies_in_split("1");
    std::vector<Choice> members;
    for (const auto& frame : frames) {
        Choice one;
        std::memcpy(&one, frame.data() + 1, sizeof one);
        if (one.color == color) members.push_back(one);
    }
    std::sort(members.begin(), members.end(),
              [](const Choice& a, const Choice& b) { return a.key != b.key ? a.key < b.key : a.rank < b.rank; });
    if (color >= 0) {
        auto child = std::make_shared<Comm>();
        child->device = parent.device;
        child->size = static_cast<int>(members.size());
        while (members[static_cast<std::size_t>(child->rank)].rank != parent.rank) ++child->rank;
        connect(child, members.front().hub);
        if (fault() == "split_ends_late") parent.wait_until_aborted();
        *made = handle_of(child);
    }
    if (color < 0 || hub != members.front().hub) close_hub(hub);
    dies_in_split("2");
    const std::lock_guard lock(parent.mutex);
    parent.connecting = false;
}

void abort_together(const std::vector<CommPointer>& all) {
    if (fault() == "abort_hangs" || standin_frees_waiting() > 0) hang();
    for (const auto& comm : all) {
        const std::lock_guard lock(comm->mutex);
        if (!comm->registered.empty()) hang();
        comm->aborted = true;
        comm->link.end();
        comm->changed.notify_all();
    }
    standin_wait_until_idle();
    for (const auto& comm : all) forget(comm);
}

}  // namespace muster::stand_ins
