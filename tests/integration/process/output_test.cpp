// What workers print: to files, to the console, to the report.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <thread>

#include "agent/output/output_pump.h"
#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/process/host_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/line_times.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;
using muster::test::without_times;

namespace {

StreamPlan shown(const std::string& prefix = {}) {
    StreamPlan plan;
    plan.inherit = false;
    plan.console = true;
    plan.prefix = prefix;
    return plan;
}

StreamPlan kept_in(const std::string& file) {
    StreamPlan plan;
    plan.inherit = false;
    plan.file = file;
    return plan;
}

WorkerCommand lines(std::uint32_t local_rank, int count) {
    auto command = act({}, local_rank);
    command.argv = {MUSTER_WORKER_PROGRAMS "/lines", std::to_string(count)};
    command.environment.push_back("LOCAL_RANK=" + std::to_string(local_rank));
    return command;
}

/// The same lines on stderr.
WorkerCommand lines_on_stderr(std::uint32_t local_rank, int count) {
    auto command = lines(local_rank, count);
    command.argv.insert(command.argv.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$1\" >&2"});
    return command;
}

Console on(const Pipe& pipe) {
    return {pipe.write_end.get(), pipe.write_end.get()};
}

/// Empties a pipe that nobody else reads, until its end, in a thread.
class Reader {
  public:
    explicit Reader(Pipe& pipe) : pipe_(pipe), thread_([this] { text_ = pipe_.read(100s); }) {}
    std::string text() {
        pipe_.write_end.reset();
        thread_.join();
        return text_.value_or("the pipe did not end");
    }

  private:
    Pipe& pipe_;
    std::optional<std::string> text_;
    std::thread thread_;
};

/// The lines of each worker, in order; false if one is damaged.
bool all_there(const std::string& text, std::uint32_t worker_count, int line_count, const std::string& prefix) {
    std::vector<int> next(worker_count, 0);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        std::uint32_t rank = 0;
        int number = 0;
        if (!line.starts_with(prefix)) return false;
        line.erase(0, prefix.size());
        if (line.size() != 79 || std::sscanf(line.c_str(), "%u %d ", &rank, &number) != 2) return false;
        if (rank >= worker_count || number != next[rank]++) return false;
    }
    return std::all_of(next.begin(), next.end(), [&](int count) { return count == line_count; });
}

/// A full pipe that nobody reads: a console that has stopped.
void fill(const Pipe& pipe) {
    ::fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
    const std::string block(4096, '#');
    while (::write(pipe.write_end.get(), block.data(), block.size()) > 0) {
    }
    ::fcntl(pipe.write_end.get(), F_SETFL, 0);
}

/// Runs once() again, up to five times in all, where a bad result took `late` or longer: the machine may have been the
/// cause.
template <class Once, class Good>
auto again_if_late(Duration late, Once once, Good good) {
    for (int left = 4;; --left) {
        const auto from = std::chrono::steady_clock::now();
        auto result = once();
        if (left == 0 || good(result) || std::chrono::steady_clock::now() - from < late) return result;
    }
}

/// Starts make(0), make(1) and so on as one group, and waits for all ends.
template <class Make>
void run_all(HostFixture& fixture, std::uint32_t worker_count, Make make) {
    std::vector<WorkerCommand> commands;
    for (std::uint32_t rank = 0; rank < worker_count; ++rank) commands.push_back(make(rank));
    fixture.host->start(std::move(commands));
    REQUIRE(fixture.wait_for<WorkerEnded>(worker_count, 60s));
}

/// The console of workers that all print the same, and one line more each. Their files are checked.
std::string folded_output(std::uint32_t worker_count) {
    const TemporaryDirectory directory;
    Pipe console;
    HostFixture fixture({}, on(console));
    Reader reader(console);
    run_all(fixture, worker_count, [&](std::uint32_t rank) {
        auto command = act({}, rank);
        command.argv = {"/bin/sh", "-c", "echo the same; printf '10%%\\r20%%\\r'; echo $0 has begun; echo E >&2",
                        std::to_string(rank)};
        command.stdout_plan = shown("[" + std::to_string(rank) + "]: ");
        command.stdout_plan.file = directory.file(std::to_string(rank));
        command.stdout_plan.fold = StreamPlan::Fold{.rank = rank, .among = worker_count};
        command.stderr_plan = command.stdout_plan;
        command.stderr_plan.file.clear();
        return command;
    });
    fixture.end();
    for (std::uint32_t rank = 0; rank < worker_count; ++rank)
        CHECK(contents(directory.file(std::to_string(rank))) ==
              "the same\n10%\r20%\r" + std::to_string(rank) + " has begun\n");
    return reader.text();
}

