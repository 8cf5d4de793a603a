#include "agent/process/guardian_wire.h"

#include <algorithm>

#include "rendezvous/base/text/bytes.h"

namespace muster::agent::guardian_wire {

namespace {

constexpr std::uint8_t end_exited = 0;
constexpr std::uint8_t end_signaled = 1;
constexpr std::uint8_t end_not_started = 2;

struct WriteEnd {
    ByteWriter& out;
    void operator()(const Exited& end) const {
        out.number(end_exited);
        out.number(end.code);
    }
    void operator()(const Signaled& end) const {
        out.number(end_signaled);
        out.number(end.signal);
        out.number(static_cast<std::uint8_t>(end.core_dumped));
    }
    void operator()(const NotStarted& end) const {
        out.number(end_not_started);
        out.number(end.error_number);
        out.blob<std::uint32_t>(std::string_view(end.stage).substr(0, stage_max_bytes));
    }
};

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

bool read_flag(ByteReader& in) {
    const auto value = in.number<std::uint8_t>();
    if (value > 1) in.fail();
    return value == 1;
}

WorkerEnd read_end(ByteReader& in) {
    switch (in.number<std::uint8_t>()) {
        case end_exited: return Exited{in.number<std::int32_t>()};
        case end_signaled: {
            Signaled end{.signal = in.number<std::int32_t>()};
            end.core_dumped = read_flag(in);
            return end;
        }
        case end_not_started: {
            NotStarted end;
            end.error_number = in.number<std::int32_t>();
            end.stage = in.blob<std::uint32_t>(stage_max_bytes);
            return end;
        }
        default: in.fail(); return {};
    }
}

struct Write {
    ByteWriter& out;
    void operator()(const Spawn& spawn) const {
        out.number(spawn.id);
        out.number(static_cast<std::uint8_t>(spawn.has_stdout));
        out.number(static_cast<std::uint8_t>(spawn.has_stderr));
        out.number(static_cast<std::uint8_t>(spawn.stands_by));
        out.number(spawn.standby);
    }
    void operator()(const Signal& signal) const { out.number(signal.signal); }
    void operator()(const SignalGroup& signal) const {
        out.number(signal.id);
        out.number(signal.signal);
    }
    void operator()(const Kill& kill) const { out.number(kill.number); }
    void operator()(const Feed&) const {}
    void operator()(const DeathNotice& notice) const { out.blob<std::uint32_t>(notice.bytes); }
    void operator()(const Quit&) const {}
    void operator()(const ForkReserve&) const {}
    void operator()(const Serve& serve) const { out.blob<std::uint32_t>(serve.cgroup); }
    void operator()(const Spawned& spawned) const {
        out.number(spawned.id);
        out.number(spawned.pid);
        out.number(static_cast<std::uint8_t>(spawned.from_standby));
    }
    void operator()(const Ended& ended) const {
        out.number(ended.id);
        out.number(ended.pid);
        std::visit(WriteEnd{out}, ended.end);
        out.number(ended.at_ns);
        out.number(static_cast<std::uint8_t>(ended.unfed));
        out.number(static_cast<std::uint8_t>(ended.group_left));
    }
    void operator()(const GroupEmptied& emptied) const { out.number(emptied.id); }
    void operator()(const Emptied& emptied) const { out.number(emptied.number); }
    void operator()(const Stuck& stuck) const {
        const auto count = std::min(stuck.pids.size(), stuck_max_count);
        out.number(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) out.number(stuck.pids[i]);
    }
    void operator()(const ReserveForked& begotten) const {
        out.number(begotten.pid);
        out.number(begotten.error_number);
    }
    void operator()(const Folder& folder) const { out.blob<std::uint32_t>(folder.path); }
    void operator()(const FollowUp& follow_up) const {
        out.number(follow_up.signal);
        out.number(follow_up.idle_ns);
        out.number(follow_up.busy_ns);
    }
    void operator()(const EndStandby& end) const { out.number(end.id); }
    void operator()(const StandbyReady& ready) const {
        out.number(ready.id);
        out.number(static_cast<std::uint8_t>(ready.of_own_slot));
    }
    void operator()(const Keep& keep) const {
        const auto count = std::min(keep.ids.size(), kept_max_count);
        out.number(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) out.number(keep.ids[i]);
    }
};

Message read_spawn(ByteReader& in) {
    Spawn spawn{.id = in.number<std::uint64_t>()};
    spawn.has_stdout = read_flag(in);
    spawn.has_stderr = read_flag(in);
    spawn.stands_by = read_flag(in);
    spawn.standby = in.number<std::uint64_t>();
    return spawn;
}

Message read_signal_group(ByteReader& in) {
    SignalGroup signal{.id = in.number<std::uint64_t>()};
    signal.signal = in.number<std::int32_t>();
    return signal;
}

Message read_ended(ByteReader& in) {
    Ended ended;
    ended.id = in.number<std::uint64_t>();
    ended.pid = in.number<std::int32_t>();
    ended.end = read_end(in);
    ended.at_ns = in.number<std::int64_t>();
    ended.unfed = read_flag(in);
    ended.group_left = read_flag(in);
    return ended;
}

Message read_standby_ready(ByteReader& in) {
    StandbyReady ready{.id = in.number<std::uint64_t>()};
    ready.of_own_slot = read_flag(in);
    return ready;
}

Message read_spawned(ByteReader& in) {
    Spawned spawned{.id = in.number<std::uint64_t>()};
    spawned.pid = in.number<std::int32_t>();
    spawned.from_standby = read_flag(in);
    return spawned;
}

Message read_stuck(ByteReader& in) {
    const auto count = in.number<std::uint32_t>();
    if (count > stuck_max_count) in.fail();
    Stuck stuck;
    for (std::uint32_t i = 0; in.ok() && i < count; ++i) stuck.pids.push_back(in.number<std::int32_t>());
    return stuck;
}

Message read_keep(ByteReader& in) {
    const auto count = in.number<std::uint32_t>();
    if (count > kept_max_count) in.fail();
    Keep keep;
    for (std::uint32_t i = 0; in.ok() && i < count; ++i) keep.ids.push_back(in.number<std::uint64_t>());
    return keep;
}

Message read_reserve_forked(ByteReader& in) {
    ReserveForked begotten{.pid = in.number<std::int32_t>()};
    begotten.error_number = in.number<std::int32_t>();
    return begotten;
}

Message read_follow_up(ByteReader& in) {
    FollowUp follow_up{.signal = in.number<std::int32_t>()};
    follow_up.idle_ns = in.number<std::int64_t>();
    follow_up.busy_ns = in.number<std::int64_t>();
    return follow_up;
}

Message read(ByteReader& in) {
    switch (in.number<std::uint8_t>()) {
        case 0: return read_spawn(in);
        case 1: return Signal{in.number<std::int32_t>()};
        case 2: return read_signal_group(in);
        case 3: return Kill{in.number<std::uint64_t>()};
        case 4: return Feed{};
        case 5: return DeathNotice{std::string(in.blob<std::uint32_t>(death_notice_max_bytes))};
        case 6: return Quit{};
        case 7: return ForkReserve{};
        case 8: return Serve{std::string(in.blob<std::uint32_t>(path_max_bytes))};
        case 9: return read_spawned(in);
        case 10: return read_ended(in);
        case 11: return GroupEmptied{in.number<std::uint64_t>()};
        case 12: return Emptied{in.number<std::uint64_t>()};
        case 13: return read_stuck(in);
        case 14: return read_reserve_forked(in);
        case 15: return Folder{std::string(in.blob<std::uint32_t>(path_max_bytes))};
        case 16: return read_follow_up(in);
        case 17: return EndStandby{in.number<std::uint64_t>()};
        case 18: return read_standby_ready(in);
        case 19: return read_keep(in);
        default: in.fail(); return Kill{};
    }
}

}  // namespace

std::string encode(const Message& message) {
    std::string datagram;
    ByteWriter out(datagram);
    out.number(static_cast<std::uint8_t>(message.index()));
    std::visit(Write{out}, message);
    return datagram;
}

std::optional<Message> decode(std::string_view datagram) {
    ByteReader in(datagram);
    auto message = read(in);
    if (!in.finished()) return std::nullopt;
    return message;
}

std::string image_bytes(const WorkerCommand& command) {
    std::string bytes;
    if (command.argv.empty() || command.argv[0].empty()) return bytes;
    for (const auto* numbers : {&command.cpus, &command.memory_nodes})
        if (std::any_of(numbers->begin(), numbers->end(), [](auto number) { return number >= cpus_max; })) return bytes;
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
