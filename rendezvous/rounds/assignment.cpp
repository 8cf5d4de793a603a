#include "rendezvous/rounds/assignment.h"

#include <algorithm>
#include <map>
#include <set>

#include "rendezvous/base/check.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/ledgers/launched.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::rendezvous {

namespace {

std::vector<std::string> addresses_of(const Member& member) {
    if (!member.join.addresses.empty()) return member.join.addresses;
    return {member.peer};
}

/// Makes the messages one after another: rank bases are sums over the members before.
class Assigner {
  public:
    Assigner(const std::vector<const Member*>& members, const SealedRound& round, std::uint32_t restart_count,
             Duration heartbeat)
        : members_(members) {
        MUSTER_CHECK(!members.empty());
        common_ = {.round = round.number,
                   .group_world_size = static_cast<std::uint32_t>(members.size()),
                   .world_size = 0,
                   .restart_count = restart_count,
                   .store_addresses = addresses_of(*members.front()),
                   .store_port = members.front()->join.store_port,
                   .store_clients = {},
                   .notes = round.notes,
                   .secret = round.secret.bytes,
                   .heartbeat_ms = static_cast<std::uint32_t>(heartbeat / 1ms)};
        for (const auto* member : members) {
            common_.world_size += member->join.slots;
            role_sizes_[member->join.role] += member->join.slots;
        }
    }
    native::Assigned next() {
        const auto& member = *members_[at_];
        auto assigned = common_;
        assigned.group_rank = member.group_rank;
        assigned.rank_base = rank_base_;
        assigned.role_rank_base = role_bases_[member.join.role];
        assigned.role_world_size = role_sizes_[member.join.role];
        MUSTER_CHECK(assigned.group_rank == at_, assigned.group_rank, at_);
        if (at_ == 0) assigned.store_clients = store_clients(members_);
        skip();
        return assigned;
    }
    void skip() {
        const auto& join = members_[at_++]->join;
        rank_base_ += join.slots;
        role_bases_[join.role] += join.slots;
    }

  private:
    const std::vector<const Member*>& members_;
    native::Assigned common_;
    std::map<std::string_view, std::uint32_t> role_sizes_;
    std::map<std::string_view, std::uint32_t> role_bases_;
    std::uint32_t rank_base_ = 0;
    std::size_t at_ = 0;
};

}  // namespace

std::string peer_address(const Member& member) {
    constexpr std::size_t addresses_asked_max = 3;
    const auto& addresses = member.join.addresses;
    if (addresses.empty()) return member.peer;
    auto list = addresses.front();
    for (std::size_t i = 1; i < std::min(addresses.size(), addresses_asked_max); ++i)
        if (list.size() + 1 + addresses[i].size() <= native::name_bytes_max) list.append(",").append(addresses[i]);
    return list;
}

std::string some_hosts(const std::vector<std::string>& hosts) {
    constexpr std::size_t hosts_named_max = 4;
    const auto named = std::min(hosts.size(), hosts_named_max);
    auto text = join({hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named)}, ", ");
    if (hosts.size() > named) text += cat(" and ", hosts.size() - named, " more");
    return text;
}

std::vector<native::Assigned> assignments(const std::vector<const Member*>& members, const SealedRound& round,
                                          std::uint32_t restart_count, Duration heartbeat) {
    Assigner assigner(members, round, restart_count, heartbeat);
    std::vector<native::Assigned> all;
    all.reserve(members.size());
    while (all.size() < members.size()) all.push_back(assigner.next());
    return all;
}

native::Assigned assignment(std::uint32_t group_rank, const std::vector<const Member*>& members,
                            const SealedRound& round, std::uint32_t restart_count, Duration heartbeat) {
    MUSTER_CHECK(group_rank < members.size(), group_rank, members.size());
    Assigner assigner(members, round, restart_count, heartbeat);
    for (std::uint32_t rank = 0; rank < group_rank; ++rank) assigner.skip();
    return assigner.next();
}

std::vector<std::string> notes_on_members(const std::vector<const Member*>& members) {
    auto notes = version_notes(members);
    for (auto& line : argument_notes(members)) notes.push_back(std::move(line));
    return notes;
}

std::vector<std::string> store_clients(const std::vector<const Member*>& members) {
    std::vector<std::string> clients;
    if (members.size() < 2) return clients;
    std::set<std::string_view> known;
    const auto add = [&](const std::string& address) {
        if (clients.size() < native::store_clients_max && known.insert(address).second && !is_loopback(address))
            clients.push_back(address);
    };
    for (const auto* member : members) add(member->peer);
    for (const auto* member : members) std::ranges::for_each(member->join.addresses, add);
    for (const auto* member : members) std::ranges::for_each(member->join.sources, add);
    return clients;
}

std::vector<std::string> version_notes(const std::vector<const Member*>& members) {
    std::map<std::string, std::map<std::string, std::vector<std::string>>> hosts_by_version;
    for (const auto* member : members)
        for (const auto& fact : member->versions)
            hosts_by_version[fact.component][fact.version].push_back(member->node.host);
    std::vector<std::string> notes;
    for (const auto& [component, versions] : hosts_by_version) {
        if (versions.size() < 2) continue;
        std::vector<std::string> parts;
        for (const auto& [version, hosts] : versions) parts.push_back(cat(version, " on ", some_hosts(hosts)));
        notes.push_back(cat("versions of ", component, " differ: ", join(parts, "; ")));
    }
    return notes;
}

std::vector<std::string> argument_notes(const std::vector<const Member*>& members) {
    struct Kind {
        const native::Join* join = nullptr;
        std::vector<std::string> hosts;
    };
    struct Role {
        std::vector<Kind> kinds;  ///< in the order of the ranks
        std::map<std::uint64_t, std::size_t> by_hash;
    };
    std::map<std::string, Role> roles;
    for (const auto* member : members) {
        if (member->join.arguments_hash == 0) continue;
        auto& role = roles[member->join.role];
        const auto [at, is_new] = role.by_hash.try_emplace(member->join.arguments_hash, role.kinds.size());
        if (is_new) role.kinds.push_back({&member->join, {}});
        role.kinds[at->second].hosts.push_back(member->node.host);
    }
    std::vector<std::string> notes;
    for (const auto& [name, role] : roles) {
        const auto& kinds = role.kinds;
        if (kinds.size() < 2) continue;
        const auto [one, other] = both_launched(*kinds[0].join, *kinds[1].join);
        notes.push_back(cat("nodes of this round run different arguments: ", one, " on ", some_hosts(kinds[0].hosts),
                            "; ", other, " on ", some_hosts(kinds[1].hosts),
                            kinds.size() == 2 ? "" : cat("; and ", kinds.size() - 2, " more"),
                            "; if these are two jobs, give each its own --rdzv-id or port"));
    }
    return notes;
}

native::Peers peers(const std::function<const Member&(std::uint32_t)>& at, Round round, native::TreePlace place) {
    native::Peers list{.round = round, .place = place, .above = {}};
    for (auto position = place.position; position > 0 && list.above.size() < native::peers_above_max;) {
        position = place.parent_of(position);
        const auto& member = at(position);
        list.above.push_back({member.group_rank, peer_address(member), member.join.peer_port});
    }
    return list;
}

}  // namespace muster::rendezvous
