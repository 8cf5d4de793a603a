#include "agent/evidence/gpu_check.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "agent/process/side_process.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr Duration memory_pause = 500ms;
constexpr std::string_view note = "note ";  // of muster-gpus and SideRuns: why there is no answer

std::string name_of_process(std::int32_t pid) {
    return std::string(trim(read_file(cat("/proc/", pid, "/comm"))));
}

}  // namespace

bool has_gpu_driver(std::string_view nvml_library) {
    return !nvml_library.empty() || ::access("/dev/nvidiactl", F_OK) == 0;
}

GpuCheck::GpuCheck(boost::asio::io_context& loop, const std::map<std::string, std::string>& environment, Times times)
    : times_(times), runs_(loop), pause_(loop) {
    const auto named = environment.find("MUSTER_NVML_LIBRARY");
    is_present_ = has_gpu_driver(named != environment.end() ? std::string_view(named->second) : std::string_view());
    if (const auto found = environment.find("CUDA_VISIBLE_DEVICES"); found != environment.end())
        visible_ = found->second;
}

void GpuCheck::look(std::vector<std::string> words, Looked looked) {
    words.insert(words.begin(), side_program("muster-gpus"));
    runs_.start(std::move(words), times_.answer,
                life_.guard([this, looked = std::move(looked)](std::string_view output) {
                    const auto visible = visible_ ? std::optional<std::string_view>(*visible_) : std::nullopt;
                    looked(read_gpu_use(output, visible), output.starts_with(note) ? output.substr(note.size()) : "");
                }));
}

void GpuCheck::when_free(std::function<void()> go) {
    drop();
    if (!is_present_) return go();
    go_ = std::move(go);
    told_ = false;
    wait(std::chrono::steady_clock::now() + limit);
}

void GpuCheck::wait(Instant until) {
    look({}, [this, until](const std::vector<GpuUse>& gpus, std::string_view) {
        for (const auto& line : watch_.foreign(gpus, name_of_process)) tell(line);
        if (!gpus.empty() && !std::exchange(is_known_, true)) {
            watch_.set_baseline(gpus);
            watch_.lower_baseline(kept_.take_over(watch_.baseline()));
            kept_.keep(watch_.baseline());
        }
        const auto held = watch_.still_held(gpus);
        if (!held.empty() && std::chrono::steady_clock::now() < until) {
            if (!std::exchange(told_, true)) tell(cat("waiting for GPU memory of ended workers: ", held));
            return call_after(pause_, memory_pause, life_.guard([this, until] { wait(until); }));
        }
        if (!held.empty()) {
            tell(cat(held, " was not released within ", muster::describe(limit), "; starting the workers anyway"));
            watch_.set_baseline(gpus);
            kept_.keep(watch_.baseline());
        }
        if (auto go = std::exchange(go_, nullptr)) go();
    });
}

void GpuCheck::watch_busy() {
    if (!is_present_) return tell("--gpu-use shows nothing: this host has no NVIDIA driver (no /dev/nvidiactl)");
    ask_busy(times_.first_busy, true);
}

void GpuCheck::ask_busy(Duration pause, bool once_more) {
    call_after(pause_, pause, life_.guard([this, once_more] {
        look({"--busy"}, [this, once_more](const std::vector<GpuUse>& gpus, std::string_view why) {
            busy_.clear();
            for (const auto& gpu : gpus)
                if (gpu.busy_percent) busy_.push_back({gpu.index, *gpu.busy_percent});
            if (!busy_.empty() || (!why.empty() && once_more)) return ask_busy(times_.busy_pause, !busy_.empty());
            tell(cat("--gpu-use: ",
                     why.empty() ? cat("the NVIDIA driver reported no use of the workers' GPUs within ",
                                       muster::describe(times_.answer),
                                       ". GPUs in MIG mode have no such figure; for others run nvidia-smi on this node "
                                       "(muster-gpus may stay in a driver that hangs)")
                                 : printable_line(trim(why.substr(0, why.find('\n')))),
                     "; the driver is asked again in the next round"));
        });
    }));
}

void GpuCheck::drop() {
    go_ = nullptr;
    busy_.clear();
    life_.end();
    pause_.cancel();
    runs_.drop_all();
}

}  // namespace muster::agent
