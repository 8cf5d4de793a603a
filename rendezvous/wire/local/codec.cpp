#include "rendezvous/wire/local/codec.h"

#include <algorithm>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::local {

namespace {

enum class Type : std::uint8_t {
    hello = 1,
    progress = 2,
    section = 3,
    heartbeat = 4,
    give = 5,
    ask_ranks_key = 6,
    can_keep = 7,
    held = 8,
    steps = 9,
    round_ended = 65,
    notice = 66,
    offer = 67,
    ranks_key = 68,
    hold = 69,
    resumed = 70,
};
constexpr std::uint8_t first_agent_type = 64;

void put(ByteWriter& out, Type type) {
    out.number(static_cast<std::uint8_t>(type));
}

void put_text(ByteWriter& out, std::string_view text, std::size_t bytes_max) {
    out.blob<std::uint16_t>(text.substr(0, bytes_max));
}

struct Encoder {
    ByteWriter& out;

    void operator()(const Hello& m) const {
        put(out, Type::hello);
        out.number(m.version);
        out.number(m.pid);
        put_text(out, m.runtime, name_bytes_max);
        put_text(out, m.token, name_bytes_max);
    }
    void operator()(const Progress& m) const {
        put(out, Type::progress);
        out.number(m.step);
    }
    void operator()(const Section& m) const {
        put(out, Type::section);
        put_text(out, m.name, name_bytes_max);
        out.number(m.limit_ms);
    }
    void operator()(const Heartbeat&) const { put(out, Type::heartbeat); }
    void operator()(const Give& m) const {
        put(out, Type::give);
        put_handover(m);
        out.number(m.step);
        if (m.kind == HandoverKind::copy) out.number(m.rank);
        // Half a path would be another one.
        put_text(out, m.directory.size() <= path_bytes_max ? m.directory : std::string(), path_bytes_max);
    }
    void operator()(const AskRanksKey& m) const {
        put(out, Type::ask_ranks_key);
        put_text(out, m.token, name_bytes_max);
    }
    void operator()(const CanKeep& m) const {
        put(out, Type::can_keep);
        out.number(static_cast<std::uint8_t>(m.can));
    }
    void operator()(const Held&) const { put(out, Type::held); }
    void operator()(const Steps&) const { put(out, Type::steps); }
    void operator()(const Offer& m) const {
        put(out, Type::offer);
        put_handover(m);
    }
    void operator()(const RanksKey& m) const {
        put(out, Type::ranks_key);
        out.raw(m.key);
    }
    void put_handover(const auto& m) const {
        out.number(static_cast<std::uint8_t>(m.kind));
        out.number(m.size_bytes);
    }
    void operator()(const RoundEnded& m) const {
        put(out, Type::round_ended);
        put_text(out, m.why, sentence_bytes_max);
    }
    void operator()(const Notice& m) const {
        put(out, Type::notice);
        out.number(m.step);
        put_text(out, m.why, sentence_bytes_max);
    }
    void operator()(const Hold& m) const {
        put(out, Type::hold);
        out.number(m.limit_ms);
        put_text(out, m.why, sentence_bytes_max);
    }
    void operator()(const Resumed& m) const {
        put(out, Type::resumed);
        const auto count = std::min(m.variables.size(), variables_max);
        out.number(static_cast<std::uint8_t>(count));
        for (std::size_t i = 0; i < count; ++i) put_text(out, m.variables[i], variable_bytes_max);
    }
};

std::string take_text(ByteReader& in, std::size_t bytes_max) {
    return std::string(in.blob<std::uint16_t>(bytes_max));
}

Hello take_hello(ByteReader& in) {
    Hello m;
    m.version = in.number<std::uint32_t>();
    m.pid = in.number<std::int32_t>();
    m.runtime = take_text(in, name_bytes_max);
    const bool has_token = m.version > 1 || !in.finished();
    if (has_token) m.token = take_text(in, name_bytes_max);
    if (m.version > protocol_version) in.raw(in.remaining());
    return m;
}

CanKeep take_can_keep(ByteReader& in) {
    const auto can = in.number<std::uint8_t>();
    if (can > 1) in.fail();
    return {can == 1};
}

Hold take_hold(ByteReader& in) {
    Hold m;
    m.limit_ms = in.number<std::uint64_t>();
    m.why = take_text(in, sentence_bytes_max);
    return m;
}

Resumed take_resumed(ByteReader& in) {
    Resumed m;
    const auto count = in.number<std::uint8_t>();
    if (count > variables_max) in.fail();
    for (std::size_t i = 0; in.ok() && i < count; ++i) m.variables.push_back(take_text(in, variable_bytes_max));
    return m;
}

Section take_section(ByteReader& in) {
    Section m;
    m.name = take_text(in, name_bytes_max);
    m.limit_ms = in.number<std::uint64_t>();
    return m;
}

/// What Give and Offer begin with.
template <class MemoryHandover>
MemoryHandover take_handover(ByteReader& in) {
    MemoryHandover m;
    const auto kind = in.number<std::uint8_t>();
    if (kind > static_cast<std::uint8_t>(HandoverKind::copy))
        in.fail();
    else
        m.kind = static_cast<HandoverKind>(kind);
    m.size_bytes = in.number<std::uint64_t>();
    return m;
}

Give take_give(ByteReader& in) {
    auto m = take_handover<Give>(in);
    m.step = in.number<std::int64_t>();
    if (m.kind == HandoverKind::copy) m.rank = in.number<std::int32_t>();
    m.directory = take_text(in, path_bytes_max);
    return m;
}

Notice take_notice(ByteReader& in) {
    Notice m;
    m.step = in.number<std::int64_t>();
    m.why = take_text(in, sentence_bytes_max);
    return m;
}

}  // namespace

