// Loading for those who have no tensors yet.
#include <filesystem>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"

using namespace muster;
using namespace muster::test;

namespace {

/// Memory for tensors that are not known before.
struct Places {
    std::map<std::string, std::vector<std::byte>> memory = {};
    int calls = 0;

    Result<void> operator()(std::vector<StateTensor>& tensors) {
        ++calls;
        memory.clear();
        for (auto& tensor : tensors) {
            std::size_t count = 1;
            for (const auto size : tensor.shape) count *= static_cast<std::size_t>(size);
            memory[tensor.name].resize(count * size_of(tensor.type));
            tensor.data = memory[tensor.name].data();
        }
        return {};
    }
    template <class T>
    T at(const std::string& name, std::size_t index) const {
        return reinterpret_cast<const T*>(memory.at(name).data())[index];
    }
};

/// Every rank's answer, which must be the same: "step 10 after 1 calls, skipped 0", or the error.
std::string load_new(const std::string& directory, int world,
                     const std::function<Result<void>(int rank, Places&, std::vector<StateTensor>&)>& place) {
    std::vector<std::string> told(static_cast<std::size_t>(world));
    const auto wrong =
        with_checkpointers(directory, world, 9, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            CheckpointState state;
            Places places;
            const auto loaded = checkpointer.load_as_saved(
                state, [&](std::vector<StateTensor>& tensors) { return place(model.rank, places, tensors); });
            auto& mine = told[static_cast<std::size_t>(model.rank)];
            if (!loaded) {
                mine = loaded.error().context;
            } else if (!loaded->has_value()) {
                mine = "none";
            } else {
                SavedModel wanted(0, 1);
                wanted.train_to((*loaded)->step);
                if (state.tensors.size() != 3 || state.values.at("cursor") != wanted.cursor) return "other texts";
                for (const std::size_t i : {0, 500, 1002}) {
                    if (places.at<double>("net.momentum", i) != wanted.momentum[i]) return cat("momentum ", i);
                    if (places.at<float>("net.weight", 200 * i) != wanted.weight[200 * i]) return cat("weight ", i);
                }
                mine = cat("step ", (*loaded)->step, " after ", places.calls, " calls, skipped ",
                           (*loaded)->skipped.size());
            }
            return {};
        });
    if (!wrong.empty()) return wrong;
    for (const auto& each : told) {
        if (each != told.front()) return cat("ranks differ: ", told.front(), " and ", each);
    }
    return told.front();
}

Result<void> place_all(int, Places& places, std::vector<StateTensor>& tensors) {
    return places(tensors);
}

}  // namespace

TEST_CASE("every rank gets all of every tensor, whatever the world that saved it") {
    const ScratchFolder scratch;
    CHECK(load_new(scratch / "c", 2, place_all) == "none");
    REQUIRE(save_steps(scratch / "c", 3, 0, {10}) == "");
    for (const int world : {1, 2, 3, 4}) {
        CHECK(load_new(scratch / "c", world, place_all) == "step 10 after 1 calls, skipped 0");
    }
}

TEST_CASE("memory is asked for again where a checkpoint turns out to be damaged") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10, 20}) == "");
    std::fstream(scratch / "c/step_00000020/rank_00001.safetensors", std::ios::in | std::ios::out)
        .seekp(5000)
        .put(0x55);
    CHECK(load_new(scratch / "c", 2, place_all) == "step 10 after 2 calls, skipped 1");
}

TEST_CASE("a rank that cannot give memory ends the load on all ranks, which are told who it was") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10}) == "");
    const auto full = [](int rank, Places& places, std::vector<StateTensor>& tensors) -> Result<void> {
        if (rank == 1) return Error{Errc::limit_exceeded, "no memory"};
        return places(tensors);
    };
    CHECK(load_new(scratch / "c", 3, full) == "rank 1: no memory");
    const auto forgets = [](int rank, Places& places, std::vector<StateTensor>& tensors) {
        auto placed = places(tensors);
        if (rank == 2) tensors[1].data = nullptr;
        return placed;
    };
    CHECK(load_new(scratch / "c", 3, forgets) == "rank 2: checkpoint state: tensor 'net.momentum' has no memory");
    const auto renames = [](int, Places& places, std::vector<StateTensor>& tensors) {
        auto placed = places(tensors);
        tensors[0].name = "other";
        return placed;
    };
    CHECK_THAT(load_new(scratch / "c", 1, renames), Catch::Contains("it has no tensor 'other'"));
}