/// The tail of a worker's stderr, where the pump hangs in a write for a while when the worker ends.
std::string last_words_of_late_pump() {
    const TemporaryDirectory directory;
    const auto file = directory.file("out");
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    Pipe slow;
    slow.read_end = FileDescriptor(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    slow.write_end = FileDescriptor(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    fill(slow);
    HostFixture fixture;
    auto command = act({"say", "oh no", "3"});
    command.stdout_plan = kept_in(file);
    command.stderr_plan.inherit = false;
    command.stderr_plan.keep_tail = true;
    fixture.host->start({command});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    const auto pid = fixture.all<WorkerStarted>().front().pid;
    REQUIRE(fixture.run_until([&] { return ::kill(pid, 0) != 0; }));
    fixture.run_for(300ms);  // so long the pump hangs in a write
    std::array<char, 1 << 16> piece;
    do {
        (void)!::read(slow.read_end.get(), piece.data(), piece.size());
    } while (!fixture.run_until([&] { return !fixture.all<WorkerEnded>().empty(); }, 1ms));
    return fixture.all<WorkerEnded>().front().stderr_tail;
}

/// Eight workers that print much. What was lost on the way to the console and to the tails; their files are checked.
std::string tee_of_eight() {
    constexpr std::uint32_t worker_count = 8;
    constexpr int line_count = 5'000;  // less than the console keeps for a reader that stands still
    const TemporaryDirectory directory;
    Pipe console;
    HostFixture fixture({}, on(console));
    Reader reader(console);
    run_all(fixture, worker_count, [&](std::uint32_t rank) {
        auto command = lines_on_stderr(rank, line_count);
        command.stderr_plan = shown("[x]: ");
        command.stderr_plan.file = directory.file(std::to_string(rank));
        command.stderr_plan.keep_tail = true;
        return command;
    });
    const auto ends = fixture.all<WorkerEnded>();
    const bool all_heard = std::ranges::all_of(ends, [](const WorkerEnded& event) {
        const auto last = "\n" + std::to_string(event.local_rank) + " " + std::to_string(line_count - 1) + " ";
        return event.stderr_tail.find(last) != std::string::npos;
    });
    fixture.end();
    const bool all_shown = all_there(reader.text(), worker_count, line_count, "[x]: ");
    for (std::uint32_t rank = 0; rank < worker_count; ++rank) {
        const auto text = contents(directory.file(std::to_string(rank)));
        CHECK(std::count(text.begin(), text.end(), '\n') == line_count);
        CHECK(text.size() == 80 * line_count);
    }
    return cat(all_heard ? "" : "an end was told before its last words were read; ",
               all_shown ? "" : "the console lacks lines, or has damaged ones");
}

}  // namespace

TEST_CASE("tee of eight workers: no line lost, none split, files complete") {
    // Last words are waited for up to 2 s, and the console up to 5 s.
    CHECK(again_if_late(1500ms, tee_of_eight, [](const std::string& lost) { return lost.empty(); }) == "");
}

TEST_CASE("a folded console shows what all workers print once, and the files stay complete") {
    constexpr std::uint32_t worker_count = 12;
    const auto count = [](const std::string& text, std::string_view part) {
        std::size_t found = 0;
        for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
        return found;
    };
    const auto is_folded = [&](const std::string& text) {
        return count(text, "]: the same\n") == 1 && count(text, "]: E\n") == 1 &&
               count(text, "same from all 12 ranks of this node") == 2 &&
               count(text, "20%") == 0;  // the line stands where the bar was
    };
    // A rank that comes a second later is shown again.
    const auto text = again_if_late(
        1s, [] { return folded_output(worker_count); }, is_folded);
    INFO(text);
    CHECK(is_folded(text));
    CHECK(count(text, " has begun\n") == worker_count);
}

TEST_CASE("without a prefix the bytes pass as they are, with one as whole lines") {
    Pipe console;
    HostFixture fixture({}, on(console));
    Reader reader(console);
    auto command = act({"say", "a\r\nb\rc"});
    command.stdout_plan = shown();
    fixture.run(command);
    command.argv[2] = "\nd\r\ne\rf";
    command.stdout_plan = shown("[0]:");
    fixture.run(command);
    fixture.end();
    CHECK(reader.text() == "a\r\nb\rc[0]:\n[0]:d\n[0]:e\n[0]:f\n");
}

TEST_CASE("a line without its end is shown after 200 ms, while the worker lives") {
    Pipe console;
    HostFixture fixture({}, on(console));
    auto command = act({"say-wait", "loading..."});
    command.stdout_plan = shown("[0]:");
    const auto from = std::chrono::steady_clock::now();
    fixture.host->start({command});
    pollfd ready{console.read_end.get(), POLLIN, 0};
    while (::poll(&ready, 1, 0) == 0 && std::chrono::steady_clock::now() - from < patience) fixture.run_for(5ms);
    CHECK(std::chrono::steady_clock::now() - from < patience);
    CHECK(std::chrono::steady_clock::now() - from >= 200ms);
    CHECK(fixture.all<WorkerEnded>().empty());
    fixture.end();
    CHECK(console.read_to_end(patience) == "[0]:loading...\n");
}

TEST_CASE("the tails come with the end, and a file is appended to under a heading") {
    const TemporaryDirectory directory;
    HostFixture fixture;
    auto command = act({"say", "oh no", "3"});
    command.stdout_plan = kept_in(directory.file("attempt 0/out.log"));
    command.stderr_plan = kept_in(directory.file("attempt 0/err.log"));
    command.stderr_plan.keep_tail = true;
    command.heading = "--- round 0 ---";
    const auto event = fixture.run(command);
    CHECK(event.stderr_tail == "oh no");
    command.heading = "--- round 1 ---";
    fixture.run(command);
    CHECK(contents(command.stdout_plan.file) != without_times(contents(command.stdout_plan.file)));
    CHECK(without_times(contents(command.stdout_plan.file)) == "--- round 0 ---\noh no\n--- round 1 ---\noh no");
}

TEST_CASE("the last words are waited for where the pump is late") {
    const std::string words = "oh no";
    // They are waited for up to 2 s.
    CHECK(again_if_late(1500ms, last_words_of_late_pump, [&](const auto& tail) { return tail == words; }) == words);
}

TEST_CASE("a file that cannot be opened is a worker that has not started, and says which") {
    const TemporaryDirectory directory;
    HostFixture fixture;
    auto command = act({"exit", "0"});
    command.stdout_plan = kept_in(directory.file("x"));
    fixture.run(command);
    command.stdout_plan.file += "/y";  // x is a file
    const auto event = fixture.run(command);
    CHECK(describe(event.end) == describe(NotStarted{ENOTDIR, "open " + command.stdout_plan.file}));
}

TEST_CASE("a pump for which there is no descriptor says so, and works once there is one") {
    const Pipe console;
    const auto highest = ::dup(console.read_end.get());
    ::close(highest);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(highest) + 2;  // the pipe to the worker, and nothing more
    ::setrlimit(RLIMIT_NOFILE, &tight);
    const auto pump = OutputPump::make(on(console));
    auto command = act({});
    command.stderr_plan = shown();
    const auto refused = pump->open(1, command);
    ::setrlimit(RLIMIT_NOFILE, &before);
    REQUIRE(refused.has_error());
    CHECK(refused.error().error_number == EMFILE);
    auto streams = pump->open(2, command);
    REQUIRE(streams.has_value());
    REQUIRE(::write(streams->stderr_fd.get(), "hello", 5) == 5);
    pollfd shown_there{console.read_end.get(), POLLIN, 0};
    CHECK(::poll(&shown_there, 1, 60'000) == 1);
}

TEST_CASE("filters copy whole lines of all workers to one file, with their prefix") {
    const TemporaryDirectory directory;
    HostFixture fixture;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        auto command = act({"say", "loss 1\nother\nacc 2\nlast loss"}, rank);
        command.stdout_plan = kept_in(directory.file(std::to_string(rank)));
        command.stdout_plan.prefix = "[" + std::to_string(rank) + "]:";
        command.stdout_plan.filters = {"loss", "acc"};
        command.stdout_plan.filtered_file = directory.file("filtered");
        fixture.run(command);
    }
    fixture.end();
    CHECK(contents(directory.file("filtered")) ==
          "[0]:loss 1\n[0]:acc 2\n[0]:last loss\n[1]:loss 1\n[1]:acc 2\n[1]:last loss\n");
    CHECK(contents(directory.file("1")) == "loss 1\nother\nacc 2\nlast loss");
}

TEST_CASE("a grandchild that holds the pipe does not hold up the end") {
    Pipe console;
    HostFixture fixture({}, on(console));
    for (const bool terminal : {false, true}) {
        auto command = act({"holder", "4"});
        command.stderr_plan = shown();
        command.stderr_plan.terminal = terminal;
        command.stderr_plan.keep_tail = true;
        command.stdout_plan = shown();
        const auto event = fixture.run(command);
        CHECK(describe(event.end) == describe(Exited{4}));
        CHECK(std::chrono::steady_clock::now() - event.at < patience);
        fixture.host->kill_tree();
        REQUIRE(fixture.wait_for<TreeEmpty>(terminal ? 2 : 1));
    }
}

TEST_CASE("what a grandchild has printed is shown at the end, of every stream and without an end of its line") {
    Pipe console;
    auto pump = OutputPump::make(on(console));
    std::vector<WorkerStreams> held;
    std::set<std::string> words;
    for (std::uint64_t worker = 0; worker < 40; ++worker) {  // more than the pump reads in a turn
        auto command = act({});
        command.stdout_plan = shown(cat("[", worker, "]:"));
        auto streams = pump->open(worker, command);
        REQUIRE(streams.has_value());
        held.push_back(*std::move(streams));
        words.insert(cat("[", worker, "]:half"));
    }
    for (const auto& streams : held) REQUIRE(::write(streams.stdout_fd.get(), "half", 4) == 4);
    pump.reset();
    std::istringstream in(console.read_to_end(patience).value_or(""));
    std::set<std::string> seen;
    for (std::string line; std::getline(in, line);) seen.insert(line);
    CHECK(seen == words);
}

TEST_CASE("a terminal is a terminal for the worker, of the console's size, and bytes pass it unchanged") {
    int ours = -1, theirs = -1;
    winsize size{.ws_row = 33, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::openpty(&ours, &theirs, nullptr, nullptr, &size) == 0);
    const FileDescriptor held(ours), console(theirs);
    const TemporaryDirectory directory;
    HostFixture fixture({}, {theirs, theirs});
    auto command = act({"terminal"});
    command.stdout_plan = kept_in(directory.file("out"));
    command.stderr_plan = shown();
    command.stderr_plan.terminal = true;
    fixture.run(command);
    CHECK(contents(directory.file("out")) == "1 33 77\n");
    const std::string words = "line\n\033[31mred\r";
    command = act({"say", words});
    command.stderr_plan = shown();
    command.stderr_plan.terminal = true;
    command.stderr_plan.keep_tail = true;
    // A thread of the kernel's brings a terminal's last bytes. They are waited for up to 100 ms.
    const auto tail = again_if_late(
        100ms, [&] { return fixture.run(command).stderr_tail; }, [&](const auto& bytes) { return bytes == words; });
    CHECK(tail == words);
}

TEST_CASE("a console that has stopped costs lines, never the worker, its file, or the agent") {
    const TemporaryDirectory directory;
    Pipe console;
    fill(console);
    HostFixture fixture({}, on(console));
    auto command = lines(0, 200'000);
    command.stdout_plan = shown("[0]:");
    command.stdout_plan.file = directory.file("out");
    CHECK(describe(fixture.run(command).end) == describe(Exited{0}));
    CHECK(contents(command.stdout_plan.file).size() == 200'000 * 80);
    const auto from = std::chrono::steady_clock::now();
    fixture.end();
    CHECK(std::chrono::steady_clock::now() - from < patience);
}

TEST_CASE("a slow console says how many lines it has missed") {
    Pipe console;
    fill(console);
    // By the end of its patience its thread hangs in a write: else it would take lines, and make room, among those that
    // are skipped.
    ConsoleWriter writer(console.write_end.get(), "stdout", {.buffer_max_bytes = 1000, .patience = 1s});
    const std::string line = std::string(99, 'x') + "\n";
    for (int i = 0; i < 100; ++i) writer.add(line);
    Reader reader(console);
    REQUIRE(writer.flush(patience));
    writer.add("last\n");
    REQUIRE(writer.flush(patience));
    auto text = reader.text();
    text.erase(0, text.find_first_not_of('#'));
    const auto skipped = text.find("... ");
    REQUIRE(skipped != std::string::npos);
    const auto kept = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) - 2;  // the notice, "last"
    CHECK(text.substr(skipped) == "... " + std::to_string(100 - kept) + " lines skipped\nlast\n");
}

TEST_CASE("a console that is full or closed, and a full disk, leave the worker alone") {
    const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    Pipe closed;
    closed.read_end.reset();
    for (const int console : {full.get(), closed.write_end.get()}) {
        HostFixture fixture({}, {console, console});
        auto command = lines_on_stderr(0, 10'000);
        command.stderr_plan = shown("[0]:");
        command.stderr_plan.keep_tail = true;
        const auto event = fixture.run(command);
        CHECK(describe(event.end) == describe(Exited{0}));
        CHECK(event.stderr_tail.size() > 60'000);
        command.stderr_plan = kept_in("/dev/full");
        CHECK(describe(fixture.run(command).end) == describe(Exited{0}));
    }
}

TEST_CASE("a worker whose launcher has no stdout gets /dev/null, not a descriptor of ours") {
    const int saved = ::dup(1);
    ::close(1);
    {
        HostFixture fixture;
        auto command = act({"say", "into the void"});
        command.stdout_plan.inherit = true;
        CHECK(describe(fixture.run(command).end) == describe(Exited{0}));
    }
    ::dup2(saved, 1);
    ::close(saved);
}

TEST_CASE("a flood is killed as fast as silence") {
    const TemporaryDirectory directory;
    HostFixture fixture;
    auto command = act({"flood"});
    command.stdout_plan = kept_in(directory.file("out"));
    fixture.host->start({command});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    fixture.host->kill_tree();
    CHECK(fixture.wait_for<TreeEmpty>(1, patience));
}
