#include "launcher/options/rendezvous_conf.h"

#include <algorithm>
#include <array>

#include "launcher/config/option_values.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// Stores the value, or returns a description of accepted values.
using Accept = std::optional<std::string> (*)(std::string_view value, RendezvousConf& conf);

std::optional<std::string> positive_seconds(std::string_view value, std::optional<Duration>& field) {
    const auto duration = seconds(value);
    if (!duration || *duration <= Duration::zero()) return "seconds above 0";
    field = duration;
    return std::nullopt;
}

template <std::string rendezvous::TlsFiles::*field>
std::optional<std::string> file(std::string_view value, RendezvousConf& conf) {
    conf.tls.*field = value;
    return std::nullopt;
}

struct Key {
    std::string_view name;
    Accept accept;  ///< nullptr: a key of torchrun that has no effect here.
    bool of_etcd = false;
};

constexpr std::array keys{
    Key{"join_timeout", [](auto value, auto& conf) { return positive_seconds(value, conf.join_timeout); }},
    Key{"last_call_timeout", [](auto value, auto& conf) { return positive_seconds(value, conf.last_call); }},
    Key{"timeout", [](auto value, auto& conf) { return positive_seconds(value, conf.timeout); }},
    Key{"keep_alive_interval",
        [](auto value, auto& conf) { return positive_seconds(value, conf.keep_alive_interval); }},
    Key{"keep_alive_max_attempt",
        [](auto value, auto& conf) {
            return read_into(whole_number(value, 1, 1'000), conf.keep_alive_attempts, "a whole number from 1 to 1000");
        }},
    Key{"is_host",
        [](auto value, auto& conf) { return read_into(truth(value), conf.is_host, "1, true, yes or 0, false, no"); }},
    Key{"store_type",
        [](auto value, auto&) -> std::optional<std::string> {
            if (value != "tcp") return "tcp (a file as store is not supported)";
            return std::nullopt;
        }},
    Key{"protocol",
        [](auto value, auto& conf) -> std::optional<std::string> {
            conf.protocol = value;
            if (value != "http" && value != "https") return "http or https";
            return std::nullopt;
        },
        true},
    Key{"cacert", file<&rendezvous::TlsFiles::ca>, true},
    Key{"ca_cert", file<&rendezvous::TlsFiles::ca>, true},
    Key{"cert", file<&rendezvous::TlsFiles::certificate>, true},
    Key{"ssl_cert", file<&rendezvous::TlsFiles::certificate>, true},
    Key{"key", file<&rendezvous::TlsFiles::key>, true},
    Key{"ssl_cert_key", file<&rendezvous::TlsFiles::key>, true},
    Key{"etcd_prefix",
        [](auto value, auto& conf) -> std::optional<std::string> {
            conf.etcd_prefix = value;
            return std::nullopt;
        },
        true},
    Key{"daemon_port",
        [](auto value, auto& conf) {
            return read_into(parse_port_range(value), conf.daemon_ports, "a port P, or a range P-Q");
        },
        true},
    Key{"close_timeout", nullptr},      // the end of a job is answered at once, not published
    Key{"heartbeat_timeout", nullptr},  // heartbeats are messages, not writes that block
    Key{"read_timeout", nullptr},       // connecting is part of join_timeout
    Key{"rank", nullptr},               // static fills it from --node-rank
    Key{"use_libuv", nullptr},          // there is one server
};

Error refuse(std::string text) {
    return {Errc::invalid_argument, std::move(text)};
}

Error unknown_key(std::string_view name) {
    std::vector<std::string> names;
    for (const auto& key : keys) names.emplace_back(key.name);
    const auto near = nearest(name, names);
    return refuse(cat("unknown key '", name, "'", near.empty() ? "" : cat(", nearest is '", near, "'"),
                      "; accepted are ", join(names, ", ")));
}

}  // namespace

Result<RendezvousConf> parse_rendezvous_conf(std::string_view text) {
    RendezvousConf conf;
    text = trim(text);
    // Quotes from a YAML list or another program, which no shell has removed.
    const bool is_quoted =
        text.size() > 1 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
    if (is_quoted) text = text.substr(1, text.size() - 2);
    if (trim(text).empty()) return conf;
    for (const auto piece : split(text, ',')) {
        const auto equals = piece.find('=');
        const auto name = trim(piece.substr(0, equals));
        const auto value = equals == std::string_view::npos ? std::string_view{} : trim(piece.substr(equals + 1));
        if (name.empty()) return refuse(cat("'", piece, "' has no key; accepted is key=value,key=value"));
        if (value.empty()) return refuse(cat("key '", name, "' has no value; accepted is key=value,key=value"));
        const auto* const found = std::ranges::find(keys, name, &Key::name);
        if (found == keys.end()) return unknown_key(name);
        if (found->of_etcd && conf.first_of_etcd.empty()) conf.first_of_etcd = name;
        if (found->accept == nullptr) continue;
        if (const auto accepted = found->accept(value, conf))
            return refuse(cat("key '", name, "' has the value '", value, "'; accepted is ", *accepted));
    }
    return conf;
}

}  // namespace muster::launcher
