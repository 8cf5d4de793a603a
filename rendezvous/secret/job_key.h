// The key of one job, and what is derived from it. A daemon that holds the secret of many jobs gives each user only the
// keys of the user's own jobs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/secret/find_secret.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// 32 bytes. Whoever has them may join, steer and end this one job. Empty: the job has no key.
using JobKey = std::string;

/// HKDF-SHA256 (RFC 5869) of the secret, with the salt "muster job" and the job's name (--rdzv-id) as info. A secret in
/// the text form of a job key is that key, whatever the job. Empty for an empty secret. The empty name is no job's: its
/// key is the daemon's own, for the status pages of all jobs.
JobKey job_key(const Secret& secret, std::string_view job);

/// The form in which a job key is handed out, and taken as a secret: "muster-job-key:" and 64 hexadecimal digits.
std::string job_key_text(const JobKey& key);

/// Whether a secret is the text form of a job key, complete or not.
bool is_job_key(std::string_view text);

/// Why a secret that begins as a job key is none; empty for every other text.
std::string wrong_with_job_key(std::string_view text);

/// 32 bytes for one purpose: the first block of HKDF-Expand (RFC 5869, 2.3) with `label` as info. Nobody can tell the
/// key, nor the bytes of another label, from them. Labels in use: "control" (the proofs of a connection), "status"
/// and "metrics" (tokens of the pages), "snapshots", "state" (records in etcd); "control tls", "status tls", "logs",
/// and each with " identity" (control_key.h); of a round's secret (Assigned::secret): "ranks" (its workers) and "peers"
/// (questions between its agents). Empty for an empty key.
std::string derived_key(const JobKey& key, std::string_view label);

/// The keys that a daemon accepts for a job, at least one; the first is the one in use, others are being replaced. An
/// empty function: there is no secret.
using JobKeys = std::function<std::vector<JobKey>(std::string_view job)>;

/// Empty for no secret.
JobKeys job_keys(Secret secret);

/// Of each of these secrets, at least one, as they are at each call.
JobKeys job_keys(std::shared_ptr<const std::vector<Secret>> accepted);

/// The keys of a job for a program that talks to a daemon or an agent, in the order of find_accepted_secrets: during a
/// change of the secret the peer may have either. An old secret that is unusable is left out, with one warning. Empty:
/// no source of a secret is set. Errors as find_secret.
Result<std::vector<JobKey>> find_job_keys(const ValueOf& value_of, std::string_view job);

/// The "state" key of each key of `job`, as they are at each call. The empty name: of the daemon itself.
std::function<std::vector<std::string>()> record_keys(JobKeys keys, std::string job);

/// What the proofs of a connection are made with: HMAC-SHA256, keyed with the "control" key. Empty for no key.
native::KeyedHash control_hash(const JobKey& key);

/// The same for each key that a daemon accepts. Empty for no secret.
native::HashesOf control_hashes(JobKeys keys);

/// The bearer token of the status pages: the "status" key in hexadecimal. Empty for no key.
std::string status_token(const JobKey& key);

/// The same of /metrics alone: the "metrics" key. A scraper sends it to whatever process holds a node's port.
std::string metrics_token(const JobKey& key);

}  // namespace muster::rendezvous
