#include "agent/diagnosis/error_file.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

TEST_CASE("the file that @record writes gives its traceback and time") {
    const auto error = parse_error_file(
        R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback\nValueError: bad\n", "timestamp": "1700000000"}}})");
    CHECK(error.message == "Traceback\nValueError: bad\n");
    CHECK(error.timestamp_s == 1700000000);
}

TEST_CASE("a message that the traceback does not hold is kept behind it, where the report's last lines are") {
    CHECK(
        parse_error_file(
            R"({"message": {"message": "shard 7 is damaged", "extraInfo": {"py_callstack": "Traceback\nSystemExit: 3"}}})")
            .message == "Traceback\nSystemExit: 3\nshard 7 is damaged");
    CHECK(parse_error_file(R"({"message": {"message": "", "extraInfo": {"py_callstack": "T\n"}}})").message == "T\n");
}

TEST_CASE("the short form and missing parts are read") {
    CHECK(parse_error_file(R"({"message": "it broke", "timestamp": 5})").message == "it broke");
    CHECK(parse_error_file(R"({"message": "it broke", "timestamp": 5})").timestamp_s == 5);
    CHECK(parse_error_file(R"({"message": {"message": "it broke"}})").message == "it broke");
    CHECK(parse_error_file(R"({"message": {"message": "it broke", "extraInfo": 3}})").message == "it broke");
    CHECK(parse_error_file(R"({"message": "x", "timestamp": "soon"})").timestamp_s == 0);
    CHECK(parse_error_file(R"({"message": "x", "timestamp": 1e3})").timestamp_s == 0);
    for (const auto* const far : {"9223372036854775808", "\"9223372036854775808\""})
        CHECK(parse_error_file(cat(R"({"message": "x", "timestamp": )", far, "}")).timestamp_s == 0);
}

TEST_CASE("what is no error file is quoted, briefly") {
    for (const std::string& text :
         {std::string(), std::string("{"), std::string("[]"), std::string("\"x\""), std::string(R"({"message": 3})"),
          std::string(R"({"message": {}})"), std::string("\xff\xfe{}"), std::string(R"({"message": "cut of)"),
          std::string(100'000, '['), std::string(error_file_bytes_max + 1, ' ')}) {
        const auto error = parse_error_file(text);
        CHECK(error.message.starts_with("unreadable error file: "));
        CHECK(error.message.size() <= 250);
    }
}

TEST_CASE("of a long message the end is kept") {
    const auto error = parse_error_file("{\"message\": \"" + std::string(100'000, 'x') + "END\"}");
    CHECK(error.message.size() == 16 * 1024);
    CHECK(error.message.ends_with("xEND"));
}

TEST_CASE("every truncation of an error file is survived") {
    const std::string text =
        R"({"message": {"message": "ValueError: \u00e9", "extraInfo": {"py_callstack": "T", "timestamp": "17"}}})";
    for (std::size_t size = 0; size < text.size(); ++size)
        CHECK(parse_error_file(std::string_view(text).substr(0, size)).message.starts_with("unreadable"));
}

TEST_CASE("the launcher's error file is the worker's with the exit code in it, as torchrun leaves it") {
    Failure first;
    first.end = Signaled{11, false};
    first.wall_time_s = 17;
    const auto own = R"({"message":{"message":"ValueError: bad","extraInfo":{"timestamp":"5"}}})";
    CHECK(launcher_error_file(own, first, "unused") ==
          R"({"message":{"errorCode":-11,"extraInfo":{"timestamp":"5"},"message":"ValueError: bad"}})"
          "\n");
    first.end = Exited{3};
    CHECK(launcher_error_file(R"({"message":"short","timestamp":5})", first, "unused") ==
          R"({"message":"short","timestamp":5})"
          "\n");
    for (const std::string& unreadable : {std::string(), std::string("{\"mess"), std::string("[]"),
                                          std::string("{\"message\":3}"), std::string(100'000, '[')}) {
        const auto made = nlohmann::json::parse(launcher_error_file(unreadable, first, "rank 0 failed"));
        CHECK(made["message"]["message"] == "rank 0 failed");
        CHECK(made["message"]["errorCode"] == 3);
        CHECK(made["message"]["extraInfo"]["timestamp"] == "17");
    }
}
