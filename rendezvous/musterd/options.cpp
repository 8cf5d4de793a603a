#include "rendezvous/musterd/options.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "rendezvous/base/system/config_text.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace options = boost::program_options;

options::options_description describe_options() {
    options::options_description all("Options", 120, 60);
    auto add = all.add_options();
    const auto text = [](const char* name) { return options::value<std::string>()->value_name(name); };
    add("config", text("FILE"),
        "read options from FILE, one per line: port = 29400, first-start = yes. The command line overrides the file");
    add("check",
        "check the options and the --config file, that the --state file is writable or etcd answers, and that "
        "--advertise resolves; report, change nothing and exit");
    add("bind", text("ADDRESS")->default_value(""),
        "address or host name to listen on; empty: all addresses, IPv6 and IPv4");
    add("local-users", text("own|all"),
        "whom this daemon serves among the users of its own host. own: root and its own user, as the kernel reports "
        "the connection's other end; all: everyone who can connect. Default: all with a secret, else own");
    add("insecure",
        "serve other hosts without a secret: every host that reaches the port can join the jobs. Also "
        "MUSTER_INSECURE=1. Default: without a secret (muster key --help), musterd exits with 78 unless it listens on "
        "loopback (--bind 127.0.0.1)");
    add("allow-from", text("ADDRESS[/BITS],..."),
        "the other hosts that this daemon serves, e.g. 10.0.0.0/8,fd00::/8. With a secret, PyTorch's clients of these "
        "hosts, too. Default: all, and with a secret PyTorch's clients of this host and of the jobs' nodes");
    add("port", text("P[-Q]")->default_value("29400"), "port; P-Q: the first free port of the range; 0: any free port");
    add("state", text("PLACE")->default_value("memory", "memory, or a file in $STATE_DIRECTORY"),
        "where the jobs' state is kept. memory: not kept; after a restart, the agents send it again. sqlite:PATH: in "
        "this file; a restarted daemon continues from it. etcd://HOST:PORT,HOST:PORT,...[/PREFIX]: in etcd, shared by "
        "several daemons, one of which is the leader (high availability)");
    add("advertise", text("HOST:PORT"),
        "endpoint that agents use when this daemon is the leader of several; for several addresses: [A,B]:PORT; "
        "default: --bind, else the addresses of this host, with --port");
    add("etcd-protocol", text("http|https")->default_value("http"), "http, or https for etcd members that use TLS");
    add("etcd-cacert", text("FILE")->default_value(""),
        "CA certificate that verifies the etcd members; default: the system's trusted CAs");
    add("etcd-cert", text("FILE")->default_value(""), "client certificate of this daemon for etcd");
    add("etcd-key", text("FILE")->default_value(""),
        "private key of --etcd-cert. (For an etcd user: MUSTER_ETCD_LOGIN_FILE names a file, mode 0600, with "
        "USER:PASSWORD)");
    add("events", text("DIR")->default_value(""),
        "write what happens to the jobs to DIR/events.jsonl, one JSON line (CloudEvents 1.0) each; older files are "
        "events.1.jsonl to events.3.jsonl, of 64 MiB each. A disk that does not keep up loses events, not time");
    add("first-start",
        "no job is running yet: seal a round as soon as all its nodes have joined. Default: wait one lease after the "
        "start first, because agents of running jobs may reconnect");
    add("allow-faults",
        "allow muster fault to kill, stop or slow down this daemon (failure tests), for the users of all its jobs");
    add("status-host", text("NAME[,NAME]")->default_value(""),
        "further names under which browsers and monitoring reach /status and /metrics; its addresses, localhost and "
        "this host's name always work");
    add("no-web", "answer no browser: neither the page at / nor its stream; /healthz, /status, /metrics and /api stay");
    add("status-token",
        "print the token that /status, /metrics and /api ask of other hosts (Authorization: Bearer TOKEN) where "
        "MUSTER_SECRET_FILE is set, and exit");
    add("metrics-token",
        "print the token that opens /metrics alone, here and at the ports of muster --metrics-listen, and exit");
    add("log-level", text("debug|info|warning|error")->default_value("info"), "debug, info, warning or error");
    add("version", "print the version and exit");
    add("help,h", "print this and exit");
    return all;
}

std::vector<std::string> option_names(const options::options_description& known) {
    std::vector<std::string> names;
    for (const auto& option : known.options()) names.push_back(option->long_name());
    return names;
}

Result<options::parsed_options> read_options(const std::string& path, const options::options_description& known,
                                             OptionPlaces& places) {
    auto text = MUSTER_TRY(read_config_file(path));
    const auto wrong = [&path](std::size_t line, std::string_view why) {
        return Error{Errc::invalid_argument, cat(path, ":", line, ": ", why)};
    };
    const auto config = parse_config(text);
    if (!config.complaints.empty()) return wrong(config.complaints.front().line, config.complaints.front().why);
    auto names = option_names(known);
    for (const char* not_here : {"config", "check", "help", "status-token", "metrics-token", "version"})
        std::erase(names, not_here);
    options::parsed_options parsed(&known);
    for (const auto& [key, value, line] : config.entries) {
        if (std::find(names.begin(), names.end(), key) == names.end()) {
            const auto near = nearest(key, names);
            return wrong(line, cat("unknown key '", key, "'", near.empty() ? "" : "; the nearest known key is ", near));
        }
        if (!places.emplace(key, cat(path, ":", line, ": ", key)).second)
            return wrong(line, cat(key, " is set twice, first at ", places.at(key)));
        const bool is_flag = known.find(key, false).semantic()->max_tokens() == 0;
        const auto on = config_flag(value);
        if (is_flag && !on) return wrong(line, cat(key, ": got '", value, "'; accepted is yes or no"));
        if (is_flag && !*on) continue;
        parsed.options.emplace_back(key, is_flag ? std::vector<std::string>{} : std::vector<std::string>{value});
    }
    return parsed;
}

}  // namespace muster::rendezvous
