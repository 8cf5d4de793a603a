#include "rendezvous/wire/native/codec.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/field_codec.h"

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
    {0x22, Sender::peer, "PeerAnswer"},       {0x0B, Sender::agent, "Proof"},
    {0x0C, Sender::agent, "Command"},         {0x0D, Sender::agent, "FaultAnswer"},
    {0x0E, Sender::agent, "WorkersSeen"},     {0x0F, Sender::agent, "StandbysSeen"},
    {0x1A, Sender::daemon, "Challenge"},      {0x1B, Sender::daemon, "NoticeGiven"},
    {0x1C, Sender::daemon, "CommandAnswer"},  {0x1D, Sender::daemon, "NotLeader"},
    {0x1E, Sender::daemon, "FaultOrdered"},   {0x1F, Sender::daemon, "JobSeen"},
    {0x20, Sender::daemon, "StateStalled"},
}};

/// A reader keeps no larger buffer between messages: nobody charges for it then.
constexpr std::size_t kept_buffer_bytes = 1024;

constexpr std::size_t frame_bytes_max(Sender sender) {
    switch (sender) {
        case Sender::agent: return agent_frame_bytes_max;
        case Sender::daemon: return daemon_frame_bytes_max;
        case Sender::peer: return peer_frame_bytes_max;
    }
    return 0;
}

template <std::size_t... I>
std::optional<Message> decode(std::size_t kind, std::string_view payload, std::index_sequence<I...>) {
    std::optional<Message> message(std::in_place);
    Decoder decoder(payload);
    ((I == kind ? decoder(message->emplace<I>()) : void()), ...);
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
    std::visit([&](const auto& chosen) { encoder(chosen); }, message);
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
    if (taken_ == buffer_.size() && buffer_.capacity() > kept_buffer_bytes) {
        std::string().swap(buffer_);
        taken_ = 0;
    } else if (taken_ == buffer_.size() || taken_ >= agent_frame_bytes_max) {
        buffer_.erase(0, taken_);
        taken_ = 0;
    }
    return message;
}

std::string_view name(const Message& message) {
    return kinds[message.index()].name;
}

}  // namespace muster::native
