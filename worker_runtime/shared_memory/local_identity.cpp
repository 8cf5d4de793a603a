#include "worker_runtime/shared_memory/local_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::size_t digits_size = 32;  // of a random address, and of a key

/// 128 random bits, in hexadecimal digits.
std::string random_digits() {
    return hexadecimal(random_bytes(digits_size / 2));
}

/// The effective user of this process as the user namespace above numbers it, so that two containers of one user agree.
/// Each line of the file: the first number here, the first number there, how many.
std::string user_above() {
    const std::uint64_t own = ::geteuid();
    if (!one_user(::geteuid())) return "unknown";  // no rank could prove to be of this user
    const auto map = read_file("/proc/self/uid_map");
    for (const auto line : split(map, '\n')) {
        std::array<std::uint64_t, 3> range{};
        std::size_t filled = 0;
        for (const auto word : split(line, ' ')) {
            if (!word.empty() && filled < range.size() && parse_number(word, range[filled])) ++filled;
        }
        const auto [here, above, count] = range;
        if (filled == range.size() && own >= here && own - here < count) return cat(above + (own - here));
    }
    return cat(own);
}

}  // namespace

LocalIdentity LocalIdentity::of_this_process(int rank) {
    LocalIdentity identity;
    identity.rank = rank;
    identity.host = host_name();
    identity.kernel = boot_id();
    struct stat facts {};
    if (::stat("/proc/self/ns/net", &facts) == 0) identity.network_space = cat(facts.st_dev, "-", facts.st_ino);
    if (identity.network_space.empty()) identity.network_space = "unknown";
    identity.pid = ::getpid();
    identity.user = user_above();
    identity.address = random_digits();
    identity.key = random_digits();
    return identity;
}

std::string LocalIdentity::encode() const {
    return join({host, kernel, network_space, cat(pid), cat(node), cat(rank), user, address, key, cat(format)}, " ");
}

Result<LocalIdentity> LocalIdentity::decode(const std::string& text) {
    const auto words = split(text, ' ');
    LocalIdentity identity;
    // A later format may have more to tell.
    if (words.size() < 10 || !parse_number(words[9], identity.format) || !parse_number(words[3], identity.pid) ||
        !parse_number(words[4], identity.node) || !parse_number(words[5], identity.rank) ||
        words[7].size() != digits_size || words[8].size() != digits_size) {
        return Error{Errc::bad_frame, cat("a rank's identity is malformed: \"", text,
                                          "\"; install the same version of muster for all ranks")};
    }
    identity.host = words[0];
    identity.kernel = words[1];
    identity.network_space = words[2];
    identity.user = words[6];
    identity.address = words[7];
    identity.key = words[8];
    return identity;
}

std::string describe(const LocalIdentity& identity) {
    return cat("rank ", identity.rank, " (pid ", identity.pid, " on ", identity.host, ")");
}

bool can_meet(const LocalIdentity& a, const LocalIdentity& b) {
    return a.format == b.format && a.kernel == b.kernel && a.kernel != "unknown" &&
           a.network_space == b.network_space && a.network_space != "unknown" && a.user == b.user &&
           a.user != "unknown";
}

std::string differing_formats(const std::vector<LocalIdentity>& identities) {
    std::map<std::string_view, const LocalIdentity*> first_of_host;
    for (const auto& other : identities) {
        const LocalIdentity& first = *first_of_host.try_emplace(other.kernel, &other).first->second;
        if (other.format != first.format)
            return cat("ranks ", first.rank, " and ", other.rank,
                       " run versions of muster that use shared memory in different ways; install one version");
    }
    return "";
}

}  // namespace muster::runtime
