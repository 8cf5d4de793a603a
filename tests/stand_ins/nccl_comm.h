// Communicators of the NCCL stand-in: their rules, what runs on their streams, and how they are made and ended.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/stand_ins/current_device.h"
#include "tests/stand_ins/device_memory.h"
#include "tests/stand_ins/hub.h"

namespace muster::stand_ins {

#ifdef STANDIN_OLD
constexpr int own_version = 21806;
#else
constexpr int own_version = NCCL_VERSION_CODE;
#endif

/// How often a call is asked about before it is over.
inline constexpr int polls_needed = 2;

struct Comm {
    int rank = 0;
    int size = 1;
    int device = 0;
    HubLink link;
    std::string hub;  ///< where the ranks meet; this process's, if it opened it
    std::mutex mutex;
    std::condition_variable changed;
    ncclResult_t state = ncclInProgress;
    int polls = polls_needed;
    bool connecting = false;  ///< a thread works on it
    bool aborted = false;
    std::uint64_t operations = 0;
    int next_reduction = ncclNumOps;
    std::map<int, Frame> scalars;  ///< of reductions made by ncclRedOpCreatePreMulSum
    std::set<void*> registered;
    std::thread connector;

    ~Comm() {
        if (connector.joinable()) connector.join();
        close_hub(hub);  // where not all ranks have come
    }
    void wait_until_aborted() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return aborted; });
    }
    void fail(ncclResult_t result) {
        const std::lock_guard lock(mutex);
        state = result;
    }
};

using CommPointer = std::shared_ptr<Comm>;

/// What a thread has said between ncclGroupStart and ncclGroupEnd.
struct Transfer {
    CommPointer comm;
    bool sends;
    int peer;
    void* memory;
    std::size_t bytes;
    cudaStream_t stream;
};

struct Group {
    int depth = 0;
    std::vector<Transfer> transfers;
    std::vector<CommPointer> aborts;
};
extern thread_local Group group;
extern thread_local std::string last_error;

ncclComm_t handle_of(const CommPointer& comm);
CommPointer find(ncclComm_t handle);
void forget(const CommPointer& comm);

/// MUSTER_STANDIN_FAULT.
std::string fault();
[[noreturn]] void hang();
ncclResult_t refuse(ncclResult_t result, const char* why);
/// May a call on it begin?
ncclResult_t usable(const CommPointer& comm);
ncclResult_t in_progress(const CommPointer& comm);

/// Puts an exchange on the stream: `give` makes this rank's frame when its turn has come, `take` gets all ranks', and
/// returns false when they do not do the same.
ncclResult_t enqueue(const CommPointer& comm, cudaStream_t stream, std::function<Frame()> give,
                     std::function<bool(const std::vector<Frame>&)> take);
/// A frame is one byte that says what it is for, and data.
Frame frame_of(char kind, const void* data, std::size_t bytes);
bool alike(const std::vector<Frame>& frames);

/// Is it made as NCCL wants it, and not blocking?
bool is_good(const ncclConfig_t* config);
ncclResult_t init(ncclComm_t* handle, int size, int rank, const ncclUniqueId& id, const ncclConfig_t* config);
/// In a thread of the parent's: NCCL writes the child's handle when the call is over, not when it returns.
void split(Comm& parent, int color, int key, ncclComm_t* made);
void abort_together(const std::vector<CommPointer>& all);
/// The sends and receives of one group on one communicator, as one operation.
ncclResult_t move(std::vector<Transfer> transfers);

}  // namespace muster::stand_ins
