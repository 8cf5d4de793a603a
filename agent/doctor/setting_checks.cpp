// Variables of NCCL, gloo, PyTorch and OpenMP that contradict this machine or one another.
#include <algorithm>
#include <array>

#include "agent/doctor/check_table.h"
#include "agent/doctor/known_settings.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

std::string_view value_of(const DoctorFacts& facts, std::string_view name) {
    const auto found = facts.environment.find(name);
    return found != facts.environment.end() ? std::string_view(found->second) : std::string_view();
}

std::vector<std::string> names_of(const std::vector<const FactRecord*>& records, std::string_view field) {
    std::vector<std::string> names;
    for (const auto* one : records) names.push_back(one->text(field));
    return names;
}

/// The words of NCCL's lists: "^" excludes, "=" matches exactly, else each word is a prefix.
struct NameList {
    bool excludes = false;
    bool is_exact = false;
    std::vector<std::string> words;
};

NameList parse_list(std::string_view text) {
    NameList list;
    if (text.starts_with('^')) list.excludes = true, text.remove_prefix(1);
    if (text.starts_with('=')) list.is_exact = true, text.remove_prefix(1);
    for (const auto word : split(text, ','))
        if (const auto name = trim(word.substr(0, word.find(':'))); !name.empty()) list.words.emplace_back(name);
    return list;
}

bool matches(const NameList& list, const std::string& word, const std::vector<std::string>& names) {
    return std::ranges::any_of(names,
                               [&](const auto& name) { return list.is_exact ? name == word : name.starts_with(word); });
}

/// The first word of a list of which no word names anything of this machine. Empty: one does, which is enough for NCCL:
/// one list may serve unlike nodes.
std::string unmatched(const NameList& list, const std::vector<std::string>& names) {
    if (list.excludes || names.empty() || list.words.empty()) return {};
    const bool any = std::ranges::any_of(list.words, [&](const auto& word) { return matches(list, word, names); });
    return any ? std::string() : list.words.front();
}

Found socket_interface(const DoctorFacts& facts, const DoctorLimits&) {
    const auto names = names_of(facts.look("network").all("interface"), "name");
    Found found;
    for (const char* variable : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
        auto list = parse_list(value_of(facts, variable));
        if (std::string_view(variable).starts_with("GLOO")) list.is_exact = true;
        const auto word = unmatched(list, names);
        if (word.empty()) continue;
        found.push_back({Level::warning, cat(variable, "=", value_of(facts, variable)),
                         cat("no interface ", list.is_exact ? "is named " : "begins with ", "'", word, "'"),
                         cat("one of ", join(names, ", ")), cat("unset ", variable)});
    }
    return found;
}

Found rdma_device(const DoctorFacts& facts, const DoctorLimits&) {
    const auto names = names_of(facts.look("pci").all("rdma-port"), "device");
    const auto word = unmatched(parse_list(value_of(facts, "NCCL_IB_HCA")), names);
    if (word.empty()) return {};
    return {{Level::warning, cat("NCCL_IB_HCA=", value_of(facts, "NCCL_IB_HCA")),
             cat("no RDMA device matches '", word, "'"), cat("one of ", join(names, ", "))}};
}

/// Whether NCCL_IB_HCA (a list of prefixes of devices, each perhaps with a port behind ':') has NCCL use the port.
bool is_used(std::string_view hca, const FactRecord& port) {
    const auto list = parse_list(hca);
    if (list.words.empty()) return true;
    if (const auto start = hca.find_first_not_of("^="); start != std::string_view::npos) hca.remove_prefix(start);
    for (const auto part : split(hca, ',')) {
        const auto colon = part.find(':');
        const std::string word(trim(part.substr(0, colon)));
        const bool is_port = colon == std::string_view::npos || trim(part.substr(colon + 1)) == port.text("port");
        if (!word.empty() && is_port && matches(list, word, {port.text("device")})) return !list.excludes;
    }
    return list.excludes;
}

const FactRecord* gids_of(const DoctorFacts& facts, const FactRecord& port) {
    for (const auto* gids : facts.look("pci").all("gids"))
        if (gids->text("device") == port.text("device") && gids->text("port") == port.text("port")) return gids;
    return nullptr;
}

/// NCCL_IB_GID_INDEX on each RoCE port that NCCL would use.
Found rdma_gid(const DoctorFacts& facts, const DoctorLimits&) {
    const auto wanted = value_of(facts, "NCCL_IB_GID_INDEX");
    std::int64_t index = -1;
    if (!parse_number(wanted, index) || index < 0 || value_of(facts, "NCCL_IB_DISABLE") == "1") return {};
    Found found;
    for (const auto* port : facts.look("pci").all("rdma-port")) {
        const auto& device = port->text("device");
        const auto* gids = gids_of(facts, *port);
        if (gids == nullptr || port->text("state") != "ACTIVE" || !is_used(value_of(facts, "NCCL_IB_HCA"), *port))
            continue;
        std::string type;
        std::vector<std::string> routable;
        for (const auto gid : split(gids->text("list"), ',')) {
            const auto colon = std::min(gid.find(':'), gid.size());
            const auto number = gid.substr(0, colon), is = gid.substr(std::min(colon + 1, gid.size()));
            if (number == cat(index)) type = is;
            if (is == "RoCE v2") routable.emplace_back(number);
        }
        if (type == "RoCE v2") continue;
        found.push_back({Level::warning, cat("NCCL_IB_GID_INDEX=", wanted),
                         type.empty() ? cat(device, " port ", port->text("port"), " has no GID ", wanted)
                                      : cat("GID ", wanted, " of ", device, " port ", port->text("port"), " is ", type),
                         routable.empty() ? "a GID of RoCE v2: give the interface an address"
                                          : cat("RoCE v2: ", join(routable, ", "))});
    }
    return found;
}

