// Where the secret of this user's jobs comes from, so that nobody has to type one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::rendezvous {

/// Of characters: 16 random ones of a keyboard's are beyond guessing.
inline constexpr std::size_t secret_bytes_min = 16;

struct Secret {
    std::string text;     ///< empty: no source is set, and jobs have no secret
    std::string origin;   ///< for messages: "MUSTER_KEY", or the path of a file
    std::string path{};   ///< of the file; empty: it comes from the environment
    bool is_new = false;  ///< make_own_key has just made it
};

/// The value of an environment variable; empty if it is not set.
using ValueOf = std::function<std::string(const char* name)>;

/// The first source that is set decides, and a source that is set and unusable is an error that names it:
///   1. MUSTER_SECRET_FILE: a private file;
///   2. MUSTER_KEY: the secret itself;
///   3. $CREDENTIALS_DIRECTORY/muster.key: systemd's LoadCredential=muster.key:PATH;
///   4. ~/.muster/key: made by `muster key`. Nodes with one home directory share it.
/// Errors: a file that read_private_file refuses; limit_exceeded: a secret of less than secret_bytes_min bytes. Like
/// read_private_file, it keeps other processes of this user from reading this one.
Result<Secret> find_secret(const ValueOf& value_of);

/// For daemons, while a secret is being changed: the one in use, and after it the one that it replaces. That one is
/// MUSTER_KEY_OLD, else a file beside the file in use, with ".old" behind its name. Empty: no source of a secret in use
/// is set. Errors as find_secret.
Result<std::vector<Secret>> find_accepted_secrets(const ValueOf& value_of);

/// The same where the secret in use is known.
Result<std::vector<Secret>> accepted_with(Secret in_use, const ValueOf& value_of);

/// Makes ~/.muster/key with 32 random bytes as 64 hexadecimal digits, mode 0600, in a directory of mode 0700, unless it
/// exists. Of several nodes that make it at once in one home directory, all get the key of the first one. Without hard
/// links there, one that comes at that very moment may find it empty. Errors: no HOME; as find_secret; the system's.
Result<Secret> make_own_key(const ValueOf& value_of);

/// ~/.muster/key if it exists, also where another host has just made it on a network file system. Makes none. Its text
/// is empty: it does not exist. Errors as find_secret.
Result<Secret> find_own_key(const ValueOf& value_of);

struct OwnKeySet {
    Secret secret;        ///< without the text
    std::string kept_as;  ///< the path of another key that stood there before; empty: none did
};

/// Writes `text`, without its line end, to ~/.muster/key, as make_own_key does. Another key that stands there becomes
/// ~/.muster/key.old; a key.old before it is lost. Errors: no HOME; limit_exceeded as find_secret; the system's.
Result<OwnKeySet> set_own_key(const ValueOf& value_of, std::string text);

}  // namespace muster::rendezvous
