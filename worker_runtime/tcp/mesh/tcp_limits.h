// The limits of the TCP transport, each with its reason.
#pragma once

#include <cstddef>

#include "rendezvous/base/time.h"

namespace muster::runtime {

/// What travels as one piece of a large message. A sum waits for whole pieces of all ranks, so smaller ones overlap
/// better; each costs a system call at both ends, which 256 KiB (25 us of copying) hide.
inline constexpr std::size_t piece_bytes_max = 256u << 10;
/// A message that is not large is cut into about eight pieces, but none smaller than this: with 16 KiB, an all_reduce
/// of 256 KiB took 1.4 times as long among two ranks of one host and 1.2 times among four, for calls alone.
inline constexpr std::size_t piece_bytes_min = 64u << 10;

/// Pieces of each peer that may wait to be summed. Three keep one arriving, one complete, and one being summed.
inline constexpr std::size_t fold_ring_pieces = 3;

/// An all_reduce up to this size goes whole from each rank to each, who all sum by themselves: one way instead of two.
/// Two ranks send no more bytes so than in slices, and their limit is where the sums of slices, made while others still
/// travel, win over one way less. More ranks do: theirs is 192 KiB in all. (Measured with 2, 3 and 4 ranks on one
/// host.)
constexpr std::size_t small_reduce_bytes_max(int size) {
    return size == 2 ? 512u << 10 : (192u << 10) / static_cast<std::size_t>(size - 1);
}
/// A broadcast up to this size goes from the root to everybody; a larger one in slices, which their receivers pass on.
inline constexpr std::size_t small_broadcast_bytes_max = 64u << 10;

/// From so many ranks on, a large all_reduce goes from rank to rank (tcp/tcp_chain) and not from each to each: there, a
/// rank would serve hundreds of connections for small slices.
inline constexpr int ring_ranks_min = 17;
/// ... and from so many bytes a rank of the world on: the first piece goes through all ranks and back before the last
/// rank's work pays.
inline constexpr std::size_t ring_bytes_per_rank_min = 256u << 10;

// In groups that are no whole mesh:
/// An all_reduce is gathered whole by everybody if that is no more than this for each of them.
inline constexpr std::size_t gathered_reduce_bytes_max = 64u << 10;
/// Exchanges take so many bytes of a rank at a time: log2(n) + 1 times as much is held.
inline constexpr std::size_t exchange_bytes_max = 4u << 20;
/// A broadcast passes from each rank to the next from so many bytes a rank on. There are four ranks for each piece of
/// 256 KiB then, so that the last rank has all in the time of five sends of the data. The root of the tree needs
/// log2(n) of them, six and more.
inline constexpr std::size_t broadcast_bytes_per_rank_min = 64u << 10;

/// From so many bytes on, a collective between nodes with several ranks each goes from node to node. (A choice by size
/// alone: it must be the same on all ranks, whatever memory each of them uses.)
inline constexpr std::size_t by_nodes_bytes_min = 64u << 10;
/// ... of f16 and bf16 where nodes have so many ranks on average. By nodes a link carries them as f32, 4 bytes an
/// element each way; between all ranks, 2 bytes for each rank of a node. Where copying is all that counts (loopback, 2
/// cores) nodes of 2 and of 3 ranks took twice as long by nodes.
inline constexpr int by_nodes_half_ranks_min = 4;
/// ... in parts of this size: what a node takes at most to copy elements that its ranks do not share.
inline constexpr std::size_t by_nodes_chunk_bytes = 32u << 20;

/// Groups of more ranks than this are no whole mesh: a rank is connected with its partners only (tcp_partners.h).
inline constexpr int whole_mesh_ranks_max = 32;

/// Connections per lane at most.
inline constexpr int stripes_max = 8;

/// Between ranks of one host the kernel copies every byte in and out of its own buffers, and what is under way fits
/// into a core's cache or does not. A message of this size goes in one call where it has room, which wins 15 % for 256
/// and 512 KiB; a stream is 1.4 to 1.7 times as fast with half of it, once the cores' caches are not all its own.
/// (Measured with 2 MiB of second-level cache; what the kernel chooses takes twice as long.) Between hosts the kernel's
/// choice is right, which follows the delay.
inline constexpr int same_host_send_buffer_bytes = 256 << 10;
inline constexpr int same_host_stream_buffer_bytes = 128 << 10;
/// An operation that sends a rank so much is a stream. One that fits into either of the two changes nothing.
inline constexpr std::size_t stream_bytes_min = 1u << 20;

/// The control connections are silent but for a failure's news, so that the kernel's own probes show a host that is
/// gone (the worker may be stopped or busy: its kernel answers). 5 s of silence, then a probe a second; after 15 s
/// unanswered the connection fails.
inline constexpr int keepalive_idle_s = 5;
inline constexpr int keepalive_interval_s = 1;
inline constexpr int unreachable_host_timeout_ms = 15'000;

/// How long a rank that has lost a peer's connection waits for that peer's last message, or for the end of its control
/// connection. The kernel closes the connections of a dead process one after another, on a busy host with pauses.
inline constexpr Duration final_messages_timeout = 1s;
/// How long a rank that cannot reach another one waits for a message of that one's partners, should it have died.
inline constexpr Duration partners_message_timeout = 100ms;

/// A rank that has waited for so long says for whom, should it be asked.
inline constexpr Duration wait_is_long_after = 50ms;
/// At its deadline a rank asks those it waits for whom they wait for. One that waits answers at once, as soon as it is
/// given a core; a rank that is stopped, or computes, never does.
inline constexpr Duration answer_limit = 1s;
/// All questions, from rank to rank, take so long at most.
inline constexpr Duration trace_limit = 1800ms;
/// A rank that waits for nobody is asked again.
inline constexpr Duration ask_again_after = 50ms;
/// Who waits for an answer looks this often whether another thread has read it.
inline constexpr Duration answer_check_interval = 10ms;

/// A rank's next address is tried when a connection to this one stands, but nobody has answered the greeting for so
/// long: the rank may not be there yet, or it is somebody else.
inline constexpr Duration search_answer_timeout = 1s;
/// Tries to connect are repeated at this distance: a route may come back.
inline constexpr Duration connect_retry_delay = 200ms;
/// A rank that waits for another's call looks this often whether it still listens: one that has died calls nobody.
inline constexpr Duration probe_interval = 1s;
/// A group that does not stand after so long says for whom it waits, once.
inline constexpr Duration forming_is_long_after = 10s;
/// Strangers' connections that may wait to say who they are; one more closes the one that has waited longest.
inline constexpr std::size_t unknown_callers_max = 64;
/// ... and so long they may wait once the group stands. A rank speaks as soon as it is connected; one that was stopped
/// in between calls again.
inline constexpr Duration unknown_caller_timeout = 5s;
/// Calls that are accepted before other descriptors have their turn.
inline constexpr std::size_t calls_admitted_max = 64;
/// A rank without a free descriptor lets callers wait for so long before it tries to accept them again.
inline constexpr Duration listening_pause = 200ms;

/// An idle thread looks for news itself for so long before it sleeps: as long as the kernel needs to wake it.
inline constexpr Duration spin_limit = 50us;

/// Of a failure's text, in a frame.
inline constexpr std::size_t failure_text_max = 1000;

}  // namespace muster::runtime
