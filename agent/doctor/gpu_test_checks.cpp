// What the test of each GPU found (worker_runtime/gpu_test, agent/probes/gpus/gpu_watch.h).
#include <algorithm>
#include <array>

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

constexpr std::string_view look_name = "gpu-test ";

/// Calls `judge(test, "GPU 0 (GPU-...)", found)` for each GPU that was tested.
Found for_each_test(const DoctorFacts& facts, auto judge) {
    Found found;
    for (const auto& [name, look] : facts.looks)
        if (name.starts_with(look_name)) judge(look, name.substr(look_name.size()), found);
    return found;
}

/// Sum of a field over the records of that name.
std::int64_t sum_of(const Look& test, std::string_view record, std::string_view field) {
    std::int64_t sum = 0;
    for (const auto* one : test.all(record)) sum += one->number(field).value_or(0);
    return sum;
}

Found gpu_in_use(const DoctorFacts& facts, const DoctorLimits&) {
    return for_each_test(facts, [](const Look& test, const std::string& gpu, Found& found) {
        if (const auto* busy = test.first("busy"))
            found.push_back({Level::unknown, gpu, cat("in use by ", busy->text("by")), "a GPU that nobody uses"});
    });
}

Found gpu_test_failed(const DoctorFacts& facts, const DoctorLimits&) {
    return for_each_test(facts, [](const Look& test, const std::string& gpu, Found& found) {
        for (const auto* failure : test.all("failure")) {
            const auto& kind = failure->text("kind");
            std::string_view during;
            for (const auto* step : test.all("step")) during = step->text("name");
            const auto measured = cat(failure->text("text"), during.empty() ? "" : cat(", in ", during));
            if (kind == "gpu" || kind == "program")
                found.push_back({Level::critical, gpu, measured, "a test that is complete"});
            else
                found.push_back({Level::unknown, gpu, measured, "a test that is complete",
                                 kind == "memory"    ? "end what takes its memory: nvidia-smi"
                                 : kind == "missing" ? "install muster's package, whose libexec has muster-gpu-test"
                                                     : "install CUDA's runtime, or name it in MUSTER_CUDA_LIBRARY"});
        }
    });
}

Found gpu_checksum(const DoctorFacts& facts, const DoctorLimits&) {
    return for_each_test(facts, [](const Look& test, const std::string& gpu, Found& found) {
        for (const auto* product : test.all("product"))
            if (const auto wrong = product->number("wrong").value_or(0); wrong > 0)
                found.push_back({Level::critical, gpu,
                                 cat(wrong, " of ", product->text("count"), " products of matrices in ",
                                     product->text("type"), " are wrong"),
                                 "the same result as on the CPU"});
    });
}

Found gpu_memory(const DoctorFacts& facts, const DoctorLimits&) {
    return for_each_test(facts, [](const Look& test, const std::string& gpu, Found& found) {
        const auto* memory = test.first("memory");
        const auto wrong = memory != nullptr ? memory->number("wrong").value_or(0) : 0;
        if (wrong > 0)
            found.push_back({Level::critical, gpu,
                             cat(wrong, " words of ", memory->text("mib"), " MiB read as others than were written"),
                             "what was written"});
    });
}

/// MB/s of each lane, by the generation of PCIe.
std::int64_t link_promise(const FactRecord* load) {
    constexpr std::array<std::int64_t, 7> lane{0, 250, 500, 985, 1969, 3938, 7563};
    if (load == nullptr) return 0;
    const auto generation = static_cast<std::size_t>(load->number("link-generation").value_or(0));
    return generation < lane.size() ? lane[generation] * load->number("link-width").value_or(0) : 0;
}

Found gpu_copies(const DoctorFacts& facts, const DoctorLimits& limits) {
    return for_each_test(facts, [&](const Look& test, const std::string& gpu, Found& found) {
        if (const auto wrong = sum_of(test, "copied", "wrong"); wrong > 0)
            found.push_back({Level::critical, gpu, cat(wrong, " words differ after copies"), "what was copied",
                             "have the GPU, its slot and riser checked"});
        const auto on_link = link_promise(test.first("load"));
        // A copy within the GPU reads and writes.
        const auto within = sum_of(test, "cuda", "memory-mbytes-per-s") / 2;
        for (const auto* copy : test.all("copy")) {
            const auto& way = copy->text("way");
            const auto promised = way == "within the GPU" ? within : on_link;
            const auto least = promised * limits.of("gpu-copy-percent") / 100;
            const auto speed = copy->number("mbytes-per-s").value_or(0);
            if (speed < least)
                found.push_back(
                    {Level::warning, gpu, cat(speed, " MB/s in copies ", way),
                     cat("at least ", least, " MB/s, ", limits.of("gpu-copy-percent"), " % of ", promised)});
        }
    });
}

