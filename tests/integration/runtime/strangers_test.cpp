// Processes that are no rank of a shared-memory group find its address in /proc/net/unix and connect, or listen there.
#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/other_user.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/local_meeting.h"

namespace muster {

using namespace runtime;

namespace {

constexpr uid_t nobody = 65534;
constexpr std::size_t address_digits = 32;
constexpr std::size_t hello_bytes = 34;  // rank 1's: "1 " and a digest
const std::string rank_1s_own = "as rank 1 says it";
constexpr int connections_each = 40;

/// How a stranger ended.
enum Outcome { closed = 0, served = 1, not_connected = 2, no_such_user = 3 };

/// A process of `user` that runs `play(read end of its orders, write end of its reports)`; forked before any thread.
class Stranger {
  public:
    Stranger(uid_t user, const std::function<int(int, int)>& play) {
        int orders[2], reports[2];
        REQUIRE(::pipe2(orders, O_CLOEXEC) == 0);
        REQUIRE(::pipe2(reports, O_CLOEXEC) == 0);
        pid_ = test::fork_with_test();
        if (pid_ == 0) {
            ::alarm(100);
            if (user != ::geteuid() && ::setresuid(user, user, user) != 0) ::_exit(no_such_user);
            test::end_with_test();
            ::_exit(play(orders[0], reports[1]));
        }
        for (const int end : {orders[0], reports[1]}) ::close(end);
        orders_ = FileDescriptor(orders[1]);
        reports_ = FileDescriptor(reports[0]);
    }
    ~Stranger() {
        if (pid_ > 0) (void)end();
    }
    Stranger(Stranger&& other) noexcept
        : pid_(std::exchange(other.pid_, 0)), orders_(std::move(other.orders_)), reports_(std::move(other.reports_)) {}
    Stranger& operator=(Stranger&&) = delete;

    void order(const std::string& address) const { (void)!::write(orders_.get(), address.data(), address.size()); }
    /// False when it ended instead.
    [[nodiscard]] bool has_reported() const {
        char one = 0;
        return ::read(reports_.get(), &one, 1) == 1;
    }
    int end() {
        int status = 0;
        ::waitpid(std::exchange(pid_, 0), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
    }

  private:
    pid_t pid_ = 0;
    FileDescriptor orders_, reports_;
};

sockaddr_un abstract_name(const std::string& digits, socklen_t& size) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const auto text = "muster-" + digits;
    text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
}

std::string ordered(int orders, std::size_t size) {
    std::string text(size, '\0');
    return ::read(orders, text.data(), text.size()) == static_cast<ssize_t>(size) ? text : "";
}

/// Connects often, says `hello` (nothing when empty), and waits until all are closed.
int intrude(std::string hello, int orders, int reports) {
    socklen_t size = 0;
    const auto name = abstract_name(ordered(orders, address_digits), size);
    const auto genuine = ordered(orders, hello_bytes);
    if (hello == rank_1s_own) hello = genuine;
    int sockets[connections_each];
    for (int& socket : sockets) {
        socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (::connect(socket, reinterpret_cast<const sockaddr*>(&name), size) != 0) return not_connected;
        if (!hello.empty()) (void)::send(socket, hello.data(), hello.size(), MSG_NOSIGNAL);
    }
    (void)!::write(reports, "c", 1);
    char bytes[256];
    for (const int socket : sockets)
        if (::recv(socket, bytes, sizeof bytes, 0) > 0) return served;
    return closed;
}

/// Listens at the address, and answers the first who connects.
int squat(int orders, int reports) {
    socklen_t size = 0;
    const auto name = abstract_name(ordered(orders, address_digits), size);
    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&name), size) != 0 || ::listen(listener, 8) != 0)
        return not_connected;
    (void)!::write(reports, "l", 1);
    const int caller = ::accept(listener, nullptr, nullptr);
    const std::string proof(32, 'x');
    (void)::send(caller, proof.data(), proof.size(), MSG_NOSIGNAL);
    char bytes[256];
    return ::recv(caller, bytes, sizeof bytes, 0) > 0 ? served : closed;
}

