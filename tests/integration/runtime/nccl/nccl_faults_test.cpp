// Faults of NCCL, one at a time, through the plugin and over the stand-ins: each ends on every rank within its
// deadline, with the right sentence, and whoever can go on does.
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/nccl/nccl_group.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"

namespace muster {

using namespace runtime;
using test::join_nccl_group;
using test::NcclSetting;
using test::publish_wrong;
using test::RankProcesses;
using test::run_nccl_ranks;
using test::sum;
using test::told;

namespace {

/// The first failure stays, whatever is asked for afterwards.
std::string stays(Communicator& world, const Error& first) {
    const auto again = world.run(barrier());
    if (again || again.error().context != first.context) return "another call says something else";
    return world.status().has_error() ? "" : "the status is good";
}

/// As every rank of `size`: sums until something fails, which has to be told in `words`.
std::string sums_until(int size, const std::vector<std::string>& words,
                       const std::function<NcclSetting(int)>& setting) {
    return run_nccl_ranks(
        size,
        [&](Communicator& world, int) {
            for (;;) {
                const auto done = sum(world);
                if (done) continue;
                const auto wrong = told(done, words);
                return wrong.empty() ? stays(world, done.error()) : wrong;
            }
        },
        setting);
}

/// `fault` on rank 1 of all.
std::function<NcclSetting(int)> on_rank_1(const std::string& fault, Duration timeout = 30s, Duration meeting = 30s) {
    return [=](int rank) {
        return NcclSetting{.fault = rank == 1 ? fault : "", .timeout = timeout, .meeting_timeout = meeting};
    };
}

/// A rank that finds a difference gives its neighbour five turns to say what it ran, and both know their last 4,096
/// operations: before either is over a busy host must give the neighbour some CPU.
constexpr Duration between_turns = 500ms, between_sums = 1ms;

/// What making a communicator says on each rank of two.
std::string making_says(const std::vector<std::vector<std::string>>& words,
                        const std::function<NcclSetting(int)>& setting) {
    RankProcesses ranks(static_cast<int>(words.size()), [&](const GroupTerms& group) {
        const auto made = join_nccl_group(group, setting(group.rank));
        return publish_wrong(group, told(made, words[static_cast<std::size_t>(group.rank)]));
    });
    return test::wrong_of(ranks, static_cast<int>(words.size()));
}

}  // namespace

TEST_CASE("a rank whose NCCL cannot connect says why, and the others hear it from that rank") {
    CHECK(making_says({{"rank 1 (pid ", "says:", "no socket interface was found"},
                       {"ncclCommInitRank: NCCL reports \"unhandled system error\": no socket interface was found"}},
                      on_rank_1("init_fails")) == "");
}

TEST_CASE("connecting that hangs ends at the meeting's deadline on every rank") {
    // Of the meeting's 10 s, what was left when the ranks had come together.
    const std::string late = "connecting the ranks did not end within ";
    CHECK(making_says({{late}, {late}}, on_rank_1("init_hangs", 30s, 10s)) == "");
}

TEST_CASE("a rank without a usable GPU is told on every rank, at once") {
    const auto no_gpu = [](int rank) {
        if (rank == 1) ::setenv("MUSTER_STANDIN_GPUS", "0", 1);
        return NcclSetting{};
    };
    const std::string reason = "no usable GPU: no CUDA-capable device is detected (CUDA error 100)";
    CHECK(making_says({{"communicator world: rank 1 cannot use NCCL: pid ", reason}, {reason}}, no_gpu) == "");
}

TEST_CASE("more ranks than GPUs, and two ranks on one, are told with the ranks and the GPU") {
    const auto one_gpu = [](int) {
        ::setenv("MUSTER_STANDIN_GPUS", "1", 1);
        return NcclSetting{};
    };
    const std::string reason = "no usable GPU: this rank's would be number 1, and 1 is visible";
    CHECK(making_says({{"rank 1 cannot use NCCL", reason}, {reason}}, one_gpu) == "");

    const auto same = [](int) { return NcclSetting{.device = 0}; };
    const std::vector<std::string> both{"rank 0 (pid ", "rank 1 (pid ", "both use GPU 0000:00:00.0"};
    CHECK(making_says({both, both}, same) == "");
}

TEST_CASE("ranks with different versions of NCCL are named") {
    const auto versions = [](int rank) {
        if (rank == 1) ::setenv("MUSTER_STANDIN_NCCL_VERSION", "22809", 1);
        return NcclSetting{};
    };
    const std::vector<std::string> both{"rank 0 (pid ", " has NCCL ", "but rank 1 (pid ", " has 2.28.9"};
    CHECK(making_says({both, both}, versions) == "");
}

TEST_CASE("a library that is too old, or none, is refused with the reason") {
    const auto old = [](int) {
        ::setenv("MUSTER_STANDIN_NCCL_VERSION", "21304", 1);
        return NcclSetting{};
    };
    CHECK(making_says({{"NCCL 2.13.4 is too old", "2.14.0 or newer"}}, old) == "");
    CHECK(making_says({{"no NCCL library", "MUSTER_NCCL_LIBRARY", "/nowhere/libnccl.so"}},
                      [](int) { return NcclSetting{.nccl_library = "/nowhere/libnccl.so"}; }) == "");
    // A file that is a library, but another.
    CHECK(making_says({{"is not an NCCL library"}}, [](int) { return NcclSetting{.nccl_library = STANDIN_CUDA}; }) ==
          "");
}

TEST_CASE("an asynchronous error ends the group on every rank, with the rank that saw it") {
    const auto where = [](int rank) {
        return rank == 1 ? std::vector<std::string>{"remote process exited or there was a network error"}
                         : std::vector<std::string>{"rank 1 (pid ", "says:", "remote process exited"};
    };
    CHECK(run_nccl_ranks(
              3,
              [&](Communicator& world, int rank) {
                  for (;;) {
                      if (const auto done = sum(world); !done) return told(done, where(rank));
                  }
              },
              on_rank_1("async_error:5")) == "");
}

TEST_CASE("an operation that is over on the GPU though its communicator has failed is no success") {
    const auto last_fails = [](Communicator& world, int rank) -> std::string {
        Result<void> done;
        for (int i = 0; i < 5 && done; ++i) done = sum(world);
        if (rank == 1 && !done) return done.error().context;
        // Rank 1 may have been quicker with the fifth one than rank 0, for which that is then the last.
        if (done) done = sum(world);
        return told(done, {rank == 1 ? "all_reduce sum f32" : "rank 1 (pid ", "remote process exited"});
    };
    // Whoever waits asks the communicator every now and then anyway: by chance in that very moment.
    for (int run = 0; run < 8; ++run) CHECK(run_nccl_ranks(2, last_fails, on_rank_1("ends_badly:5")) == "");
}

TEST_CASE("a rank that does not come is named at the deadline, with what it did last") {
    CHECK(run_nccl_ranks(
              3,
              [](Communicator& world, int rank) -> std::string {
                  if (const auto done = sum(world); !done) return done.error().context;
                  if (rank == 1) {
                      ::raise(SIGSTOP);  // for good: the test ends it
                      return "";
                  }
                  const auto done = sum(world);
                  return told(done, {"all_reduce sum f32 x 100 (operation 2)", "rank 1 (pid ", "has not reached it"});
              },
              [](int) { return NcclSetting{.timeout = 8s}; }, {1}) == "");
}

TEST_CASE("an operation that all ranks have begun and none ends is told as the GPUs' fault") {
    CHECK(sums_until(2, {"did not end within", "all ranks have reached it"},
                     [](int) { return NcclSetting{.fault = "stuck:3", .timeout = 8s}; }) == "");
}

TEST_CASE("ranks that do different things are told apart at the deadline") {
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int rank) {
                  const auto done = rank == 0 ? sum(world, 100) : sum(world, 200);
                  // Either its own words, or the other's, who may be first.
                  const std::string told_by = cat("rank ", 1 - rank, " (pid ");
                  return told(done, {told_by, " runs all_reduce sum f32 x ", " instead"});
              },
              [](int) {
                  NcclSetting setting{.timeout = 8s};
                  setting.terms.compare_interval = 100s;
                  return setting;
              }) == "");
}