Found rdma_disabled(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* active = active_infiniband(facts);
    if (value_of(facts, "NCCL_IB_DISABLE") != "1" || active == nullptr) return {};
    return {{Level::warning, "NCCL_IB_DISABLE=1", cat("the RDMA port ", active->text("device"), " is active"), "0"}};
}

Found slow_settings(const DoctorFacts& facts, const DoctorLimits&) {
    struct Slow {
        const char* variable;
        const char* value;
        const char* measured;
    };
    constexpr std::array<Slow, 5> slow{{{"NCCL_P2P_DISABLE", "1", "GPUs of this node do not copy directly"},
                                        {"NCCL_SHM_DISABLE", "1", "processes of this node use the network"},
                                        {"NCCL_DEBUG", "TRACE", "every call of NCCL is logged"},
                                        {"CUDA_LAUNCH_BLOCKING", "1", "every kernel is waited for"},
                                        {"TORCH_DISTRIBUTED_DEBUG", "DETAIL", "every collective is checked"}}};
    Found found;
    for (const auto& one : slow)
        if (value_of(facts, one.variable) == one.value)
            found.push_back({Level::warning, cat(one.variable, "=", one.value), one.measured, "unset",
                             cat("unset ", one.variable)});
    return found;
}

Found old_names(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::array<std::pair<const char*, const char*>, 4> names{
        {{"NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"},
         {"NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"},
         {"NCCL_DESYNC_DEBUG", "TORCH_NCCL_DESYNC_DEBUG"},
         {"NCCL_LAUNCH_MODE", ""}}};
    Found found;
    for (const auto& [old, now] : names) {
        if (!facts.environment.contains(old)) continue;
        const bool is_gone = std::string_view(now).empty();
        found.push_back({Level::warning, old, "obsolete", is_gone ? "unset" : now,
                         is_gone ? cat("unset ", old) : cat("rename it to ", now)});
    }
    return found;
}

/// Only names that look like a typing error: plug-ins and new versions have variables of their own.
Found unknown_settings(const DoctorFacts& facts, const DoctorLimits&) {
    std::vector<std::string> known;
    for (const auto& setting : known_settings()) known.emplace_back(setting.name);
    Found found;
    for (const auto& [name, value] : facts.environment) {
        if (!name.starts_with("NCCL_") && !name.starts_with("GLOO_") && !name.starts_with("TORCH_NCCL_")) continue;
        if (std::ranges::find(known, name) != known.end()) continue;
        const auto near = nearest(name, known);
        constexpr std::size_t typing_error_max = 2;
        if (near.empty() || edit_distance(name, near) > typing_error_max) continue;
        found.push_back({Level::info, name, "an unknown variable", cat("perhaps ", near)});
    }
    return found;
}

Found threads(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* cpus = facts.look("system").first("cpus");
    std::int64_t count = 0;
    const auto usable = cpus != nullptr ? cpus->number("usable") : std::nullopt;
    if (!usable || !parse_number(value_of(facts, "OMP_NUM_THREADS"), count) || count <= *usable) return {};
    return {{Level::warning, cat("OMP_NUM_THREADS=", count), cat("this process may use ", *usable, " CPUs"),
             cat("at most ", *usable, " divided by the workers")}};
}

}  // namespace

std::vector<Check> setting_checks() {
    return {
        {"socket-interface", "settings", "NCCL and gloo find no interface and fail at the start.",
         "unset the variable, or name an interface of this node", socket_interface},
        {"rdma-device", "settings", "NCCL leaves this device out, or falls back to TCP.", "unset NCCL_IB_HCA",
         rdma_device},
        {"rdma-gid", "settings",
         "NCCL fails at the start (ibv_modify_qp), or its packets do not pass a router (RoCE v1).",
         "unset NCCL_IB_GID_INDEX: NCCL 2.21 and newer finds the GID; show_gids lists them", rdma_gid},
        {"rdma-disabled", "settings", "NCCL uses TCP, which is many times slower.", "unset NCCL_IB_DISABLE",
         rdma_disabled},
        {"slow-setting", "settings", "It is meant for debugging or for broken machines, and slows a job down.",
         "unset the variable", slow_settings},
        {"old-setting", "settings", "It is an old name: PyTorch warns about it, and later versions may not read it.",
         "unset the variable", old_names},
        {"unknown-setting", "settings", "A name with a typing error has no effect.", "correct the name",
         unknown_settings},
        {"omp-threads", "settings", "More threads than CPUs wait for one another.", "unset OMP_NUM_THREADS", threads},
    };
}

}  // namespace muster::agent
