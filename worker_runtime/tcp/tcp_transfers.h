// A plan that moves memory between some ranks; all other ranks only agree on the operation.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "muster/operation.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_pieces.h"
#include "worker_runtime/tcp/tcp_slices.h"

namespace muster::runtime {

class Transfers final : public CollectivePlan {
  public:
    Transfers() = default;
    /// The parts of `operation`'s buffers.
    Transfers(const Operation& operation, const Parts& parts, int rank) {
        const std::size_t element = size_of(operation.type);
        const auto at = [&](const void* base, std::size_t offset) {
            return static_cast<std::byte*>(const_cast<void*>(base)) + offset * element;
        };
        for (int peer = 0; peer < static_cast<int>(parts.sent.size()); ++peer) {
            const Part& sent = parts.sent[static_cast<std::size_t>(peer)];
            const Part& expected = parts.expected[static_cast<std::size_t>(peer)];
            if (peer == rank) {
                if (sent.count > 0)
                    own_ = {at(operation.output, expected.offset), at(operation.input, sent.offset),
                            sent.count * element};
                continue;
            }
            if (sent.count > 0) send(peer, at(operation.input, sent.offset), sent.count * element);
            if (expected.count > 0) receive(peer, at(operation.output, expected.offset), expected.count * element);
        }
    }

    void send(int to, void* data, std::size_t bytes) { sends_.push_back({to, cut_of(data, bytes)}); }
    void receive(int from, void* data, std::size_t bytes) { receives_.push_back({from, cut_of(data, bytes)}); }

    void begin(TcpLanes& lanes) override {
        for (const auto& one : sends_) lanes.send(one.peer, 0, one.cut);
        for (const auto& one : receives_) lanes.receive(one.peer, 0, one.cut);
    }
    void agreed(TcpLanes& /*lanes*/) override {
        if (own_.size_bytes > 0 && own_.to != own_.from) std::memcpy(own_.to, own_.from, own_.size_bytes);
    }

  private:
    struct One {
        int peer;
        Cut cut;
    };
    /// From this rank to itself.
    struct Own {
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        std::size_t size_bytes = 0;
    };
    static Cut cut_of(void* data, std::size_t bytes) {
        return {.base = static_cast<std::byte*>(data), .size_bytes = bytes, .piece_bytes = piece_bytes_for(bytes)};
    }
    std::vector<One> sends_;
    std::vector<One> receives_;
    Own own_;
};

}  // namespace muster::runtime
