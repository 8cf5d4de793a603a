#include "agent/process/guardian_wire.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::guardian_wire;

namespace {

WorkerCommand command(std::vector<std::string> argv, std::vector<std::string> environment) {
    WorkerCommand made;
    made.argv = std::move(argv);
    made.environment = std::move(environment);
    return made;
}

std::vector<Message> one_of_each() {
    return {Spawn{.id = 7, .has_stdout = true, .has_stderr = false},
            Signal{15},
            SignalGroup{.id = 7, .signal = 15},
            Kill{3},
            Feed{},
            DeathNotice{"last words"},
            Quit{},
            ForkReserve{},
            Serve{"/sys/fs/cgroup/muster-1"},
            Spawned{8, 1234},
            Ended{.id = 9, .pid = 1, .end = Exited{255}, .at_ns = 5},
            Ended{.id = 9, .pid = 1, .end = Signaled{11, true}, .at_ns = 5, .unfed = true, .group_left = true},
            Ended{.id = 9, .end = NotStarted{2, "execve"}, .at_ns = 5},
            GroupEmptied{9},
            Emptied{3},
            Stuck{{1, 2, 3}},
            ReserveForked{.pid = 5, .error_number = 11},
            Folder{"/tmp/torchelastic_x"},
            FollowUp{.signal = 15, .idle_ns = 3, .busy_ns = 10},
            Spawn{.id = 9, .has_stderr = true, .stands_by = true, .standby = 8},
            EndStandby{8},
            StandbyReady{8},
            StandbyReady{9, true},
            Keep{{3, 4}}};
}

}  // namespace

TEST_CASE("every message comes back as it was") {
    for (const auto& message : one_of_each()) {
        const auto bytes = encode(message);
        const auto back = decode(bytes);
        REQUIRE(back);
        CHECK(back->index() == message.index());
        CHECK(encode(*back) == bytes);
    }
}

TEST_CASE(
    "the agent gets the whole path of a program whose interpreter is missing, and whose standby process serves whom") {
    const auto stage = "interpreter of /" + std::string(900, 'd') + "/train.py";
    const auto ended = decode(encode(Ended{.id = 9, .end = NotStarted{2, stage}}));
    REQUIRE(ended);
    CHECK(std::get<NotStarted>(std::get<Ended>(*ended).end).stage == stage);
    const auto ready = decode(encode(StandbyReady{9, true}));
    REQUIRE(ready);
    CHECK(std::get<StandbyReady>(*ready).of_own_slot);
}

TEST_CASE("no field of a message is left out of its datagram") {
    const auto messages = one_of_each();
    const std::vector<std::size_t> sizes{20, 5, 13, 9,  1, 15, 1,  1,  28, 14, 32, 33,
                                         42, 9, 9,  17, 9, 24, 21, 20, 9,  10, 10, 21};
    REQUIRE(messages.size() == sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        INFO(i);
        CHECK(encode(messages[i]).size() == sizes[i]);
    }
}

TEST_CASE("a truncated or lengthened message is refused, a damaged one never crashes") {
    for (const auto& message : one_of_each()) {
        const auto bytes = encode(message);
        for (std::size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode(bytes.substr(0, size)));
        CHECK_FALSE(decode(bytes + '\0'));
        for (std::size_t at = 0; at < bytes.size(); ++at) {
            for (int bit = 0; bit < 8; ++bit) {
                auto damaged = bytes;
                damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
                if (const auto read = decode(damaged)) CHECK(encode(*read) == damaged);
            }
        }
    }
}

TEST_CASE("argv and environment come back, blanks and empty texts included") {
    auto bytes = image_bytes(command({"/bin/a b", "", "x=y"}, {"A=1", "B="}));
    const auto image = parse_image(bytes);
    REQUIRE(image);
    REQUIRE(image->argv.size() == 4);
    CHECK(std::string(image->argv[0]) == "/bin/a b");
    CHECK(std::string(image->argv[1]).empty());
    CHECK(image->argv[3] == nullptr);
    REQUIRE(image->environment.size() == 3);
    CHECK(std::string(image->environment[1]) == "B=");
}

TEST_CASE("a worker's CPUs and NUMA nodes come back as the masks that the kernel takes") {
    auto bound = command({"a"}, {});
    bound.cpus = {0, 3, 64, 8191};
    bound.memory_nodes = {1};
    auto bytes = image_bytes(bound);
    const auto image = parse_image(bytes);
    REQUIRE(image);
    REQUIRE(image->cpu_mask.size() == 128);
    CHECK(image->cpu_mask[0] == 9);
    CHECK(image->cpu_mask[1] == 1);
    CHECK(image->cpu_mask[127] == 1UL << 63);
    CHECK(image->node_mask == std::vector<unsigned long>{2});
    bound.cpus = {cpus_max};
    CHECK(image_bytes(bound).empty());
    auto free = image_bytes(command({"a"}, {}));
    CHECK(parse_image(free)->cpu_mask.empty());
}

TEST_CASE("the signal that a worker ignores comes back, and is none beyond those that there are") {
    auto deaf = command({"a"}, {});
    CHECK(deaf.ignored_signal == 0);
    for (const int signal : {0, 10, 64}) {
        deaf.ignored_signal = signal;
        auto bytes = image_bytes(deaf);
        CHECK(parse_image(bytes)->ignored_signal == signal);
    }
    deaf.ignored_signal = 65;
    auto beyond = image_bytes(deaf);
    CHECK_FALSE(parse_image(beyond));
}

TEST_CASE("an image without a program, with a NUL byte, or too large is not made") {
    CHECK(image_bytes(command({}, {})).empty());
    CHECK(image_bytes(command({""}, {})).empty());
    CHECK(image_bytes(command({"a", std::string("b\0c", 3)}, {})).empty());
    CHECK(image_bytes(command({"a"}, {std::string(image_max_bytes, 'x')})).empty());
}

TEST_CASE("a damaged image is refused") {
    auto bound = command({"a", "b"}, {"C=d"});
    bound.cpus = {1, 65};
    bound.memory_nodes = {0};
    const auto whole = image_bytes(bound);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        auto cut = whole.substr(0, size);
        CHECK_FALSE(parse_image(cut));
    }
    auto counts = whole;
    counts[0] = '\xff';
    CHECK_FALSE(parse_image(counts));
}