/// A place where this rank finds the others only once `gate(all identities)` has returned.
class GatedPlace final : public MeetingPlace {
  public:
    GatedPlace(std::shared_ptr<MeetingPlace> place, std::function<void(const std::vector<std::string>&)> gate)
        : place_(std::move(place)), gate_(std::move(gate)) {}
    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override {
        return place_->publish(key, value, deadline);
    }
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, const MeetingWait& wait) override {
        auto values = place_->collect(keys, wait);
        if (values) gate_(*values);
        return values;
    }

  private:
    std::shared_ptr<MeetingPlace> place_;
    std::function<void(const std::vector<std::string>&)> gate_;
};

/// As everybody can see it: the word of the identity that is in /proc/net/unix.
std::string visible_address(const std::string& identity) {
    const auto listed = read_file("/proc/net/unix");
    for (const auto word : split(identity, ' ')) {
        if (word.size() == address_digits && listed.find(cat("@muster-", word)) != std::string::npos)
            return std::string(word);
    }
    return "";
}

/// What only those can say who can read the store.
std::string hello_of_rank_1(const std::vector<std::string>& identities) {
    const auto leader = LocalIdentity::decode(identities[0]).value();
    const auto rank = LocalIdentity::decode(identities[1]).value();
    return "1 " + hmac_sha256(leader.key, cat("muster rank 1 ", rank.address, ' ', leader.address));
}

/// Two ranks with this key form a group.
void form_among(std::vector<Stranger> strangers, test::Findings& findings, const std::string& key = {}) {
    test::run_as_threads(2, [&](const GroupTerms& terms) {
        GroupTerms own = terms;
        own.security.key = key;
        // Rank 1 comes last: all strangers have connected before.
        const auto gate = [&](const std::vector<std::string>& identities) {
            const auto address = visible_address(identities[0]);
            findings.expect(!address.empty(), "the address is not in /proc/net/unix");
            for (const auto& stranger : strangers) stranger.order(address + hello_of_rank_1(identities));
            for (const auto& stranger : strangers) findings.expect(stranger.has_reported(), "a stranger was cut off");
        };
        if (terms.rank == 1) own.place = std::make_shared<GatedPlace>(terms.place, gate);
        auto world = test::join_shared_group(own);
        std::vector<float> one{static_cast<float>(terms.rank + 1)};
        findings.expect(world.run(all_reduce(buffer(std::span(one)), ReduceOp::sum)), "all_reduce");
        findings.expect(one[0] == 3, "the sum is wrong");
    });
    for (auto& stranger : strangers) {
        const int end = stranger.end();
        findings.expect(end == closed, cat("a stranger ended with ", end));
    }
}

/// Two identities as the ranks of one group publish them; the leader's address is free.
std::vector<LocalIdentity> two_identities() {
    return {LocalIdentity::of_this_process(0), LocalIdentity::of_this_process(1)};
}

std::string meeting_error(const Stranger& squatter) {
    auto identities = two_identities();
    squatter.order(identities[0].address);
    REQUIRE(squatter.has_reported());
    auto door = LocalDoor::open(1).value();
    identities[1] = door.identity;
    const auto meeting = LocalMeeting::hold(1, std::move(door), identities, std::chrono::steady_clock::now() + 60s);
    REQUIRE(meeting.has_error());
    CHECK(meeting.error().code == Errc::refused);
    return meeting.error().context;
}

}  // namespace

TEST_CASE("another user becomes no rank of a group, whatever it says, and holds up nobody") {
    if (!test::may_be_another_user()) return;
    test::Findings findings;
    std::vector<Stranger> strangers;
    strangers.emplace_back(nobody, [](int orders, int reports) { return intrude("", orders, reports); });
    for (const auto& hello : {std::string("1"), rank_1s_own}) {
        strangers.emplace_back(nobody, [hello](int orders, int reports) { return intrude(hello, orders, reports); });
    }
    form_among(std::move(strangers), findings);
    CHECK(findings.text() == "");
}

