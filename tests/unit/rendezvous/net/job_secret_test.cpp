#include "rendezvous/secret/job_secret.h"

#include <sys/stat.h>

#include <fstream>

#include "rendezvous/base/system/private_file.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

std::string hex(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
        constexpr std::string_view digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        out += {digits[byte >> 4], digits[byte & 15]};
    }
    return out;
}

}  // namespace

TEST_CASE("the hash is HMAC-SHA256, as RFC 4231 has it") {
    CHECK(hex(keyed_hash("Jefe")("what do ya want for nothing?")) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(hex(keyed_hash(std::string(20, '\x0b'))("Hi There")) ==
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    CHECK(hex(keyed_hash(std::string(131, '\xaa'))("Test Using Larger Than Block-Size Key - Hash Key First")) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("nonces differ") {
    CHECK(random_nonce().size() == 32);
    CHECK(random_nonce() != random_nonce());
}

TEST_CASE("a secret's file is read without its line end, and only if it is nobody else's business") {
    const test::ScratchFolder folder;
    const auto path = folder / "secret";
    const auto write = [&](std::string_view content, mode_t mode) {
        std::ofstream(path) << content;
        REQUIRE(::chmod(path.c_str(), mode) == 0);
    };
    CHECK_FALSE(read_job_secret("").value());
    write("secret\n", 0600);
    REQUIRE(read_job_secret(path).has_value());
    CHECK(read_job_secret(path).value()("x") == keyed_hash("secret")("x"));
    for (const mode_t mode : {0640, 0604, 0660, 0601}) {
        write("secret\n", mode);
        REQUIRE(read_job_secret(path).has_error());
        CHECK(read_job_secret(path).error().context.find("chmod 600") != std::string::npos);
    }
    write("\r\n", 0600);
    CHECK(read_job_secret(path).error().context.find("is empty") != std::string::npos);
    write(std::string(4097, 'x'), 0600);
    CHECK(read_job_secret(path).error().context.find("more than 4096 bytes") != std::string::npos);
    CHECK(read_job_secret(path + "x").has_error());
    CHECK(read_job_secret("/dev/null").error().context.find("is no file") != std::string::npos);
}

TEST_CASE("a file of root's that a user reads by its group is private, as a mounted Secret of Kubernetes is") {
    constexpr uid_t root = 0;
    constexpr uid_t user = 1000;
    constexpr uid_t other = 1001;
    for (const mode_t mode : {0400, 0600}) {
        CHECK(is_private_to(user, mode, user));
        CHECK(is_private_to(user, mode, root));
        CHECK(is_private_to(root, mode, root));
        CHECK_FALSE(is_private_to(user, mode, other));
        CHECK_FALSE(is_private_to(root, mode, user));
    }
    for (const mode_t mode : {0440, 0640}) {
        CHECK(is_private_to(user, mode, root));
        CHECK_FALSE(is_private_to(user, mode, user));
        CHECK_FALSE(is_private_to(root, mode, root));
        CHECK_FALSE(is_private_to(user, mode, other));
    }
    for (const mode_t mode : {0444, 0460, 0450, 0660, 0644, 0441}) CHECK_FALSE(is_private_to(user, mode, root));
}
