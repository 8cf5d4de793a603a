// A worker for persist_test.py: saves step 10, then ends in the way it is told before a disk has step 20.
//
//   persist_worker WAY [DIRECTORY]
//
// load         says what it loaded: "loaded 20 from disk"
// kill-writer  save(20): rank 0 dies by SIGKILL when all ranks' agents have their copies, and no writer has begun
// exit         snapshot(20), then rank 0 exits 3
// ends         snapshot(20), then all ranks exit 0
// wait         snapshot(20), then a file "ready" in TMPDIR, and waits for its end
// stubborn     the same, and SIGTERM does not end it
// notified     knows nothing of SIGTERM; a file "ready", then exits 76 when it has been told to leave
// kill-once    kill-writer in the first round, then load and exit 4, again and again
// steps        loads, takes and saves two more steps, whatever becomes of that
// steps-fail   the same, then rank 0 exits 3
// kill-look    kill-writer in the first round, then waits for step 20 on the disk before it opens anything
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "muster/checkpoint.h"
#include "muster/context.h"
#include "muster/preemption.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

using namespace muster;
using namespace muster::runtime;

namespace {

constexpr Duration patience = 60s;

int fail(const Error& error) {
    std::fprintf(stderr, "persist_worker: %s\n", error.context.c_str());
    return 1;
}

/// Waits until all ranks have come to this place of their round.
Result<void> meet(Store* connection, int world, std::string_view place) {
    if (world == 1) return {};
    auto& store = *connection;
    auto here = store.add(cat("here/", place), 1);
    if (!here) return here.error();
    if (*here == world) {
        if (auto told = store.set(cat("all/", place), "1"); !told) return told;
    }
    auto all = store.get(cat("all/", place), patience);
    return all ? Result<void>() : all.error();
}

/// Hands copies on to the agent; what follows step 20 is the death of rank 0, and of the others by their agents.
class DyingLink final : public SnapshotLink {
  public:
    DyingLink(std::shared_ptr<SnapshotLink> agent, std::unique_ptr<Store> store, int rank, int world)
        : agent_(std::move(agent)), store_(std::move(store)), rank_(rank), world_(world) {}
    bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step,
              const std::string& directory) override {
        const bool given = agent_->give(memory, size_bytes, step, directory);
        if (step != 20) return given;
        (void)meet(store_.get(), world_, "given");
        if (rank_ == 0) ::raise(SIGKILL);
        while (true) ::pause();
    }
    bool give_copy(const FileDescriptor&, std::uint64_t, std::int64_t, int) override { return false; }
    std::vector<OfferedSnapshot> take_offers(Duration limit) override { return agent_->take_offers(limit); }

  private:
    std::shared_ptr<SnapshotLink> agent_;
    std::unique_ptr<Store> store_;
    int rank_, world_;
};

/// 1 MiB that every rank has, and tells its step.
struct Model {
    std::vector<float> weight = std::vector<float>(1u << 18);
    void train_to(float step) {
        for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = step + static_cast<float>(i % 97);
    }
    CheckpointState state() {
        return {.tensors = {StateTensor::whole("weight", TensorType::f32, {1 << 18}, weight.data())}};
    }
};

Result<Checkpointer> open(Context& context, const std::string& directory, bool dying) {
    auto snapshots = context.snapshots();
    if (dying && snapshots) {
        auto store = context.connect_store();
        if (!store) return store.error();
        snapshots = std::make_shared<DyingLink>(snapshots, std::move(*store), context.rank(), context.world().size());
    }
    auto board = context.connect_store();
    if (!board) return board.error();
    return Checkpointer::open(context.world(), std::move(*board), {.job = context.job(), .round = context.round()},
                              {.directory = directory}, snapshots);
}

