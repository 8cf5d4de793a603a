// The limits of the native protocol, each with its reason. A frame that exceeds one closes its connection; nothing of
// it is kept.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::native {

/// An agent's frame. The largest is a report: one whole stderr tail (64 KiB) with its messages, and short lines for the
/// other failures of a node of 200 workers. fit_report() makes any report fit.
inline constexpr std::size_t agent_frame_bytes_max = 256 * 1024;

/// A daemon's frame. The largest is group rank 0's Assigned: 160,000 store_clients, 8 MiB; rounded up.
inline constexpr std::size_t daemon_frame_bytes_max = 16 * 1024 * 1024;

/// A frame on the peer port: a job's name and a round. Anybody may connect there, so nothing more is buffered.
inline constexpr std::size_t peer_frame_bytes_max = 4 * 1024;

/// Workers of one node: beyond this many the number is a mistake, and sums of them could overflow.
inline constexpr std::uint32_t slots_max = 4096;

/// Names: job, host, role, component, version, stage. 255 is what DNS and file names allow.
inline constexpr std::size_t name_bytes_max = 255;

/// Paths on a node: PATH_MAX.
inline constexpr std::size_t path_bytes_max = 4096;

/// Sentences for people: `why`, notes, what is launched.
inline constexpr std::size_t sentence_bytes_max = 4096;

/// A program's arguments, for people: enough to tell two jobs apart. Each node's lie in the daemon's memory and state.
inline constexpr std::size_t arguments_bytes_max = 512;

/// An exception's message from the error file: a Python traceback fits.
inline constexpr std::size_t failure_message_bytes_max = 16 * 1024;

/// The kept end of a worker's stderr.
inline constexpr std::size_t stderr_tail_bytes_max = 64 * 1024;

/// A challenge or its answer, or a round's secret: a keyed hash and a nonce fit.
inline constexpr std::size_t challenge_bytes_max = 256;

/// Components whose versions are compared: muster, driver, cuda, nccl, and room for more.
inline constexpr std::size_t versions_max = 16;

/// Addresses of one node: a host with many interfaces, each with several addresses, shows its best ones.
inline constexpr std::size_t addresses_max = 32;

/// Failures in one report: a node of 200 workers names each one.
inline constexpr std::size_t failures_max = 200;

/// Groups of equal failures in a verdict: a report of more is read by nobody.
inline constexpr std::size_t groups_max = 16;

/// The ranks of one group, as text: 64 pieces "12345-12345,".
inline constexpr std::size_t ranks_bytes_max = 1024;

/// What is known of a failure's cause: two sentences, a kernel's line among them.
inline constexpr std::size_t cause_bytes_max = 1024;

/// Workers of one node whose whereabouts are told, and the bytes of each: what it was doing, and where. All nodes are
/// put together by the daemon, so a node of more workers tells of those that say most.
inline constexpr std::size_t activities_max = 16;
inline constexpr std::size_t activity_text_max = 128;
inline constexpr std::size_t activity_place_max = 320;

/// GPUs of one node.
inline constexpr std::size_t gpus_max = 64;

/// Notes of an Assigned: one per component that differs, and warnings.
inline constexpr std::size_t notes_max = 64;

/// Nodes of one round; equals the daemon's own limit of nodes per job.
inline constexpr std::size_t peers_max = 20'000;

/// A node's ancestors in the tree of its round that it may ask: the parent, and the grandparent around it.
inline constexpr std::size_t peers_above_max = 2;

/// Addresses of one round's nodes: eight of each of 20,000 nodes, 8 MiB.
inline constexpr std::size_t store_clients_max = 160'000;

}  // namespace muster::native
