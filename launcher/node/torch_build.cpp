#include "launcher/node/torch_build.h"

#include <unistd.h>

#include <cerrno>
#include <variant>

#include "launcher/node/torch_package.h"
#include "launcher/options/entry.h"
#include "launcher/report/command_output.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

int run_torch_build(const std::vector<std::string>& arguments, Environment environment) {
    constexpr const char* command = "torch-build";
    LaunchConfig config;
    config.torch_backend = "muster";
    config.entry = EntryKind::module;
    config.script = "muster.torch.build";
    config.arguments = arguments;
    environment.erase("TORCH_DEVICE_BACKEND_AUTOLOAD");  // what a job must not set is no matter here
    if (const auto offered = offer_torch_backend(config, environment); !offered)
        return print_error(command, exit_codes::configuration, offered.error().context);
    environment.erase("MUSTER_TORCH_BACKEND");
    const auto entry = resolve_entry(config, environment);
    if (const auto* wrong = std::get_if<NotRunnable>(&entry)) return print_error(command, wrong->exit_code, wrong->why);
    std::vector<std::string> words = std::get<Entry>(entry).argv;
    std::vector<std::string> assignments;
    for (const auto& [name, value] : environment) assignments.push_back(cat(name, '=', value));
    std::vector<char*> argv;
    std::vector<char*> envp;
    for (auto& word : words) argv.push_back(word.data());
    for (auto& assignment : assignments) envp.push_back(assignment.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    ::execve(argv.front(), argv.data(), envp.data());
    return print_error(command, exit_codes::not_executable, cat(words.front(), ": ", errno_text(errno)));
}

}  // namespace muster::launcher
