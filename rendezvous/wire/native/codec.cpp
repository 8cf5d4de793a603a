#include "rendezvous/wire/native/codec.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "rendezvous/wire/native/fields.h"

namespace muster::native {

namespace {

// ---- one row per message: its type byte, who may send it, its name; in the order of the variant ----

struct Kind {
    std::uint8_t type;
    Sender sender;
    std::string_view name;
};

constexpr std::array<Kind, std::variant_size_v<Message>> kinds{{
    {0x01, Sender::agent, "Hello"},           {0x02, Sender::agent, "Join"},
    {0x03, Sender::agent, "Resume"},          {0x04, Sender::agent, "Ping"},
    {0x05, Sender::agent, "WorkersFailed"},   {0x06, Sender::agent, "WorkersSucceeded"},
    {0x07, Sender::agent, "RoundReport"},     {0x08, Sender::agent, "Leave"},
    {0x09, Sender::agent, "EndAcknowledged"}, {0x0A, Sender::agent, "AgentDied"},
    {0x11, Sender::daemon, "Pong"},           {0x12, Sender::daemon, "Gathering"},
    {0x13, Sender::daemon, "Assigned"},       {0x14, Sender::daemon, "Parked"},
    {0x15, Sender::daemon, "Peers"},          {0x16, Sender::daemon, "RoundEnded"},
    {0x17, Sender::daemon, "Drain"},          {0x18, Sender::daemon, "JobEnded"},
    {0x19, Sender::daemon, "Refused"},        {0x21, Sender::peer, "PeerAsk"},
    {0x22, Sender::peer, "PeerAnswer"},
}};

constexpr std::size_t frame_bytes_max(Sender sender) {
    switch (sender) {
        case Sender::agent: return agent_frame_bytes_max;
        case Sender::daemon: return daemon_frame_bytes_max;
        case Sender::peer: return peer_frame_bytes_max;
    }
    return 0;
}

class Encoder {
  public:
    explicit Encoder(std::string& out) : out_(out) {}

    void number(auto value) { out_.number(value); }
    void flag(bool value) { out_.number(std::uint8_t{value}); }
    template <class Enum>
    void choice(Enum value, Enum) {
        out_.number(static_cast<std::uint8_t>(value));
    }
    void text(std::string_view value, std::size_t max, Keep keep) {
        if (value.size() > max) value = keep == Keep::front ? value.substr(0, max) : value.substr(value.size() - max);
        out_.blob<std::uint32_t>(value);
    }
    void name(std::string_view value) {
        MUSTER_CHECK(value.size() <= name_bytes_max, value);
        out_.blob<std::uint32_t>(value);
    }
    void sentence(std::string_view value) { text(value, sentence_bytes_max, Keep::front); }
    void path(std::string_view value) { text(value, path_bytes_max, Keep::front); }
    void part(const auto& value) { fields(*this, value); }
    template <class T>
    void list(const std::vector<T>& values, std::size_t max) {
        each(values, max, [this](const T& value) { part(value); });
    }
    void names(const std::vector<std::string>& values, std::size_t max) {
        each(values, max, [this](const std::string& value) { name(value); });
    }
    void sentences(const std::vector<std::string>& values, std::size_t max) {
        each(values, max, [this](const std::string& value) { sentence(value); });
    }
    template <class T>
    void optional(const std::optional<T>& value) {
        flag(value.has_value());
        if (value) part(*value);
    }
    template <class... T>
    void either(const std::variant<T...>& value) {
        out_.number(static_cast<std::uint8_t>(value.index()));
        std::visit([this](const auto& chosen) { this->part(chosen); }, value);
    }
    void skip_rest() {}

  private:
    template <class T>
    void each(const std::vector<T>& values, std::size_t max, auto&& write) {
        const auto count = std::min(values.size(), max);
        out_.number(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) write(values[i]);
    }

    ByteWriter out_;
};

class Decoder {
  public:
    explicit Decoder(std::string_view payload) : in_(payload) {}

    /// Every byte was used, and each had an allowed value.
    [[nodiscard]] bool accepted() const { return in_.finished(); }

