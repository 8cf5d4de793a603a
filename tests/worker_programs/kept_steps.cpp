// A training in miniature that survives in its process (muster/recoverable.h). Every element is an integer, so that any
// order of sums comes to the same bits. After each step it takes a snapshot. Each rank has an equal part of the state
// of BYTES, as ZeRO-1 has it of an optimizer's; with KIND forward all ranks have all of it, and continue from the clean
// state of a survivor.
//
//   kept_steps STEPS BYTES [KIND [PAUSE]]     KIND: recoverable (the default); plain: without run_recoverable;
//                                             split: the sums are those of a split; keeper: the checkpointer is kept
//                                             from one call to the next; forward: see above
//                                             PAUSE: milliseconds before each step
//
// Lines in the file ELASTIC_LOG, from every rank:
//   start rank=R round=N pid=P count=C step=S from=survivor|memory|disk|nothing load_ms=L descriptors=D mappings=M
//     threads=T resident_kib=K
//   step rank=R round=N step=S at_ns=T       the monotonic clock
//   sum rank=R value=HEX                     at the end
// Files in the working directory steer it: with "done" the rest of the steps has no pauses; "stuck.R" makes rank R wait
// outside of muster, as in a call that cannot be interrupted, until it is gone. "torn.R" makes rank R leave the round
// in the middle of its optimizer's step; "other.R" changes one element of its state before it loads. Both once.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/checkpoint.h"
#include "muster/context.h"
#include "muster/recoverable.h"
#include "rendezvous/base/text/text.h"

using namespace muster;

