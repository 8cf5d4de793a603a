#include "rendezvous/wire/native/codec.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"
#include "rendezvous/wire/native/report.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/wire/native/samples.h"

namespace muster::native {
namespace {

std::string frame(const Message& message) {
    std::string bytes;
    append_frame(bytes, message);
    return bytes;
}

Result<std::optional<Message>> read(std::string_view bytes, Sender sender) {
    FrameReader reader(sender);
    reader.append(bytes);
    return reader.next();
}

std::string hex(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
        constexpr std::string_view digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        out += cat(out.empty() ? "" : " ", digits[byte >> 4], digits[byte & 15]);
    }
    return out;
}

}  // namespace

TEST_CASE("every message comes back as it was sent") {
    REQUIRE(test::samples().size() == std::variant_size_v<Message>);
    for (const auto& message : test::samples()) {
        INFO(name(message));
        const auto back = read(frame(message), test::sender_of(message));
        REQUIRE(back.has_value());
        REQUIRE(back.value().has_value());
        CHECK(*back.value() == message);
    }
}

TEST_CASE("messages arrive in any pieces, several at a time") {
    for (const auto sender : {Sender::agent, Sender::daemon, Sender::peer}) {
        std::string bytes;
        std::vector<Message> sent;
        for (const auto& message : test::samples()) {
            if (test::sender_of(message) != sender) continue;
            append_frame(bytes, message);
            sent.push_back(message);
        }
        for (std::size_t piece = 1; piece <= bytes.size(); piece = piece * 2 + 1) {
            FrameReader reader(sender);
            std::vector<Message> received;
            for (std::size_t at = 0; at < bytes.size(); at += piece) {
                reader.append(std::string_view(bytes).substr(at, piece));
                for (;;) {
                    auto message = reader.next();
                    REQUIRE(message.has_value());
                    if (!message.value()) break;
                    received.push_back(*std::move(message.value()));
                }
            }
            CHECK(received == sent);
        }
    }
}

TEST_CASE("a truncated message waits for its rest, and a shorter frame of the same bytes is refused") {
    for (const auto& message : test::samples()) {
        INFO(name(message));
        const auto whole = frame(message);
        const auto sender = test::sender_of(message);
        for (std::size_t size = 0; size < whole.size(); ++size) {
            const auto part = read(std::string_view(whole).substr(0, size), sender);
            REQUIRE(part.has_value());
            CHECK_FALSE(part.value().has_value());
            if (size < frame_header_bytes) continue;
            auto cut = whole.substr(0, size);
            const auto length = static_cast<std::uint32_t>(size - frame_header_bytes);
            std::copy_n(reinterpret_cast<const char*>(&length), sizeof length, cut.begin() + 2);
            const auto refused = read(cut, sender);
            CHECK((refused.has_error() && refused.error().code == Errc::bad_frame));
        }
    }
}

TEST_CASE("a frame with a byte too many is refused") {
    for (const auto& message : test::samples()) {
        INFO(name(message));
        auto longer = frame(message) + '\0';
        const auto length = static_cast<std::uint32_t>(longer.size() - frame_header_bytes);
        std::copy_n(reinterpret_cast<const char*>(&length), sizeof length, longer.begin() + 2);
        CHECK(read(longer, test::sender_of(message)).has_error());
    }
}

TEST_CASE("whatever byte is damaged, the answer is a message or an error") {
    for (const auto& message : test::samples()) {
        INFO(name(message));
        const auto sender = test::sender_of(message);
        const auto whole = frame(message);
        for (std::size_t at = 0; at < whole.size(); ++at) {
            for (const int flip : {1, 0x80, 0xff}) {
                auto damaged = whole;
                damaged[at] = static_cast<char>(damaged[at] ^ flip);
                const auto back = read(damaged, sender);
                if (!back || !back.value()) continue;
                // What is accepted says again the same thing.
                const auto again = read(frame(*back.value()), sender);
                REQUIRE(again.has_value());
                CHECK(*again.value() == *back.value());
            }
        }
    }
}

TEST_CASE("an announced length beyond the limit is refused before its bytes come") {
    const struct {
        Sender sender;
        char type;
        std::size_t max;
    } cases[] = {{Sender::agent, 0x01, agent_frame_bytes_max},
                 {Sender::daemon, 0x15, daemon_frame_bytes_max},
                 {Sender::peer, 0x21, peer_frame_bytes_max}};
    for (const auto& [sender, type, max] : cases) {
        std::string header{'\xB5', type};
        const auto allowed = static_cast<std::uint32_t>(max);
        const auto beyond = allowed + 1;
        const auto with = [&](std::uint32_t length) {
            return header + std::string(reinterpret_cast<const char*>(&length), sizeof length);
        };
        CHECK(read(with(allowed), sender).has_value());
        const auto refused = read(with(beyond), sender);
        REQUIRE(refused.has_error());
        CHECK(refused.error().code == Errc::limit_exceeded);
        CHECK(refused.error().context.find(cat(max)) != std::string::npos);
    }
}

