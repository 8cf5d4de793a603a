// The key of a launch inside a munge credential: what the first node's muster puts in, and what the others accept.
// Pure.
//
// munged of one cluster share a key of their own, and say of a credential which user made it. A credential that is
// restricted to a user can be decoded only as that user, on each host once, and within 300 s.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// What a key is for.
struct MungeKeyTerms {
    std::string step;   ///< SlurmTask::job: "4711.0", or "4711.0-1" after the first requeue.
    std::string job;    ///< --rdzv-id.
    std::string nonce;  ///< 64 hexadecimal digits of the node that asks.
};

/// True for what the first node accepts as a nonce.
bool is_munge_nonce(std::string_view text);

/// The text that munge encodes. `key` is a job key's text form (job_key_text).
std::string munge_key_text(const MungeKeyTerms& terms, std::string_view key);

/// Step and job; the nonce is to be set.
MungeKeyTerms munge_key_terms(const std::string& job, const Environment& environment);

/// Commands that encode stdin for the user `uid`, and decode it with the metadata that munged_key reads. Nothing secret
/// is in their words.
std::vector<std::string> munge_command(std::uint32_t uid);
std::vector<std::string> unmunge_command();
inline constexpr Duration munge_limit = 5s;          ///< Of one run: munged answers within milliseconds.
inline constexpr Duration munge_answer_limit = 10s;  ///< Of a question: the daemon's limit of a connection that waits.

/// How the first node begins an answer without a credential: where another node may look for ~/.muster/key.
inline constexpr std::string_view lacks_munge_text = "the first node has no program munge";
inline constexpr std::string_view home_key_text =
    "munge does not work on the first node, so its key is ~/.muster/key, which this node does not have";

/// The key in what unmunge_command() has printed, maybe behind lines of others, if the user `uid`
/// made it for that user alone, and for these terms. Errors are sentences: unreachable and timed_out where waiting
/// helps (munged is not running, the clocks differ), not_found without the program, refused where another
/// program than the first node's muster of this step made it, permission_denied otherwise.
Result<std::string> munged_key(std::string_view printed, const MungeKeyTerms& terms, std::uint32_t uid);

/// The credential in what munge has printed, without its line end; empty: there is none. Other lines may stand around
/// it: a preloaded library's on stderr.
std::string_view munge_credential(std::string_view printed);

/// Why munge has made no credential, from what it printed; empty: it has.
std::string wrong_with_munge(std::string_view printed);

/// What the shell prints in the place of a program that is not there.
inline constexpr std::string_view no_munge_program = "none\n";

}  // namespace muster::launcher
