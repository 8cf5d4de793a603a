#include "agent/diagnosis/end_cause.h"

#include "agent/diagnosis/core_dump.h"
#include "agent/diagnosis/failure_kind.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

constexpr std::int64_t mib = 1 << 20;

EndFacts facts_of(WorkerEnd end, std::string_view stderr_tail = {}) {
    EndFacts facts;
    facts.end = std::move(end);
    facts.pid = 4242;
    facts.stderr_tail = stderr_tail;
    facts.oom_kills = 0;
    facts.memory_group = MemoryGroup{"/sys/fs/cgroup/job", 512 * mib, "/sys/fs/cgroup/job/memory.max"};
    facts.shm_bytes = 4096 * mib;
    facts.shm_free_bytes = 4000 * mib;
    return facts;
}

bool says(const FailureCause& cause, std::string_view words) {
    return cause.text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("an out-of-memory kill is known by the kernel's line or by the counter, and says what to raise") {
    auto facts = facts_of(Signaled{9, false});
    facts.oom_kills = 1;
    const auto counted = end_cause(facts);
    CHECK(counted.kind == CauseKind::out_of_memory);
    CHECK(says(counted, "/sys/fs/cgroup/job"));
    CHECK(says(counted, "512 MiB (/sys/fs/cgroup/job/memory.max): raise it"));
    facts.oom_kills = 0;
    facts.kernel_events = {OomKill{4242, "python3", 300 * 1024, true}};
    const auto told = end_cause(facts);
    CHECK(told.kind == CauseKind::out_of_memory);
    CHECK(says(told, "it held 300 MiB"));
    facts.memory_group.reset();
    CHECK(says(end_cause(facts), "the host's memory is full"));
}

TEST_CASE("the most that was used says whether it was the group's limit or the host's memory") {
    auto facts = facts_of(Signaled{9, false});
    facts.oom_kills = 1;
    facts.memory_group->peak_bytes = 511 * mib;
    CHECK(says(end_cause(facts), "512 MiB (/sys/fs/cgroup/job/memory.max), peak usage 511 MiB: raise it"));
    facts.memory_group->peak_bytes = 100 * mib;
    const auto host = end_cause(facts);
    CHECK(host.kind == CauseKind::out_of_memory);
    CHECK(says(host, "its peak usage was 100 MiB of its limit of 512 MiB, so the host's memory is full"));
    // What the kernel says of this kill goes before: another group's limit may be lower.
    facts.kernel_events = {OomKill{4242, "python3", 90 * 1024, true}};
    CHECK(says(end_cause(facts), "peak usage 100 MiB: raise it"));
}

TEST_CASE(
    "a worker that muster itself killed was not out of memory, whatever was counted; unless the kernel names it") {
    auto facts = facts_of(Signaled{9, false});
    facts.oom_kills = 1;
    facts.killer = Killer::muster;
    CHECK(end_cause(facts).kind == CauseKind::killed_from_outside);
    facts.kernel_events = {OomKill{4242, "python3", 300 * 1024, true}};
    CHECK(end_cause(facts).kind == CauseKind::out_of_memory);
}

TEST_CASE("a shell's 137 is a kill too") {
    auto facts = facts_of(Exited{137});
    facts.oom_kills = 1;
    CHECK(end_cause(facts).kind == CauseKind::out_of_memory);
    CHECK(failure_kind(facts.end, "", "", CauseKind::out_of_memory) == FailureKind::killed);
}

TEST_CASE("the counter does not turn a victim of the same moment into a culprit") {
    auto facts = facts_of(Exited{1}, "RuntimeError: Connection closed by peer");
    facts.oom_kills = 1;
    CHECK(end_cause(facts).kind == CauseKind::unknown);
    facts.end = Signaled{15, false};
    CHECK(end_cause(facts).kind == CauseKind::unknown);
}

TEST_CASE("another process's line is not this one's") {
    auto facts = facts_of(Signaled{9, false});
    facts.kernel_events = {OomKill{4243, "other", 1, false}, GpuError{0, 79, "PCI:0"}};
    facts.kernel_log_read = true;
    CHECK(end_cause(facts).kind == CauseKind::killed_from_outside);
    facts.pid = 0;
    facts.kernel_events = {OomKill{0, "", 1, false}};
    CHECK(end_cause(facts).kind == CauseKind::killed_from_outside);
}

TEST_CASE("a kill that the kernel did not count came from somebody; uncounted, nobody knows") {
    auto facts = facts_of(Signaled{9, false}, "MemoryError");
    CHECK(end_cause(facts).kind == CauseKind::killed_from_outside);
    CHECK(end_cause(facts).text ==
          "sent from outside the job (a person, a scheduler or another program); the kernel's counters show no "
          "out-of-memory kill; check the log of the scheduler and of other programs that may kill processes here");
    facts.kernel_log_read = true;
    facts.end = Exited{137};
    CHECK(says(end_cause(facts),
               "a shell's exit code for a program killed by signal 9 (SIGKILL), sent from outside the job"));
    CHECK(says(end_cause(facts), "; the kernel log shows no out-of-memory kill"));
    facts = facts_of(Signaled{9, false}, "MemoryError");
    facts.oom_kills.reset();
    CHECK(end_cause(facts) == FailureCause{});
}

TEST_CASE("a bus error with a full /dev/shm is told so, and with a roomy one is not") {
    auto facts = facts_of(Signaled{7, false});
    CHECK(end_cause(facts).kind == CauseKind::unknown);
    CHECK(says(end_cause(facts), "4000 MiB of 4096 MiB are free"));
    facts.shm_free_bytes = 4096;
    CHECK(end_cause(facts).kind == CauseKind::shared_memory_full);
    CHECK(says(end_cause(facts), "/dev/shm of 4096 MiB is full"));
    facts.shm_bytes = facts.shm_free_bytes = 64 * mib;  // a container: what the dead held is free again
    CHECK(end_cause(facts).kind == CauseKind::shared_memory_full);
    CHECK(says(end_cause(facts), "probably full: it has only 64 MiB"));
    facts = facts_of(Exited{1}, "RuntimeError: unable to write to file </torch_12_34>: No space left on device (28)");
    CHECK(end_cause(facts).kind == CauseKind::shared_memory_full);
    facts = facts_of(Signaled{7, false});
    facts.kernel_events = {HardwareMemoryError{4242}};
    facts.shm_free_bytes = 0;
    CHECK(end_cause(facts).kind == CauseKind::hardware_memory);
}

TEST_CASE("an Xid is told with whose fault it is, also where Python left by an exception") {
    auto facts = facts_of(Exited{1}, "RuntimeError: CUDA error: unspecified launch failure");
    facts.kernel_events = {GpuError{4242, 48, "PCI:0000:3b:00"}};
    const auto cause = end_cause(facts);
    CHECK(cause.kind == CauseKind::gpu_fault);
    CHECK(says(cause, "Xid 48 for it on PCI:0000:3b:00: an ECC error"));
    CHECK(failure_kind(facts.end, "", facts.stderr_tail, cause.kind) == FailureKind::killed);
}

TEST_CASE("an Xid that names no process is the cause where the worker speaks of a GPU, and nobody else's") {
    const KernelEvent bus = GpuError{0, 79, "PCI:0000:3b:00"};
    for (const auto* words : {"RuntimeError: CUDA error: unspecified launch failure",
                              "CUDA_ERROR_UNKNOWN: unknown error", "NCCL WARN Cuda failure 'unknown error'"}) {
        INFO(words);
        auto facts = facts_of(Exited{1}, words);
        facts.kernel_events = {bus, GpuError{0, 45, "PCI:0000:3b:00"}};
        const auto cause = end_cause(facts);
        CHECK(cause.kind == CauseKind::gpu_fault);
        CHECK(says(cause, "Xid 79 on PCI:0000:3b:00 in this round, without a process: the GPU has fallen off the bus"));
    }
    for (const auto* words : {"ValueError: bad batch", "Connection closed by peer", ""}) {
        auto facts = facts_of(Exited{1}, words);
        facts.kernel_events = {bus};
        CHECK(end_cause(facts).kind == CauseKind::unknown);
    }
    // What is said of memory or of a missing GPU is more than that.
    auto facts = facts_of(Exited{1}, "torch.OutOfMemoryError: CUDA out of memory. CUDA error");
    facts.kernel_events = {bus};
    CHECK(end_cause(facts).kind == CauseKind::allocation_failed);
    CHECK(unnamed_gpu_errors(bus).find("the NVIDIA driver reported Xid 79 on PCI:0000:3b:00") == 0);
    CHECK(unnamed_gpu_errors(GpuError{42, 79, "PCI:0"}).empty());
    CHECK(unnamed_gpu_errors(GpuError{0, 45, "PCI:0"}).empty());
    CHECK(unnamed_gpu_errors(OomKill{42, "x", 1, false}).empty());
}

TEST_CASE("Xid 45 follows from an earlier error or from SIGKILL, and is no cause") {
    auto facts = facts_of(Signaled{6, true}, "CUDA error: an illegal memory access was encountered");
    facts.kernel_events = {GpuError{4242, 31, "PCI:0"}, GpuError{4242, 45, "PCI:0"}};
    CHECK(says(end_cause(facts), "Xid 31 for it on PCI:0: a GPU memory page fault"));
    facts = facts_of(Signaled{15, false});
    facts.kernel_events = {GpuError{4242, 45, "PCI:0"}};
    CHECK(end_cause(facts).kind == CauseKind::unknown);
}

TEST_CASE("a segmentation fault is told with the library it was in") {
    auto facts = facts_of(Signaled{11, true});
    facts.kernel_events = {MemoryFault{4242, 0x10, "libtorch_cpu.so"}};
    facts.core_file = "/tmp/core.4242";
    const auto cause = end_cause(facts);
    CHECK(cause.kind == CauseKind::memory_fault);
    CHECK(says(cause, "through a null pointer, in libtorch_cpu.so"));
    CHECK(cause.core_file == "/tmp/core.4242");
    // Where the kernel's log may not be read, or a handler (Python's faulthandler) was before it.
    facts.kernel_events.clear();
    for (const WorkerEnd& end : {WorkerEnd(Signaled{11, true}), WorkerEnd(Exited{128 + 11})}) {
        facts.end = end;
        CHECK(end_cause(facts).kind == CauseKind::memory_fault);
        CHECK(says(end_cause(facts), "the location is unknown"));
    }
}

TEST_CASE("last words are known: libraries, modules, memory, GPUs, disks, ranks that differ") {
    struct Row {
        std::string_view tail;
        CauseKind kind;
        std::string_view words;
    };
    const Row rows[] = {
        {"./t: error while loading shared libraries: libnccl.so.2: cannot open shared object file: No such file",
         CauseKind::missing_library, "libnccl.so.2 was not found"},
        {"Traceback (most recent call last):\nImportError: libcudart.so.12: cannot open shared object file: No such "
         "file or directory\n",
         CauseKind::missing_library, "libcudart.so.12"},
        {"Traceback (most recent call last):\nModuleNotFoundError: No module named 'flash_attn'\n",
         CauseKind::import_error, "No module named 'flash_attn': install it on this host"},
        {"/usr/bin/python3: No module named nosuchmod\n", CauseKind::import_error,
         "this Python finds no module nosuchmod: correct the name after -m"},
        {"Traceback (most recent call last):\nMemoryError\n", CauseKind::allocation_failed, "out of memory"},
        {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", CauseKind::allocation_failed,
         "GPU memory"},
        {"RuntimeError: No CUDA GPUs are available", CauseKind::missing_gpu, "nvidia-smi"},
        {"digits_trainer: rank 1: no CUDA runtime library (libcudart.so.12: cannot open shared object file: No such "
         "file or directory); install it on this host, or name its file in MUSTER_CUDA_LIBRARY",
         CauseKind::missing_gpu, "nvidia-smi"},
        {"OSError: [Errno 28] No space left on device: '/data/x'", CauseKind::disk_full, "df -h"},
        {"OSError: [Errno 27] File too large", CauseKind::disk_full, "ulimit -f"},
        {"RuntimeError: can't start new thread", CauseKind::unknown, "raise ulimit -u (RLIMIT_NPROC) or pids.max"},
        {"libgomp: Thread creation failed: Resource temporarily unavailable", CauseKind::unknown, "ulimit -u"},
        {"rank 1: ranks differ in operation 7 of communicator world: rank 0 calls all_reduce ...",
         CauseKind::collective_mismatch, "different operations"},
        {"all_to_all_uneven: rank 0 sends 7 elements of f32 to rank 1, which expects 6; make both counts equal",
         CauseKind::collective_mismatch, "different sizes"},
        {"[enforce fail at pair.cc:1] op.preamble.length <= op.nbytes. 16 vs 8", CauseKind::collective_mismatch,
         "different sizes"},
        {"ValueError: bad batch", CauseKind::unknown, ""},
    };
    for (const auto& row : rows) {
        INFO(row.tail);
        const auto cause = end_cause(facts_of(Exited{1}, row.tail));
        CHECK(cause.kind == row.kind);
        CHECK(says(cause, row.words));
        // These are the worker's own errors: a signal elsewhere goes before them.
        CHECK_FALSE(is_from_outside(cause.kind));
    }
}

TEST_CASE("a thread that outlived Python is told, but not where an exception went before") {
    constexpr std::string_view left = "terminate called without an active exception\n";
    const auto cause = end_cause(facts_of(Signaled{6, true}, left));
    CHECK(cause.kind == CauseKind::unknown);  // nobody's blame is known by it
    CHECK(says(cause, "a C++ thread was running when the program exited"));
    const auto after = cat("Traceback (most recent call last):\nValueError: x\n", left);
    CHECK(end_cause(facts_of(Signaled{6, true}, after)) == FailureCause{});
}

TEST_CASE("an old warning is no last word, and the address-space limit is named") {
    const auto old = "No space left on device, retrying\nTraceback (most recent call last):\nValueError: x\n";
    CHECK(end_cause(facts_of(Exited{1}, old)).kind == CauseKind::unknown);
    auto facts = facts_of(Exited{1}, "MemoryError");
    facts.address_space_limit_bytes = 256 * mib;
    CHECK(says(end_cause(facts), "limited to 256 MiB (ulimit -v)"));
}

TEST_CASE("a missing interpreter is named") {
    auto facts = facts_of(NotStarted{2, "interpreter of /opt/train"});
    facts.interpreter = "/usr/bin/python9";
    const auto cause = end_cause(facts);
    CHECK(cause.kind == CauseKind::missing_interpreter);
    CHECK(says(cause, "/opt/train needs the interpreter /usr/bin/python9, which was not found"));
    CHECK(end_cause(facts_of(NotStarted{2, "execve"})) == FailureCause{});
}

TEST_CASE("a core dump's place follows core_pattern") {
    const DumpedProcess process{
        .pid = 42, .signal = 11, .uid = 1000, .gid = 100, .host = "gpu07", .directory = "/run/job"};
    CHECK(core_dump_place("core\n", false, process).pattern == "/run/job/core");
    CHECK(core_dump_place("core", true, process).pattern == "/run/job/core.42");
    CHECK(core_dump_place("core.%p", true, process).pattern == "/run/job/core.42");
    CHECK(core_dump_place("/cores/%h/%e.%p.%s.%u.%g.%t%%%", false, process).pattern ==
          "/cores/gpu07/*.42.11.1000.100.*%%");
    CHECK(core_dump_place("|/usr/lib/systemd/systemd-coredump %P %u", false, process).words ==
          "given to systemd-coredump: coredumpctl info 42");
    CHECK(core_dump_place("|/usr/share/apport/apport -p%p", false, process).words == "given to apport: see /var/crash");
    CHECK(core_dump_place("|/bin/x %p", false, process).words == "given to /bin/x");
}