namespace {

struct Plan {
    std::int64_t steps = 0;
    std::size_t element_count = 0;
    int pause_ms = 0;
    bool splits = false;
    bool forward = false;
    std::vector<Checkpointer>* keeps = nullptr;
};

void write_line(const std::string& line) {
    static const int file = ::open(std::getenv("ELASTIC_LOG"), O_WRONLY | O_APPEND | O_CLOEXEC);
    const auto whole = line + "\n";
    if (::write(file, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) std::abort();
}

std::size_t entries(const char* directory) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
    return count;
}

std::size_t mappings() {
    std::size_t count = 0;
    if (auto* const file = std::fopen("/proc/self/maps", "re")) {
        for (int c = 0; (c = std::fgetc(file)) != EOF;) count += c == '\n' ? 1 : 0;
        std::fclose(file);
    }
    return count;
}

std::size_t resident_kib() {
    std::ifstream file("/proc/self/statm");
    std::size_t size_pages = 0, resident_pages = 0;
    file >> size_pages >> resident_pages;
    return resident_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

void wait_while_there(const std::string& path) {
    while (std::filesystem::exists(path)) ::poll(nullptr, 0, 2);
}

/// The model is the process's: it outlives the rounds. train() fills it, so nothing is written here.
struct Model {
    std::unique_ptr<std::int64_t[]> memory;
    std::span<std::int64_t> weight;
    std::vector<std::int64_t> change;
    bool replicated = false;
    CleanStep clean;

    Model(std::size_t count, bool is_replicated)
        : memory(new std::int64_t[count]),
          weight(memory.get(), count),
          change(std::min<std::size_t>(count, 4096)),
          replicated(is_replicated) {}
    CheckpointState state(const Context& context) {
        if (replicated)
            return {.tensors = {StateTensor::whole("weight", TensorType::i64,
                                                   {static_cast<std::int64_t>(weight.size())}, weight.data())}};
        const auto all = weight.size() * static_cast<std::size_t>(context.world_size());
        const auto begin = weight.size() * static_cast<std::size_t>(context.rank());
        return {.tensors = {StateTensor::shard("weight", TensorType::i64, {static_cast<std::int64_t>(all)},
                                               weight.data(), begin, weight.size())}};
    }
    /// Every rank's part is another one.
    [[nodiscard]] int shift(const Communicator& world) const { return replicated ? 0 : world.rank() % 8; }
    Result<void> take_step(Communicator& world, std::int64_t step) {
        for (std::size_t i = 0; i < change.size(); ++i) {
            const auto mixed = static_cast<std::uint64_t>(weight[i]) * 6364136223846793005U +
                               static_cast<std::uint64_t>(step) + i * static_cast<std::uint64_t>(world.rank() + 1);
            change[i] = static_cast<std::int64_t>(mixed >> 8U);
        }
        auto shared = world.run(all_reduce(buffer(std::span(change)), ReduceOp::sum));
        if (!shared) return shared;
        clean.begin();
        const auto half = change.size() / 2;
        for (std::size_t i = 0; i < half; ++i) weight[i] ^= change[i] >> shift(world);
        const auto torn = cat("torn.", world.rank());
        if (std::filesystem::remove(torn)) {
            while (auto alive = world.status()) ::poll(nullptr, 0, 2);
            return world.status();
        }
        for (std::size_t i = half; i < change.size(); ++i) weight[i] ^= change[i] >> shift(world);
        clean.set(step);
        return {};
    }
};

Result<void> train(Context& context, const Resume& resume, const Plan& plan, Model& model) {
    const auto rank = context.rank();
    auto checkpointer = Checkpointer::open(context, {.snapshot_interval = Duration::zero()});
    if (!checkpointer) return checkpointer.error();
    std::unique_ptr<Communicator> part;
    if (plan.splits) {
        auto made = context.world().split(0, rank);
        if (!made) return made.error();
        part = std::move(*made);
    }
    auto state = model.state(context);
    if (std::filesystem::remove(cat("other.", rank))) ++model.weight.back();
    auto loaded = plan.forward ? checkpointer->load(state, model.clean) : checkpointer->load(state);
    if (!loaded) return loaded.error();
    const auto from = *loaded ? (*loaded)->step : 0;
    if (from == 0) std::fill(model.weight.begin(), model.weight.end(), 0);
    write_line(cat("start rank=", rank, " round=", context.round(), " pid=", ::getpid(), " count=", resume.count,
                   " step=", from, " from=",
                   !*loaded                   ? "nothing"
                   : (*loaded)->from_survivor ? "survivor"
                   : (*loaded)->from_memory   ? "memory"
                                              : "disk",
                   " load_ms=", *loaded ? (*loaded)->load_ms : 0.0, " descriptors=", entries("/proc/self/fd"),
                   " mappings=", mappings(), " threads=", entries("/proc/self/task"),
                   " resident_kib=", resident_kib()));
    for (auto step = from + 1; step <= plan.steps; ++step) {
        wait_while_there(cat("stuck.", rank));
        if (plan.pause_ms > 0 && !std::filesystem::exists("done")) ::poll(nullptr, 0, plan.pause_ms);
        if (auto taken = model.take_step(part ? *part : context.world(), step); !taken) return taken.error();
        const auto at = std::chrono::steady_clock::now().time_since_epoch().count();
        write_line(cat("step rank=", rank, " round=", context.round(), " step=", step, " at_ns=", at));
        if (plan.keeps != nullptr && plan.keeps->empty()) plan.keeps->push_back(std::move(*checkpointer));
        auto& saver = plan.keeps != nullptr ? plan.keeps->front() : *checkpointer;
        if (auto kept = saver.snapshot(step, state); !kept) return kept.error();
        // From the next line on a copy of this round is complete, however slow the save thread is.
        if (step > from + 1) continue;
        if (auto whole = saver.finish(); !whole) return whole.error();
    }
    std::uint64_t sum = 14695981039346656037U;
    for (const auto value : model.weight) sum = (sum ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
    char text[32];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
    write_line(cat("sum rank=", rank, " value=", text));
    return {};
}

int fail(const Error& error) {
    std::fprintf(stderr, "kept_steps: %s\n", describe(error).c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const std::string_view kind = argc > 3 ? argv[3] : "recoverable";
    auto context = Context::from_environment();
    if (!context) return fail(context.error());
    std::vector<Checkpointer> kept;
    const Plan plan{.steps = std::atoll(argv[1]),
                    .element_count = std::strtoull(argv[2], nullptr, 10) / sizeof(std::int64_t),
                    .pause_ms = argc > 4 ? std::atoi(argv[4]) : 0,
                    .splits = kind == "split",
                    .forward = kind == "forward",
                    .keeps = kind == "keeper" ? &kept : nullptr};
    const auto parts = plan.forward ? 1 : static_cast<std::size_t>(context->world_size());
    Model model(plan.element_count / parts, plan.forward);
    const auto body = [&](Context& now, const Resume& resume) { return train(now, resume, plan, model); };
    const auto done = kind == "plain" ? body(*context, {}) : run_recoverable(*context, body);
    return done ? 0 : fail(done.error());
}