TEST_CASE("after an error the stream stays refused") {
    FrameReader reader(Sender::agent);
    reader.append("GET / HTTP/1.1");
    CHECK(reader.next().has_error());
    reader.append(frame(Ping{}));
    CHECK(reader.next().has_error());
}

TEST_CASE("a reader holds half a message with the room around it, and next to nothing between messages") {
    Join join;
    join.addresses.assign(32, std::string(200, 'a'));
    const auto whole = frame(join);
    FrameReader reader(Sender::agent);
    for (int i = 0; i < 3; ++i) reader.append(whole);
    reader.append(std::string_view(whole).substr(0, 100));
    for (int i = 0; i < 3; ++i) REQUIRE(reader.next().value().has_value());
    CHECK_FALSE(reader.next().value().has_value());
    CHECK(reader.held_bytes() == 100);
    CHECK(reader.heap_bytes() >= 3 * whole.size());
    reader.append(std::string_view(whole).substr(100));
    REQUIRE(reader.next().value().has_value());
    CHECK(reader.held_bytes() == 0);
    CHECK(reader.heap_bytes() <= 1'024);
}

TEST_CASE("a message of the wrong side is refused") {
    for (const auto& message : test::samples())
        for (const auto sender : {Sender::agent, Sender::daemon, Sender::peer})
            CHECK(read(frame(message), sender).has_value() == (sender == test::sender_of(message)));
}

TEST_CASE("a Hello of another version is read as far as the version") {
    Hello future;
    future.version = protocol_version + 1;
    auto bytes = frame(future) + "whatever a later version says";
    const auto length = static_cast<std::uint32_t>(bytes.size() - frame_header_bytes);
    std::copy_n(reinterpret_cast<const char*>(&length), sizeof length, bytes.begin() + 2);
    const auto back = read(bytes, Sender::agent);
    REQUIRE(back.has_value());
    CHECK(std::get<Hello>(*back.value()).version == protocol_version + 1);
}

TEST_CASE("a count that the bytes cannot hold reserves nothing") {
    // Peers with 20,000 announced entries and no bytes for them.
    std::string bytes{'\xB5', 0x15};
    const std::uint32_t length = 12;
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes.append(8, '\0');
    const std::uint32_t count = 20'000;
    bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
    CHECK(read(bytes, Sender::daemon).has_error());
}

TEST_CASE("texts too long for the wire are shortened where they say least") {
    Failure failure;
    failure.stderr_tail = std::string(stderr_tail_bytes_max, 'x') + "the end";
    WorkersFailed failed{1, {failure}};
    const auto back = read(frame(failed), Sender::agent);
    REQUIRE(back.has_value());
    const auto& kept = std::get<WorkersFailed>(*back.value()).failures.at(0).stderr_tail;
    CHECK(kept.size() == stderr_tail_bytes_max);
    CHECK(kept.ends_with("the end"));

    const auto left = read(frame(Leave{std::string(10'000, 'y')}), Sender::agent);
    CHECK(std::get<Leave>(*left.value()).why.size() == sentence_bytes_max);
}

TEST_CASE("the stage at which a worker could not start may hold a long path, of which the end is kept") {
    Failure failure;
    failure.end = NotStarted{28, "open /" + std::string(4'000, 'd') + "/stdout.log"};
    const auto back = read(frame(WorkersFailed{1, {failure}}), Sender::agent);
    REQUIRE(back.has_value());
    const auto& stage = std::get<NotStarted>(std::get<WorkersFailed>(*back.value()).failures.front().end).stage;
    CHECK(stage.size() == name_bytes_max);
    CHECK(stage.ends_with("/stdout.log"));
}

TEST_CASE("a report of any size is made to fit, and the first failure keeps the most") {
    const std::string message = cat(std::string(100'000, 'm'), '!');
    const std::string tail = cat(std::string(100'000, 't'), '!');
    for (const std::size_t count : {1u, 8u, 200u, 1'000u}) {
        std::vector<Failure> failures(count);
        for (auto& failure : failures) {
            failure.host = failure.role = std::string(name_bytes_max, 'h');
            failure.end = NotStarted{2, std::string(name_bytes_max, 's')};
            failure.message = message;
            failure.stderr_tail = tail;
            failure.error_file = failure.log_directory = std::string(path_bytes_max, '/');
        }
        fit_report(failures);
        CHECK(failures.size() == std::min(count, failures_max));
        CHECK(failures.front().stderr_tail.size() >= 16 * 1024);
        CHECK(failures.back().message.ends_with("!"));
        const WorkerActivity longest{
            1, 1, 1, std::string(500, 's'), true, std::string(500, 'o'), std::string(900, 'p')};
        const auto bytes = frame(RoundReport{1, failures, 0, -1, std::vector(100, longest)});
        CHECK(bytes.size() <= agent_frame_bytes_max);
        CHECK(read(bytes, Sender::agent).has_value());
    }
}

TEST_CASE("texts that a terminal would obey are refused, and an honest sender escapes them") {
    const auto damaged = [](const Message& message, std::string_view word, std::string_view with) {
        auto bytes = frame(message);
        const auto at = bytes.find(word);
        REQUIRE(at != std::string::npos);
        bytes.replace(at, word.size(), with);
        return read(bytes, test::sender_of(message)).has_error();
    };
    Hello hello;
    hello.job = "JOBNAME";
    hello.node.host = "HOSTNAME";
    Join join;
    join.role = "ROLENAME";
    join.entry = "SCRIPT.py";
    join.arguments = "ARGUMENT";
    WorkersFailed failed{1, {Failure{}}};
    failed.failures[0].host = "HOSTNAME";
    failed.failures[0].message = "MESSAGE!";
    const Leave leave{"BECAUSE!"};
    for (const std::string_view bad : {"\x1b[2J",
                                       "a\x07"
                                       "bc",
                                       "ab\xff"
                                       "c",
                                       "\xc2\x9b"
                                       "31"}) {
        INFO(hex(bad));
        const auto eight = cat(bad, std::string(8 - bad.size(), 'x'));
        const auto seven = eight.substr(0, 7), nine = eight + "x";
        CHECK(damaged(hello, "JOBNAME", seven));
        CHECK(damaged(hello, "HOSTNAME", eight));
        CHECK(damaged(join, "ROLENAME", eight));
        CHECK(damaged(join, "SCRIPT.py", nine));
        CHECK(damaged(join, "ARGUMENT", eight));
        CHECK(damaged(failed, "HOSTNAME", eight));
        CHECK(damaged(failed, "MESSAGE!", eight));
        CHECK(damaged(leave, "BECAUSE!", eight));
    }
    // A name and a script stand inside of a line; a message may have several.
    CHECK(damaged(hello, "JOBNAME", "a\nb: cd"));
    CHECK(damaged(join, "SCRIPT.py", "a\nb: cdef"));
    CHECK_FALSE(damaged(failed, "MESSAGE!", "two\nline"));
    join.entry = "a\x1b\nb";
    failed.failures[0].message = "\xff\n\x1b";
    failed.failures[0].stderr_tail = cat(std::string(stderr_tail_bytes_max - 1, 't'), "\xe2\x82\xac");
    CHECK(std::get<Join>(**read(frame(join), Sender::agent)).entry == "a\\x1b\\x0ab");
    const auto back = std::get<WorkersFailed>(**read(frame(failed), Sender::agent));
    CHECK(back.failures[0].message == "\\xff\n\\x1b");
    CHECK(back.failures[0].stderr_tail.size() <= stderr_tail_bytes_max);
    CHECK(back.failures[0].stderr_tail.ends_with("\xe2\x82\xac"));
    // Also where escaping makes them longer.
    std::vector<Failure> failures(8);
    for (auto& failure : failures) failure.message = failure.stderr_tail = std::string(100'000, '\x1b');
    fit_report(failures);
    CHECK(read(frame(RoundReport{1, failures, 0, -1}), Sender::agent).has_value());
}

TEST_CASE("a tail that is not UTF-8 says what its escapes are, once") {
    std::vector<Failure> failures(3);
    failures[0].stderr_tail = "Gr\xfcn";
    failures[1].stderr_tail = "b'\\xfc', as Python prints bytes\n";
    failures[2].stderr_tail = "\xfc" + std::string(4'096, '.');
    fit_report(failures);
    const auto once = failures;
    fit_report(failures);
    CHECK(failures == once);
    CHECK(failures[0].stderr_tail.starts_with("Gr\\xfcn\n(\\xNN is a byte that is not UTF-8: "));
    CHECK(failures[1].stderr_tail == "b'\\xfc', as Python prints bytes\n");
    CHECK(failures[2].stderr_tail.ends_with("..."));
}

TEST_CASE("PROTOCOL.md shows every message in the bytes that are really sent") {
    std::ifstream file(MUSTER_PROTOCOL_DOCUMENT);
    REQUIRE(file.good());
    std::ostringstream text;
    text << file.rdbuf();
    for (const auto& message : test::samples()) {
        INFO(name(message) << ": " << hex(frame(message)));
        const auto section = text.str().find(cat("### ", name(message), "\n"));
        REQUIRE(section != std::string::npos);
        // The document breaks long examples into lines of 32 bytes, indented by four blanks.
        std::string shown;
        std::istringstream lines(text.str().substr(section + 4));
        for (std::string line; std::getline(lines, line) && !line.starts_with("#");)
            if (line.starts_with("    ")) shown += cat(shown.empty() ? "" : " ", trim(line));
        CHECK(shown == hex(frame(message)));
    }
}

}  // namespace muster::native
