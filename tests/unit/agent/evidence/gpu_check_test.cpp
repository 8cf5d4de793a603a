// The timer of GpuCheck, with a muster-gpus of the test's own in PATH.
#include "agent/evidence/gpu_check.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "rendezvous/base/kernel/read_file.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

constexpr Duration patience = 30s;

/// A GpuCheck whose muster-gpus runs `script` of a shell, and writes a line to `asked` before.
struct Rig {
    explicit Rig(const std::string& script, Duration answer = patience) : times{answer, 1ms, 1ms} {
        std::ofstream(folder / "muster-gpus") << "#!/bin/sh\necho >>" << (folder / "asked") << '\n' << script;
        std::filesystem::permissions(folder / "muster-gpus", std::filesystem::perms::owner_all);
        ::setenv("PATH", (folder.string() + ":" + path).c_str(), 1);
        check.on_notice = [this](const std::string& line) { told.push_back(line); };
    }
    ~Rig() { ::setenv("PATH", path.c_str(), 1); }

    [[nodiscard]] std::size_t asked_count() const { return read_file((folder / "asked")).size(); }
    template <class Condition>
    void run_until(Condition is_met) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (!is_met() && std::chrono::steady_clock::now() < end) loop.run_one_for(patience);
        REQUIRE(is_met());
    }
    /// No timer and no process is left.
    void expect_rest() {
        loop.restart();
        loop.run_for(patience);
        CHECK(loop.stopped());
        CHECK(check.busy().empty());
    }

    test::ScratchFolder folder;
    const std::string path = std::getenv("PATH");
    boost::asio::io_context loop;
    const GpuCheck::Times times;
    GpuCheck check{loop, {{"MUSTER_NVML_LIBRARY", "libfake.so"}, {"CUDA_VISIBLE_DEVICES", "1"}}, times};
    std::vector<std::string> told;
};

}  // namespace

TEST_CASE("how busy the GPUs of the workers are is asked again and again, until it is dropped") {
    Rig rig("cat <<E\ngpu 0 GPU-a 1\nbusy 12\ngpu 1 GPU-b 1\nbusy 97\nend\nE\n");
    rig.check.watch_busy();
    CHECK(rig.check.busy().empty());
    rig.run_until([&] { return rig.asked_count() > 2; });
    CHECK(rig.check.busy() == std::vector<native::GpuBusy>{{1, 97}});
    rig.check.drop();
    rig.expect_rest();
    CHECK(rig.told.empty());
}

TEST_CASE("a driver that hangs, also at a later GPU, is told of and not asked again") {
    const std::string hang = "exec sleep 60\n";
    const std::string many = "i=0; while [ $i -lt 300 ]; do echo gpu $i GPU-$i 1; echo busy 5; i=$((i+1)); done\n";
    for (const auto& script : {hang, many + hang, many}) {
        Rig rig(script, script.ends_with(hang) ? Duration(500ms) : patience);
        rig.check.watch_busy();
        rig.expect_rest();
        CHECK(rig.asked_count() <= 1);  // A loaded host may not come to the first.
        REQUIRE(rig.told.size() == 1);
        CHECK_THAT(rig.told[0], Catch::Contains("the NVIDIA driver reported no use of the workers' GPUs within") &&
                                    Catch::Contains("run nvidia-smi on this node"));
    }
}

TEST_CASE("a driver that cannot be asked is asked once more, and then told of with the cause") {
    Rig rig("echo note no driver here\n");
    rig.check.watch_busy();
    rig.expect_rest();
    CHECK(rig.asked_count() == 2);
    REQUIRE(rig.told.size() == 1);
    CHECK_THAT(rig.told[0],
               Catch::StartsWith("--gpu-use: no driver here; the driver is asked again in the next round"));
}

TEST_CASE("nothing is told of a program that could not be started before it was dropped") {
    Rig rig("");
    std::filesystem::remove(rig.folder / "muster-gpus");
    ::setenv("PATH", rig.folder.string().c_str(), 1);
    rig.check.watch_busy();
    // The timer, the first failure, and the timer again. The second failure, which waits now, would be told of.
    for (int i = 0; i < 3; ++i) rig.loop.run_one();
    rig.check.drop();
    rig.expect_rest();
    CHECK(rig.told.empty());
}

TEST_CASE("memory of dead workers is waited for also where the driver did not answer at first") {
    Rig rig(
        "case $(wc -l <\"${0%/*}/asked\") in 1) exit 1 ;; 3) used=9000000000 ;; *) used=1000000000 ;; esac\n"
        // Other agents of this host may have died and left what they knew of a GPU of that name.
        "echo gpu 0 GPU-a-$PPID 1; echo gpu 1 GPU-b-$PPID $used; echo end\n");
    for (int round = 0; round < 3; ++round) {
        bool goes = false;
        rig.check.when_free([&] { goes = true; });
        rig.run_until([&] { return goes; });
    }
    CHECK(rig.asked_count() == 4);
    CHECK(rig.told == std::vector<std::string>{"waiting for GPU memory of ended workers: 7629 MiB of GPU 1"});
}

TEST_CASE("a driver that does not tell how busy a GPU is is not asked again") {
    Rig rig("echo gpu 1 GPU-b 1; echo end\n");
    rig.check.watch_busy();
    rig.expect_rest();
    CHECK(rig.asked_count() == 1);
    CHECK(rig.told.size() == 1);
}

TEST_CASE("without a driver --gpu-use is told to show nothing") {
    if (has_gpu_driver("")) return;  // Of this host.
    boost::asio::io_context loop;
    GpuCheck check(loop, {}, {});
    std::vector<std::string> told;
    check.on_notice = [&](const std::string& line) { told.push_back(line); };
    check.watch_busy();
    loop.run();
    CHECK(told ==
          std::vector<std::string>{"--gpu-use shows nothing: this host has no NVIDIA driver (no /dev/nvidiactl)"});
}
