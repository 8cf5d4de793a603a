#include "agent/diagnosis/failure_kind.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

struct KindRow {
    const char* what;
    WorkerEnd end;
    const char* message;
    std::string stderr_tail;
    FailureKind kind;
};

constexpr auto killed = FailureKind::killed;
constexpr auto worker_error = FailureKind::worker_error;
constexpr auto communication_error = FailureKind::communication_error;

}  // namespace

TEST_CASE("of ranks that differ the one named second is blamed, and the others are victims") {
    const std::string words =
        "digits_trainer: rank 0: ranks differ in operation 17 of communicator world: rank 0 (pid 41 on gpu01) runs "
        "all_reduce, rank 3 (pid 42 on gpu02) runs barrier\n";
    const auto kind_for = [&](const WorkerName& self) {
        return failure_kind(Exited{1}, "", words, CauseKind::collective_mismatch, self);
    };
    // Also where our own signal came before the end of the process.
    CHECK(failure_kind(Signaled{15, false}, "", words, CauseKind::collective_mismatch, {0, 41, "gpu01"}) ==
          FailureKind::communication_error);
    CHECK(failure_kind(Signaled{15, false}, "", words, CauseKind::collective_mismatch, {3, 42, "gpu02"}) ==
          FailureKind::killed);
    CHECK(kind_for({3, 42, "gpu02"}) == FailureKind::worker_error);
    CHECK(kind_for({0, 41, "gpu01"}) == FailureKind::communication_error);
    CHECK(kind_for({1, 42, "gpu01"}) == FailureKind::communication_error);
    CHECK(kind_for({2, 4, "gpu02"}) == FailureKind::communication_error);
    CHECK(kind_for({}) == FailureKind::worker_error);
}

TEST_CASE("of a checkpoint that was not saved the rank that could not write is blamed") {
    const auto kind_for = [](std::int32_t rank) {
        return failure_kind(Exited{1}, "",
                            "the newest checkpoint was not saved: rank 2: write x: No space left on device",
                            CauseKind::disk_full, {rank, 42, "gpu01"});
    };
    CHECK(kind_for(2) == FailureKind::worker_error);
    CHECK(kind_for(0) == FailureKind::communication_error);
    CHECK(kind_for(22) == FailureKind::communication_error);
}

TEST_CASE("causes and victims are told apart") {
    const std::vector<KindRow> rows = {
        {"an exit without a word", Exited{7}, "", "", worker_error},
        {"an exception of its own", Exited{1}, "", "Traceback (most recent call last):\nValueError: bad batch\n",
         worker_error},
        {"a peer's death as our runtime tells it", Exited{1}, "",
         "digits_trainer: rank 1: step 3: gradients of bucket 0: rank 3 (pid 11908 on node-b) died\n",
         communication_error},
        {"an abort that its agent asked for", Exited{1}, "",
         "digits_trainer: rank 1: step 3: communicator world was aborted: the round ended: rank 3 on node-b failed\n",
         communication_error},
        {"never started", NotStarted{2, "execvpe"}, "", "", killed},
        {"out of memory", Signaled{9, false}, "", "", killed},
        {"a crash, even with a victim's words", Signaled{11, true}, "", "Connection reset by peer", killed},
        {"a failed check", Signaled{6, true}, "", "Assertion `x' failed.", killed},
        {"NCCL's watchdog aborts a victim", Signaled{6, true}, "",
         "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 0] NCCL error: "
         "remote "
         "process exited or there was a network error, NCCL version 2.28.9",
         communication_error},
        {"gloo, torch 2.13: peer killed", Exited{1}, "",
         "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read "
         "error "
         "[127.0.0.1]:27009: Connection reset by peer. This is typically caused by a remote worker hanging",
         communication_error},
        {"gloo, torch 2.13: peer ended", Exited{1}, "",
         "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:19693.",
         communication_error},
        {"the store is gone", Exited{1}, "",
         "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the "
         "remote "
         "server shutdown or crash?",
         communication_error},
        {"the error file is asked before stderr", Exited{1}, "ValueError: bad batch", "Connection reset by peer",
         worker_error},
        {"the error file of a victim", Exited{1}, "RuntimeError: ... Connection closed by peer [::1]:1", "",
         communication_error},
        {"an old warning before the last traceback", Exited{1}, "",
         "warning: upload: Connection reset by peer, trying again\nTraceback (most recent call last):\nKeyError: 'x'\n",
         worker_error},
        {"an old warning far before the end", Exited{1}, "", "Connection reset by peer\n" + std::string(9000, '.'),
         worker_error},
        {"gloo, writing to a peer that is gone", Exited{1}, "",
         "[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:357] writev [10.0.0.2]:4321: Broken "
         "pipe",
         communication_error},
        {"NCCL, the same", Exited{1}, "", "NCCL WARN socketProgress: Call to send to peer failed: Broken pipe",
         communication_error},
        {"our runtime, the same", Exited{1}, "",
         "digits_trainer: rank 1: the connection with rank 3 (pid 42 on gpu02) broke in all_reduce: Broken pipe\n",
         communication_error},
        {"a program that it fed has ended", Exited{1}, "",
         "Traceback (most recent call last):\n  File \"train.py\", line 3\n    encoder.stdin.write(frame)\n"
         "BrokenPipeError: [Errno 32] Broken pipe\n",
         worker_error},
        {"the same in the error file, beside a peer's name", Exited{1},
         "gloo/transport/tcp is in use\nBrokenPipeError: [Errno 32] Broken pipe", "", worker_error},
    };
    for (const auto& row : rows) {
        INFO(row.what);
        CHECK(failure_kind(row.end, row.message, row.stderr_tail) == row.kind);
    }
}

TEST_CASE("the known message is quoted as the table has it") {
    CHECK(known_victim_message("gloo/transport/tcp/pair.cc:1: Broken pipe (32)") == "Broken pipe");
    CHECK(known_victim_message("x: Broken pipe (32)").empty());
    CHECK(known_victim_message("all is well").empty());
}