TEST_CASE("a process of the same user that does not know the group's key becomes no rank, and holds up nobody") {
    test::Findings findings;
    std::vector<Stranger> strangers;
    for (const auto& hello : {std::string(), std::string("1"), "1 " + std::string(32, 'x')}) {
        strangers.emplace_back(::geteuid(),
                               [hello](int orders, int reports) { return intrude(hello, orders, reports); });
    }
    form_among(std::move(strangers), findings);
    CHECK(findings.text() == "");
}

TEST_CASE("a process of the same user that has read the store becomes no rank where the ranks have a key") {
    test::Findings findings;
    std::vector<Stranger> strangers;
    strangers.emplace_back(::geteuid(), [](int orders, int reports) { return intrude(rank_1s_own, orders, reports); });
    form_among(std::move(strangers), findings, std::string(32, 'k'));
    CHECK(findings.text() == "");
}

TEST_CASE("a rank tells nothing to another user who listens at rank 0's address") {
    if (!test::may_be_another_user()) return;
    Stranger squatter(nobody, squat);
    const auto error = meeting_error(squatter);
    CHECK(error.find("another user (uid 65534) listens") != std::string::npos);
    CHECK(squatter.end() == closed);
}

TEST_CASE("a rank hands nothing to a process that does not know the group's key") {
    Stranger squatter(::geteuid(), squat);
    CHECK(meeting_error(squatter).find("does not know the group's key") != std::string::npos);
    CHECK(squatter.end() == served);  // of the hello, which says nothing
}

TEST_CASE("ranks of different users do not meet over shared memory") {
    auto identities = two_identities();
    CHECK(can_meet(identities[0], identities[1]));
    const auto decoded = LocalIdentity::decode(identities[1].encode()).value();
    CHECK(decoded.user == identities[1].user);
    CHECK(decoded.key == identities[1].key);
    CHECK(decoded.key != identities[0].key);
    identities[1].user = "1";
    CHECK_FALSE(can_meet(identities[0], identities[1]));
    for (auto& identity : identities) identity.user = "unknown";
    CHECK_FALSE(can_meet(identities[0], identities[1]));
}

TEST_CASE("ranks whose versions use shared memory in different ways do not meet there") {
    auto identities = two_identities();
    ++identities[1].format;
    const auto decoded = LocalIdentity::decode(cat(identities[1].encode(), " more")).value();
    CHECK(decoded.format == identities[0].format + 1);
    CHECK_FALSE(can_meet(identities[0], decoded));
    CHECK(differing_formats(two_identities()).empty());
    CHECK(differing_formats(identities) ==
          "ranks 0 and 1 run versions of muster that use shared memory in different ways; install one version");
    identities[1].kernel += "2";  // another host's version does not matter
    CHECK(differing_formats(identities).empty());
    identities.push_back(identities[0]);
    identities.push_back(identities[1]);
    identities[3].rank = 3;
    ++identities[3].format;
    CHECK(differing_formats(identities).starts_with("ranks 1 and 3 run versions"));
    identities[1].kernel = identities[0].kernel;
    const auto words = identities[1].encode();
    const auto older = LocalIdentity::decode(words.substr(0, words.rfind(' ')));
    REQUIRE(older.has_error());
    CHECK(older.error().context.find("install the same version of muster for all ranks") != std::string::npos);
}

TEST_CASE("a leader without free descriptors says so at once, and does not ask again and again") {
    auto door = LocalDoor::open(0).value();
    const std::vector identities{door.identity, LocalIdentity::of_this_process(1)};
    socklen_t size = 0;
    const auto name = abstract_name(identities[0].address, size);
    const FileDescriptor rank_1(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(rank_1.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
    rlimit files{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
    const int first_free = ::dup(rank_1.get());
    ::close(first_free);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(first_free), .rlim_max = files.rlim_max};
    const auto began = std::chrono::steady_clock::now();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const auto meeting = LocalMeeting::hold(0, std::move(door), identities, began + 60s);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
    REQUIRE(meeting.has_error());
    CHECK(meeting.error().code == Errc::limit_exceeded);
    CHECK(meeting.error().context.find("ulimit -n") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - began < 50s);
}

}  // namespace muster