TEST_CASE("ranks that contradict each other about what one sends are told both numbers, and go on") {
    CHECK(run_nccl_ranks(2, [](Communicator& world, int rank) {
              std::vector<float> input(100), output(100);
              const auto done = world.run(test::uneven_pair(input.data(), output.data(), 4, rank == 0 ? 4 : 3));
              if (!sum(world)) return std::string("the communicator does not go on");
              return told(done, {"rank 0 (pid ", " sends 4 elements of f32 to rank 1 (pid ", "which expects 3"});
          }) == "");
}

TEST_CASE("memory that one rank takes where another runs what is carried like it is found soon") {
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int rank) -> std::string {
                  std::int32_t own = 0;
                  std::vector<std::int32_t> all(2);
                  const auto gathered = all_gather({&own, 1, DataType::i32}, buffer(std::span(all)));
                  const auto began = std::chrono::steady_clock::now();
                  Result<void> done;
                  if (rank == 0) {
                      if (auto memory = world.allocate(4096); !memory) done = memory.error();
                  } else {
                      done = world.run(gathered);
                  }
                  while (done && std::chrono::steady_clock::now() - began < 60s) {
                      done = sum(world);
                      std::this_thread::sleep_for(between_sums);
                  }
                  return told(
                      done, {"ranks differ in operation 1: rank 0 (pid ", "allocate 4096 bytes", "all_gather i32 x 1"});
              },
              [](int) {
                  NcclSetting setting;
                  setting.terms.compare_interval = between_turns;
                  return setting;
              }) == "");
}