int load(Checkpointer& checkpointer, const Context& context) {
    Model model;
    auto state = model.state();
    const auto report = checkpointer.load(state);
    if (!report) return fail(report.error());
    const auto loaded = *report ? (*report)->step : 0;
    Model expected;
    expected.train_to(static_cast<float>(loaded));
    if (loaded > 0 && model.weight != expected.weight) return fail({Errc::bad_frame, "another model came back"});
    if (context.rank() == 0) {
        std::printf("loaded %lld from %s\n", static_cast<long long>(loaded),
                    !*report                     ? "nowhere"
                    : (*report)->from_memory     ? "memory"
                    : (*report)->from_local_disk ? "a local disk"
                                                 : "disk");
        std::fflush(stdout);
    }
    return 0;
}

int train(Checkpointer& checkpointer, Context& context, const std::string& way) {
    Model model;
    model.train_to(10);
    auto done = checkpointer.save(10, model.state());
    if (done) done = checkpointer.finish();
    model.train_to(20);
    const bool to_disk = way.starts_with("kill");
    if (done) done = to_disk ? checkpointer.save(20, model.state()) : checkpointer.snapshot(20, model.state());
    if (done) done = checkpointer.finish();
    if (done) done = meet(context.store(), context.world().size(), "kept");
    if (!done) return fail(done.error());
    if (way == "exit" && context.rank() == 0) return 3;
    if (way == "ends") return 0;
    if (way == "wait" || way == "stubborn") std::ofstream(cat(std::getenv("TMPDIR"), "/ready")) << "1";
    while (true) ::pause();
}

/// Says of each step whether it was saved.
int take_steps(Checkpointer& checkpointer, Context& context, bool fails) {
    Model model;
    auto state = model.state();
    const auto report = checkpointer.load(state);
    if (!report) return fail(report.error());
    const auto loaded = *report ? (*report)->step : 0;
    for (auto step = loaded + 1; step <= loaded + 2; ++step) {
        model.train_to(static_cast<float>(step));
        if (auto saved = checkpointer.save(step, model.state(), WhenBusy::wait); !saved) return fail(saved.error());
        const auto done = checkpointer.finish();
        if (context.rank() == 0)
            std::printf("step %lld: %s\n", static_cast<long long>(step), done ? "saved" : "not saved");
    }
    std::fflush(stdout);
    if (!fails) return 0;
    if (auto all = meet(context.store(), context.world().size(), "stepped"); !all) return fail(all.error());
    if (context.rank() == 0) return 3;
    while (true) ::pause();
}

Result<void> wait_for_file(const std::string& path) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!std::filesystem::exists(path)) {
        if (std::chrono::steady_clock::now() > until) return Error{Errc::timed_out, cat("no ", path)};
        std::this_thread::sleep_for(5ms);  // between two looks
    }
    return {};
}

int leave_when_told(Context& context) {
    auto notice = PreemptionNotice::watch(context, {SIGUSR2});
    if (!notice) return fail(notice.error());
    if (auto met = meet(context.store(), context.world().size(), "watching"); !met) return fail(met.error());
    std::ofstream(cat(std::getenv("TMPDIR"), "/ready")) << "1";
    while (true) {
        const auto leave = notice->agreed(context.world());
        if (!leave) return fail(leave.error());
        if (*leave) return notice->count() > 1 ? 1 : exit_saved_and_left;
        std::this_thread::sleep_for(1ms);  // a step
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string way = argc > 1 ? argv[1] : "load", directory = argc > 2 ? argv[2] : "";
    auto context = Context::from_environment();
    if (!context) return fail(context.error());
    if (way == "stubborn" || way == "notified") ::signal(SIGTERM, SIG_IGN);
    if (way == "notified") return leave_when_told(*context);
    const bool again = (way == "kill-once" || way == "kill-look") && context->round() > 0;
    if (again && way == "kill-look") {
        const auto there = wait_for_file(cat(std::getenv("MUSTER_CHECKPOINT_DIR"), "/step_00000020"));
        return there ? 0 : fail(there.error());
    }
    auto checkpointer = open(*context, directory, way.starts_with("kill") && !again);
    if (!checkpointer) return fail(checkpointer.error());
    if (way.starts_with("steps")) return take_steps(*checkpointer, *context, way == "steps-fail");
    if (way != "load" && !again) return train(*checkpointer, *context, way);
    const int loaded = load(*checkpointer, *context);
    return loaded == 0 && again ? 4 : loaded;
}
