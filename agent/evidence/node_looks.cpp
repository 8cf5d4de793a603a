#include "agent/evidence/node_looks.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "agent/doctor/doctor_report.h"
#include "agent/evidence/gpu_check.h"
#include "agent/process/side_process.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

namespace {

/// Why a look ended without its last line.
std::string why_cut(std::size_t output_bytes, Duration took, Duration limit) {
    if (output_bytes >= side_output_bytes_max) return "more than 64 KiB of output";
    if (took < limit) return "no whole answer: it ended early";
    return cat("no answer within ", muster::describe(limit));
}

}  // namespace

std::int64_t NodeLooks::limit_of(std::string_view look) const {
    return plan_.limits.of(cat(look, "-timeout-ms"));
}

void NodeLooks::start(LookPlan plan, std::function<void(DoctorFacts)> done) {
    done_ = std::move(done);
    plan_ = std::move(plan);
    facts_.environment = plan_.environment;
    facts_.is_root = ::geteuid() == 0;
    const auto facts = side_program("muster-facts");
    for (const char* look : {"names", "network", "system", "pci"}) look_at(look);
    if (!plan_.skip.contains("firewall")) list_firewall();
    if (!plan_.skip.contains("disks"))
        for (const auto& directory : plan_.directories) {
            std::vector<std::string> words{facts, "disks", directory};
            if (plan_.missing == MissingDirectory::is_made_later) words.emplace_back("--if-there");
            take(cat("disks ", directory), std::move(words), limit_of("disks"));
        }
    const auto named = plan_.environment.find("MUSTER_NVML_LIBRARY");
    const bool has_driver =
        has_gpu_driver(named != plan_.environment.end() ? std::string_view(named->second) : std::string_view());
    const bool looks = has_driver && !plan_.skip.contains("gpus");
    const bool tests = looks && plan_.gpu_tests == GpuTests::taken && !plan_.skip.contains("gpu-test");
    // A test may leave an Xid.
    if (plan_.gpu_tests == GpuTests::skipped) look_at("kernel-log");
    if (plan_.gpu_tests == GpuTests::taken && !tests) write_by_rdma();
    if (looks)
        take("gpus", {side_program("muster-gpus"), "--health"}, limit_of("gpus"), [this, tests] {
            if (tests) test_gpu(0);
        });
    // The last one, so that `done` comes also where every look is skipped.
    ++missing_count_;
    boost::asio::post(loop_, life_.guard([this] { end_one(); }));
}

void NodeLooks::look_at(const char* look) {
    if (!plan_.skip.contains(look)) take(look, {side_program("muster-facts"), look}, limit_of(look));
}

void NodeLooks::end_one() {
    if (--missing_count_ > 0) return;
    if (auto done = std::exchange(done_, nullptr)) done(std::move(facts_));
}

void NodeLooks::test_gpu(std::size_t number) {
    const auto gpus = usable_gpus(facts_);
    if (number >= gpus.size()) return copy_between_gpus();
    const auto& uuid = gpus[number]->text("uuid");
    take(cat("gpu-test ", gpu_label(*gpus[number])),
         {side_program("muster-gpus"), "--test", uuid, side_program("muster-gpu-test")}, limit_of("gpu-test"),
         [this, number] { test_gpu(number + 1); });
}

/// The GPUs whose test is complete and found nothing wrong, as CUDA_VISIBLE_DEVICES has them.
std::vector<std::string> NodeLooks::good_gpus() const {
    std::vector<std::string> uuids;
    for (const auto* gpu : usable_gpus(facts_)) {
        const auto& test = facts_.look(cat("gpu-test ", gpu_label(*gpu)));
        const bool is_wrong = std::ranges::any_of(
            test.records, [](const FactRecord& record) { return record.number("wrong").value_or(0) > 0; });
        if (test.first("memory") != nullptr && !is_wrong) uuids.push_back(gpu->text("uuid"));
    }
    return uuids;
}

