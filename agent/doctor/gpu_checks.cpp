// GPUs, by their driver (muster-gpus --health) and by the kernel log.
#include <algorithm>
#include <array>

#include "agent/diagnosis/kernel_log.h"
#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

/// A finding for each GPU that answered.
Found for_each_gpu(const DoctorFacts& facts, auto judge) {
    Found found;
    for (const auto* gpu : facts.look("gpus").all("gpu"))
        if (auto one = judge(*gpu)) found.push_back(*std::move(one));
    return found;
}

std::int64_t gpus_on_the_bus(const DoctorFacts& facts) {
    return std::ranges::count_if(facts.look("pci").all("device"),
                                 [](const auto* one) { return one->text("nvidia") == "1"; });
}

Found gpu_driver(const DoctorFacts& facts, const DoctorLimits&) {
    const auto on_the_bus = gpus_on_the_bus(facts);
    if (facts.look("gpus").state == Look::State::not_taken && on_the_bus > 0)
        // A container without GPUs sees those of its host on the bus.
        return {{Level::info, "the NVIDIA driver", cat("not visible here, with ", on_the_bus, " GPUs on the PCI bus"),
                 "a driver, if the job uses GPUs"}};
    const auto* failure = facts.look("gpus").first("failure");
    if (failure == nullptr) return {};
    const bool is_mismatch = failure->text("text").find("mismatch") != std::string::npos;
    return {{Level::critical, "the NVIDIA driver", failure->text("text"), "an answer",
             is_mismatch ? "the library and the kernel module differ: reboot, or reload the module" : ""}};
}

Found gpu_count(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto& look = facts.look("gpus");
    const auto* count = look.first("count");
    if (count == nullptr) return {};
    const auto on_the_bus = gpus_on_the_bus(facts);
    const auto files = count->number("device-files").value_or(0);
    auto expected = limits.of("gpu-count");
    // A container has device files of its own GPUs only, but sees all on the bus.
    if (expected == 0) expected = files > 0 ? std::min<std::int64_t>(on_the_bus, files) : on_the_bus;
    const auto found = static_cast<std::int64_t>(look.all("gpu").size());
    if (found >= expected) return {};
    return {{Level::critical, "GPUs that answer", cat(found), cat(expected)}};
}

Found gpu_lost(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    for (const auto* lost : facts.look("gpus").all("lost"))
        found.push_back({Level::critical, cat("GPU ", lost->text("index")), lost->text("text"), "an answer"});
    return found;
}

Found gpu_recovery(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::array<std::string_view, 8> actions{"none",
                                                      "reset the GPU",
                                                      "reboot the node",
                                                      "drain peer-to-peer traffic",
                                                      "drain and reset",
                                                      "recover the IMEX domain",
                                                      "reset the bus",
                                                      "reboot the system"};
    return for_each_gpu(facts, [&](const FactRecord& gpu) -> std::optional<Measured> {
        const auto action = gpu.number("recovery").value_or(0);
        if (action <= 0) return std::nullopt;
        const auto at = static_cast<std::size_t>(action);
        return Measured{Level::critical, gpu_label(gpu),
                        at < actions.size() ? cat("the driver asks: ", actions[at]) : cat("recovery action ", action),
                        "no recovery action"};
    });
}

Found remapped_rows(const DoctorFacts& facts, const DoctorLimits&) {
    return for_each_gpu(facts, [](const FactRecord& gpu) -> std::optional<Measured> {
        const bool failed = gpu.number("rows-failed").value_or(0) != 0;
        if (!failed && gpu.number("rows-pending").value_or(0) == 0) return std::nullopt;
        return Measured{Level::critical, gpu_label(gpu),
                        failed ? "a row of its memory could not be replaced" : "the replacement of a row is pending",
                        "no pending or failed row",
                        failed ? "have the GPU replaced" : cat("nvidia-smi --gpu-reset -i ", gpu.text("index"))};
    });
}

Found gpu_ecc(const DoctorFacts& facts, const DoctorLimits& limits) {
    return for_each_gpu(facts, [&](const FactRecord& gpu) -> std::optional<Measured> {
        const auto uncorrected = gpu.number("ecc-uncorrected").value_or(0);
        const auto sram = gpu.number("sram-corrected").value_or(0);
        const auto most = limits.of("gpu-sram-corrected");
        if (uncorrected > 0)
            return Measured{Level::critical, gpu_label(gpu), cat(uncorrected, " uncorrected memory errors"), "0"};
        if (sram > most)
            return Measured{Level::warning, gpu_label(gpu), cat(sram, " corrected errors of its SRAM"),
                            cat("at most ", most)};
        return std::nullopt;
    });
}

Found gpu_throttle(const DoctorFacts& facts, const DoctorLimits& limits) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> reasons{
        {{"hw-slowdown", "hardware slowdown"},
         {"hw-thermal", "too hot (hardware)"},
         {"power-brake", "power brake"},
         {"sw-thermal", "too hot (driver)"}}};
    return for_each_gpu(facts, [&](const FactRecord& gpu) -> std::optional<Measured> {
        for (const auto& [field, words] : reasons) {
            const auto samples = gpu.number(field).value_or(0);
            if (samples < std::max<std::int64_t>(1, limits.of("gpu-throttle-samples"))) continue;
            return Measured{Level::warning, gpu_label(gpu),
                            cat("clocks slowed: ", words, ", ", samples, " of 10 samples"), "full clocks"};
        }
        return std::nullopt;
    });
}

