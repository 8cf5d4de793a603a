#include "tests/integration/checkpoint/saver.h"

#include <sys/wait.h>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/tracer.h"
#include "tests/integration/runtime/shared_group.h"

namespace muster::test {

namespace {

constexpr std::uint64_t weight_count = 60, momentum_count = 37;

Communicator join_world(const SharedBoard& board, const SaverJob& job) {
    return join_shared_group({.rank = job.rank, .size = job.world, .id = "world", .place = board.place()});
}

Result<Checkpointer> open(Communicator& world, std::unique_ptr<Store> store, const SaverJob& job) {
    return Checkpointer::open(world, std::move(store), {.job = "job", .round = job.round},
                              {.directory = job.directory, .keep_last = job.keep_last, .when_busy = job.when_busy});
}

Result<void> save_and_wait(Checkpointer& checkpointer, TinyModel& model, std::int64_t step) {
    model.train_to(step);
    auto saved = checkpointer.save(step, model.state());
    return saved ? checkpointer.finish() : saved;
}

/// The step that was loaded, 0 for none.
Result<std::int64_t> load_into(Checkpointer& checkpointer, TinyModel& model) {
    auto state = model.state();
    auto loaded = checkpointer.load(state);
    if (!loaded) return loaded.error();
    if (!loaded->has_value()) return std::int64_t{0};
    model.cursor = state.values["cursor"];
    const auto step = (*loaded)->step;
    if (!model.is_at(step)) return Error{Errc::bad_frame, cat("step ", step, " came back with other values")};
    return step;
}

}  // namespace

TinyModel::TinyModel(int rank, int world) : weight(weight_count), rank_(rank), world_(world) {
    const auto part = [&](int r) {
        return momentum_count * static_cast<std::uint64_t>(r) / static_cast<unsigned>(world);
    };
    begin = part(rank);
    momentum.resize(part(rank + 1) - begin);
}

void TinyModel::train_to(std::int64_t step) {
    for (std::size_t i = 0; i < weight.size(); ++i) {
        weight[i] = static_cast<float>(step) + static_cast<float>(i) / 64;
    }
    for (std::size_t i = 0; i < momentum.size(); ++i) {
        momentum[i] = static_cast<double>(step) / static_cast<double>(1 + begin + i);
    }
    cursor = cat("sample ", step * 32);
}

CheckpointState TinyModel::state() {
    CheckpointState state;
    state.tensors = {
        StateTensor::whole("weight", TensorType::f32, {weight_count}, weight.data()),
        StateTensor::shard("momentum", TensorType::f64, {momentum_count}, momentum.data(), begin, momentum.size())};
    state.values = {{"cursor", cursor}};
    return state;
}

bool TinyModel::is_at(std::int64_t step) const {
    TinyModel other(rank_, world_);
    other.train_to(step);
    return weight == other.weight && momentum == other.momentum && cursor == other.cursor;
}

int run_saver(const SharedBoard& board, const SaverJob& job) {
    set_log_level(LogLevel::error);
    auto world = join_world(board, job);
    auto checkpointer = open(world, board.connect(), job);
    if (!checkpointer) {
        board.print_error(checkpointer.error().context);
        return 1;
    }
    TinyModel model(job.rank, job.world);
    for (std::size_t i = 0; i < job.steps.size(); ++i) {
        if (i == 1) mark(mark_begin);
        if (auto saved = save_and_wait(*checkpointer, model, job.steps[i]); !saved) {
            if (job.goes_on) board.count();
            if (job.goes_on) continue;
            board.print_error(saved.error().context);
            return 1;
        }
        board.acknowledge(job.steps[i]);
    }
    mark(mark_end);
    return 0;
}

int run_loader(const SharedBoard& board, const SaverJob& job) {
    set_log_level(LogLevel::error);
    auto world = join_world(board, job);
    mark(mark_begin);
    auto found = load_alone(world, job);
    if (found) board.acknowledge(*found);
    mark(mark_end);
    if (!found) board.print_error(found.error().context);
    return found ? 0 : 1;
}

Result<std::int64_t> load_alone(Communicator& alone, const SaverJob& job) {
    auto checkpointer = open(alone, nullptr, job);
    if (!checkpointer) return checkpointer.error();
    TinyModel model(0, 1);
    return load_into(*checkpointer, model);
}

std::string trouble_after(const SaverJob& job, std::int64_t least) {
    const SharedBoard board;
    Tracer processes;
    const auto process = processes.start([&] {
        set_log_level(LogLevel::error);
        auto world = join_world(board, job);
        auto checkpointer = open(world, nullptr, job);
        TinyModel model(0, 1);
        auto found = checkpointer ? load_into(*checkpointer, model) : checkpointer.error();
        if (found && *found < least) found = Error{Errc::not_found, cat("found step ", *found, ", not ", least)};
        const auto further = found ? *found + 10 : 0;
        auto saved = found ? save_and_wait(*checkpointer, model, further) : found.error();
        if (saved) found = load_into(*checkpointer, model);
        if (saved && found && *found != further) saved = Error{Errc::not_found, cat("found step ", *found, " again")};
        if (saved && !found) saved = found.error();
        if (!saved) board.print_error(saved.error().context);
        return saved ? 0 : 1;
    });
    const auto ends = processes.run([](const SyscallStop&) { return Next::go_on; });
    const auto complaint = board.complaint();
    return complaint.empty() ? trouble_of(ends.at(process)) : complaint;
}

std::string trouble_of(int wait_status) {
    if (WIFSIGNALED(wait_status)) return cat("was ended by signal ", WTERMSIG(wait_status));
    if (WEXITSTATUS(wait_status) != 0) return cat("has exited with ", WEXITSTATUS(wait_status));
    return {};
}

}  // namespace muster::test