void NodeLooks::copy_between_gpus() {
    const auto uuids = good_gpus();
    if (uuids.size() < 2 || plan_.skip.contains("gpu-between")) return reduce_between_gpus();
    take("gpu-between",
         {"/usr/bin/env", cat("CUDA_VISIBLE_DEVICES=", join(uuids, ",")), side_program("muster-gpu-test"), "--between"},
         limit_of("gpu-between"), [this] { reduce_between_gpus(); });
}

void NodeLooks::reduce_between_gpus() {
    const auto uuids = good_gpus();
    if (uuids.size() < 2 || plan_.skip.contains("gpu-reduce")) return ask_dcgm();
    // A job that fails keeps its logs and flight records. Here nobody reads them: they lie in a folder that goes with
    // the look, also where that is killed. The folder's disk may hang, so that this process does not touch it. What
    // removes it waits for the end of all that have descriptor 4, and is not in the look's process group. The job's
    // muster does not print the end of a look.
    static constexpr std::string_view script = R"sh(place=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$place/muster-doctor-XXXXXX") || { printf 'failure\ttext=cannot make a folder in %s; set TMPDIR to a place with room\n' "$place"; echo end; exit; }
export TMPDIR
exec 3>&1
{ "$@" 4>&1 >&3; echo end >&3; } | setsid sh -c 'cat > /dev/null; rm -rf -- "$TMPDIR"')sh";
    // Options of this muster are not for that one.
    std::vector<std::string> words{"/bin/sh", "-c", std::string(script), "sh", "/usr/bin/env"};
    for (const auto& [name, value] : plan_.environment)
        if ((name.starts_with("MUSTER_") || name.starts_with("PET_")) && !name.ends_with("_LIBRARY") &&
            !name.ends_with("_PLUGIN"))
            words.insert(words.end(), {"-u", name});
    // NCCL 2.31 and newer also tests its own paths.
    words.insert(words.end(), {cat("CUDA_VISIBLE_DEVICES=", join(uuids, ",")), "NCCL_RUN_DIAGNOSTICS=1",
                               "NCCL_DEBUG=WARN", side_program("muster"), "--standalone", "--nproc-per-node",
                               cat(uuids.size()), "--max-restarts", "0", "--preflight", "off", "--health-dir", "none",
                               "--no-python", side_program("muster-gpu-test"), "--all-reduce"});
    take("gpu-reduce", std::move(words), limit_of("gpu-reduce"), [this] { ask_dcgm(); });
}

