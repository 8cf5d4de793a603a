#include "agent/channel/agent_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>

#include "rendezvous/base/text/text.h"
#include "tests/unit/agent/channel/channel_rig.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// While it lives, this process can open nothing more.
class NoFreeDescriptor {
  public:
    NoFreeDescriptor() {
        const int lowest = ::dup(0);
        ::close(lowest);
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit tight = before_;
        tight.rlim_cur = static_cast<rlim_t>(lowest);
        ::setrlimit(RLIMIT_NOFILE, &tight);
    }
    ~NoFreeDescriptor() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoFreeDescriptor& operator=(NoFreeDescriptor&&) = delete;

  private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("what a worker tells about itself is known to its agent") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    worker.say(local::Progress{17});
    worker.say(local::Heartbeat{});
    worker.say(local::Heartbeat{});
    worker.say(local::Section{"checkpoint", 5000});
    REQUIRE(rig.run_until([&] { return rig.facts().section == "checkpoint"; }));
    CHECK(rig.facts().connected);
    CHECK(rig.facts().runtime == "muster 0.1.0");
    CHECK(rig.facts().step == 17);
    CHECK(rig.facts().section_limit == 5s);
    CHECK(rig.facts().heartbeats == 2);
    CHECK(rig.facts().sections.empty());
    worker.say(local::Section{"evaluation", 0});
    REQUIRE(rig.run_until([&] { return rig.facts().section == "evaluation"; }));
    const auto spent = rig.facts().sections;
    REQUIRE(spent.size() == 1);
    CHECK(spent[0].name == "checkpoint");
    CHECK(spent[0].time_ns > 0);
    worker.say(local::Section{});
    REQUIRE(rig.run_until([&] { return rig.facts().section.empty(); }));
    CHECK(rig.facts().sections.size() == 2);
    CHECK(rig.facts().sections[0] == spent[0]);
}

TEST_CASE("a worker's second connection counts once its first one is closed, also where it is heard of before that") {
    ChannelRig rig;
    auto first = std::make_unique<Worker>(*rig.channel);
    first->say(local::Heartbeat{});
    REQUIRE(rig.run_until([&] { return rig.facts().heartbeats == 1; }));
    Worker second(*rig.channel);
    first.reset();
    second.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step.has_value(); }));
    CHECK(rig.facts().connected);
}

TEST_CASE("a worker hears that its round is over or will be, also one that connects after that") {
    ChannelRig rig;
    const auto said = GENERATE(local::Message(local::RoundEnded{"gpu07 was lost"}), local::Message(local::Notice{}));
    const bool is_late = GENERATE(false, true);
    std::optional<Worker> worker;
    if (!is_late) worker.emplace(*rig.channel);
    REQUIRE(rig.run_until([&] { return is_late || rig.facts().connected; }));
    rig.channel->send(said);
    if (is_late) worker.emplace(*rig.channel);
    CHECK(rig.next_for(*worker) == local::encode(said));
}

TEST_CASE("without a worker, and to a worker that does not listen, nothing waits") {
    ChannelRig rig;
    rig.channel->send(local::RoundEnded{"nobody hears"});
    Worker deaf(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    for (int i = 0; i < 10'000; ++i) rig.channel->send(local::RoundEnded{std::string(1000, 'x')});
    CHECK(rig.facts().connected);
}

TEST_CASE("a worker that breaks the rules loses the channel, and may open it anew") {
    ChannelRig rig;
    for (const std::string& bytes : {std::string("\x41\0\0", 3), std::string(5000, '\x02'), std::string("\x02")}) {
        Worker worker(*rig.channel);
        REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
        worker.say_bytes(bytes);
        REQUIRE(rig.run_until([&] { return !rig.facts().connected; }));
        CHECK(worker.hear().empty());
    }
    Worker better(*rig.channel);
    better.say(local::Progress{1});
    CHECK(rig.run_until([&] { return rig.facts().step == 1; }));
}

TEST_CASE("a message of a newer runtime is passed over") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    worker.say_bytes("\x30 what is this");
    worker.say(local::Progress{2});
    CHECK(rig.run_until([&] { return rig.facts().step == 2; }));
}

TEST_CASE(
    "who hears of a worker's message may close the channel: it calls nobody any more, and the worker hears the end") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    int calls = 0;
    rig.channel->on_keeping([&](const local::Message&) {
        ++calls;
        rig.channel.reset();
    });
    worker.say(local::CanKeep{true});
    worker.say(local::CanKeep{false});
    REQUIRE(rig.run_until([&] { return rig.channel == nullptr; }));
    REQUIRE(rig.run_until([&] { return rig.loop.poll() == 0; }));
    CHECK(worker.hear().empty());
    CHECK(calls == 1);
}

