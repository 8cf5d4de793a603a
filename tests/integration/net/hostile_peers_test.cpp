// Garbage, silence, greed: the connection goes, everybody else is served, and memory stays bounded.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>
#include <random>

#include "rendezvous/base/text/text.h"
#include "rendezvous/servers/round_store.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/asking_peers.h"
#include "tests/support/end_with_test.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

DaemonConfig hasty() {
    DaemonConfig config;
    config.limits.handshake_timeout = 2s;  // far more than an honest peer of this test takes
    return config;
}

// One end of the agents' protocol.
class AgentSocket {
  public:
    AgentSocket(const RunningDaemon& running, std::string host, std::uint64_t incarnation)
        : socket_(running.connect()) {
        native::Hello hello;
        hello.job = "hunted";
        hello.node = {.host = std::move(host), .pid = 1, .incarnation = incarnation};
        say(hello);
    }
    void say(const native::Message& message) {
        std::string bytes;
        native::append_frame(bytes, message);
        socket_.send(bytes);
    }
    /// Everything up to the next message of this kind, or up to the end.
    template <class Wanted>
    std::vector<native::Message> hear() {
        std::vector<native::Message> heard;
        for (;;) {
            auto next = reader_.next();
            REQUIRE(next.has_value());
            if (*next) {
                heard.push_back(**next);
                if (std::holds_alternative<Wanted>(heard.back())) return heard;
                continue;
            }
            const auto bytes = socket_.receive(1);
            if (bytes.empty()) return heard;
            reader_.append(bytes);
        }
    }

  private:
    PlainSocket socket_;
    native::FrameReader reader_{native::Sender::daemon};
};

template <class Wanted>
bool has(const std::vector<native::Message>& heard) {
    return std::ranges::any_of(heard, [](const auto& one) { return std::holds_alternative<Wanted>(one); });
}

// What this process writes to stderr during one test.
class CapturedLog {
  public:
    CapturedLog() {
        char name[] = "/tmp/muster-log-XXXXXX";
        file_ = ::mkostemp(name, O_CLOEXEC);
        ::unlink(name);
        saved_ = ::fcntl(2, F_DUPFD_CLOEXEC, 3);
        ::dup2(file_, 2);
    }
    ~CapturedLog() {
        ::dup2(saved_, 2);
        ::close(saved_);
        ::close(file_);
    }
    [[nodiscard]] std::string text() const {
        std::string out(1 << 20, '\0');
        const auto size = ::pread(file_, out.data(), out.size(), 0);
        out.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
        return out;
    }

  private:
    int file_ = -1;
    int saved_ = -1;
};

}  // namespace

TEST_CASE("half a Hello and half a HTTP request are closed at the handshake deadline, with a log line") {
    const CapturedLog log;
    const RunningDaemon running(hasty());
    for (const std::string& half : {std::string("\xB5\x01\x40\x00", 4), std::string("GET / HT")}) {
        const auto socket = running.connect();
        socket.send(half);
        running.require_prompt_service();
        CHECK(socket.closed_by_peer());
    }
    CHECK(running.metric("muster_connections_refused_total") == 2);
    CHECK(log.text().find("no whole request within 2 s") != std::string::npos);
}

TEST_CASE("a silent connection is closed at the handshake deadline") {
    const RunningDaemon running(hasty());
    const auto start = std::chrono::steady_clock::now();
    const auto socket = running.connect();
    running.require_prompt_service();
    CHECK(socket.closed_by_peer());
    CHECK(std::chrono::steady_clock::now() - start > 1900ms);
}

TEST_CASE("silent connections have their lines in the log also after the first ten") {
    const CapturedLog log;
    const RunningDaemon running(hasty());
    for (int times = 0; times < 2; ++times) {
        std::vector<PlainSocket> silent;
        for (int i = 0; i < 10; ++i) silent.push_back(running.connect());
        for (const auto& socket : silent) CHECK(socket.closed_by_peer());
    }
    const auto text = log.text();
    std::size_t line_count = 0;
    for (auto at = text.find("no request within 2 s"); at != std::string::npos; at = text.find("no request", at + 1))
        ++line_count;
    CHECK(line_count == 20);
}

TEST_CASE("a daemon that stood still has one line for all connections that were closed meanwhile") {
    const CapturedLog log;
    RunningDaemon running;
    Standstill still(running.loop());
    for (int i = 0; i < 5; ++i) running.connect().send(c10d_bytes::validate);
    still.end();
    running.require_prompt_service();
    CHECK(running.metric("muster_connections_refused_total") == 5);
    const auto text = log.text();
    const auto first = text.find("has closed it");
    REQUIRE(first != std::string::npos);
    CHECK(text.find("has closed it", first + 1) == std::string::npos);
}