void NodeLooks::list_firewall() {
    // nft also lists the rules of today's iptables. The services of a cluster may make more rules than what is read of
    // a look (64 KiB).
    static constexpr std::string_view script = R"sh(PATH=$PATH:/usr/sbin:/sbin
if command -v nft > /dev/null; then list='nft -s list ruleset'
elif command -v iptables > /dev/null; then list='iptables -S'
else echo end; exit; fi
if ! rules=$($list 2>&1); then printf 'unreadable\ttext=%s\n' "$(printf '%s\n' "$rules" | head -n 1)"
elif [ ${#rules} -gt 60000 ]; then printf 'unreadable\ttext=more than 60,000 bytes of rules\n'
else printf '%s\n' "$rules" | tr '\t' ' '; fi
echo end)sh";
    take("firewall", {"/bin/sh", "-c", std::string(script)}, limit_of("firewall"));
}

void NodeLooks::ask_dcgm() {
    if (plan_.skip.contains("dcgm")) return write_by_rdma();
    // Level 1 takes seconds and loads no GPU.
    take("dcgm",
         {"/bin/sh", "-c", "if command -v dcgmi > /dev/null; then dcgmi diag -r 1 2>&1; echo end; else echo end; fi"},
         limit_of("dcgm"), [this] { write_by_rdma(); });
}

void NodeLooks::write_by_rdma() {
    if (plan_.skip.contains("rdma-write")) return look_at("kernel-log");
    // Devices that are not InfiniBand's or RoCE's (AWS EFA, iWARP) do not speak what ib_write_bw does. The server is
    // ready when a client reaches it; where it ends before, its words are the cause. What is left of both ends with
    // the look. A bad cable may lose its link only under load.
    static constexpr std::string_view script = R"sh(command -v ib_write_bw > /dev/null || { echo end; exit; }
downs() { # older kernels print "N/A (no PMA)"
    n=$(cat "$at/counters/link_downed" 2> /dev/null)
    case $n in '' | *[!0-9]*) echo 0 ;; *) echo "$n" ;; esac
}
for at in /sys/class/infiniband/*/ports/*; do
    case $(cat "$at/state" 2> /dev/null) in *ACTIVE*) ;; *) continue ;; esac
    case $(cat "${at%/ports/*}/node_type" 2> /dev/null) in 1:*) ;; *) continue ;; esac
    device=${at%/ports/*} device=${device##*/} port=${at##*/}
    printf 'step\tname=%s port %s\n' "$device" "$port"
    before=$(downs)
    set -- -d "$device" -i "$port" -D 2 --report_gbits
    said=$(ib_write_bw "$@" 2>&1 &
        tries=25
        until text=$(ib_write_bw "$@" 127.0.0.1 2>&1); do
            case $text in *"Couldn't connect"* | *'socket connection'*) ;; *) break ;; esac
            kill -0 $! 2> /dev/null || { text=; break; }
            [ $((tries -= 1)) != 0 ] || break
            sleep 0.2
        done
        kill $! 2> /dev/null
        printf '%s\n' "$text")
    printf 'written\tdevice=%s\tport=%s\trate=%s\tdowns=%s\tgbits=%s\ttext=%s\n' "$device" "$port" "$(cat "$at/rate")" $(($(downs) - before)) \
        "$(printf '%s\n' "$said" | awk '$1 ~ /^[0-9]+$/ && NF >= 4 { print $4; exit }')" \
        "$(printf '%s\n' "$said" | tr '\t' ' ' | grep '[^ -]' | tail -n 1)"
done
echo end)sh";
    take("rdma-write", {"/bin/sh", "-c", std::string(script)}, limit_of("rdma-write"),
         [this] { look_at("kernel-log"); });
}

void NodeLooks::take(const std::string& name, std::vector<std::string> words, std::int64_t limit_ms,
                     std::function<void()> then) {
    const auto limit = std::chrono::milliseconds(limit_ms);
    const auto began = std::chrono::steady_clock::now();
    ++missing_count_;
    runs_.start(std::move(words), limit,
                life_.guard([this, name, limit, began, then = std::move(then)](const std::string& output) {
                    const auto took = std::chrono::steady_clock::now() - began;
                    facts_.looks[name] = parse_look(output, why_cut(output.size(), took, limit));
                    if (then) then();
                    end_one();
                }));
}

void NodeLooks::drop() {
    done_ = nullptr;
    runs_.drop_all();
}

std::vector<Event> preflight_events(std::vector<Finding> findings, const std::string& host) {
    std::erase_if(findings, [](const auto& one) { return one.level <= Level::info; });
    std::vector<Event> events;
    Event verdict{.kind = EventKind::doctor_verdict,
                  .text = cat("preflight: ", findings_summary(findings)),
                  .facts = {.host = host},
                  .place = EventPlace::stream_only};
    auto worst = Level::info;
    for (const auto& one : findings) {
        worst = std::max(worst, one.level);
        events.push_back({.kind = EventKind::doctor_check,
                          .text = cat("preflight: ", finding_line(one)),
                          .facts = {.host = host, .check = one.check, .level = std::string(level_name(one.level))},
                          .place = EventPlace::warning_and_stream});
    }
    if (worst > Level::info) verdict.facts.level = level_name(worst);
    events.push_back(std::move(verdict));
    return events;
}

}  // namespace muster::agent