TEST_CASE("a second connection is closed and the first one stays") {
    ChannelRig rig;
    Worker first(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    Worker second(*rig.channel);
    rig.run_until([&] { return rig.loop.poll() == 0; });
    CHECK(second.hear().empty());
    first.say(local::Progress{3});
    CHECK(rig.run_until([&] { return rig.facts().step == 3; }));
}

TEST_CASE("a worker that comes while there is no descriptor is taken in later, and the loop rests meanwhile") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    {
        const NoFreeDescriptor full;
        CHECK(rig.loop.run_for(300ms) < 20);
    }
    CHECK_FALSE(rig.facts().connected);
    CHECK(rig.run_until([&] { return rig.facts().connected; }));
}

TEST_CASE("a gift outlives the worker, and the next of its kind replaces it") {
    ChannelRig rig;
    FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    REQUIRE(::write(memory.get(), "weights", 7) == 7);
    Worker worker(*rig.channel);
    worker.give({local::HandoverKind::snapshot, 7}, memory.get());
    REQUIRE(rig.run_until([&] { return rig.channel->gift(local::HandoverKind::snapshot) >= 0; }));
    worker.go();
    memory.reset();
    REQUIRE(rig.run_until([&] { return !rig.facts().connected; }));
    char bytes[8] = {};
    CHECK(::pread(rig.channel->gift(local::HandoverKind::snapshot), bytes, 7, 0) == 7);
    CHECK(std::string(bytes) == "weights");
    CHECK(rig.channel->gift(local::HandoverKind::flight_record) == -1);
}

TEST_CASE("the key of the ranks is given for the token alone, beside the worker's connection and without one") {
    ChannelRig rig;
    const local::RanksKey given{std::string(32, 'k')};
    const auto token = rig.channel->token();
    CHECK(token.size() == 32);
    CHECK(rig.channel->address().find(token) == std::string::npos);
    CHECK(rig.answer_to(local::AskRanksKey{token}).empty());  // there is none yet
    rig.channel->set_ranks_key(given.key);
    const auto ask_all = [&] {
        for (const auto& wrong : {std::string(), std::string(32, '0'), token.substr(1)})
            CHECK(rig.answer_to(local::AskRanksKey{wrong}).empty());
        CHECK(rig.answer_to(local::AskRanksKey{token}) == local::encode(given));
    };
    ask_all();
    CHECK_FALSE(rig.facts().connected);
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    ask_all();
    // Who only listens gets nothing.
    Worker silent(rig.channel->address());
    rig.run_until([&] { return rig.loop.poll() == 0; });
    CHECK_FALSE(silent.heard());
    worker.say(local::Progress{4});
    CHECK(rig.run_until([&] { return rig.facts().step == 4; }));
}

TEST_CASE(
    "a process of the same user without the token is refused, gets no snapshot, and does not keep the worker out") {
    ChannelRig rig;
    std::vector<MemoryHandover> snapshots(1);
    snapshots[0] = {.memory = FileDescriptor(::memfd_create("snapshot", MFD_CLOEXEC)), .size_bytes = 7, .step = 5};
    rig.channel = std::move(AgentChannel::open(rig.loop, 3, std::move(snapshots)).value());
    const auto token = rig.channel->token();
    const local::Message firsts[] = {
        local::Hello{1, 43, "muster 0.1.0", ""}, local::Hello{1, 43, "muster 0.1.0", std::string(32, '0')},
        local::Hello{1, 43, "muster 0.1.0", token.substr(1)}, local::Progress{1}, local::Heartbeat{}};
    for (const auto& first : firsts) CHECK(rig.answer_to(first).empty());
    Worker liar(rig.channel->address());
    const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    liar.give({local::HandoverKind::snapshot, 7, 99}, memory.get());
    REQUIRE(rig.next_for(liar).empty());
    CHECK_FALSE(rig.facts().connected);
    CHECK(rig.facts().runtime.empty());
    // More silent ones than there are places.
    std::vector<std::unique_ptr<Worker>> silent;
    for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Worker>(rig.channel->address()));
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    CHECK(worker.hear() == local::encode(local::Offer{local::HandoverKind::snapshot, 7}));
    auto kept = rig.channel->take_snapshots();
    REQUIRE(kept.size() == 1);
    CHECK(kept[0].step == 5);
}