TEST_CASE("a length of 1 GB costs nothing but its own connection") {
    const RunningDaemon running;
    const auto before = resident_bytes();
    const std::string gigabyte = c10d_bytes::number(1u << 30);
    const std::string frame{"\xB5\x01\x00\x00\x00\x40", 6};
    for (const std::string& bytes :
         {c10d_bytes::validate + '\x01' + gigabyte, c10d_bytes::validate + '\x01' + c10d_bytes::text("/k") + gigabyte,
          c10d_bytes::validate + '\x06' + gigabyte, frame}) {
        const auto socket = running.connect();
        socket.send(bytes);
        running.require_prompt_service();
        CHECK(socket.closed_by_peer());
    }
    CHECK(resident_bytes() < before + (64u << 20));
}

TEST_CASE("a port scan with 1,000 connections of garbage delays nobody and leaves nothing behind") {
    const CapturedLog log;
    const RunningDaemon running(hasty());
    const auto honest = running.connect();
    honest.send(c10d_bytes::validate + c10d_bytes::ping());
    REQUIRE(honest.receive(4) == c10d_bytes::pong);
    const auto before = resident_bytes();
    const auto start = std::chrono::steady_clock::now();
    std::mt19937 random(2);
    for (int scan = 0; scan < 1'000; ++scan) {
        const auto socket = running.connect();
        std::string bytes(random() % 600, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        socket.send(bytes);  // the daemon may have closed already
        if (scan % 100 != 0) continue;
        honest.send(c10d_bytes::ping());
        REQUIRE(honest.receive(4) == c10d_bytes::pong);
    }
    running.require_prompt_service();
    CHECK(resident_bytes() < before + (64u << 20));
    // A second is not enough for more than ten lines.
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
    const std::string lines = log.text();
    CHECK(std::count(lines.begin(), lines.end(), '\n') <= 10 * (seconds + 1));
    CHECK(lines.find("closed: ") != std::string::npos);
}

TEST_CASE("who asks for much and reads nothing is not served further, and does not fill the memory") {
    const RunningDaemon running;
    constexpr std::size_t count = 20'000;
    const std::string value(2'000, 'v');  // small enough to be copied into each answer: 40 MB of them
    const auto writer = running.connect();
    writer.send(c10d_bytes::validate + c10d_bytes::set("/k", value) + c10d_bytes::ping());
    REQUIRE(writer.receive(4) == c10d_bytes::pong);
    const auto before = resident_bytes();
    const PlainSocket greedy("127.0.0.1", running.port(), 4096);
    std::string requests = c10d_bytes::validate;
    for (std::size_t i = 0; i < count; ++i) requests += c10d_bytes::get("/k");
    REQUIRE(greedy.send(requests));
    for (int i = 0; i < 20; ++i) running.require_prompt_service();
    CHECK(resident_bytes() < before + (16u << 20));
    // Once it reads, it gets all that it asked for.
    std::size_t answers = 0;
    while (answers < count && greedy.receive(8 + value.size()) == c10d_bytes::text(value)) ++answers;
    CHECK(answers == count);
}

TEST_CASE("who asks again and again and never reads holds no more than one pause's worth of answers") {
    const RunningDaemon running;
    const std::string value(4'000, 'v');  // small enough to be copied into each answer
    const auto honest = running.connect();
    honest.send(c10d_bytes::validate + c10d_bytes::set("/k", value) + c10d_bytes::ping());
    REQUIRE(honest.receive(4) == c10d_bytes::pong);
    const PlainSocket greedy("127.0.0.1", running.port(), 4096);
    const int yes = 1;  // else the kernel keeps the questions back until answers are read
    ::setsockopt(greedy.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    greedy.send(c10d_bytes::validate);
    // Each piece asks for 400 kB, all of them for 32 MB; the questions fit into the kernel's buffers.
    constexpr std::size_t pieces = 80;
    std::string piece;
    for (int i = 0; i < 100; ++i) piece += c10d_bytes::get("/k");
    for (std::size_t i = 0; i < pieces; ++i) {
        REQUIRE(greedy.send(piece));
        // Whatever the daemon wants to do with the piece, it does before it answers this.
        honest.send(c10d_bytes::ping());
        REQUIRE(honest.receive(4) == c10d_bytes::pong);
    }
    const double unsent = running.metric("muster_unsent_bytes");
    CHECK(unsent > 0);
    CHECK(unsent < (2 << 20));
    std::size_t answers = 0;
    while (answers < pieces * 100 && greedy.receive(8 + value.size()) == c10d_bytes::text(value)) ++answers;
    CHECK(answers == pieces * 100);
}

TEST_CASE(
    "who asks for more than is answered at once, and then closes its sending side, gets all answers and the end") {
    RunningDaemon running;
    const std::string value(4'000, 'v');
    const auto brief = running.connect();
    std::string requests = c10d_bytes::validate + c10d_bytes::set("/k", value);
    constexpr std::size_t count = 300;  // a little more than makes the core pause: the kernel takes it all at once
    for (std::size_t i = 0; i < count; ++i) requests += c10d_bytes::get("/k");
    // So that the loop finds the questions and the end together.
    Standstill still(running.loop());
    REQUIRE(brief.send(requests));
    ::shutdown(brief.fd(), SHUT_WR);
    still.end();
    bool closed = false;
    CHECK(brief.receive_all(closed).size() == count * (8 + value.size()));
    CHECK(closed);
}

TEST_CASE(
    "values that slow readers hold are charged after they are deleted, and the readers are closed before they fill "
    "the memory") {
    DaemonConfig config;
    config.limits.memory_bytes_max = std::size_t{64} << 20;
    const RunningDaemon running(std::move(config));
    const std::string value(8 << 20, 'v');
    const auto writer = running.connect();
    writer.send(c10d_bytes::validate + c10d_bytes::ping());
    REQUIRE(writer.receive(4) == c10d_bytes::pong);
    const auto before = resident_bytes();
    std::vector<PlainSocket> slow;
    double charged_max = 0;
    for (int i = 0; i < 24; ++i) {
        const auto key = cat("/k", i);
        writer.send(c10d_bytes::set(key, value) + c10d_bytes::ping());
        REQUIRE(writer.receive(4) == c10d_bytes::pong);
        slow.emplace_back("127.0.0.1", running.port(), 4096);
        std::string requests = c10d_bytes::validate;
        for (int k = 0; k < 4; ++k) requests += c10d_bytes::get(key);
        REQUIRE(slow.back().send(requests));
        running.require_prompt_service();
        writer.send(c10d_bytes::erase(key) + c10d_bytes::ping());
        REQUIRE(writer.receive(8 + 4).size() == 12);
        charged_max = std::max(charged_max, running.metric("muster_store_bytes"));
    }
    CHECK(charged_max >= double(value.size()));
    CHECK(running.metric("muster_memory_bytes") <= running.metric("muster_memory_bytes_max"));
    CHECK(resident_bytes() < before + (128u << 20) + sanitizer_bytes);
    writer.send(c10d_bytes::set("/k", "small") + c10d_bytes::get("/k"));
    CHECK(writer.receive(8 + 5) == c10d_bytes::text("small"));
}

TEST_CASE("who has not joined may not hold half a message") {
    DaemonConfig config;
    config.limits.unjoined_max = 1s;
    const RunningDaemon running(std::move(config));
    native::Hello hello;
    hello.job = "half";
    std::string whole;
    native::append_frame(whole, hello);
    native::append_frame(whole, native::Ping{});
    const auto holder = running.connect();
    const auto patient = running.connect();
    holder.send(whole + std::string("\xB5\x05\x00\x00\x03\x00", 6) + std::string(1'000, 'x'));
    patient.send(whole);
    CHECK(holder.closed_by_peer());
    std::string ping;
    native::append_frame(ping, native::Ping{});
    REQUIRE(patient.send(ping));
    CHECK(patient.receive(2 * 30).size() == 60);
}

TEST_CASE("half a message counts against the memory, with the room that it takes") {
    const RunningDaemon running;
    native::Hello hello;
    hello.job = "half";
    std::string half;
    native::append_frame(half, hello);
    native::append_frame(half, native::Ping{});
    half += std::string("\xB5\x05\x00\x00\x03\x00", 6) + std::string(100'000, 'x');
    const auto charged = [&](auto enough) {
        for (const auto until = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < until;)
            if (enough(running.metric("muster_memory_bytes"))) return true;
        return false;
    };
    {
        const auto holder = running.connect();
        holder.send(half);
        CHECK(charged([](double bytes) { return bytes >= 100'000; }));
    }
    CHECK(charged([](double bytes) { return bytes < 10'000; }));
}

TEST_CASE("an agent that reads nothing is closed when its limit is reached") {
    DaemonConfig config;
    config.limits.agent_unsent_bytes_max = 100'000;
    const RunningDaemon running(std::move(config));
    std::string bytes;
    native::Hello hello;
    hello.job = "deaf";
    hello.node = {.host = "here", .pid = 1, .incarnation = 9};
    native::append_frame(bytes, hello);
    std::string ping;
    native::append_frame(ping, native::Ping{});
    std::string pings;
    for (int i = 0; i < 2'000; ++i) pings += ping;
    // The kernel's buffers take megabytes before the daemon has answered enough to see that nobody reads. Where both
    // ends send and one does not read, TCP may come to stand still by itself (what says that bytes have come lies
    // behind answers for which there is no room): then another one tries.
    bool closed = false;
    for (int tries = 0; tries < 20 && !closed; ++tries) {
        const PlainSocket deaf("127.0.0.1", running.port(), 4096);
        const timeval patience{.tv_sec = 2, .tv_usec = 0};
        ::setsockopt(deaf.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        const auto give_up = std::chrono::steady_clock::now() + 3s;
        bool open = deaf.send(bytes + pings);
        while (open && std::chrono::steady_clock::now() < give_up) open = deaf.send(pings);
        closed = !open && (errno == EPIPE || errno == ECONNRESET);
    }
    CHECK(closed);
    running.require_prompt_service();
}

// In a child, because the limit of open files is the whole process's.
TEST_CASE("a process without free descriptors turns connections away and recovers") {
    const pid_t child = test::fork_with_test();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::alarm(60);
        const CapturedLog log;
        EventLoop loop;
        auto store = RoundStore::open(loop, {});
        if (!store) ::_exit(10);
        std::vector<PlainSocket> sockets;
        for (int i = 0; i < 40; ++i) sockets.emplace_back("127.0.0.1", (*store)->port());
        // Room for about half of them on the accepting side.
        const int next = ::dup(0);
        ::close(next);
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = static_cast<rlim_t>(next) + 20;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        loop.start_thread();
        const auto start = std::chrono::steady_clock::now();
        std::size_t served = 0;
        std::size_t closed = 0;
        for (auto& socket : sockets) {
            socket.send(c10d_bytes::validate + c10d_bytes::ping());
            const bool answered = socket.receive(4) == c10d_bytes::pong;
            answered ? ++served : ++closed;
        }
        if (served < 10 || closed < 10) ::_exit(11);
        sockets.clear();
        limit.rlim_cur += 100;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        const PlainSocket late("127.0.0.1", (*store)->port());
        late.send(c10d_bytes::validate + c10d_bytes::ping());
        if (late.receive(4) != c10d_bytes::pong) ::_exit(12);
        // One line a second, whatever happens. (Other lines: UBSan needs descriptors of its own and complains.)
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
        std::int64_t lines = 0;
        const std::string text = log.text();
        for (std::size_t at = 0; (at = text.find("muster error port", at)) != std::string::npos; ++at) ++lines;
        ::_exit(lines <= seconds + 1 ? 0 : 13);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a stranger who resumes an invented round commands nobody, and what it names does not spoil the numbers") {
    const RunningDaemon running;
    AgentSocket honest(running, "gpu01", 1);
    native::Join join;
    join.terms.restarts_max = 3;
    honest.say(join);
    const auto sealed = honest.hear<native::Assigned>();
    REQUIRE(has<native::Assigned>(sealed));
    const auto assigned = std::get<native::Assigned>(sealed.back());
    for (const Round round : {Round{999}, assigned.round}) {
        AgentSocket stranger(running, "nowhere", 2 + static_cast<std::uint64_t>(round));
        native::Resume resume{round, false, join, assigned};
        resume.as_assigned.round = round;
        resume.as_assigned.restart_count = 3;
        stranger.say(resume);
        CHECK(has<native::RoundEnded>(stranger.hear<native::RoundEnded>()));
        stranger.say(
            native::Command{.number = 1, .verb = native::CommandVerb::drain_node, .node = "gpu01", .why = "mine"});
        stranger.say(native::Command{.number = 2, .verb = native::CommandVerb::notify_job, .node = {}, .why = "mine"});
        stranger.hear<native::Refused>();
    }
    AgentSocket boaster(running, "nowhere", 3);
    auto other = join;
    other.terms.restarts_max = 9;
    other.last_round = Round{1} << 62;
    boaster.say(other);
    CHECK(has<native::Refused>(boaster.hear<native::Refused>()));

    honest.say(native::Ping{});
    const auto told = honest.hear<native::Pong>();
    CHECK_FALSE(has<native::Drain>(told));
    CHECK_FALSE(has<native::NoticeGiven>(told));
    CHECK_FALSE(has<native::RoundEnded>(told));
    honest.say(native::WorkersFailed{assigned.round, {Failure{}}});
    honest.say(native::RoundReport{assigned.round, {}, 0, -1});
    join.last_round = assigned.round;
    honest.say(join);
    const auto again = honest.hear<native::Assigned>();
    REQUIRE(has<native::Assigned>(again));
    CHECK(std::get<native::Assigned>(again.back()).round == 1'000);  // above all that it was told
    CHECK(std::get<native::Assigned>(again.back()).restart_count == 1);
}
