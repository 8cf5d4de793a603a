#include "launcher/scheduler/munge_key.h"

#include <utility>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

constexpr std::uint32_t own_uid = 1000;

const std::string a_key = cat("muster-job-key:", std::string(64, '7'));

MungeKeyTerms terms() {
    return {.step = "4711.0-1", .job = "a job of mine", .nonce = std::string(64, 'a')};
}

/// As unmunge prints it.
std::string printed(const MungeKeyTerms& of, int status = 0, std::uint32_t uid = own_uid,
                    const std::string& restriction = "1000") {
    return cat("STATUS:          ", status, "\nUID:             ", uid, "\nUID_RESTRICTION: ", restriction, "\n\n",
               munge_key_text(of, a_key));
}

Error refused(const std::string& text) {
    const auto key = munged_key(text, terms(), own_uid);
    REQUIRE_FALSE(key.has_value());
    CHECK(key.error().context.find(a_key) == std::string::npos);
    return key.error();
}

}  // namespace

TEST_CASE("a key that this user's muster made for this step, job and question is taken") {
    CHECK(munged_key(printed(terms()), terms(), own_uid).value() == a_key);
}

TEST_CASE("a key of another user, for everybody, or for something else is refused, and none of it is shown") {
    const auto is_refused = [](Errc code, const std::string& text, const std::string& why) {
        const auto error = refused(text);
        CHECK(error.code == code);
        CHECK_THAT(error.context, Catch::Contains(why));
    };
    // Another program's: the first node's may still come.
    const auto is_foreign = [&](const std::string& text, const std::string& why) {
        is_refused(Errc::refused, text, why);
    };
    const auto is_denied = [&](const std::string& text, const std::string& why) {
        is_refused(Errc::permission_denied, text, why);
    };
    is_foreign(printed(terms(), 0, 65534), "made by the user 65534, and this muster runs as 1000");
    is_foreign(printed(terms(), 0, own_uid, "(none)"), "not for this user alone");
    is_foreign(printed(terms(), 0, own_uid, "1001"), "not for this user alone");
    auto other = terms();
    other.step = "4711.1";
    is_foreign(printed(other), "for Slurm's step 4711.1, and this node is of Slurm's step 4711.0-1");
    other = terms();
    other.job = "another one";
    is_foreign(printed(other), "for the job another one, and this node is of the job a job of mine");
    other = terms();
    other.nonce.back() = 'b';
    is_foreign(printed(other), "answers another question");
    is_denied(printed(terms(), 17), "decoded on this node before");
    is_denied(printed(terms(), 5), "its error 5");
    is_denied("unmunge: Error: Unauthorized credential for client UID=1000 GID=1000\n", "Unauthorized credential");
    is_foreign("STATUS:          0\nUID:             1000\nUID_RESTRICTION: 1000\n\nhello\n", "no key of muster's");
    is_foreign("STATUS:          0\nUID:             1000\nUID_RESTRICTION: 1000\n", "no key of muster's");
    is_foreign("STATUS:          0\nUID_RESTRICTION: 1000\n\n", "the user of no number");
    // What stands in the text is no metadata.
    is_foreign("STATUS:          0\n\nUID:             1000\nUID_RESTRICTION: 1000\n\n", "the user of no number");
    auto newer = printed(terms());
    newer.replace(newer.find("muster-key 1"), 12, "muster-key 2");
    is_denied(newer, "another version of muster");
}

TEST_CASE("where waiting helps the error says so") {
    const std::string clocks =
        ": the clocks of this node and of the first one differ; synchronize them (chronyc tracking), and start again";
    for (const auto& [status, end] : {std::pair(15, "has expired"), std::pair(16, "is of a later time")}) {
        const auto error = refused(printed(terms(), status));
        CHECK(error.code == Errc::timed_out);
        CHECK(error.context == cat("munge says that it ", end, clocks));
    }
    CHECK(refused("").code == Errc::timed_out);
    const std::string stopped =
        "unmunge: Error: Failed to access \"/run/munge/munge.socket.2\": No such file or directory (Did you start "
        "munged?)\n";
    CHECK(refused(stopped).code == Errc::unreachable);
    CHECK_THAT(refused(stopped).context, Catch::Contains("start munged"));
    CHECK(refused(std::string(no_munge_program)).code == Errc::not_found);
}

TEST_CASE("what munge prints is a credential, or why there is none") {
    CHECK(wrong_with_munge("MUNGE:AwQFAAA:\n").empty());
    CHECK(wrong_with_munge("warning\nmunge: Error: no socket\n") == "munge: Error: no socket");
    CHECK(wrong_with_munge("") == "munge printed nothing in time");
    CHECK_FALSE(wrong_with_munge(no_munge_program).empty());
}

TEST_CASE("lines of others around munge's are passed over, and a credential is never shown as a reason") {
    const std::string preloaded = "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded: ignored.\n";
    const auto around = cat(preloaded, "\nMUNGE:AwQFAAA:\n", preloaded);
    CHECK(wrong_with_munge(around).empty());
    CHECK(munge_credential(around) == "MUNGE:AwQFAAA:");
    CHECK(munge_credential(preloaded).empty());
    CHECK(wrong_with_munge(preloaded + "munge: Error: no socket\n") == "munge: Error: no socket");
    CHECK(munged_key(cat(preloaded, "\n", preloaded, printed(terms())), terms(), own_uid).value() == a_key);
    CHECK_THAT(refused(cat("unmunge: Error: no\nMUNGE:AwQFAAA:\n")).context,
               Catch::Contains("Error: no") && !Catch::Contains("MUNGE:"));
}

TEST_CASE("a nonce has 64 hexadecimal digits") {
    CHECK(is_munge_nonce(std::string(64, 'f')));
    for (const auto& wrong :
         {std::string(), std::string(63, '0'), std::string(65, '0'), std::string(64, 'g'), std::string(63, '0') + "\n"})
        CHECK_FALSE(is_munge_nonce(wrong));
}
