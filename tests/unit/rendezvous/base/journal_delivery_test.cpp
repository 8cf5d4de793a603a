// A journal that reads, and one that does not. A program of its own: its log goes to the journal from then on.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>

#include "rendezvous/base/journal.h"
#include "rendezvous/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/datagram_socket.h"

using namespace muster;
using namespace std::chrono_literals;

namespace {

std::string own_stderr() {
    struct stat facts {};
    REQUIRE(::fstat(STDERR_FILENO, &facts) == 0);
    return std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
}

}  // namespace

TEST_CASE("log lines are records with fields, and a journal that does not read stops nobody") {
    test::DatagramSocket journal;
    REQUIRE(open_journal("muster", own_stderr(), journal.path()));
    REQUIRE(journal_is_open());
    set_journal_field("MUSTER_JOB", "a");
    log(LogLevel::warning, "first");
    CHECK_FALSE(flush_journal(10ms));  // sent, but whoever sent it has to live until it is read
    CHECK(journal.hear() == "PRIORITY=4\nSYSLOG_IDENTIFIER=muster\nMUSTER_JOB=a\nMESSAGE=first\n");
    CHECK(flush_journal(60s));
    print_notice("two\nlines\n");
    CHECK(journal.hear() == "PRIORITY=5\nSYSLOG_IDENTIFIER=muster\nMUSTER_JOB=a\nMESSAGE=two\n");
    CHECK(journal.hear() == "PRIORITY=5\nSYSLOG_IDENTIFIER=muster\nMUSTER_JOB=a\nMESSAGE=lines\n");
    {
        // What is said of a record, or within a scope, beats what holds for all.
        const JournalScope scope(journal_field("MUSTER_JOB", "b"));
        write_journal(JournalPriority::info, "x", "MUSTER_RANK=3\n");
        CHECK(journal.hear() == "PRIORITY=6\nSYSLOG_IDENTIFIER=muster\nMUSTER_JOB=b\nMUSTER_RANK=3\nMESSAGE=x\n");
    }
    set_journal_field("MUSTER_JOB", "");
    write_log_on_thread();
    write_journal(JournalPriority::info, std::string(200 << 10, 'x'));
    CHECK(journal.hear().ends_with("x ... (73728 more bytes)\n"));

    // 64 records of 64 KiB are four times what is kept, and the socket takes a few.
    constexpr int count = 64;
    const auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) write_journal(JournalPriority::info, std::string(64 << 10, 'y'));
    CHECK(std::chrono::steady_clock::now() - before < 60s);
    CHECK_FALSE(flush_log(10ms));
    int heard = 0;
    // The reader begins; what was dropped is told as soon as there is room for more.
    while (!flush_journal(1ms)) heard += journal.hear(MSG_DONTWAIT).empty() ? 0 : 1;
    write_journal(JournalPriority::info, "again");
    std::string told;
    for (std::string record; !record.ends_with("MESSAGE=again\n");) {
        record = journal.hear();
        REQUIRE_FALSE(record.empty());
        if (record.ends_with(" skipped\n"))
            told = record.substr(record.find("MESSAGE="));
        else if (!record.ends_with("again\n"))
            ++heard;
    }
    CHECK(told == "MESSAGE=... " + std::to_string(count - heard) + " lines skipped\n");
}
