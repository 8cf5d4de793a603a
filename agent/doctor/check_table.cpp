// Of facts, findings. Each look is a program with a deadline, and each check judges the records of one look. A look
// that was cut is one finding of level unknown under the look's own name; the records that it printed before are judged
// anyway, so a disk that hangs does not hide another that is full.
#include "agent/doctor/check_table.h"

#include <algorithm>

#include "agent/diagnosis/visible_gpus.h"
#include "agent/doctor/known_settings.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

struct LookRow {
    std::string_view name;
    std::string_view why;
    std::string_view mend;
};

constexpr LookRow look_rows[] = {
    {"names", "Each worker resolves names when it connects to the store and to its peers.",
     "see /etc/resolv.conf and /etc/hosts; try: getent hosts $(hostname)"},
    {"network", "A kernel that does not list its interfaces hides their faults.", "try: ip -s link"},
    {"firewall", "A firewall whose rules are not known may drop what the job's nodes send each other.",
     "try: nft list ruleset"},
    {"system", "Limits that are not known may end a job.", "try: ulimit -a; df -h /dev/shm"},
    {"pci", "A device that does not answer hangs the driver, too.", "try: lspci -vv; see dmesg"},
    {"kernel-log", "The kernel log has the GPU errors since the boot.", "try: dmesg | grep Xid"},
    {"gpus", "A driver that hangs also hangs every process that uses a GPU.",
     "see dmesg; after a hang or an Xid reset the GPU (nvidia-smi --gpu-reset) or reboot the node"},
    {"gpu-test", "A GPU or a driver that hangs also hangs every process that uses it.",
     "see dmesg; after a hang or an Xid reset the GPU (nvidia-smi --gpu-reset) or reboot the node"},
    {"gpu-between", "A copy that hangs between two GPUs also hangs in a job.",
     "see dmesg and nvidia-smi topo -p2p r; after a hang or an Xid reset the GPUs (nvidia-smi --gpu-reset) or reboot "
     "the node"},
    {"gpu-reduce", "A collective that hangs between the GPUs of a node also hangs in a job.",
     "see dmesg for Xid; nvidia-smi topo -m; then: NCCL_P2P_DISABLE=1 muster doctor --level 3"},
    {"dcgm", "The result of NVIDIA's own diagnosis is missing.", "try: dcgmi diag -r 1; systemctl status nvidia-dcgm"},
    {"rdma-write", "An RDMA port that does not answer also hangs in a job.",
     "see dmesg; ibv_devinfo; try: ib_write_bw -d DEVICE & ib_write_bw -d DEVICE localhost"},
    {"disks", "A disk that hangs also hangs the checkpoint and the logs that are written to it.",
     "see dmesg and the file server; try: timeout 5 df DIR"},
    {"nodes", "Jobs need connections between all of their nodes.",
     "see the messages above; start the same command on every node"},
    {"settings", "The variables of NCCL, gloo and PyTorch decide which network the job uses.", ""},
};

const LookRow& row_of(std::string_view look) {
    const auto kind = look.substr(0, look.find(' '));
    return *std::ranges::find(look_rows, kind, &LookRow::name);
}

bool is_skipped(std::string_view name, const std::set<std::string>& skip) {
    return skip.contains(std::string(name));
}

bool is_skipped(const Check& check, const std::set<std::string>& skip) {
    return is_skipped(check.name, skip) || is_skipped(check.look, skip);
}

void add_cut_looks(const DoctorFacts& facts, const std::set<std::string>& skip, std::vector<Finding>& out) {
    for (const auto& [name, look] : facts.looks) {
        const auto& row = row_of(name);
        if (look.state != Look::State::cut || is_skipped(row.name, skip)) continue;
        const auto path = name.substr(std::min(row.name.size() + 1, name.size()));
        out.push_back({.check = std::string(row.name),
                       .level = Level::unknown,
                       .what = path.empty() ? cat("the look at ", row.name) : path,
                       .measured = look.why,
                       .expected = "an answer",
                       .why = std::string(row.why),
                       .mend = std::string(row.mend)});
    }
}

std::vector<std::string> all_names() {
    std::vector<std::string> names;
    for (const auto& check : check_table()) names.emplace_back(check.name);
    for (const auto& row : look_rows) names.emplace_back(row.name);
    return names;
}

}  // namespace

std::string_view level_name(Level level) {
    constexpr std::string_view names[] = {"info", "warning", "could not look", "critical"};
    return names[static_cast<std::size_t>(level)];
}

