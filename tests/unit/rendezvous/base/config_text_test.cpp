// Configuration files: lines to keys and values, and words as a shell splits them.
#include "rendezvous/base/system/config_text.h"

#include "tests/support/catch.h"
#include "tests/support/other_user.h"
#include "tests/support/scratch_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

using namespace muster;

namespace {

std::string shown(std::string_view text) {
    std::string out;
    const auto read = parse_config(text);
    for (const auto& [key, value, line] : read.entries) out += std::to_string(line) + " " + key + "=<" + value + "> ";
    for (const auto& [line, why] : read.complaints) out += std::to_string(line) + "! ";
    return out;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a line is a key and a value, and blanks around them count for nothing") {
    CHECK(shown("nnodes = 2\n\n  # a comment\n;another\nrdzv_id=a b = c # d\r\n\tflag=\n") ==
          "1 nnodes=<2> 5 rdzv-id=<a b = c # d> 6 flag=<> ");
}

TEST_CASE("what is no key with a value is complained about with its line, and the others are read") {
    CHECK(shown("one\n= 2\nthree = 3\nfour\x01 = 4") == "3 three=<3> 1! 2! 4! ");
    CHECK(parse_config("  nonsense ").complaints[0].why ==
          "got 'nonsense'; accepted is KEY = VALUE, or # before a comment");
}

TEST_CASE("a flag is yes or no in several ways") {
    for (const char* on : {"yes", "TRUE", "On", "1"}) CHECK(config_flag(on) == true);
    for (const char* off : {"no", "False", "off", "0"}) CHECK(config_flag(off) == false);
    for (const char* neither : {"", "y", "2", "yess"}) CHECK_FALSE(config_flag(neither).has_value());
}

TEST_CASE("words are split as a shell splits them") {
    CHECK(split_words("") == Words{});
    CHECK(split_words(" --lr  3e-4\t-x ") == Words{"--lr", "3e-4", "-x"});
    CHECK(split_words(R"(-c 'exit $A "b"' "two words" a\ b "q\"\\\n" '' x'y'z)") ==
          Words{"-c", R"(exit $A "b")", "two words", "a b", R"(q"\\n)", "", "xyz"});
    for (const char* open : {"'a", "\"a", "a\\", "\"a\\\""}) CHECK_FALSE(split_words(open).has_value());
}

TEST_CASE("a file that cannot be read, or is none to configure with, is named") {
    const test::ScratchFolder folder;
    CHECK(read_config_file(folder / "missing").error().context.find(folder / "missing") != std::string::npos);
    CHECK(read_config_file(folder / "missing")
              .error()
              .context.ends_with(": No such file or directory; the path is misspelt, or meant from another directory: "
                                 "write it absolute"));
    std::ofstream(folder / "large") << std::string((1 << 20) + 1, '#');
    CHECK(read_config_file(folder / "large").error().code == Errc::limit_exceeded);
    std::ofstream(folder / "right") << "a = b\n";
    CHECK(read_config_file(folder / "right").value() == "a = b\n");
}

TEST_CASE("root does not read a configuration that others can write or that another user owns; a user does") {
    const muster::test::ScratchFolder folder;
    const auto path = folder / "job.conf";
    std::ofstream(path) << "nnodes = 2\n";
    const bool is_root = ::geteuid() == 0;
    for (const mode_t mode : {0600, 0644, 0664, 0646}) {
        INFO(mode);
        REQUIRE(::chmod(path.c_str(), mode) == 0);
        const auto read = read_config_file(path);
        CHECK(read.has_value() == (!is_root || (mode & 0022) == 0));
        if (read) continue;
        CHECK(read.error().code == Errc::permission_denied);
        CHECK_THAT(read.error().context, Catch::Contains(path));
        CHECK_THAT(read.error().context, Catch::Contains("chmod go-w"));
    }
    CHECK(read_config_file("/dev/null").has_value());
    if (!test::may_be_another_user()) return;
    REQUIRE(::chmod(path.c_str(), 0644) == 0);
    REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
    const auto foreign = read_config_file(path);
    REQUIRE(foreign.has_error());
    CHECK_THAT(foreign.error().context, Catch::Contains("belongs to user 65534"));
}
