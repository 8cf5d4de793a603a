#include "agent/channel/agent_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/local/codec.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// A worker that speaks the channel in bytes.
class Worker {
  public:
    explicit Worker(const std::string& address) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        address.copy(name.sun_path + 1, sizeof name.sun_path - 2, 1);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
        REQUIRE(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
        const timeval limit{.tv_sec = 60, .tv_usec = 0};  // for hear()
        REQUIRE(::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    }
    /// One that shows the token, as the runtime does.
    explicit Worker(const AgentChannel& channel, const std::string& runtime = "muster 0.1.0")
        : Worker(channel.address()) {
        say(local::Hello{1, 42, runtime, channel.token()});
    }
    void say(const local::Message& message) { say_bytes(local::encode(message)); }
    void say_bytes(const std::string& bytes) {
        REQUIRE(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    }
    void give(const local::Give& give, int descriptor) {
        std::string bytes = local::encode(give);
        iovec piece{bytes.data(), bytes.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
        REQUIRE(::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) > 0);
    }
    /// What the agent sent, or nothing at the end of the channel.
    std::string hear() { return heard(0).value_or(std::string()); }
    /// The same without waiting; nullopt: nothing yet.
    std::optional<std::string> heard(int flags = MSG_DONTWAIT) {
        char bytes[4096];
        const auto size = ::recv(socket_.get(), bytes, sizeof bytes, flags);
        if (size < 0 && errno == EAGAIN) return std::nullopt;
        return size <= 0 ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
    }
    void go() { socket_.reset(); }

  private:
    FileDescriptor socket_;
};

struct ChannelRig {
    ChannelRig() : channel(std::move(AgentChannel::open(loop, 3).value())) {}
    bool run_until(const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (!done() && std::chrono::steady_clock::now() < deadline) {
            loop.restart();
            loop.run_one_for(20ms);
        }
        return done();
    }
    const WorkerFacts& facts() const { return channel->facts(); }
    /// What a connection gets next; empty: its end.
    std::string next_for(Worker& newcomer) {
        std::optional<std::string> heard;
        REQUIRE(run_until([&] {
            if (!heard) heard = newcomer.heard();
            return heard.has_value();
        }));
        return *heard;
    }
    /// What the agent says to a connection that says this first.
    std::string answer_to(const local::Message& first) {
        Worker newcomer(channel->address());
        newcomer.say(first);
        return next_for(newcomer);
    }

    boost::asio::io_context loop;
    ClosingPtr<AgentChannel> channel;
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
    CHECK(rig.facts().loading == 0s);
    worker.say(local::Section{"evaluation", 0});
    REQUIRE(rig.run_until([&] { return rig.facts().section == "evaluation"; }));
    const auto loading = rig.facts().loading;
    CHECK(loading > 0s);
    worker.say(local::Section{});
    REQUIRE(rig.run_until([&] { return rig.facts().section.empty(); }));
    CHECK(rig.facts().loading == loading);
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
    const int highest = ::dup(0);
    ::close(highest);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(highest);
    ::setrlimit(RLIMIT_NOFILE, &tight);
    const auto handled = rig.loop.run_for(300ms);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(handled < 20);
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

TEST_CASE("of other ranks' snapshots the newest two of each are kept, and offered to the next round's worker") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    const auto give = [](Worker& giver, local::HandoverKind kind, std::int64_t step, std::int32_t rank) {
        const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
        giver.give({kind, static_cast<std::uint64_t>(step), step, rank}, memory.get());
    };
    for (const std::int64_t step : {5, 6, 7}) {
        give(worker, local::HandoverKind::copy, step, 2);
        give(worker, local::HandoverKind::copy, step + 10, 3);
    }
    worker.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 1; }));
    CHECK(rig.channel->take_snapshots().empty());
    auto copies = rig.channel->take_copies();
    std::vector<std::int64_t> steps;
    for (const auto& copy : copies) steps.push_back(copy.step);
    CHECK(steps == std::vector<std::int64_t>{6, 16, 7, 17});

    rig.channel = std::move(AgentChannel::open(rig.loop, 3, {}, std::move(copies)).value());
    Worker next(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().runtime == "muster 0.1.0"; }));
    for (const auto step : steps) {
        const auto heard = local::decode(next.hear(), local::Sender::agent);
        REQUIRE(heard.has_value());
        CHECK(heard.value() ==
              local::Message(local::Offer{local::HandoverKind::copy, static_cast<std::uint64_t>(step)}));
    }
    // Its own second snapshot is newer than all that was carried over.
    give(next, local::HandoverKind::copy, 20, 2);
    give(next, local::HandoverKind::snapshot, 20, -1);
    give(next, local::HandoverKind::snapshot, 21, -1);
    next.say(local::Progress{2});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 2; }));
    copies = rig.channel->take_copies();
    REQUIRE(copies.size() == 1);
    CHECK(copies.front().step == 20);
}

