#include "launcher/commands/commands.h"

#include <unistd.h>

#include <iostream>
#include <iterator>
#include <optional>

#include "launcher/commands/command_words.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/find_secret.h"
#include "rendezvous/secret/job_key.h"

namespace muster::launcher {

namespace {

constexpr std::string_view key_usage = R"(usage: muster key [show | set | --job NAME]
Makes the secret of this user's jobs, ~/.muster/key, unless one is set, and prints where it comes from. With a
secret, only nodes that have it can join a job and give it commands. The first source that is set counts:
  MUSTER_SECRET_FILE               a private file
  MUSTER_KEY                       the secret itself
  $CREDENTIALS_DIRECTORY/muster.key   systemd: LoadCredential=muster.key:PATH
  ~/.muster/key                    of nodes with one home directory, all
A daemon, also the one in muster, accepts the secret that is being replaced, too: MUSTER_KEY_OLD, or a file beside
the one in use with .old behind its name.
show: prints the secret alone.
set: reads the secret from stdin into ~/.muster/key. Another one that stands there is kept as ~/.muster/key.old.
To copy the secret to a node that does not share the home directory:
  muster key show | ssh NODE muster key set
--job NAME: prints the key of this one job (--rdzv-id NAME), for a user of a shared musterd who may not have its
secret. It takes the place of the secret: in MUSTER_KEY, or in a file.
)";

/// The text is for a pipe: no terminal keeps a secret.
int set_key(const Environment& environment) {
    if (::isatty(STDIN_FILENO) == 1)
        return print_error("key", exit_codes::usage,
                           "set reads the secret from a pipe or a file: muster key show | ssh NODE muster key set");
    std::string text(std::istreambuf_iterator<char>(std::cin), {});
    const auto was_set = rendezvous::set_own_key(value_of(environment), std::move(text));
    if (!was_set) return print_error("key", 1, was_set.error().context);
    return answer("key", cat("the secret of your jobs on this host is ", was_set->secret.origin,
                             was_set->kept_as.empty() ? "" : "; the one before is kept as ", was_set->kept_as, "\n"));
}

int print_job_key(const rendezvous::Secret& secret, const std::string& job) {
    if (rendezvous::is_job_key(secret.text))
        return print_error("key", 1,
                           cat(secret.origin,
                               " is the key of one job already, and no other can be made from it; ask "
                               "whoever has the secret of musterd for the key of your job"));
    return answer("key", cat(rendezvous::job_key_text(rendezvous::job_key(secret, job)), "\n"));
}

}  // namespace

int run_key(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("key", key_usage);
    std::optional<std::string> job;
    const auto take_job = [&](const std::string& value) { return job = value, Result<void>(); };
    const auto words = read_words("key", arguments, {{"--job", take_job}});
    if (!words) return print_error("key", exit_codes::usage, words.error().context);
    const bool shows = *words == std::vector<std::string>{"show"};
    if (!job && *words == std::vector<std::string>{"set"}) return set_key(environment);
    if (!words->empty() && (job || !shows))
        return print_error("key", exit_codes::usage, "write: muster key, muster key show, set or --job NAME");
    auto secret = rendezvous::find_secret(value_of(environment));
    const bool is_missing = secret && secret->text.empty();
    if (is_missing && (shows || job)) return print_error("key", 1, "no secret is set; make one: muster key");
    if (is_missing) secret = rendezvous::make_own_key(value_of(environment));
    if (!secret) return print_error("key", 1, secret.error().context);
    if (shows) return answer("key", cat(secret->text, "\n"));
    if (job) return print_job_key(*secret, *job);
    return answer("key", cat("the secret of your jobs is ", secret->origin, is_missing ? ", made now" : "",
                             ". Nodes that have it can join; see muster key --help for nodes without this file\n"));
}

}  // namespace muster::launcher
