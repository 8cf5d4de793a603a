#include "launcher/commands/key_command.h"

#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/find_secret.h"

namespace muster::launcher {

namespace {

constexpr std::string_view key_usage =
    "usage: muster key [show]\n"
    "Makes the secret of this user's jobs, ~/.muster/key, unless one is set, and prints where it comes from. With a\n"
    "secret, only nodes that have it can join a job and give it commands. The first source that is set counts:\n"
    "  MUSTER_SECRET_FILE               a private file\n"
    "  MUSTER_KEY                       the secret itself\n"
    "  $CREDENTIALS_DIRECTORY/muster.key   systemd: LoadCredential=muster.key:PATH\n"
    "  ~/.muster/key                    of nodes with one home directory, all\n"
    "show: prints the secret alone, for another node: muster key show | ssh NODE 'umask 077; mkdir -p .muster; "
    "cat >.muster/key'\n";

}  // namespace

int run_key(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("key", key_usage);
    const bool shows = arguments == std::vector<std::string>{"show"};
    if (!arguments.empty() && !shows)
        return print_error("key", exit_codes::usage, "write: muster key, or muster key show");
    auto secret = rendezvous::find_secret(value_of(environment));
    if (secret && secret->text.empty() && shows) return print_error("key", 1, "no secret is set; make one: muster key");
    const bool is_new = secret && secret->text.empty();
    if (is_new) secret = rendezvous::make_own_key(value_of(environment));
    if (!secret) return print_error("key", 1, secret.error().context);
    if (shows) return answer("key", cat(secret->text, "\n"));
    return answer("key", cat("the secret of your jobs is ", secret->origin, is_new ? ", made now" : "",
                             ". Nodes that have it can join; see muster key --help for nodes without this file\n"));
}

}  // namespace muster::launcher
