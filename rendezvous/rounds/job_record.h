// The records of a job, from which a restarted daemon or the next leader continues: plain values and their codec. Pure.
//
// A job is kept in several records, so that a step writes only what it has changed:
//
//   job/<name>                     terms, numbers, budget, the last round, the end
//   member/<incarnation>/<name>    one of its nodes
//   failures/<name>                failures that may be the first cause of that round: large, and rarely changed
//   groups/<name>                  all failures of that round by their text, and the positions of its idle workers
//
// `complete` records that every running job has a record. A value is a version, a kind and the fields in the encoding
// of the agents' protocol (wire/native/field_codec.h). Records of another version are not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/rounds/member.h"
#include "rendezvous/rounds/sealed_round.h"
#include "rendezvous/rounds/server.h"

namespace muster::rendezvous {

/// Of all records. One more for each change of a field, here or in a message that is part of a record.
inline constexpr std::uint8_t record_version = 13;

/// The record of a job, without its round and nodes.
struct JobFacts {
    std::string id;
    native::JobTerms terms;
    std::string terms_by;
    std::uint64_t next_arrival = 1;
    Round next_round = 0;
    std::uint32_t restarts_used = 0;
    /// When those were that the budget's window still covers, on the wall clock.
    std::vector<std::int64_t> charges_at_ns;
    std::int64_t round_ended_at_ns = 0;  ///< of the round, where it has ended: on the wall clock
    std::int64_t parted_at_ns = 0;       ///< SealedRound::parted_at, on the wall clock; 0: never
    std::int64_t checkpoint_step = -1;
    std::uint32_t restarts_stalled = 0;
    std::vector<NodePast> pasts;
    bool unsure = false;  ///< its daemon was new: members of a running round may still be on their way to it
    bool taught = false;
    bool short_of_nodes = true;
    bool left = false;
    std::optional<native::JobEnded> ending;
    std::int64_t ended_at_ns = 0;           ///< beside `ending`: on the wall clock
    std::vector<std::string> ended_on;      ///< the hosts of those who were members then
    std::vector<std::string> former_hosts;  ///< of nodes that were in a round and are gone, oldest first
    std::int64_t noticed_at_ns = 0;         ///< the last notice to all workers, on the wall clock; 0: none
    std::string notice_why;                 ///< its words
    GoodputLedger::Kept goodput{};
};

/// A job without the connections and the clocks of the daemon that knew it: no instant in here means anything.
struct KeptJob {
    JobFacts facts;
    SealedRound round;
    std::vector<Member> members;
};

/// The state that an earlier daemon kept.
struct KeptState {
    bool complete = false;  ///< every running job has a record, so there is no need to wait for agents
    std::vector<KeptJob> jobs;
};

std::string job_key(const std::string& job);
std::string member_key(const std::string& job, Incarnation incarnation);
std::string failures_key(const std::string& job);
std::string groups_key(const std::string& job);
/// "No job is running of which there is no record."
Record complete_record();

/// The round without the texts of its failures.
std::string encode_job(const JobFacts& facts, const SealedRound& round);
std::string encode_member(const std::string& job, const Member& member);
std::string encode_failures(const std::string& job, const FailureLedger& failures);
std::string encode_groups(const std::string& job, const SealedRound& round);

/// All of it again, from records in any order. bad_frame, with the record's name, when
/// one is damaged, of another version, or says what no daemon can have written: then none of it may be used.
Result<KeptState> decode_state(const std::vector<Record>& records);

}  // namespace muster::rendezvous
