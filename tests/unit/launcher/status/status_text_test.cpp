#include "launcher/status/status_text.h"

#include <nlohmann/json.hpp>

#include "launcher/status/status_reader.h"
#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;
using nlohmann::json;

namespace {

json node(const std::string& host, int rank_base) {
    return {{"host", host},      {"pid", 4711},      {"place", "running"},          {"slots", 8},
            {"connected", true}, {"silent_ms", 400}, {"group_rank", rank_base / 8}, {"rank_base", rank_base}};
}

json job(const std::string& id, const std::string& phase, const json& nodes) {
    return {{"id", id},          {"phase", phase},
            {"round", 3},        {"restarts_used", 1},
            {"restarts_max", 3}, {"nodes_min", 2},
            {"nodes_max", 4},    {"step", 1200},
            {"waiting_for", ""}, {"goodput", {{"text", "92.4 % of 192 min trained"}}},
            {"nodes", nodes}};
}

StatusFacts facts(const std::vector<json>& jobs) {
    return read_status_facts(json{{"jobs", jobs}}.dump()).value();
}

std::string text(const std::vector<StatusLine>& lines) {
    std::string out;
    for (const auto& line : lines) out += cat(line.text, "\n");
    return out;
}

}  // namespace

TEST_CASE("several jobs are a table; one of them, or the only one, is shown with its nodes") {
    const auto all =
        facts({job("train", "running", {node("gpu01", 0), node("gpu02", 8)}), job("eval", "gathering", json::array())});
    CHECK(text(status_lines(all, {}, 80)) ==
          "JOB                  PHASE     ROUND  NODES        STEP       RESTARTS\n"
          "train                running   3      2/2-4        1200       1/3\n"
          "eval                 gathering 3      0/2-4        1200       1/3\n");
    CHECK(text(status_lines(all, "train", 80)) ==
          "job train: running, round 3, 2 of 2-4 nodes, step 1200, 1/3 restarts used\n"
          "time: 92.4 % of 192 min trained\n"
          "NODE                       PID      PLACE      RANKS        HEARD\n"
          "gpu01                      4711     running    0-7          0 s ago\n"
          "gpu02                      4711     running    8-15         0 s ago\n");
    auto with_window = job("train", "running", json::array());
    with_window["restarts_used"] = 12;
    with_window["restarts_left"] = 1;
    CHECK(job_lines(facts({with_window}).jobs.at(0)).at(0).text ==
          "job train: running, round 3, 0 of 2-4 nodes, step 1200, 2/3 restarts used");
    CHECK(unknown_job(all, "") == "name a job; jobs: train, eval");
    CHECK(unknown_job(all, "tain") == "no job 'tain'; jobs: train, eval");
    CHECK(text(status_lines(facts({}), {}, 80)) == "no jobs\n");
    CHECK(unknown_job(facts({}), "x") == "no job 'x'; this daemon has no jobs");
}

TEST_CASE("samples a second are told of a running job that counts them, and of another one whose nodes are meant") {
    auto train = job("train", "running", json::array({node("gpu01", 0)}));
    const auto lines = [&] { return text(job_lines(facts({train}).jobs[0])); };
    CHECK(lines().find("samples") == std::string::npos);
    for (const auto& [value, told] : {std::pair<json, std::string>{12800.06, "12800.1"}, {640, "640"}}) {
        train["samples_per_second"] = value;
        CHECK(lines().find(cat("restarts used\nsamples/s: ", told, " in the last steps\ntime: ")) != std::string::npos);
    }
    train["samples_per_second"] = 1e300;
    CHECK(lines().find("samples/s: 1000000000000000 ") != std::string::npos);
    train["samples_per_second"] = 640;
    train["phase"] = "gathering";
    CHECK(lines().find("samples") == std::string::npos);
    CHECK(lines().find(": gathering, round 3, 1 of 2-4 nodes in the round, step 1200") != std::string::npos);
    for (const auto& value : {json(-1), json("640"), json(nullptr)}) {
        train["phase"] = "running";
        train["samples_per_second"] = value;
        CHECK(lines().find("samples") == std::string::npos);
    }
}

TEST_CASE("standby processes are counted over the nodes, with their memory") {
    auto first = node("gpu01", 0), second = node("gpu02", 8);
    const auto lines = [&] { return text(status_lines(facts({job("train", "running", {first, second})}), {}, 80)); };
    CHECK(lines().find("standby") == std::string::npos);
    first["standbys"] = {{"count", 8}, {"memory_bytes", std::uint64_t{1760} << 20}};
    CHECK(lines().find("\nstandby processes: 8 on 1 node, 1760 MiB of memory\n") != std::string::npos);
    second["standbys"] = {{"count", 1}, {"memory_bytes", std::uint64_t{240} << 20}};
    CHECK(lines().find("\nstandby processes: 9 on 2 nodes, 2000 MiB of memory\n") != std::string::npos);
    second["standbys"] = 7;
    CHECK(lines().find("8 on 1 node") != std::string::npos);
}

