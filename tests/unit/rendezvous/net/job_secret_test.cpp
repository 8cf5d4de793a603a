#include "rendezvous/secret/job_secret.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "rendezvous/base/kernel/read_file.h"
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

constexpr char mask = 0x5a;

/// Whether the heap of this process holds `masked` with each byte unmasked: the text that is looked for stands nowhere.
bool heap_holds(const std::string& maps, const std::string& masked) {
    for (const auto line : split(maps, '\n')) {
        if (!line.ends_with("[heap]")) continue;
        const auto dash = line.find('-');
        const auto number = [](std::string_view text) { return std::stoull(std::string(text), nullptr, 16); };
        const auto* at = reinterpret_cast<const char*>(number(line.substr(0, dash)));
        const auto* end = reinterpret_cast<const char*>(number(line.substr(dash + 1, line.find(' ') - dash - 1)));
        const auto same = [](char byte, char hidden) { return static_cast<char>(byte ^ mask) == hidden; };
        return std::search(at, end, masked.begin(), masked.end(), same) != end;
    }
    return false;
}

}  // namespace

TEST_CASE("a secret's memory is overwritten when its last copy ends") {
    std::string masked;
    for (int i = 0; i < 100; ++i) masked += static_cast<char>('A' + i * 7 % 26);
    const auto maps = read_file("/proc/self/maps");
    {
        std::string key(masked.size(), '\0');
        for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<char>(masked[i] ^ mask);
        const auto hash = keyed_hash(std::move(key));
        const auto copy = hash;  // NOLINT(performance-unnecessary-copy-initialization): the copy is the case
        REQUIRE(copy("x") == hash("x"));
    }
    // The allocator keeps its own notes at the beginning of freed memory.
    CHECK_FALSE(heap_holds(maps, masked.substr(40)));
}

TEST_CASE("a process that holds a secret cannot be read by others of its user") {
    const test::ScratchFolder folder;
    const auto path = folder / "secret";
    std::ofstream(path) << std::string(32, 's');
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    const auto child = ::fork();
    if (child == 0) ::_exit(read_job_secret(path).has_value() ? ::prctl(PR_GET_DUMPABLE) : 99);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

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
    write("a secret of 16 B\n", 0600);
    REQUIRE(read_job_secret(path).has_value());
    CHECK(read_job_secret(path).value()("x") == keyed_hash("a secret of 16 B")("x"));
    for (const mode_t mode : {0640, 0604, 0660, 0601}) {
        write("a secret of 16 B\n", mode);
        REQUIRE(read_job_secret(path).has_error());
        CHECK(read_job_secret(path).error().context.find("chmod 600") != std::string::npos);
    }
    write("15 bytes, short\n", 0600);
    REQUIRE(read_job_secret(path).has_error());
    CHECK(read_job_secret(path).error().context.find("holds 15 bytes; a secret has at least 16") != std::string::npos);
    CHECK(status_token(keyed_hash("Jefe")) == hex(keyed_hash("Jefe")("status")));
    write("\r\n", 0600);
    CHECK(read_job_secret(path).error().context.find("is empty") != std::string::npos);
    write(std::string(4097, 'x'), 0600);
    CHECK(read_job_secret(path).error().context.find("more than 4096 bytes") != std::string::npos);
    CHECK(read_job_secret(path + "x").has_error());
    CHECK(read_job_secret("/dev/null").error().context.find("is no file") != std::string::npos);
}