TEST_CASE("an operation that differs and ends all the same is found soon, and named with both ranks on all") {
    const auto often = [](int) {
        NcclSetting setting;
        setting.terms.compare_interval = between_turns;
        return setting;
    };
    // Many good ones before, and after: what is found names the one in between.
    CHECK(run_nccl_ranks(
              3,
              [](Communicator& world, int rank) -> std::string {
                  for (int i = 0; i < 100; ++i) {
                      if (const auto good = sum(world); !good) return good.error().context;
                  }
                  std::vector<std::int32_t> whole(100, 1);
                  std::vector<float> real(100, 1.0f);
                  const auto odd = rank == 1 ? world.run(all_reduce(buffer(std::span(whole)), ReduceOp::sum))
                                             : world.run(all_reduce(buffer(std::span(real)), ReduceOp::sum));
                  if (!odd) return "NCCL did not carry it out: " + odd.error().context;
                  const auto began = std::chrono::steady_clock::now();
                  for (;;) {
                      std::this_thread::sleep_for(between_sums);
                      const auto done = sum(world);
                      if (done && std::chrono::steady_clock::now() - began < 60s) continue;
                      const auto wrong =
                          told(done, {"ranks differ in operation 101: rank ", "rank 1 (pid ",
                                      " runs all_reduce sum i32 x 100", " runs all_reduce sum f32 x 100"});
                      return wrong.empty() ? stays(world, done.error()) : wrong;
                  }
              },
              often) == "");
}

TEST_CASE("a rank that comes late for another operation is found out, though the others have long ceased to ask") {
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int rank) {
                  // The other has been in its operation for more than the turns in which it asks.
                  if (rank == 1) std::this_thread::sleep_for(400ms);
                  const auto done = rank == 0 ? sum(world, 100) : sum(world, 200);
                  return told(done, {"ranks differ in operation 1: rank 0 (pid ", " runs all_reduce sum f32 x 100",
                                     "rank 1 (pid ", " runs all_reduce sum f32 x 200"});
              },
              [](int) {
                  NcclSetting setting;
                  setting.terms.compare_interval = 20ms;
                  return setting;
              }) == "");
}

TEST_CASE("ranks of different speed, idle ones, and groups of their own raise no false alarm") {
    const auto often = [](int) {
        NcclSetting setting;
        setting.terms.compare_interval = 20ms;
        return setting;
    };
    CHECK(run_nccl_ranks(
              3,
              [](Communicator& world, int rank) -> std::string {
                  auto part = world.split(rank == 2 ? 1 : 0, rank);
                  if (!part) return part.error().context;
                  for (int i = 0; i < 200; ++i) {
                      // Broadcasts of NCCL end at the root before the others come, so ranks are apart.
                      if (i % 100 == rank) std::this_thread::sleep_for(60ms);
                      std::vector<float> values(10 + static_cast<std::size_t>(i), 1.0f);
                      auto done = world.run(broadcast(buffer(std::span(values)), i % 3));
                      if (done && rank < 2) done = sum(**part, 1 + static_cast<std::size_t>(i));
                      if (!done) return done.error().context;
                  }
                  const auto memory = world.allocate(1000);
                  return memory ? "" : memory.error().context;
              },
              often) == "");
}