TEST_CASE("how busy the GPUs are is told for the job, with the lowest one") {
    auto first = node("gpu01", 0), second = node("gpu02", 8);
    const auto lines = [&] { return text(status_lines(facts({job("train", "running", {first, second})}), {}, 80)); };
    CHECK(lines().find("GPU use") == std::string::npos);
    first["gpus"] = json::parse(
        R"([{"index":0,"busy_percent":97},{"index":1,"busy_percent":90},7,{"index":2,"busy_percent":9223372036854775807},{"index":3}])");
    CHECK(lines().find("\nGPU use: 93 % on average of 2 GPUs, lowest 90 % (GPU 1 of gpu01)\n") != std::string::npos);
    second["gpus"] = json::parse(R"([{"index":3,"busy_percent":2}])");
    CHECK(lines().find("\nGPU use: 63 % on average of 3 GPUs, lowest 2 % (GPU 3 of gpu02)\n") != std::string::npos);
}

TEST_CASE("the newest checkpoint of each tier is told, with its age where that is known") {
    auto one = job("train", "running", {node("gpu01", 0)});
    one["checkpoint_step"] = 40;
    CHECK(text(status_lines(facts({one}), {}, 80)).find("newest checkpoint at the end of the last round: step 40\n") !=
          std::string::npos);
    one["checkpoints"] = json::parse(
        R"({"memory":{"step":40,"age_s":12},"shared":{"step":30,"age_s":999999999999999},"local":{"step":7},"neighbour":5})");
    const auto told = text(status_lines(facts({one}), {}, 500));
    INFO(told);
    CHECK(told.find("\ncheckpoints: step 7 on local disks, step 40 in memory (12 s ago), step 30 in the checkpoint "
                    "directory (") != std::string::npos);
    CHECK(told.find("newest checkpoint") == std::string::npos);
}

TEST_CASE("what is wrong comes first") {
    auto lost = node("gpu03", 16);
    lost["place"] = "lost";
    lost["connected"] = false;
    auto late = node("gpu02", 8);
    late["overdue"] = {
        {{"rank", 12}, {"idle_ms", 42'000}, {"operation", "all_reduce 40 of world"}, {"place", "load (data.py:31)"}}};
    late["waiting"] = {{{"rank", 13}, {"idle_ms", 40'000}, {"operation", "all_reduce 41 of world"}, {"place", ""}}};
    const auto lines = status_lines(facts({job("train", "running", {node("gpu01", 0), late, lost})}), {}, 100);
    CHECK(text(lines) ==
          "job train: running, round 3, 2 of 2-4 nodes, step 1200, 1/3 restarts used\n"
          "time: 92.4 % of 192 min trained\n"
          "rank 12 on gpu02 is missing in load (data.py:31), idle for 42 s, after all_reduce 40 of world\n"
          "rank 13 waits in all_reduce 41 of world\n"
          "NODE                       PID      PLACE      RANKS        HEARD\n"
          "gpu03                      4711     lost       16-23        no link\n"
          "gpu02                      4711     running    8-15         0 s ago\n"
          "gpu01                      4711     running    0-7          0 s ago\n");
    CHECK(lines[2].style == LineStyle::attention);
    CHECK(lines[5].style == LineStyle::attention);
}

TEST_CASE("what a job waits for is told, with the hosts that the daemon names") {
    auto gathering = job("train", "gathering", json::array({node("gpu01.cluster", 0)}));
    gathering["waiting_for"] = "3 more nodes (missing: gpu02, gpu03, gpu04)";
    CHECK_THAT(text(status_lines(facts(std::vector<json>(1, gathering)), {}, 200)),
               Catch::Contains("waiting for 3 more nodes (missing: gpu02, gpu03, gpu04)\n"));
}

TEST_CASE("every width holds, also with hostile names") {
    auto nodes = json::array();
    for (int i = 0; i < 100; ++i) nodes.push_back(node(cat("gpu", i, "-\xE6\xBC\xA2\xE5\xAD\x97\x1b[31m"), 8 * i));
    const auto many = facts({job(std::string(300, 'j'), "running", nodes)});
    for (const std::size_t columns : {80, 20, 200, 1}) {
        const auto lines = status_lines(many, {}, columns);
        CHECK(lines.size() == 103);
        for (const auto& line : lines) {
            CHECK(columns_of(line.text) <= columns);
            CHECK(line.text.find('\x1b') == std::string::npos);
        }
    }
}

TEST_CASE("a page that is none, or has other types than expected, is an error or read as far as it goes") {
    for (const char* page : {"", "{", "[]", "{}", R"({"jobs":3})", "<html>"})
        CHECK(read_status_facts(page).error().code == Errc::bad_frame);
    const auto odd =
        read_status_facts(R"({"jobs":[7,{"id":[],"round":"x","nodes":[1,{"overdue":[1,{}]}],"goodput":1}]})");
    REQUIRE(odd.has_value());
    CHECK(odd->jobs.size() == 1);
    CHECK_FALSE(status_lines(*odd, {}, 80).empty());
    const auto standby = read_status_facts(R"({"jobs":[],"standby":true,"leader":"gpu02:29400"})");
    CHECK(status_lines(*standby, {}, 80)[0].text == "this daemon stands by; ask the leader, gpu02:29400");
}

TEST_CASE("a daemon that is gone is told with the time") {
    CHECK(no_answer_line("gpu01:29400", 12'300ms, "connection refused").text ==
          "no answer from gpu01:29400 for 12 s: connection refused");
}