/// One speed of one GPU.
struct Speed {
    std::string gpu, model, what;
    std::int64_t value = 0;
    std::string_view unit;
};

std::vector<Speed> speeds_of(const DoctorFacts& facts) {
    std::vector<Speed> speeds;
    for_each_test(facts, [&](const Look& test, const std::string& gpu, Found&) {
        const auto* target = test.first("target");
        const auto model = target != nullptr ? target->text("name") : std::string();
        for (const auto* one : test.all("product"))
            speeds.push_back(
                {gpu, model, cat("products in ", one->text("type")), one->number("gflops").value_or(0), " GFLOP/s"});
        for (const auto* one : test.all("copy"))
            speeds.push_back(
                {gpu, model, cat("copies ", one->text("way")), one->number("mbytes-per-s").value_or(0), " MB/s"});
    });
    return speeds;
}

/// The middle of what the other GPUs of the same model have; nothing if there are none.
std::optional<std::int64_t> middle_of_others(const std::vector<Speed>& speeds, const Speed& own) {
    std::vector<std::int64_t> others;
    for (const auto& one : speeds)
        if (one.gpu != own.gpu && one.model == own.model && one.what == own.what) others.push_back(one.value);
    if (others.empty()) return std::nullopt;
    const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::ranges::nth_element(others, middle);
    return *middle;
}

Found gpu_slower(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto speeds = speeds_of(facts);
    Found found;
    for (const auto& one : speeds) {
        const auto others = middle_of_others(speeds, one);
        if (!others || one.value >= *others * limits.of("gpu-sisters-percent") / 100) continue;
        found.push_back({Level::warning, one.gpu, cat(one.value, one.unit, " in ", one.what),
                         cat("about ", *others, one.unit, ", as the other GPUs of this node have")});
    }
    return found;
}

Found gpu_speed(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto speeds = speeds_of(facts);
    return for_each_test(facts, [&](const Look& test, const std::string& gpu, Found& found) {
        std::vector<std::string> parts;
        std::int64_t in_f16 = 0;
        for (const auto& one : speeds) {
            if (one.gpu != gpu) continue;
            parts.push_back(cat(one.value, one.unit, " in ", one.what));
            if (one.what == "products in f16") in_f16 = one.value;
        }
        if (parts.empty()) return;
        if (const auto* load = test.first("load"); load != nullptr && load->number("sm-mhz").value_or(0) > 0)
            parts.push_back(
                cat(load->text("sm-mhz"), " MHz, ", load->text("celsius"), " degrees, ", load->text("watts"), " W"));
        const auto least = limits.of("gpu-gflops");
        const bool is_slow = least > 0 && test.first("product") != nullptr && in_f16 < least;
        found.push_back({is_slow ? Level::warning : Level::info, gpu, join(parts, "; "),
                         is_slow ? cat("at least ", least, " GFLOP/s in products in f16") : "the same on all GPUs"});
    });
}

Found gpu_under_load(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> reasons{
        {{"hw-slowdown", "hardware slowdown"},
         {"hw-thermal", "too hot (hardware)"},
         {"power-brake", "power brake"},
         {"sw-thermal", "too hot (driver)"}}};
    return for_each_test(facts, [&](const Look& test, const std::string& gpu, Found& found) {
        if (const auto* load = test.first("load")) {
            const auto all = load->number("samples").value_or(0);
            for (const auto& [field, words] : reasons) {
                const auto slowed = load->number(field).value_or(0);
                // A third of the test loads the GPU fully.
                if (slowed == 0 || slowed * 10 < all * 3) continue;
                found.push_back({Level::warning, gpu,
                                 cat("clocks slowed under load: ", words, ", ", slowed, " of ", all, " samples"),
                                 "full clocks", "check fans, inlet temperature and power supply"});
                break;
            }
        }
        for (const auto* field : {"ecc-uncorrected", "rows-pending", "rows-failed"})
            if (const auto grown = sum_of(test, "after", field) - sum_of(test, "before", field); grown > 0)
                found.push_back({Level::critical, gpu,
                                 cat("memory errors during the test: ", field, " grew by ", grown), "no error"});
    });
}

