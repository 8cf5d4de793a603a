// The abstract Unix address at which an agent takes commands from its own host. It has the user and the job, so that
// muster drain finds all agents in /proc/net/unix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::agent {

struct CommandAddress {
    std::uint32_t user = 0;
    std::int32_t pid = 0;
    std::string token;  ///< Random: the name cannot be bound by another process before the agent starts.
    std::string job;    ///< A job id that is too long for an address is cut and followed by its hash.
    friend bool operator==(const CommandAddress&, const CommandAddress&) = default;
};

/// The name as an address has it: `job` itself, unless it is too long.
std::string job_in_address(std::string_view job);

/// The same with only letters, digits, ".", "_", "-" and "%": %HH for every other byte. It is part of an address,
/// and of a file name.
std::string job_in_name(std::string_view job);

/// 64 random bits as 16 hexadecimal digits.
std::string fresh_token();

/// "muster/agent/1000/4711/TOKEN/JOB", without the zero byte in front; bytes that are neither letters, digits nor one
/// of
/// "._-" stand as %HH.
std::string write_command_address(const CommandAddress& address);

/// Those of the listening sockets among the lines of /proc/net/unix, each once. Every user can bind such a name: only
/// SO_PEERCRED of a connection proves that the socket belongs to `user`.
std::vector<CommandAddress> command_addresses(std::string_view proc_net_unix);

}  // namespace muster::agent