std::string encode(const Message& message) {
    std::string bytes;
    ByteWriter out(bytes);
    std::visit(Encoder{out}, message);
    return bytes;
}

Result<Message> decode(std::string_view datagram, Sender sender) {
    if (datagram.size() > datagram_bytes_max)
        return Error{Errc::bad_frame, cat("a datagram of ", datagram.size(), " bytes on the agent-worker channel")};
    ByteReader in(datagram);
    const auto type = in.number<std::uint8_t>();
    if (!in.ok() || (type >= first_agent_type) != (sender == Sender::agent))
        return Error{Errc::bad_frame,
                     cat("type ", type, " on the agent-worker channel, from the wrong side or from none")};
    Message message;
    switch (static_cast<Type>(type)) {
        case Type::hello: message = take_hello(in); break;
        case Type::progress: message = Progress{in.number<std::int64_t>()}; break;
        case Type::section: message = take_section(in); break;
        case Type::heartbeat: message = Heartbeat{}; break;
        case Type::give: message = take_give(in); break;
        case Type::ask_ranks_key: message = AskRanksKey{take_text(in, name_bytes_max)}; break;
        case Type::can_keep: message = take_can_keep(in); break;
        case Type::held: message = Held{}; break;
        case Type::steps: message = Steps{}; break;
        case Type::round_ended: message = RoundEnded{take_text(in, sentence_bytes_max)}; break;
        case Type::notice: message = take_notice(in); break;
        case Type::offer: message = take_handover<Offer>(in); break;
        case Type::hold: message = take_hold(in); break;
        case Type::resumed: message = take_resumed(in); break;
        case Type::ranks_key: message = RanksKey{std::string(in.raw(ranks_key_bytes))}; break;
        default: return Error{Errc::unsupported, cat("type ", type, " on the agent-worker channel is not known here")};
    }
    if (!in.finished()) return Error{Errc::bad_frame, cat("a damaged ", name(message), " on the agent-worker channel")};
    return message;
}

std::string_view name(const Message& message) {
    struct Name {
        std::string_view operator()(const Hello&) const { return "Hello"; }
        std::string_view operator()(const Progress&) const { return "Progress"; }
        std::string_view operator()(const Section&) const { return "Section"; }
        std::string_view operator()(const Heartbeat&) const { return "Heartbeat"; }
        std::string_view operator()(const Give&) const { return "Give"; }
        std::string_view operator()(const AskRanksKey&) const { return "AskRanksKey"; }
        std::string_view operator()(const CanKeep&) const { return "CanKeep"; }
        std::string_view operator()(const Held&) const { return "Held"; }
        std::string_view operator()(const Steps&) const { return "Steps"; }
        std::string_view operator()(const Offer&) const { return "Offer"; }
        std::string_view operator()(const RanksKey&) const { return "RanksKey"; }
        std::string_view operator()(const RoundEnded&) const { return "RoundEnded"; }
        std::string_view operator()(const Notice&) const { return "Notice"; }
        std::string_view operator()(const Hold&) const { return "Hold"; }
        std::string_view operator()(const Resumed&) const { return "Resumed"; }
    };
    return std::visit(Name{}, message);
}

}  // namespace muster::local
