#include "rendezvous/state/etcd/etcd_place.h"

#include "rendezvous/base/system/private_file.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

Result<EtcdPlace> parse_etcd_place(std::string_view text) {
    EtcdPlace place;
    const auto slash = text.find('/');
    if (slash != std::string_view::npos && slash + 1 < text.size()) {
        place.prefix = text.substr(slash + 1);
        if (place.prefix.back() != '/') place.prefix += '/';
    }
    for (const auto part : split(text.substr(0, slash), ',')) {
        auto member = parse_endpoint(part, etcd_port);
        if (!member) return with_context(member.error(), "etcd://");
        place.members.push_back(*std::move(member));
    }
    return place;
}

Result<std::optional<TlsFiles>> tls_files(std::string_view protocol, TlsFiles given) {
    const auto wrong = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
    if (protocol != "http" && protocol != "https")
        return wrong(cat("protocol is '", protocol, "'; accepted are http and https"));
    if (protocol == "http") {
        if (!given.ca.empty() || !given.certificate.empty() || !given.key.empty())
            return wrong("cacert, cert and key have no effect with protocol http; use https");
        return std::optional<TlsFiles>{};
    }
    if (given.certificate.empty() != given.key.empty())
        return wrong("cert and key go together: a client certificate and its key");
    return std::optional(std::move(given));
}

Result<EtcdLogin> read_etcd_login(const std::string& path) {
    if (path.empty()) return EtcdLogin{};
    const auto text = MUSTER_TRY(read_private_file(path, "etcd's login file", "write USER:PASSWORD into it"));
    const auto colon = text.find(':');
    if (colon == 0 || colon == std::string::npos || colon + 1 == text.size())
        return Error{Errc::invalid_argument, cat("etcd's login file ", path, " does not hold USER:PASSWORD")};
    // The request is JSON, which can hold nothing else.
    if (!is_utf8(text))
        return Error{Errc::invalid_argument,
                     cat("etcd's login file ", path, " is not in UTF-8; write USER:PASSWORD into it again in UTF-8")};
    return EtcdLogin{text.substr(0, colon), text.substr(colon + 1)};
}

std::string prefix_for(std::string prefix, std::string_view name) {
    if (!prefix.ends_with('/')) prefix += '/';
    for (const char c : name) {
        if (c == '/')
            prefix += "%2F";
        else if (c == '%')
            prefix += "%25";
        else
            prefix += c;
    }
    return prefix + '/';
}

}  // namespace muster::rendezvous