    template <std::integral T>
    void number(T& value) {
        value = in_.number<T>();
    }
    void flag(bool& value) {
        const auto byte = in_.number<std::uint8_t>();
        if (byte > 1) in_.fail();
        value = byte == 1;
    }
    template <class Enum>
    void choice(Enum& value, Enum last) {
        const auto byte = in_.number<std::uint8_t>();
        if (byte > static_cast<std::uint8_t>(last)) in_.fail();
        if (in_.ok()) value = static_cast<Enum>(byte);
    }
    void text(std::string& value, std::size_t max, Keep) { value = in_.blob<std::uint32_t>(max); }
    void name(std::string& value) { text(value, name_bytes_max, Keep::front); }
    void sentence(std::string& value) { text(value, sentence_bytes_max, Keep::front); }
    void path(std::string& value) { text(value, path_bytes_max, Keep::front); }
    void part(auto& value) { fields(*this, value); }
    template <class T>
    void list(std::vector<T>& values, std::size_t max) {
        each(values, max, [this](T& value) { part(value); });
    }
    void names(std::vector<std::string>& values, std::size_t max) {
        each(values, max, [this](std::string& value) { name(value); });
    }
    void sentences(std::vector<std::string>& values, std::size_t max) {
        each(values, max, [this](std::string& value) { sentence(value); });
    }
    template <class T>
    void optional(std::optional<T>& value) {
        bool present = false;
        flag(present);
        if (present && in_.ok()) part(value.emplace());
    }
    template <class... T>
    void either(std::variant<T...>& value) {
        const auto index = in_.number<std::uint8_t>();
        if (index >= sizeof...(T)) return in_.fail();
        std::uint8_t position = 0;
        ((position++ == index ? part(value.template emplace<T>()) : void()), ...);
    }
    void skip_rest() { in_.raw(in_.remaining()); }

  private:
    /// Grows with the bytes that are really there: a count alone reserves nothing, and each element is at least a byte.
    template <class T>
    void each(std::vector<T>& values, std::size_t max, auto&& read) {
        const auto count = in_.number<std::uint32_t>();
        if (count > max || count > in_.remaining()) in_.fail();
        for (std::uint32_t i = 0; i < count && in_.ok(); ++i) read(values.emplace_back());
    }

    ByteReader in_;
};

template <std::size_t... I>
std::optional<Message> decode(std::size_t kind, std::string_view payload, std::index_sequence<I...>) {
    std::optional<Message> message(std::in_place);
    Decoder decoder(payload);
    ((I == kind ? decoder.part(message->emplace<I>()) : void()), ...);
    if (!decoder.accepted()) message.reset();
    return message;
}

}  // namespace

void append_frame(std::string& out, const Message& message) {
    const auto& kind = kinds[message.index()];
    const auto start = out.size();
    ByteWriter header(out);
    header.number(frame_magic);
    header.number(kind.type);
    header.number(std::uint32_t{0});
    Encoder encoder(out);
    std::visit([&](const auto& chosen) { encoder.part(chosen); }, message);
    const auto length = out.size() - start - frame_header_bytes;
    MUSTER_CHECK(length <= frame_bytes_max(kind.sender), kind.name, length);
    const auto written = static_cast<std::uint32_t>(length);
    out.replace(start + 2, sizeof written, reinterpret_cast<const char*>(&written), sizeof written);
}

Error FrameReader::refuse(Errc code, std::string context) {
    buffer_.clear();
    taken_ = 0;
    failure_ = Error{code, std::move(context)};
    return *failure_;
}

Result<std::optional<Message>> FrameReader::next() {
    if (failure_) return *failure_;
    const auto rest = std::string_view(buffer_).substr(taken_);
    ByteReader header(rest);
    const auto magic = header.number<std::uint8_t>();
    if (header.ok() && magic != frame_magic) return refuse(Errc::bad_frame, "the bytes are not of muster's protocol");
    const auto type = header.number<std::uint8_t>();
    if (!header.ok()) return std::optional<Message>{};
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& row) { return row.type == type; });
    if (kind == kinds.end() || kind->sender != sender_)
        return refuse(Errc::bad_frame, cat("message type ", type, " is not expected from this side"));
    const auto length = header.number<std::uint32_t>();
    if (!header.ok()) return std::optional<Message>{};
    if (length > frame_bytes_max(sender_))
        return refuse(Errc::limit_exceeded,
                      cat(kind->name, " of ", length, " bytes; at most ", frame_bytes_max(sender_), " are allowed"));
    if (header.remaining() < length) return std::optional<Message>{};
    auto message = decode(static_cast<std::size_t>(kind - kinds.begin()), header.raw(length),
                          std::make_index_sequence<std::variant_size_v<Message>>{});
    if (!message) return refuse(Errc::bad_frame, cat("a damaged ", kind->name));
    taken_ += frame_header_bytes + length;
    if (taken_ == buffer_.size() || taken_ >= agent_frame_bytes_max) {
        buffer_.erase(0, taken_);
        taken_ = 0;
    }
    return message;
}

std::string_view name(const Message& message) {
    return kinds[message.index()].name;
}

}  // namespace muster::native
