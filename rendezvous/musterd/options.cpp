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
        "file with more of these options, one a line: port = 29400, first-start = yes. The command line beats it");
    add("check",
        "look whether the options and the file of --config are right, whether the file of --state can be written or "
        "its etcd answers, and whether --advertise can be looked up; say so, change nothing, and exit");
    add("bind", text("ADDRESS")->default_value(""),
        "address to listen on, a name or a number; empty: all, IPv6 and IPv4");
    add("port", text("P[-Q]")->default_value("29400"), "port, or P-Q for the first free one of a range, or 0 for any");
    add("state", text("PLACE")->default_value("memory", "memory, or a file in $STATE_DIRECTORY"),
        "where the jobs' state is kept. memory: nowhere, a restarted daemon is taught anew by its agents. sqlite:PATH: "
        "in this file, from which a restarted daemon goes on. etcd://HOST:PORT,HOST:PORT,...[/PREFIX]: there, shared "
        "with other daemons of which one leads");
    add("advertise", text("HOST:PORT"),
        "where agents find this daemon, when it leads among several; several addresses of it so: [A,B]:PORT; default: "
        "--bind, else the addresses of this host, and --port");
    add("etcd-protocol", text("http|https")->default_value("http"), "http, or https to etcd members that want TLS");
    add("etcd-cacert", text("FILE")->default_value(""),
        "file with the certificate of the CA that vouches for etcd; default: those that the system trusts");
    add("etcd-cert", text("FILE")->default_value(""), "file with this daemon's certificate for etcd");
    add("etcd-key", text("FILE")->default_value(""),
        "file with the key of --etcd-cert. (A user of etcd: MUSTER_ETCD_LOGIN_FILE names a file, mode 0600, with "
        "USER:PASSWORD)");
    add("first-start",
        "no job of this daemon can be running yet, so a full set of new agents need not wait for one lease after the "
        "daemon's start, in which the agents of running jobs find it again");
    add("allow-faults",
        "let muster fault kill, stop or slow down this daemon, as a rehearsal, for any of its jobs' users");
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
    auto text = read_config_file(path);
    if (!text) return text.error();
    const auto wrong = [&path](std::size_t line, std::string_view why) {
        return Error{Errc::invalid_argument, cat(path, ":", line, ": ", why)};
    };
    const auto config = parse_config(*text);
    if (!config.complaints.empty()) return wrong(config.complaints.front().line, config.complaints.front().why);
    auto names = option_names(known);
    for (const char* not_here : {"config", "check", "help", "version"}) std::erase(names, not_here);
    options::parsed_options parsed(&known);
    for (const auto& [key, value, line] : config.entries) {
        if (std::find(names.begin(), names.end(), key) == names.end()) {
            const auto near = nearest(key, names);
            return wrong(line, cat("unknown key '", key, "'", near.empty() ? "" : "; the nearest known key is ", near));
        }
        if (!places.emplace(key, cat(path, ":", line, ": ", key)).second)
            return wrong(line, cat(key, " is given a second time; ", places.at(key), " is the first"));
        const bool is_flag = known.find(key, false).semantic()->max_tokens() == 0;
        const auto on = config_flag(value);
        if (is_flag && !on) return wrong(line, cat(key, ": got '", value, "'; accepted is yes or no"));
        if (is_flag && !*on) continue;
        parsed.options.emplace_back(key, is_flag ? std::vector<std::string>{} : std::vector<std::string>{value});
    }
    return parsed;
}

}  // namespace muster::rendezvous
