#include "rendezvous/secret/job_secret.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/system/private_file.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/find_secret.h"
#include "rendezvous/secret/job_key.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
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
    if (child == 0)
        ::_exit(find_secret([&](const char* name) {
                    return std::string(name) == "MUSTER_SECRET_FILE" ? path : "";
                }).has_value()
                    ? ::prctl(PR_GET_DUMPABLE)
                    : 99);
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

namespace {

/// An environment with these variables only.
ValueOf variables(std::map<std::string, std::string> values) {
    return [values = std::move(values)](const char* name) {
        const auto found = values.find(name);
        return found == values.end() ? std::string() : found->second;
    };
}

void write(const std::string& path, std::string_view content, mode_t mode = 0600) {
    std::ofstream(path) << content;
    REQUIRE(::chmod(path.c_str(), mode) == 0);
}

constexpr std::string_view long_enough = "sixteen bytes 16";

}  // namespace

TEST_CASE("a secret's file is read without its line end, and only if no other user can read it") {
    const test::ScratchFolder folder;
    const auto path = folder / "secret";
    const auto found = [&](const std::string& file) { return find_secret(variables({{"MUSTER_SECRET_FILE", file}})); };
    const auto complaint = [&](const std::string& file) {
        const auto secret = found(file);
        REQUIRE(secret.has_error());
        CHECK(secret.error().context.starts_with("MUSTER_SECRET_FILE"));
        return secret.error().context;
    };
    write(path, cat(long_enough, "\n"));
    REQUIRE(found(path).has_value());
    CHECK(found(path)->text == long_enough);
    CHECK(found(path)->origin == "MUSTER_SECRET_FILE");
    for (const mode_t mode : {0640, 0604, 0660, 0601}) {
        write(path, cat(long_enough, "\n"), mode);
        CHECK(complaint(path).find("chmod 600") != std::string::npos);
    }
    write(path, "\r\n");
    CHECK(complaint(path).find("is empty") != std::string::npos);
    write(path, "fifteen bytes 1\n");
    CHECK(complaint(path).find("holds 15 bytes; a secret has at least 16") != std::string::npos);
    write(path, std::string(4097, 'x'));
    CHECK(complaint(path).find("more than 4096 bytes") != std::string::npos);
    complaint(path + "x");
    CHECK(complaint("/dev/null").find("is no file") != std::string::npos);
}

TEST_CASE("the first source of a secret that is set decides, also when it is unusable") {
    const test::ScratchFolder folder;
    const auto file = [&](const std::string& name) {
        write(folder / name, cat(long_enough, " of ", name));
        return std::string(folder / name);
    };
    REQUIRE(::mkdir((folder / ".muster").c_str(), 0700) == 0);
    const std::string home(folder / "");
    std::map<std::string, std::string> all{{"HOME", home.substr(0, home.size() - 1)}};
    CHECK(find_secret(variables(all))->text.empty());
    const auto origin = [&] { return find_secret(variables(all))->origin; };
    const auto own = file(".muster/key");
    CHECK(origin() == own);
    all["CREDENTIALS_DIRECTORY"] = all["HOME"];
    CHECK(origin() == own);
    const auto credential = file("muster.key");
    CHECK(origin() == credential);
    all["MUSTER_KEY"] = long_enough;
    CHECK(origin() == "MUSTER_KEY");
    all["MUSTER_SECRET_FILE"] = file("given");
    CHECK(origin() == "MUSTER_SECRET_FILE");
    all["MUSTER_SECRET_FILE"] += ".missing";
    CHECK(find_secret(variables(all)).has_error());
    all.erase("MUSTER_SECRET_FILE");
    all["MUSTER_KEY"] = "short";
    CHECK(find_secret(variables(all)).error().context.starts_with("MUSTER_KEY holds 5 bytes"));
}