TEST_CASE("a rank that is killed is named at once") {
    const auto began = std::chrono::steady_clock::now();
    CHECK(run_nccl_ranks(
              3,
              [](Communicator& world, int rank) -> std::string {
                  auto done = sum(world);
                  if (rank == 1) ::raise(SIGKILL);
                  // It may have been quicker with the first one than the others, for whom that is then the last.
                  if (done) done = sum(world);
                  return told(done, {"rank 1 (pid ", "died"});
              },
              [](int) { return NcclSetting{.timeout = 100s}; }, {1}) == "");
    CHECK(std::chrono::steady_clock::now() - began < 50s);  // no deadline was waited for
}

TEST_CASE("a receive from a rank that is killed before its first send ends at once too") {
    const auto began = std::chrono::steady_clock::now();
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int rank) -> std::string {
                  auto done = sum(world);
                  if (rank == 1) ::raise(SIGKILL);
                  std::vector<std::int64_t> in(1);
                  if (done) done = world.run(receive(buffer(std::span(in)), 1));
                  return told(done, {"rank 1 (pid ", "died"});
              },
              [](int) { return NcclSetting{.timeout = 100s}; }, {1}) == "");
    CHECK(std::chrono::steady_clock::now() - began < 50s);  // no deadline was waited for
}

TEST_CASE("a rank whose connections end some time before its process does is named too") {
    // With a GPU this takes long: its driver frees what the process had. Here rank 0's NCCL reports the connections.
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int rank) -> std::string {
                  auto done = sum(world);
                  if (rank == 1) {
                      std::this_thread::sleep_for(100ms);  // short beside the 3 s in which rank 0 awaits the cause
                      ::raise(SIGKILL);
                  }
                  if (done) done = sum(world);
                  return told(done, {"rank 1 (pid ", "died"});
              },
              [](int rank) { return NcclSetting{.fault = rank == 0 ? "async_error:1" : "", .timeout = 100s}; },
              {1}) == "");
}

TEST_CASE("abort() of one rank ends the others' waits with its words") {
    CHECK(run_nccl_ranks(2, [](Communicator& world, int rank) -> std::string {
              auto done = sum(world);
              if (rank == 1) world.abort("the data ran out");
              // Rank 1 may have been quicker with the first one than rank 0, for which that is then the last.
              if (done) done = sum(world);
              return told(done, {rank == 0 ? "rank 1 (pid " : "", "the data ran out"});
          }) == "");
}

TEST_CASE("a failure aborts all communicators of the process together") {
    // The stand-in, like NCCL, does not return from the abort of one while another's operation is stuck.
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int) -> std::string {
                  auto other = world.split(0, 0);
                  if (!other) return other.error().context;
                  std::vector<float> values(10);
                  Work stuck = world.start(all_reduce(buffer(std::span(values)), ReduceOp::sum));
                  if (const auto good = sum(**other); !good) return good.error().context;
                  const auto done = sum(**other);
                  if (auto wrong = told(done, {"did not end within"}); !wrong.empty()) return wrong;
                  return stuck.wait().has_error() ? "" : "the other communicator goes on";
              },
              [](int) { return NcclSetting{.fault = "stuck:1", .timeout = 8s}; }) == "");
}

TEST_CASE("registered memory goes before the abort, and is freed after it") {
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int) -> std::string {
                  auto memory = world.allocate(4096);
                  if (!memory) return memory.error().context;
                  const Buffer whole{.data = memory->data(), .count = 1024, .type = DataType::f32};
                  for (;;) {
                      if (world.run(all_reduce(whole, ReduceOp::sum)).has_error()) break;
                  }
                  *memory = Memory();
                  return "";
              },
              [](int) { return NcclSetting{.fault = "stuck:4", .timeout = 8s}; }) == "");
}

