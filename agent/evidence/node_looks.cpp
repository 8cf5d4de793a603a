#include "agent/evidence/node_looks.h"

#include <unistd.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "agent/evidence/gpu_check.h"
#include "agent/process/side_process.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

void NodeLooks::start(const LookPlan& plan, std::function<void(DoctorFacts)> done) {
    done_ = std::move(done);
    facts_.environment = plan.environment;
    facts_.is_root = ::geteuid() == 0;
    const auto limit = [&plan](const char* look) { return plan.limits.of(cat(look, "-timeout-ms")); };
    const auto facts = side_program("muster-facts");
    for (const char* look : {"names", "network", "system", "pci", "kernel-log"})
        if (!plan.skip.contains(look)) take(look, {facts, look}, limit(look));
    if (!plan.skip.contains("disks"))
        for (const auto& directory : plan.directories) {
            std::vector<std::string> words{facts, "disks", directory};
            if (plan.missing == MissingDirectory::is_made_later) words.emplace_back("--if-there");
            take(cat("disks ", directory), std::move(words), limit("disks"));
        }
    const auto named = plan.environment.find("MUSTER_NVML_LIBRARY");
    const bool has_driver =
        has_gpu_driver(named != plan.environment.end() ? std::string_view(named->second) : std::string_view());
    if (has_driver && !plan.skip.contains("gpus"))
        take("gpus", {side_program("muster-gpus"), "--health"}, limit("gpus"),
             [this, tests = plan.gpu_tests == GpuTests::taken && !plan.skip.contains("gpu-test"),
              limit_ms = limit("gpu-test")] {
                 if (tests) test_gpu(0, {side_program("muster-gpus"), "--test"}, limit_ms);
             });
    // The last one, so that `done` comes also where every look is skipped.
    ++missing_count_;
    boost::asio::post(loop_, [this, life = std::weak_ptr(life_)] {
        if (!life.expired()) end_one();
    });
}

void NodeLooks::end_one() {
    if (--missing_count_ > 0) return;
    if (auto done = std::exchange(done_, nullptr)) done(std::move(facts_));
}

void NodeLooks::test_gpu(std::size_t number, std::vector<std::string> program, std::int64_t limit_ms) {
    const auto gpus = facts_.look("gpus").all("gpu");
    if (number >= gpus.size()) return;
    const auto& uuid = gpus[number]->text("uuid");
    auto words = program;
    words.insert(words.end(), {uuid, side_program("muster-gpu-test")});
    take(cat("gpu-test GPU ", gpus[number]->text("index"), " (", uuid, ")"), std::move(words), limit_ms,
         [this, number, program = std::move(program), limit_ms] { test_gpu(number + 1, program, limit_ms); });
}

void NodeLooks::take(const std::string& name, std::vector<std::string> words, std::int64_t limit_ms,
                     std::function<void()> then) {
    const auto limit = std::chrono::milliseconds(limit_ms);
    ++missing_count_;
    runs_.start(std::move(words), limit,
                [this, life = std::weak_ptr(life_), name, limit, then = std::move(then)](const std::string& output) {
                    if (life.expired()) return;
                    facts_.looks[name] = parse_look(output, muster::describe(limit));
                    if (then) then();
                    end_one();
                });
}

void NodeLooks::drop() {
    done_ = nullptr;
    runs_.drop_all();
}

}  // namespace muster::agent