namespace {

/// The worker of a round gives snapshots and, of rank 2, copies of these steps; what is kept afterwards, of either.
void next_round(ChannelRig& rig, std::vector<MemoryHandover>& snapshots, std::vector<MemoryHandover>& copies,
                const std::vector<std::int64_t>& steps, const std::string& directory = "/ckpt") {
    rig.channel = std::move(AgentChannel::open(rig.loop, 3, std::move(snapshots), std::move(copies)).value());
    Worker worker(*rig.channel);
    for (const auto step : steps) {
        const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
        worker.give({local::HandoverKind::copy, 7, step, 2}, memory.get());
        worker.give({local::HandoverKind::snapshot, 7, step, -1, directory}, memory.get());
    }
    worker.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 1; }));
    snapshots = rig.channel->take_snapshots();
    copies = rig.channel->take_copies();
}

std::string steps_of(const std::vector<MemoryHandover>& handovers) {
    std::string steps;
    for (const auto& gift : handovers) steps += cat(steps.empty() ? "" : " ", gift.step);
    return steps;
}

}  // namespace

TEST_CASE("what a round went on from stays until that round has a snapshot that all its ranks have") {
    ChannelRig rig;
    std::vector<MemoryHandover> snapshots, copies;
    next_round(rig, snapshots, copies, {13, 14, 15});
    CHECK(steps_of(snapshots) == "14 15");
    SECTION("the first snapshot is one of this rank alone, the second one says that all have the first") {
        next_round(rig, snapshots, copies, {20});
        CHECK(steps_of(snapshots) == "14 15 20");
        CHECK(steps_of(copies) == "14 15 20");
        next_round(rig, snapshots, copies, {21, 22});
        CHECK(steps_of(snapshots) == "21 22");
        CHECK(steps_of(copies) == "21 22");
    }
    SECTION("round after round that ends behind its first snapshot goes on from the same step") {
        for (int round = 0; round < 3; ++round) {
            next_round(rig, snapshots, copies, {15});  // from 14, which all had
            CHECK_THAT(steps_of(snapshots), Catch::StartsWith("14 15"));
            CHECK_THAT(steps_of(copies), Catch::StartsWith("14 15"));
            CHECK(snapshots.size() <= 4);
        }
    }
    SECTION("a round that has given nothing leaves all") {
        next_round(rig, snapshots, copies, {});
        CHECK(steps_of(snapshots) == "14 15");
        CHECK(steps_of(copies) == "14 15");
    }
    SECTION("two directories do not take each other's place") {
        next_round(rig, snapshots, copies, {16, 17, 18}, "/average");
        CHECK(steps_of(snapshots) == "14 15 17 18");
    }
}

TEST_CASE("a worker that gives copies of many ranks has a limit") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    for (std::int32_t rank = 0; rank < 40; ++rank) worker.give({local::HandoverKind::copy, 7, 1, rank}, memory.get());
    worker.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 1; }));
    CHECK(rig.channel->take_copies().size() == 24);
}

TEST_CASE("a gift without its memory breaks the rules") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    worker.say(local::Give{local::HandoverKind::snapshot, 7});
    CHECK(rig.run_until([&] { return !rig.facts().connected; }));
}

TEST_CASE("a closed channel is gone for its worker at once") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    rig.channel.reset();
    CHECK(worker.hear().empty());
    rig.loop.poll();
}

TEST_CASE("what a worker gave just before its end is there, though its end was heard first") {
    ChannelRig rig;
    FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    worker.give({local::HandoverKind::snapshot, 7, 20, -1, "/ckpt"}, memory.get());
    worker.go();
    const auto snapshots = rig.channel->take_snapshots();
    REQUIRE(snapshots.size() == 1);
    CHECK(snapshots[0].step == 20);
    CHECK(snapshots[0].directory == "/ckpt");
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
