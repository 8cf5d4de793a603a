#include "agent/driver/worker_metrics.h"

#include <array>
#include <functional>

#include "rendezvous/base/step_buckets.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

double seconds(std::uint64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

}  // namespace

std::string worker_metrics(MetricsFormat format, const std::string& job, Round round,
                           const std::vector<WorkerNumbers>& workers, const std::vector<native::GpuBusy>& gpus) {
    MetricsPage page(format);
    std::vector<std::string> names;
    for (const auto& worker : workers) names.push_back(cat(worker.local_rank));
    const auto labels = [&](std::size_t i) { return MetricsPage::Labels{{"job", job}, {"local_rank", names[i]}}; };
    const auto add = [&](std::string_view name, MetricKind kind, std::string_view help,
                         const std::function<double(const WorkerNumbers&)>& value) {
        page.family(name, kind, help);
        for (std::size_t i = 0; i < workers.size(); ++i)
            if (const auto known = value(workers[i]); known >= 0) page.add(known, labels(i));
    };
    page.family("muster_worker_info", MetricKind::info, "The rank that a worker of this node has in the round.");
    for (std::size_t i = 0; i < workers.size(); ++i) {
        const auto rank = cat(workers[i].rank), number = cat(round);
        auto place = labels(i);
        place.emplace_back("rank", rank);
        place.emplace_back("round", number);
        page.add(1, place);
    }
    add("muster_worker_running", MetricKind::gauge, "1 while the process runs.",
        [](const auto& worker) { return worker.runs ? 1.0 : 0.0; });
    add("muster_worker_step", MetricKind::gauge, "The last step that it has reported.",
        [](const auto& worker) { return static_cast<double>(worker.steps.last_step); });
    using Field = std::uint64_t native::StepTally::*;
    const auto add_seconds = [&](std::string_view name, std::string_view help, Field field) {
        add(name, MetricKind::counter, help,
            [field](const auto& worker) { return seconds(worker.steps.tally.*field); });
    };
    add("muster_worker_steps_total", MetricKind::counter, "Steps since the round's start.",
        [](const auto& worker) { return static_cast<double>(worker.steps.tally.step_count); });
    page.family("muster_worker_step_seconds", MetricKind::histogram, "Duration of its steps.");
    std::array<double, step_time_bounds.size()> bounds{};
    for (std::size_t i = 0; i < bounds.size(); ++i)
        bounds[i] = std::chrono::duration<double>(step_time_bounds[i]).count();
    for (std::size_t i = 0; i < workers.size(); ++i) {
        std::vector<std::uint64_t> counts;
        for (const auto& bucket : workers[i].steps.times) counts.push_back(bucket.count);
        if (!counts.empty()) page.add_histogram(bounds, counts, seconds(workers[i].steps.tally.step_ns), labels(i));
    }
    add_seconds("muster_worker_measured_seconds_total", "Time of the steps that a gradient reducer measured.",
                &native::StepTally::measured_ns);
    add_seconds("muster_worker_data_wait_seconds_total", "Part of the measured time: it waited for its data.",
                &native::StepTally::data_wait_ns);
    add_seconds("muster_worker_exposed_communication_seconds_total",
                "Part of the measured time: it waited for communication.", &native::StepTally::exposed_ns);
    add_seconds("muster_worker_late_seconds_total", "Part of the measured time: others waited for it.",
                &native::StepTally::late_ns);
    page.family("muster_gpu_utilization_ratio", MetricKind::gauge,
                "Share of the time in which a kernel ran on the GPU.");
    for (const auto& gpu : gpus) {
        const auto number = cat(gpu.index);
        page.add(gpu.percent / 100.0, {{"job", job}, {"gpu", number}});
    }
    return page.finish();
}

}  // namespace muster::agent