/// A GPU with fewer active links than the others of its node.
Found gpu_nvlink(const DoctorFacts& facts, const DoctorLimits&) {
    std::int64_t most = 0;
    for (const auto* gpu : facts.look("gpus").all("gpu")) most = std::max(most, gpu->number("nvlinks").value_or(0));
    return for_each_gpu(facts, [&](const FactRecord& gpu) -> std::optional<Measured> {
        const auto active = gpu.number("nvlinks");
        if (!active || *active >= most) return std::nullopt;
        return Measured{Level::warning, gpu_label(gpu), cat(*active, " active NVLinks"),
                        cat(most, ", as the other GPUs have")};
    });
}

Found gpu_fabric(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::int64_t not_started = 1, in_progress = 2, completed = 3;
    // Two bits for each kind of fault: 1 is true.
    constexpr std::int64_t degraded_bandwidth = 0, route_unhealthy = 4;
    return for_each_gpu(facts, [&](const FactRecord& gpu) -> std::optional<Measured> {
        const auto state = gpu.number("fabric").value_or(0), mask = gpu.number("fabric-health").value_or(0);
        const auto is_true = [mask](std::int64_t shift) { return (mask >> shift & 3) == 1; };
        std::string measured;
        if (state == not_started || state == in_progress)
            measured = state == not_started ? "has not registered with the fabric" : "still registers with the fabric";
        else if (state == completed && gpu.number("fabric-status").value_or(0) != 0)
            measured = cat("registered with error ", gpu.text("fabric-status"));
        else if (state == completed && is_true(degraded_bandwidth))
            measured = "the fabric's bandwidth is degraded";
        else if (state == completed && is_true(route_unhealthy))
            measured = "a route of the fabric is unhealthy";
        if (measured.empty()) return std::nullopt;
        return Measured{Level::critical, gpu_label(gpu), measured, "registered and healthy"};
    });
}

/// What NVIDIA's catalogue asks to do at once. Errors of programs, which a restart repairs, are no finding.
Found gpu_xid(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::array<std::int32_t, 3> reset_gpu{46, 62, 64};
    constexpr std::array<std::int32_t, 2> look_further{48, 74};
    constexpr std::int32_t restart_machine = 79;
    Found found;
    std::vector<std::string> seen;
    const auto* unreadable = facts.look("kernel-log").first("unreadable");
    if (unreadable != nullptr && gpus_on_the_bus(facts) > 0)
        found.push_back({Level::info, "the kernel log", cat("not looked at: ", unreadable->text("text")),
                         "no GPU error since the boot", "run muster doctor as root"});
    for (const auto* line : facts.look("kernel-log").all("line")) {
        const auto event = parse_kernel_line(line->text("text"));
        const auto* error = event ? std::get_if<GpuError>(&*event) : nullptr;
        if (error == nullptr) continue;
        const bool resets = std::ranges::find(reset_gpu, error->xid) != reset_gpu.end();
        const bool restarts = error->xid == restart_machine;
        if (!resets && !restarts && std::ranges::find(look_further, error->xid) == look_further.end()) continue;
        auto what = cat("GPU ", error->device, ", Xid ", error->xid);
        if (std::ranges::find(seen, what) != seen.end()) continue;
        seen.push_back(what);
        // The line stays in the log after the reset, so it is no more than a warning. gpu-recovery and gpu-lost look at
        // the GPU as it is now.
        found.push_back({Level::warning, std::move(what), "in the kernel log since the boot", "no such error",
                         restarts ? "reboot the machine"
                         : resets ? "nvidia-smi --gpu-reset"
                                  : "dcgmi diag -r 3"});
    }
    return found;
}

}  // namespace

std::vector<Check> gpu_checks() {
    return {
        {"gpu-driver", "gpus", "No process can use a GPU.", "see dmesg | grep NVRM; reload the driver or reboot",
         gpu_driver},
        {"gpu-count", "gpus", "A job of one worker for each GPU starts fewer workers here, or fails.",
         "see dmesg for 'fallen off the bus'; reboot the node", gpu_count},
        {"gpu-lost", "gpus", "The GPU fell off the bus; processes that use it fail or hang.", "reboot the node",
         gpu_lost},
        {"gpu-recovery", "gpus", "The driver marked this GPU as not usable until then.",
         "drain the node, then nvidia-smi --gpu-reset, or reboot as the driver asks", gpu_recovery},
        {"gpu-remapped-rows", "gpus", "Its memory has a defect; the next error ends the job.", "nvidia-smi --gpu-reset",
         remapped_rows},
        {"gpu-ecc", "gpus", "Its memory has returned wrong data, or is about to.",
         "nvidia-smi --gpu-reset; if it comes back: have the GPU replaced", gpu_ecc},
        {"gpu-throttle", "gpus", "One slow GPU slows all others down.",
         "check fans, inlet temperature and power supply", gpu_throttle},
        {"gpu-nvlink", "gpus", "Collectives of this node take the slow way around.",
         "nvidia-smi nvlink -s; reset or reboot", gpu_nvlink},
        {"gpu-fabric", "gpus", "NCCL fails at the start, or does not use NVLink.",
         "systemctl status nvidia-fabricmanager", gpu_fabric},
        {"gpu-xid", "kernel-log", "The driver reported a fault of the hardware since the boot.", "dmesg | grep Xid",
         gpu_xid},
    };
}

}  // namespace muster::agent
