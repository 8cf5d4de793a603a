// Records as systemd's journal wants them.
#include "rendezvous/base/journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace muster;
using namespace std::string_literals;

TEST_CASE("a field is a line, and with lines in it has its length in front") {
    CHECK(journal_field("MUSTER_RANK", "3") == "MUSTER_RANK=3\n");
    CHECK(journal_field("MESSAGE", "a\nb") == "MESSAGE\n\x03\0\0\0\0\0\0\0"s + "a\nb\n");
}

TEST_CASE("the journal's stream is known by device and inode alone") {
    struct stat facts {};
    REQUIRE(::fstat(STDERR_FILENO, &facts) == 0);
    const auto own = std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
    CHECK(is_journal_stream(own, STDERR_FILENO));
    for (const auto& other : {""s, own + "0", own + ":1", "1:"s, "a:b"s, ":" + own})
        CHECK_FALSE(is_journal_stream(other, STDERR_FILENO));
    CHECK_FALSE(is_journal_stream(own, -1));
}

TEST_CASE("without a journal nothing is opened, and what is written goes nowhere") {
    CHECK_FALSE(open_journal("muster", "1:2"));
    CHECK_FALSE(journal_is_open());
    set_journal_field("MUSTER_JOB", "a");
    write_journal(JournalPriority::info, "nobody reads this");
    CHECK(flush_journal(Duration::zero()));
}