TEST_CASE("memory that is given back while an abort goes on is freed after it") {
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int) -> std::string {
                  auto memory = world.allocate(4096);
                  if (!memory) return memory.error().context;
                  const Buffer whole{.data = memory->data(), .count = 1024, .type = DataType::f32};
                  // Both have their memory. A rank that is slow to leave this barrier may learn of the abort in it.
                  (void)world.run(barrier());
                  Work stuck = world.start(all_reduce(whole, ReduceOp::sum));
                  // Most likely it is stuck on the stream by then; if not, there is nothing to be seen.
                  std::this_thread::sleep_for(50ms);
                  world.abort("on purpose");
                  *memory = Memory();
                  return stuck.wait().has_error() ? "" : "the operation ended well";
              },
              [](int) { return NcclSetting{.fault = "stuck:2"}; }) == "");
}

TEST_CASE("an abort that does not return makes the process leave with its own exit code") {
    RankProcesses ranks(2, [](const GroupTerms& group) {
        NcclSetting setting{.fault = group.rank == 1 ? "abort_hangs" : "", .timeout = 8s};
        setting.terms.abort_limit = 6s;
        setting.terms.before_leaving = [&group](std::string_view text) {
            [[maybe_unused]] const auto kept = group.place->publish(cat("last/", group.rank), text, no_deadline);
        };
        auto world = join_nccl_group(group, setting);
        if (!world) return 1;
        world->abort("enough");
        return sum(*world).has_error() ? 0 : 2;
    });
    const auto ends = ranks.join();
    CHECK((ends[0].exited && ends[0].code == 0));
    CHECK((ends[1].exited && ends[1].code == exit_code_stuck_in_nccl));
    CHECK_THAT(test::read_published(ranks, "last/1"),
               Catch::Contains("enough") && Catch::Contains("within 6 s") && Catch::Contains("79"));
}

TEST_CASE("closing that hangs makes an abort of itself") {
    for (const auto* const fault : {"finalize_hangs", "destroy_hangs"}) {
        RankProcesses ranks(2, [fault](const GroupTerms& group) {
            NcclSetting setting{.fault = group.rank == 1 ? fault : ""};
            // Short for the step that hangs; long for those that succeed, however busy the host is.
            if (group.rank == 1) {
                const bool finalize_hangs = fault[0] == 'f';
                setting.terms.close_limit = finalize_hangs ? 500ms : 4s;
                setting.terms.abort_limit = finalize_hangs ? 20s : 2s;
            }
            auto world = join_nccl_group(group, setting);
            const bool good = world && sum(*world);
            // Rank 1 closes when rank 0 has its sum, because its failure would end an operation of rank 0.
            const bool met = group.rank == 0 ? group.place->publish("done", "1", no_deadline).has_value()
                                             : group.place->collect({"done"}, no_deadline).has_value();
            return good && met ? 0 : 1;
        });
        const auto ends = ranks.join();
        CHECK((ends[0].exited && ends[0].code == 0));
        // A thread that is stuck inside ncclCommDestroy cannot be aborted under.
        CHECK((ends[1].exited && ends[1].code == (fault[0] == 'f' ? 0 : exit_code_stuck_in_nccl)));
    }
}

TEST_CASE("after a failure the same processes meet again, many times, and leave nothing behind") {
    const auto rebuild = [](const GroupTerms& group) -> std::string {
        std::optional<test::Holdings> before;
        for (int round = 0; round < 20; ++round) {
            GroupTerms terms = group;
            terms.id = cat("round", round);
            auto world = join_nccl_group(terms, {.timeout = 60s});
            if (!world) return world.error().context;
            const auto done = sum(*world);
            // Rank 0 may have ended this one and aborted while rank 1 is still in it.
            const bool may_fail = round % 2 == 0 && group.rank == 1 && told(done, {"on purpose"}).empty();
            if (!done && !may_fail) return done.error().context;
            if (round % 2 == 0) {
                if (group.rank == 0) world->abort("on purpose");
                if (sum(*world)) return "the abort was not heard";
            }
            { const Communicator gone = std::move(*world); }
            if (round == 1) before.emplace();
        }
        // The stand-in's hubs may take a moment to notice that they are alone.
        return before->left_over_by(std::chrono::steady_clock::now() + 60s);
    };
    RankProcesses ranks(2, [&](const GroupTerms& group) { return publish_wrong(group, rebuild(group)); });
    CHECK(test::wrong_of(ranks, 2) == "");
}

}  // namespace muster
