#include "agent/process/guardian_wire.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/wire/native/field_codec.h"

namespace muster::agent::guardian_wire {

// The fields that have limits, in their order, for both visitors (field_codec.h). Beside their types, where the
// visitors look for them.
static void fields(auto& v, native::Is<DeathNotice> auto& m) {
    v.bytes(m.bytes, death_notice_max_bytes);
}
static void fields(auto& v, native::Is<Serve> auto& m) {
    v.bytes(m.cgroup, path_max_bytes);
}
static void fields(auto& v, native::Is<Ended> auto& m) {
    v(m.id, m.pid, m.end, m.at_ns, m.unfed, m.group_left);
    v.bytes(m.stage, path_max_bytes);
}
static void fields(auto& v, native::Is<Stuck> auto& m) {
    v.list(m.pids, stuck_max_count);
}
static void fields(auto& v, native::Is<Folder> auto& m) {
    v.bytes(m.path, path_max_bytes);
}
static void fields(auto& v, native::Is<Keep> auto& m) {
    v.list(m.ids, kept_max_count);
}

namespace {

constexpr std::uint32_t word_bits = 64;
static_assert(sizeof(unsigned long) * 8 == word_bits);

std::vector<unsigned long> mask_of(const std::vector<std::uint32_t>& numbers) {
    std::vector<unsigned long> mask;
    for (const auto number : numbers) {
        const auto word = number / word_bits;
        if (mask.size() <= word) mask.resize(word + 1);
        mask[word] |= 1UL << (number % word_bits);
    }
    return mask;
}

void write_mask(ByteWriter& out, const std::vector<std::uint32_t>& numbers) {
    const auto mask = mask_of(numbers);
    out.number(static_cast<std::uint32_t>(mask.size()));
    for (const auto word : mask) out.number(std::uint64_t{word});
}

std::vector<unsigned long> read_mask(ByteReader& in) {
    const auto count = in.number<std::uint32_t>();
    if (count > cpus_max / word_bits) in.fail();
    std::vector<unsigned long> mask;
    for (std::uint32_t i = 0; in.ok() && i < count; ++i) mask.push_back(in.number<std::uint64_t>());
    return mask;
}

}  // namespace

std::string encode(const Message& message) {
    std::string datagram;
    native::Encoder encoder(datagram);
    const auto* ended = std::get_if<Ended>(&message);
    if (ended == nullptr || !std::holds_alternative<NotStarted>(ended->end)) {
        encoder(message);
        return datagram;
    }
    auto whole = *ended;
    whole.stage = std::exchange(std::get<NotStarted>(whole.end).stage, {});
    encoder(Message(std::move(whole)));
    return datagram;
}

std::optional<Message> decode(std::string_view datagram) {
    native::Decoder in(datagram);
    Message message;
    in(message);
    if (!in.accepted()) return std::nullopt;
    auto* ended = std::get_if<Ended>(&message);
    if (ended == nullptr) return message;
    auto* never = std::get_if<NotStarted>(&ended->end);
    if (never == nullptr ? !ended->stage.empty() : !never->stage.empty()) return std::nullopt;
    if (never != nullptr) never->stage = std::exchange(ended->stage, {});
    return message;
}

std::string image_bytes(const WorkerCommand& command) {
    std::string bytes;
    if (command.argv.empty() || command.argv[0].empty()) return bytes;
    for (const auto* numbers : {&command.cpus, &command.memory_nodes})
        if (std::ranges::any_of(*numbers, [](auto number) { return number >= cpus_max; })) return bytes;
    ByteWriter out(bytes);
    out.number(static_cast<std::uint32_t>(command.argv.size()));
    out.number(static_cast<std::uint32_t>(command.environment.size()));
    write_mask(out, command.cpus);
    write_mask(out, command.memory_nodes);
    out.number(static_cast<std::uint8_t>(command.ignored_signal));
    for (const auto* list : {&command.argv, &command.environment}) {
        for (const auto& text : *list) {
            if (text.find('\0') != std::string::npos || bytes.size() + text.size() >= image_max_bytes) return {};
            out.raw(text);
            out.number('\0');
        }
    }
    return bytes;
}

std::optional<Image> parse_image(std::string& bytes) {
    ByteReader head(bytes);
    const auto argument_count = head.number<std::uint32_t>();
    const auto variable_count = head.number<std::uint32_t>();
    Image image;
    image.cpu_mask = read_mask(head);
    image.node_mask = read_mask(head);
    image.ignored_signal = head.number<std::uint8_t>();
    if (!head.ok() || image.ignored_signal > signals_max || argument_count == 0) return std::nullopt;
    std::size_t at = bytes.size() - head.remaining();
    const auto take = [&](std::vector<char*>& list, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            const auto end = bytes.find('\0', at);
            if (end == std::string::npos) return false;
            list.push_back(bytes.data() + at);
            at = end + 1;
        }
        list.push_back(nullptr);
        return true;
    };
    if (!take(image.argv, argument_count) || !take(image.environment, variable_count)) return std::nullopt;
    if (at != bytes.size()) return std::nullopt;
    return image;
}

}  // namespace muster::agent::guardian_wire
