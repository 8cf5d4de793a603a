// The limits of a c10d request, each with its reason. The server's quotas (bytes, keys, connections) are in
// rendezvous/store/store_config.h: those depend on the machine, these belong to the protocol.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::c10d {

/// PyTorch's libuv server closes beyond it, so no client relies on more. It also makes the two protocol families tell
/// apart: a key length can never look like the handshake's magic number.
inline constexpr std::size_t key_bytes_max = 8 * 1024;

/// As the libuv server. Bounds what one half-sent request can make us hold.
inline constexpr std::size_t value_bytes_max = 8 * 1024 * 1024;

/// As the libuv server: the keys of one CHECK, WAIT, MULTI_GET or MULTI_SET.
inline constexpr std::uint64_t keys_per_request_max = 128 * 1024;

/// One whole request. Ours alone: the libuv server would take 131,072 values of 8 MiB in one MULTI_SET, a terabyte that
/// must be buffered before anything may take effect.
inline constexpr std::size_t request_bytes_max = 256 * 1024 * 1024;

}  // namespace muster::c10d