Found gpu_reduce(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("gpu-reduce");
    if (look.state != Look::State::done) return {};
    constexpr std::string_view what = "all_reduce between the GPUs of this node";
    Found found;
    for (const auto& record : look.records)
        if (record.name.find("NCCL WARN") != std::string::npos)
            found.push_back({Level::info, std::string(what), record.name, "no warning of NCCL"});
    if (const auto* failure = look.first("failure"))
        found.push_back({failure->text("kind") == "gpu" ? Level::critical : Level::unknown, std::string(what),
                         failure->text("text"), "a sum"});
    const auto* reduced = look.first("reduced");
    if (reduced == nullptr) {
        if (look.first("failure") == nullptr)
            found.push_back({Level::unknown, std::string(what), "the job of the test ended without a result", "a sum"});
        return found;
    }
    const auto wrong = reduced->number("wrong").value_or(0);
    if (wrong > 0) found.push_back({Level::critical, std::string(what), cat(wrong, " wrong sums"), "right sums"});
    found.push_back({Level::info, std::string(what),
                     cat(reduced->text("mbytes-per-s"), " MB/s (busbw of ", reduced->text("mib"), " MiB), ",
                         reduced->text("gpus"), " GPUs"),
                     "the same on all nodes"});
    return found;
}

/// Rows of dcgmi's table: "| Denylist | Pass |".
Found gpu_dcgm(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("dcgm");
    Found found;
    bool has_table = false;
    for (const auto& record : look.records) {
        const auto cells = split(record.name, '|');
        if (cells.size() < 3) continue;
        has_table = true;
        const auto result = trim(cells[2]);
        const bool fails = result.starts_with("Fail");
        if (fails || result.starts_with("Warn"))
            found.push_back(
                {fails ? Level::critical : Level::warning, std::string(trim(cells[1])), std::string(result), "Pass"});
    }
    if (look.state == Look::State::done && !look.records.empty() && !has_table)
        found.push_back({Level::info, "dcgmi diag -r 1", look.records.front().name, "a table of results"});
    return found;
}

}  // namespace

std::vector<Check> gpu_test_checks() {
    return {
        {"gpu-in-use", "gpu-test", "A test would slow the process, and the process the test.",
         "test again when nobody uses the GPU", gpu_in_use},
        {"gpu-test-failed", "gpu-test", "A process of a job fails in the same way.",
         "see dmesg for Xid; nvidia-smi --gpu-reset, or reboot the node", gpu_test_failed},
        {"gpu-checksum", "gpu-test", "The GPU computes wrong results without an error: a training on it is spoiled.",
         "take the node out of use; dcgmi diag -r 3; have the GPU replaced", gpu_checksum},
        {"gpu-memory", "gpu-test", "Its memory returns wrong data without an error.",
         "take the node out of use; dcgmi diag -r 3; have the GPU replaced", gpu_memory},
        {"gpu-copies", "gpu-test", "Batches, checkpoints and collectives wait for these copies.",
         "check pci-link; the GPU's slot, riser and power state; and the NUMA node of the process", gpu_copies},
        {"gpu-slower", "gpu-test", "One slow GPU slows all others down.",
         "compare clocks and power: nvidia-smi -q -d CLOCK,POWER; reset or replace the GPU", gpu_slower},
        {"gpu-speed", "gpu-test", "A GPU that is slower than those of other nodes slows all others down.",
         "compare with the other nodes, and set gpu-gflops in --limits", gpu_speed},
        {"gpu-all-reduce", "gpu-reduce", "Every step of a training waits for such sums.",
         "nvidia-smi topo -m; nvidia-smi nvlink -s; see dmesg for Xid", gpu_reduce},
        {"gpu-dcgm", "dcgm", "NVIDIA's diagnosis found a fault of the GPUs or of their software.",
         "dcgmi diag -r 1; systemctl status nvidia-dcgm", gpu_dcgm},
        {"gpu-under-load", "gpu-test", "The fault shows only under load, as in a job.",
         "nvidia-smi --gpu-reset; if it comes back: have the GPU replaced", gpu_under_load},
    };
}

}  // namespace muster::agent
