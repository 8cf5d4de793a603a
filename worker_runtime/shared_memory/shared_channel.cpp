#include "worker_runtime/shared_memory/shared_channel.h"

#include <string.h>

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

Result<void> SharedChannel::send(const Operation& operation, const RunTerms& terms) {
    ChannelLine& line = group_.channel(from_, to_);
    const std::size_t total = operation.count * size_of(operation.type);
    const std::size_t payload_max = payload_bytes_max();
    const auto* const data = static_cast<const std::byte*>(operation.input);
    std::size_t done = 0;
    do {
        if (slots_ >= channel_slot_count) {
            const auto room = slots_ - channel_slot_count + 1;
            if (auto come = group_.await_message(to_, line.emptied, room, operation, terms); !come) return come;
        }
        const std::size_t bytes = std::min(payload_max, total - done);
        const SlotHead head{.message_bytes = total,
                            .message_count = operation.count,
                            .slot_bytes = static_cast<std::uint32_t>(bytes),
                            .tag = operation.tag,
                            .type = operation.type};
        std::byte* const slot = group_.channel_slot(from_, to_, slots_);
        ::memcpy(slot, &head, sizeof head);
        if (bytes > 0) ::memcpy(slot + sizeof head, data + done, bytes);
        if (!publish_step(line.filled)) return group_.failure();
        ++slots_;
        done += bytes;
    } while (done < total);
    return {};
}

Result<void> SharedChannel::receive(const Operation& operation, const RunTerms& terms) {
    ChannelLine& line = group_.channel(from_, to_);
    const std::size_t total = operation.count * size_of(operation.type);
    const std::size_t payload_max = payload_bytes_max();
    auto* const data = static_cast<std::byte*>(operation.output);
    std::size_t done = 0;
    do {
        if (auto come = group_.await_message(from_, line.filled, slots_ + 1, operation, terms); !come) return come;
        const std::byte* const slot = group_.channel_slot(from_, to_, slots_);
        SlotHead head;
        ::memcpy(&head, slot, sizeof head);
        if (!is_data_type(static_cast<int>(head.type)))
            return group_.corrupted(from_, "an element type that is none, in a message's slot,");
        if (head.message_bytes != total || head.type != operation.type || head.tag != operation.tag) {
            const auto tagged = [](std::uint32_t tag) { return tag != 0 ? cat(" tagged ", tag) : ""; };
            return group_.fail(Errc::invalid_argument,
                               cat(group_.who(from_), " sent ", name(head.type), " x ", head.message_count,
                                   tagged(head.tag), " to ", group_.who(to_), ", which receives ", name(operation.type),
                                   " x ", operation.count, tagged(operation.tag)));
        }
        const std::size_t bytes = std::min(payload_max, total - done);
        if (head.slot_bytes != bytes)
            return group_.corrupted(from_,
                                    cat(head.slot_bytes, " bytes in a message's slot, where ", bytes, " belong,"));
        if (bytes > 0) ::memcpy(data + done, slot + sizeof head, bytes);
        // What has come stays received, whatever became of the group since: who waits for room finds that out itself.
        (void)publish_step(line.emptied);
        ++slots_;
        done += bytes;
    } while (done < total);
    return {};
}

}  // namespace muster::runtime
