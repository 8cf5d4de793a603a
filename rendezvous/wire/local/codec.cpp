#include "rendezvous/wire/local/codec.h"

#include <algorithm>
#include <concepts>
#include <type_traits>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::local {

namespace {

/// The type of each message on the wire, and its name.
struct Kind {
    std::uint8_t type;
    std::string_view name;
};
constexpr std::uint8_t first_agent_type = 64;

struct KindOf {
    constexpr Kind operator()(const Hello&) const { return {1, "Hello"}; }
    constexpr Kind operator()(const Progress&) const { return {2, "Progress"}; }
    constexpr Kind operator()(const Section&) const { return {3, "Section"}; }
    constexpr Kind operator()(const Heartbeat&) const { return {4, "Heartbeat"}; }
    constexpr Kind operator()(const Give&) const { return {5, "Give"}; }
    constexpr Kind operator()(const AskRanksKey&) const { return {6, "AskRanksKey"}; }
    constexpr Kind operator()(const CanKeep&) const { return {7, "CanKeep"}; }
    constexpr Kind operator()(const Held&) const { return {8, "Held"}; }
    constexpr Kind operator()(const Steps&) const { return {9, "Steps"}; }
    constexpr Kind operator()(const RoundEnded&) const { return {65, "RoundEnded"}; }
    constexpr Kind operator()(const Notice&) const { return {66, "Notice"}; }
    constexpr Kind operator()(const Offer&) const { return {67, "Offer"}; }
    constexpr Kind operator()(const RanksKey&) const { return {68, "RanksKey"}; }
    constexpr Kind operator()(const Hold&) const { return {69, "Hold"}; }
    constexpr Kind operator()(const Resumed&) const { return {70, "Resumed"}; }
};

template <class M, class... T>
concept OneOf = (std::same_as<std::remove_const_t<M>, T> || ...);

// The fields of each message in their order, for Writer and Reader alike, so that the two cannot disagree.

void fields(auto& v, OneOf<Hello> auto& m) {
    v.number(m.version);
    v.number(m.pid);
    v.text(m.runtime, name_bytes_max);
    if (m.version > 1 || !v.at_end()) v.text(m.token, name_bytes_max);
    if (m.version > protocol_version) v.skip_rest();
}
void fields(auto& v, OneOf<Progress> auto& m) {
    v.number(m.step);
}
void fields(auto& v, OneOf<Section> auto& m) {
    v.text(m.name, name_bytes_max);
    v.number(m.limit_ms);
}
void fields(auto& /*v*/, OneOf<Heartbeat, Held, Steps> auto& /*m*/) {}
void fields(auto& v, OneOf<Give> auto& m) {
    v.kind(m.kind);
    v.number(m.size_bytes);
    v.number(m.step);
    if (m.kind == HandoverKind::copy) v.number(m.rank);
    v.path(m.directory);
}
void fields(auto& v, OneOf<AskRanksKey> auto& m) {
    v.text(m.token, name_bytes_max);
}
void fields(auto& v, OneOf<CanKeep> auto& m) {
    v.flag(m.can);
}
void fields(auto& v, OneOf<Offer> auto& m) {
    v.kind(m.kind);
    v.number(m.size_bytes);
}
void fields(auto& v, OneOf<RanksKey> auto& m) {
    v.key(m.key);
}
void fields(auto& v, OneOf<RoundEnded> auto& m) {
    v.text(m.why, sentence_bytes_max);
}
void fields(auto& v, OneOf<Notice> auto& m) {
    v.number(m.step);
    v.text(m.why, sentence_bytes_max);
}
void fields(auto& v, OneOf<Hold> auto& m) {
    v.number(m.limit_ms);
    v.text(m.why, sentence_bytes_max);
}
void fields(auto& v, OneOf<Resumed> auto& m) {
    v.variables(m.variables);
}

struct Writer {
    ByteWriter out;

    void number(auto value) { out.number(value); }
    void flag(bool value) { out.number(std::uint8_t{value}); }
    void kind(HandoverKind value) { out.number(static_cast<std::uint8_t>(value)); }
    void text(std::string_view value, std::size_t bytes_max) { out.blob<std::uint16_t>(value.substr(0, bytes_max)); }
    /// Half a path would be another one.
    void path(std::string_view value) { text(value.size() <= path_bytes_max ? value : "", path_bytes_max); }
    void key(std::string_view value) { out.raw(value); }
    void variables(const std::vector<std::string>& values) {
        const auto count = std::min(values.size(), variables_max);
        out.number(static_cast<std::uint8_t>(count));
        for (std::size_t i = 0; i < count; ++i) text(values[i], variable_bytes_max);
    }
    static bool at_end() { return false; }
    static void skip_rest() {}
};

struct Reader {
    ByteReader in;

    template <std::integral T>
    void number(T& value) {
        value = in.number<T>();
    }
    void flag(bool& value) { value = byte(1) == 1; }
    void kind(HandoverKind& value) {
        value = static_cast<HandoverKind>(byte(static_cast<std::uint8_t>(HandoverKind::copy)));
    }
    void text(std::string& value, std::size_t bytes_max) { value = in.blob<std::uint16_t>(bytes_max); }
    void path(std::string& value) { text(value, path_bytes_max); }
    void key(std::string& value) { value = in.raw(ranks_key_bytes); }
    void variables(std::vector<std::string>& values) {
        values.resize(byte(variables_max));
        for (auto& value : values) text(value, variable_bytes_max);
    }
    [[nodiscard]] bool at_end() const { return in.finished(); }
    void skip_rest() { in.raw(in.remaining()); }

    /// 0 where it is larger than `max`.
    std::uint8_t byte(std::uint8_t max) {
        const auto value = in.number<std::uint8_t>();
        if (value > max) in.fail();
        return in.ok() ? value : 0;
    }
};

/// False where no message has this type.
template <class... M>
bool read(std::uint8_t type, std::variant<M...>& message, Reader& in) {
    return ((KindOf()(M()).type == type && (fields(in, message.template emplace<M>()), true)) || ...);
}

}  // namespace

std::string encode(const Message& message) {
    std::string bytes;
    Writer out{ByteWriter(bytes)};
    out.number(std::visit(KindOf(), message).type);
    std::visit([&](const auto& m) { fields(out, m); }, message);
    return bytes;
}

Result<Message> decode(std::string_view datagram, Sender sender) {
    if (datagram.size() > datagram_bytes_max)
        return Error{Errc::bad_frame, cat("a datagram of ", datagram.size(), " bytes on the agent-worker channel")};
    Reader in{ByteReader(datagram)};
    std::uint8_t type = 0;
    in.number(type);
    if (!in.in.ok() || (type >= first_agent_type) != (sender == Sender::agent))
        return Error{Errc::bad_frame,
                     cat("type ", type, " on the agent-worker channel, from the wrong side or from none")};
    Message message;
    if (!read(type, message, in))
        return Error{Errc::unsupported, cat("type ", type, " on the agent-worker channel is not known here")};
    if (!in.at_end()) return Error{Errc::bad_frame, cat("a damaged ", name(message), " on the agent-worker channel")};
    return message;
}

std::string_view name(const Message& message) {
    return std::visit(KindOf(), message).name;
}

}  // namespace muster::local