TEST_CASE("a connection that has just said its token is not dismissed unread for a newer one") {
    ChannelRig rig;
    Worker worker(rig.channel->address());
    std::vector<std::unique_ptr<Worker>> silent;
    const auto accept_all = [&] { rig.run_until([&] { return rig.loop.poll() == 0; }); };
    for (int i = 0; i < 7; ++i) silent.push_back(std::make_unique<Worker>(rig.channel->address()));
    accept_all();
    // The agent hears of the newer connection first.
    silent.push_back(std::make_unique<Worker>(rig.channel->address()));
    worker.say(local::Hello{1, 42, "muster 0.1.0", rig.channel->token()});
    CHECK(rig.run_until([&] { return rig.facts().connected; }));
}

TEST_CASE("a connection is not dismissed at a wake-up that was meant for an earlier descriptor") {
    ChannelRig rig;
    const auto pipe_of = [] {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        return std::pair(FileDescriptor(ends[0]), FileDescriptor(ends[1]));
    };
    auto [first_read, first_write] = pipe_of();
    auto [gone_read, gone_write] = pipe_of();
    using Descriptor = boost::asio::posix::stream_descriptor;
    Descriptor first(rig.loop, first_read.release()), gone(rig.loop, gone_read.release());
    first.async_wait(Descriptor::wait_read, [&](boost::system::error_code) { gone.close(); });
    gone.async_wait(Descriptor::wait_read, [](boost::system::error_code) {});
    rig.loop.poll();

    // All three are ready at one look of the loop: what closes `gone`, the newcomer, which takes its place there, and
    // the wake-up for `gone`.
    REQUIRE(::write(first_write.get(), "x", 1) == 1);
    Worker worker(rig.channel->address());
    REQUIRE(::write(gone_write.get(), "x", 1) == 1);
    rig.run_until([&] { return rig.loop.poll() == 0; });
    worker.say(local::Hello{1, 42, "muster 0.1.0", rig.channel->token()});
    CHECK(rig.run_until([&] { return rig.facts().connected; }));
}

TEST_CASE("a gift without its memory breaks the rules") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    worker.say(local::Give{local::HandoverKind::snapshot, 7});
    CHECK(rig.run_until([&] { return !rig.facts().connected; }));
}

TEST_CASE("a gift that comes while there is no descriptor is lost, and the channel stays") {
    ChannelRig rig;
    const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    worker.give({local::HandoverKind::snapshot, 7, 1}, memory.get());
    {
        const NoFreeDescriptor full;
        rig.channel->catch_up();
    }
    CHECK(rig.facts().connected);
    CHECK(rig.facts().snapshot_step == -1);
    worker.give({local::HandoverKind::snapshot, 7, 2}, memory.get());
    CHECK(rig.run_until([&] { return rig.facts().snapshot_step == 2; }));
}

TEST_CASE("a closed channel is gone for its worker at once") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    rig.channel.reset();
    CHECK(worker.hear().empty());
    rig.loop.poll();
}

TEST_CASE("a worker's words about being kept are heard, and the end of its connection takes them back") {
    ChannelRig rig;
    std::vector<local::Message> words;
    rig.channel->on_keeping([&](const local::Message& word) { words.push_back(word); });
    auto worker = std::make_unique<Worker>(*rig.channel);
    worker->say(local::CanKeep{true});
    worker->say(local::Progress{1});
    worker->say(local::Held{});
    REQUIRE(rig.run_until([&] { return words.size() == 2; }));
    worker.reset();
    REQUIRE(rig.run_until([&] { return words.size() == 3; }));
    CHECK(words == std::vector<local::Message>{local::CanKeep{true}, local::Held{}, local::CanKeep{false}});

    Worker again(*rig.channel);
    again.say(local::CanKeep{true});
    REQUIRE(rig.run_until([&] { return words.size() == 4; }));
    rig.channel.reset();
    CHECK(words.size() == 4);
}