TEST_CASE("a user's own key is made once, private, and all that make it at once get the same") {
    const test::ScratchFolder folder;
    const std::string home(folder / "home");
    REQUIRE(::mkdir(home.c_str(), 0700) == 0);
    const auto here = variables({{"HOME", home}});
    std::vector<std::string> texts(8);
    std::vector<std::thread> nodes;
    for (auto& text : texts) nodes.emplace_back([&] { text = make_own_key(here).value().text; });
    for (auto& node : nodes) node.join();
    for (const auto& text : texts) CHECK(text == texts.front());
    CHECK(texts.front().size() == 64);
    struct stat facts {};
    REQUIRE(::stat((home + "/.muster/key").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
    REQUIRE(::stat((home + "/.muster").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0700);
    CHECK(find_secret(here)->text == texts.front());
    // Drafts are gone: nothing but "key", "." and "..".
    CHECK(std::distance(std::filesystem::directory_iterator(home + "/.muster"), {}) == 1);
    CHECK(make_own_key(variables({})).error().context.find("HOME is not set") != std::string::npos);
    CHECK(make_own_key(variables({{"HOME", "/proc/1/nowhere"}})).has_error());
}

namespace {

/// For this process no file can have a second name, as on file systems without links.
bool forbid_links() {
    const auto when = [](std::uint32_t call) {
        return std::array<sock_filter, 2>{
            {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)}};
    };
    std::vector<sock_filter> rules{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const auto rule : when(SYS_linkat)) rules.push_back(rule);
#ifdef SYS_link
    for (const auto rule : when(SYS_link)) rules.push_back(rule);
#endif
    rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("a user's own key is made in a home directory without hard links, too") {
    const test::ScratchFolder folder;
    const auto here = variables({{"HOME", folder.string()}});
    const auto child = test::fork_with_test();
    if (child == 0) {
        if (!forbid_links() || ::link("/proc/self/stat", (folder / "x").c_str()) == 0 || errno != EPERM) ::_exit(1);
        const auto first = make_own_key(here), second = make_own_key(here);
        ::_exit(first && second && first->is_new && !second->is_new && first->text == second->text ? 0 : 2);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(find_secret(here)->text.size() == 64);
    CHECK(std::distance(std::filesystem::directory_iterator(folder / ".muster"), {}) == 1);
}

TEST_CASE("derived keys are HKDF-SHA256, as RFC 5869 has it") {
    // Appendix A.1 and A.3: the first block of each output.
    const auto salt = std::string("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c", 13);
    const auto extracted = keyed_hash(salt)(std::string(22, '\x0b'));
    CHECK(hex(extracted) == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
    CHECK(hex(derived_key(extracted, "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9")) ==
          "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
    const auto unsalted = keyed_hash(std::string(32, '\0'))(std::string(22, '\x0b'));
    CHECK(hex(derived_key(unsalted, "")) == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
    CHECK(derived_key("", "control").empty());
}

TEST_CASE("each job has a key of its own, and a secret that is a job key stays this key") {
    const Secret secret{.text = std::string(long_enough), .origin = "MUSTER_KEY"};
    const auto key = job_key(secret, "train");
    // As openssl's: kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt key:... -kdfopt salt:... -kdfopt info:train HKDF
    CHECK(hex(key) == "b3458ed106c290f1817a1724a742f1c888175d3d2bc071945210a2f9743bf2fd");
    CHECK(job_key(secret, "trai") != key);
    CHECK(job_key(secret, "") != key);
    CHECK(job_key({.text = "sixteen bytes 17", .origin = {}}, "train") != key);
    CHECK(job_key({}, "train").empty());
    const auto text = job_key_text(key);
    CHECK(text == cat("muster-job-key:", hex(key)));
    for (const auto* job : {"train", "another"}) CHECK(job_key({.text = text, .origin = {}}, job) == key);
    const auto found = [](std::string value) { return find_secret(variables({{"MUSTER_KEY", std::move(value)}})); };
    CHECK(found(text + "\n")->text == text);
    for (const auto& cut : {text.substr(0, text.size() - 1), text + "0", cat(text.substr(0, text.size() - 1), "x")})
        CHECK(found(cut).error().context.find("MUSTER_KEY is an incomplete job key") == 0);
}

TEST_CASE("a key from another node replaces the own one, which is kept beside it") {
    const test::ScratchFolder folder;
    const auto here = variables({{"HOME", folder / "home"}});
    const auto path = folder / "home/.muster/key";
    REQUIRE(::mkdir((folder / "home").c_str(), 0700) == 0);
    const auto set = [&](std::string text) { return set_own_key(here, std::move(text)); };
    CHECK(set(cat(long_enough, "\n"))->kept_as.empty());
    CHECK(find_secret(here)->text == long_enough);
    CHECK(set(cat(long_enough, "\r\n"))->kept_as.empty());  // the same one
    CHECK(set("another key of the same user\n")->kept_as == path + ".old");
    CHECK(find_secret(here)->text == "another key of the same user");
    CHECK(find_secret(variables({{"MUSTER_SECRET_FILE", path + ".old"}}))->text == long_enough);
    CHECK(set("short\n").error().context.find("stdin holds 5 bytes") == 0);
    CHECK(set_own_key(variables({}), std::string(long_enough)).has_error());
    CHECK(find_secret(here)->text == "another key of the same user");
    // Drafts are gone.
    CHECK(std::distance(std::filesystem::directory_iterator(folder / "home/.muster"), {}) == 2);
}

TEST_CASE("a key from another node replaces the own one in a home directory without hard links, too") {
    const test::ScratchFolder folder;
    const auto here = variables({{"HOME", folder.string()}});
    const auto path = folder / ".muster/key";
    const auto child = test::fork_with_test();
    if (child == 0) {
        const bool is_set = forbid_links() && set_own_key(here, std::string(long_enough)) &&
                            set_own_key(here, "another key of the same user");
        ::_exit(is_set ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(find_secret(here)->text == "another key of the same user");
    CHECK(find_secret(variables({{"MUSTER_SECRET_FILE", path + ".old"}}))->text == long_enough);
    CHECK(std::distance(std::filesystem::directory_iterator(folder / ".muster"), {}) == 2);
}

TEST_CASE("a daemon accepts the file beside the secret's, which is being replaced") {
    const test::ScratchFolder folder;
    const auto path = folder / "secret";
    const auto accepted = [&] { return find_accepted_secrets(variables({{"MUSTER_SECRET_FILE", path}})); };
    CHECK(find_accepted_secrets(variables({}))->empty());
    write(path, "the new secret of it");
    CHECK(accepted()->size() == 1);
    write(path + ".old", "the old secret of it");
    REQUIRE(accepted()->size() == 2);
    CHECK((*accepted())[0].text == "the new secret of it");
    CHECK((*accepted())[1].text == "the old secret of it");
    write(path + ".old", "the old secret of it", 0644);
    CHECK(accepted().error().context.starts_with(path + ".old"));
    CHECK(find_accepted_secrets(variables({{"MUSTER_KEY", std::string(long_enough)}}))->size() == 1);
}

TEST_CASE("a daemon whose secret comes from the environment accepts MUSTER_KEY_OLD, too") {
    std::map<std::string, std::string> all{{"MUSTER_KEY_OLD", "the old secret of it\n"}};
    const auto accepted = [&] { return find_accepted_secrets(variables(all)); };
    CHECK(accepted()->empty());  // it replaces none
    all["MUSTER_KEY"] = long_enough;
    REQUIRE(accepted()->size() == 2);
    CHECK((*accepted())[0].text == long_enough);
    CHECK((*accepted())[1].text == "the old secret of it");
    CHECK((*accepted())[1].origin == "MUSTER_KEY_OLD");
    all["MUSTER_KEY_OLD"] = "short";
    CHECK(accepted().error().context.starts_with("MUSTER_KEY_OLD holds 5 bytes"));
}

TEST_CASE("viewers and commands leave out an old secret that is unusable") {
    const test::ScratchFolder folder;
    const auto path = folder / "secret";
    const auto keys = [&] { return find_job_keys(variables({{"MUSTER_SECRET_FILE", path}}), "j"); };
    write(path, "the new secret of it");
    const auto key = keys().value();
    REQUIRE(key.size() == 1);
    write(path + ".old", "the old secret of it");
    REQUIRE(keys()->size() == 2);
    CHECK(keys()->front() == key.front());
    write(path + ".old", "the old secret of it", 0644);
    CHECK(keys().value() == key);
    write(path + ".old", "short");
    CHECK(keys().value() == key);
    write(path, "short");
    CHECK(keys().error().context.find("holds 5 bytes") != std::string::npos);
}

TEST_CASE("the tokens of the status pages and of the metrics are derived from the key") {
    CHECK(status_token(std::string(32, 'k')) == hex(derived_key(std::string(32, 'k'), "status")));
    CHECK(metrics_token(std::string(32, 'k')) == hex(derived_key(std::string(32, 'k'), "metrics")));
    CHECK(status_token("").empty());
    CHECK(metrics_token("").empty());
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