std::vector<const FactRecord*> usable_gpus(const DoctorFacts& facts) {
    const auto variable = facts.environment.find("CUDA_VISIBLE_DEVICES");
    const auto visible =
        variable != facts.environment.end() ? std::optional<std::string_view>(variable->second) : std::nullopt;
    const auto gpus = facts.look("gpus").all("gpu");
    std::vector<std::string> uuids;
    for (const auto* gpu : gpus) uuids.push_back(gpu->text("uuid"));
    const auto shown = are_visible(uuids, visible);
    std::vector<const FactRecord*> found;
    for (std::size_t i = 0; i < gpus.size(); ++i)
        if (shown[i]) found.push_back(gpus[i]);
    return found;
}

const Look& DoctorFacts::look(std::string_view name) const {
    static const Look none;
    const auto found = looks.find(name);
    return found != looks.end() ? found->second : none;
}

const FactRecord* active_infiniband(const DoctorFacts& facts) {
    for (const auto* port : facts.look("pci").all("rdma-port"))
        if (port->text("state") == "ACTIVE" && port->text("layer") != "Ethernet") return port;
    return nullptr;
}

const std::vector<Check>& check_table() {
    static const auto checks = [] {
        std::vector<Check> found;
        for (const auto part : {system_checks, network_checks, firewall_checks, device_checks, gpu_checks,
                                gpu_test_checks, gpu_between_checks, setting_checks, pair_checks})
            for (const auto& check : part()) found.push_back(check);
        return found;
    }();
    return checks;
}

Result<void> check_skip_names(const std::set<std::string>& names) {
    const auto known = all_names();
    for (const auto& name : names) {
        if (std::ranges::find(known, name) != known.end()) continue;
        const auto near = nearest(name, known);
        return Error{Errc::invalid_argument,
                     cat("there is no check '", name, "'",
                         near.empty() ? "; `muster doctor explain` lists all" : cat("; the nearest is ", near))};
    }
    return {};
}

std::size_t check_count(const DoctorFacts& facts, const std::set<std::string>& skip) {
    std::set<std::string_view> taken{"settings"};
    for (const auto& [name, look] : facts.looks) taken.insert(row_of(name).name);
    return static_cast<std::size_t>(std::ranges::count_if(
        check_table(), [&](const Check& check) { return taken.contains(check.look) && !is_skipped(check, skip); }));
}

std::vector<Finding> examine(const DoctorFacts& facts, const DoctorLimits& limits, const std::set<std::string>& skip) {
    std::vector<Finding> findings;
    add_cut_looks(facts, skip, findings);
    for (const auto& check : check_table()) {
        if (is_skipped(check, skip)) continue;
        for (auto& one : check.judge(facts, limits))
            findings.push_back({.check = std::string(check.name),
                                .level = one.level,
                                .what = std::move(one.what),
                                .measured = std::move(one.measured),
                                .expected = std::move(one.expected),
                                .why = std::string(check.why),
                                .mend = one.mend.empty() ? std::string(check.mend) : std::move(one.mend)});
    }
    // Values of variables and paths are foreign text.
    for (auto& one : findings)
        for (auto* text : {&one.what, &one.measured, &one.expected, &one.mend}) *text = printable_line(*text);
    std::ranges::stable_sort(findings, std::ranges::greater{}, &Finding::level);
    return findings;
}

Result<std::string> explain(std::string_view name) {
    for (const auto& check : check_table())
        if (check.name == name)
            return cat(name, ": a check of the look ", check.look, ".\n  Why: ", check.why, "\n  Mend: ", check.mend,
                       "\n");
    for (const auto& row : look_rows)
        if (row.name == name)
            return cat(name, ": a look; --skip ", name, " leaves out all of its checks.\n  Why: ", row.why, "\n",
                       row.mend.empty() ? "" : cat("  If it does not answer: ", row.mend, "\n"));
    for (const auto& row : limit_table())
        if (row.name == name) return cat(name, ": a limit, ", row.value, " by default.\n  ", row.help, "\n");
    for (const auto& setting : known_settings())
        if (setting.name == name) return cat(name, ": a variable.\n  ", setting.help, "\n");
    auto known = all_names();
    for (const auto& row : limit_table()) known.emplace_back(row.name);
    for (const auto& setting : known_settings()) known.emplace_back(setting.name);
    const auto near = nearest(name, known);
    return Error{Errc::not_found,
                 cat("nothing has the name '", name, "'",
                     near.empty() ? "; `muster doctor explain` lists all" : cat("; the nearest is ", near))};
}

std::string explain_all() {
    std::string out = "Checks:\n";
    for (const auto& check : check_table()) out += cat("  ", check.name, " (", check.look, "): ", check.why, "\n");
    out += "Limits (--limits FILE):\n";
    for (const auto& row : limit_table()) out += cat("  ", row.name, " = ", row.value, ": ", row.help, "\n");
    out += "Variables:\n";
    for (const auto& setting : known_settings()) out += cat("  ", setting.name, ": ", setting.help, "\n");
    return out;
}

}  // namespace muster::agent
