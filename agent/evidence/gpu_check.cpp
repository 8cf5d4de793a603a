#include "agent/evidence/gpu_check.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "agent/process/side_process.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr Duration driver_limit = 5s;  // a driver that is slow to begin with takes one or two
constexpr Duration memory_pause = 500ms;

std::string name_of_process(std::int32_t pid) {
    return std::string(trim(read_file(cat("/proc/", pid, "/comm"))));
}

Instant steady_now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

bool has_gpu_driver(std::string_view nvml_library) {
    return !nvml_library.empty() || ::access("/dev/nvidiactl", F_OK) == 0;
}

GpuCheck::GpuCheck(boost::asio::io_context& loop, const std::map<std::string, std::string>& environment)
    : runs_(loop), pause_(loop) {
    const auto named = environment.find("MUSTER_NVML_LIBRARY");
    is_present_ = has_gpu_driver(named != environment.end() ? std::string_view(named->second) : std::string_view());
    if (const auto found = environment.find("CUDA_VISIBLE_DEVICES"); found != environment.end())
        visible_ = found->second;
}

void GpuCheck::tell(const std::string& line) const {
    if (on_notice) on_notice(line);
}

void GpuCheck::look(std::function<void(const std::vector<GpuUse>&)> use) {
    runs_.start({side_program("muster-gpus")}, driver_limit,
                [this, life = std::weak_ptr(life_), use = std::move(use)](const std::string& output) {
                    if (life.expired()) return;
                    const auto visible = visible_ ? std::optional<std::string_view>(*visible_) : std::nullopt;
                    const auto gpus = read_gpu_use(output, visible);
                    for (const auto& line : watch_.foreign(gpus, name_of_process)) tell(line);
                    use(gpus);
                });
}

void GpuCheck::when_free(std::function<void()> go) {
    drop();
    if (!is_present_) return go();
    go_ = std::move(go);
    told_ = false;
    wait(steady_now() + limit);
}

void GpuCheck::wait(Instant until) {
    look([this, until](const std::vector<GpuUse>& gpus) {
        if (!std::exchange(is_known_, true)) {
            watch_.set_baseline(gpus);
            watch_.lower_baseline(kept_.take_over(watch_.baseline()));
            kept_.keep(watch_.baseline());
        }
        const auto held = watch_.still_held(gpus);
        const bool over = steady_now() >= until;
        if (held.empty() || over) {
            if (!held.empty()) {
                tell(cat(held, " was not released within ", muster::describe(limit), "; starting the workers anyway"));
                watch_.set_baseline(gpus);
                kept_.keep(watch_.baseline());
            }
            if (auto go = std::exchange(go_, nullptr)) go();
            return;
        }
        if (!std::exchange(told_, true)) tell(cat("waiting for GPU memory of ended workers: ", held));
        pause_.expires_after(memory_pause);
        pause_.async_wait([this, life = std::weak_ptr(life_), until](boost::system::error_code cancelled) {
            if (!cancelled && !life.expired()) wait(until);
        });
    });
}

void GpuCheck::drop() {
    go_ = nullptr;
    pause_.cancel();
    runs_.drop_all();
}

}  // namespace muster::agent
