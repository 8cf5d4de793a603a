// Validates a join: its own terms, and that they equal those of the job.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

class Job;
struct ServerConfig;

/// Each node's rounds are looked through at every round's end.
inline constexpr std::uint32_t node_failures_of_max = 100;

/// The largest number of a round that an agent may name.
inline constexpr Round round_max = Round{1} << 62;

/// The largest number that a daemon believes. A job seals fewer than 2^61 rounds, so whatever agents claim, each number
/// that a daemon gives is at most round_max.
inline constexpr Round round_claimed_max = Round{1} << 61;

/// How far above a job's numbers a daemon that knows them believes an agent without the secret. So no stranger brings
/// them to round_claimed_max: it would have to say so 2^41 times.
inline constexpr Round round_lead_max = Round{1} << 20;

/// One sentence about the first term that makes no sense by itself (minimum above maximum, no slots, no lease), or
/// empty. `nodes_max` is the daemon's own limit.
std::string wrong_with(const native::Join& join, std::uint32_t nodes_max);

/// The same where the daemon may have fewer connections than the job of this node needs, so that its nodes would wait
/// for one another until their join times out.
std::string too_few_connections(const std::string& job, const native::Join& join, const ServerConfig& config);

/// The other static job that keeps static job `job` away. A daemon has one store for the workers of static jobs, and
/// each seal of one empties it. nullptr: there is none, or `job` is alive, or is the one that the daemon is embedded
/// for, or its node hears of the end. `is_back`: this node has been in a round.
const Job* store_user(const std::string& job, bool is_back, const ServerConfig& config,
                      const std::vector<const Job*>& jobs);
/// What the nodes of `job` are told then.
std::string store_in_use(const std::string& job);

/// The same for what a resuming agent says about its round.
std::string wrong_with(const native::Resume& resume);

/// "3", or "10/1h" where the budget has a window: as --max-restarts takes it.
std::string restart_budget(const native::JobTerms& terms);

/// One sentence with both values, both hosts and the option to change, about the first term that differs; empty when
/// all are equal.
std::string difference(const native::JobTerms& set, const std::string& set_by, const native::JobTerms& given,
                       const std::string& given_by);

}  // namespace muster::rendezvous
