#include "launcher/options/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <iomanip>
#include <map>
#include <sstream>

#include "launcher/options/command_line.h"
#include "launcher/options/known_variables.h"
#include "launcher/options/launch_rules.h"
#include "launcher/report/exit_code.h"
#include "launcher/scheduler/scheduler_defaults.h"
#include "rendezvous/base/system/build_facts.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

namespace po = boost::program_options;

constexpr unsigned help_width = 120;

UsageError usage_error(std::string_view line) {
    return {cat("muster: ", line, "\n")};
}

/// "MUSTER_" + "NPROC_PER_NODE".
std::string variable_name(std::string_view prefix, const OptionRow& row) {
    std::string name = cat(prefix, row.name);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(c == '-' ? '_' : std::toupper(c)); });
    return name;
}

std::vector<std::string> variable_names(std::string_view prefix) {
    std::vector<std::string> names;
    for (const auto& row : option_table())
        if (row.from_environment) names.push_back(variable_name(prefix, row));
    return names;
}

/// A value and its origin, as messages name it.
using Source = FileValue;

/// The environment's default of one option. MUSTER_ overrides PET_. Options of muster have no PET_ name. No option
/// has one if PyTorch's Python API starts muster.
std::optional<Source> from_environment(const OptionRow& row, const Environment& environment) {
    if (!row.from_environment) return std::nullopt;
    // Inside a worker of another muster, these variables name the checkpoint directories of that worker.
    if (environment.contains("MUSTER_AGENT_SOCKET") && row.name.starts_with("checkpoint-")) return std::nullopt;
    // PyTorch's Python API, the caller of this process, reads PET_* where torchrun does, and ignores it elsewhere.
    const bool has_caller = environment.contains("MUSTER_CALLER_REPORT");
    for (const std::string_view prefix : {"MUSTER_", "PET_"}) {
        if (prefix == "PET_" && (row.origin == Origin::muster || has_caller)) continue;
        auto name = variable_name(prefix, row);
        if (const auto value = lookup(environment, name)) return Source{std::move(name), std::string(*value)};
    }
    return std::nullopt;
}

const char* heading(OptionGroup group) {
    constexpr const char* headings[] = {"Nodes and workers",
                                        "Rendezvous",
                                        "The program",
                                        "Restarts, stopping and exit codes",
                                        "Output",
                                        "Accepted for compatibility with torchrun",
                                        "About"};
    return headings[static_cast<std::size_t>(group)];
}

/// The options as Boost.Program_options describes them: their groups, and in --help the defaults in force.
po::options_description described(OptionGroup group, const Environment& environment) {
    po::options_description description(heading(group), help_width, help_width / 2);
    for (const auto& row : option_table()) {
        if (row.group != group) continue;
        const auto variable = from_environment(row, environment);
        const std::string fallback = variable ? variable->value : std::string(row.fallback);
        std::string text(row.help);
        if (variable)
            text += cat(" [", variable->source, "=", variable->value, "]");
        else if (!fallback.empty())
            text += cat(" [", fallback, "]");
        const std::string names = row.letter != 0 ? cat(row.name, ',', row.letter) : std::string(row.name);
        if (row.kind == ValueKind::flag)
            description.add_options()(names.c_str(), po::value<std::string>()->zero_tokens(), text.c_str());
        else
            description.add_options()(names.c_str(), po::value<std::string>()->value_name(std::string(row.metavar)),
                                      text.c_str());
    }
    return description;
}

std::string help_text(const Environment& environment) {
    std::ostringstream out;
    out << "muster [options] program [arguments...]\n\n"
           "Starts the workers of a training job on each node (one, or --nproc-per-node), watches them, and restarts "
           "the\n"
           "job when workers or nodes fail.\n"
           "Accepts torchrun's command line. --nproc_per_node is equivalent to --nproc-per-node; unique abbreviations "
           "are\n"
           "accepted. The environment variables MUSTER_NPROC_PER_NODE and PET_NPROC_PER_NODE set defaults.\n"
           "[in brackets: the current default]\n";
    for (const auto group : {OptionGroup::nodes, OptionGroup::rendezvous, OptionGroup::program, OptionGroup::restarts,
                             OptionGroup::output, OptionGroup::compatibility, OptionGroup::about})
        out << '\n' << described(group, environment);
    out << "\nCommands (muster COMMAND --help; to start a program with the same name, write ./NAME)\n";
    for (const auto& row : command_table())
        out << "  " << std::left << std::setw(31) << cat(row.name, ' ', row.arguments) << row.help << '\n';
    out << "\nPrograms beside muster\n"
           "  musterd                           The rendezvous daemon, for many jobs.\n"
           "  muster-stacks PID                 Prints the native and Python frames of a process.\n"
           "  muster-gpus, muster-topology      What muster runs to ask about this machine.\n"
           "  muster-persist                    What muster runs to write a dead worker's snapshot to disk.\n";
    out << "\nExit codes (--exit-code=torchrun: 1 for every failure but usage; a worker's own code passes through)\n";
    for (const auto& row : exit_code_table())
        out << "  " << std::left << std::setw(7) << row.code << row.meaning << '\n';
    return out.str();
}

/// Passes each option's effective value to its row. Stops at the first error.
std::optional<std::string> fill(const std::map<const OptionRow*, Source>& winning, Settings& settings) {
    for (const auto& row : option_table()) {
        const auto found = winning.find(&row);
        if (found == winning.end() || row.accept == nullptr) continue;
        const auto& [name, value] = found->second;
        if (const auto accepted = row.accept(value, settings))
            return cat(name, ": got '", value, "'; accepted is ", *accepted);
    }
    return std::nullopt;
}

/// See Launch::meeting_options.
std::vector<std::string> meeting_options(const std::map<const OptionRow*, Source>& winning, const Settings& settings) {
    constexpr std::string_view others[] = {"nnodes", "nproc-per-node", "role",   "spares",
                                           "from",   "standalone",     "rdzv-id"};
    std::vector<std::string> words{"--from=none"};
    // The scheduler's word on who hosts the rendezvous has no option of its own.
    const auto& is_host = settings.config.is_host;
    std::string conf = settings.rendezvous_conf;
    if (is_host && conf.find("is_host") == std::string::npos)
        conf += cat(conf.empty() ? "" : ",", "is_host=", *is_host ? "1" : "0");
    if (!conf.empty()) words.push_back(cat("--rdzv-conf=", conf));
    for (const auto& row : option_table()) {
        const auto found = winning.find(&row);
        const bool meets = row.group == OptionGroup::nodes || row.group == OptionGroup::rendezvous;
        if (!meets || found == winning.end() || row.name == "rdzv-conf") continue;
        if (std::ranges::find(others, row.name) != std::end(others)) continue;
        const auto& value = found->second.value;
        if (row.kind == ValueKind::value)
            words.push_back(cat("--", row.name, "=", value));
        else if (value == "1")
            words.push_back(cat("--", row.name));
    }
    return words;
}

std::optional<std::string> use_loglevel(const Environment& environment, Settings& settings) {
    const auto text = lookup(environment, "LOGLEVEL");
    if (!text || text->empty()) return std::nullopt;
    if (!parse_log_level(*text, settings.config.log_level))
        settings.warnings.push_back(cat("LOGLEVEL: got '", *text, "'; accepted is debug, info, warning or error"));
    return std::nullopt;
}

const GivenOption* first_that_shows_text(const CommandLine& line) {
    for (const auto& option : line.options)
        if (option.row->accept == nullptr) return &option;
    return nullptr;
}

ShowText shown(const OptionRow& row, const Environment& environment) {
    if (row.name == "version") return {build_facts("muster")};
    return {help_text(environment)};
}

}  // namespace

ParsedOptions parse_options(const std::vector<std::string>& words, const Environment& environment, const JobFile& file,
                            std::string_view hosts_file) {
    auto read = read_command_line(words);
    const auto* error = std::get_if<CommandLineError>(&read);
    const CommandLine& line = error != nullptr ? error->before : std::get<CommandLine>(read);
    if (const auto* option = first_that_shows_text(line)) return shown(*option->row, environment);
    if (error != nullptr) return usage_error(error->line);

    std::map<const OptionRow*, Source> winning;
    for (const auto& row : option_table())
        if (auto source = from_environment(row, environment)) winning.insert_or_assign(&row, std::move(*source));
    if (!file.complaints.empty()) return usage_error(file.complaints.front());
    for (const auto& [row, value] : file.values) winning.insert_or_assign(row, value);
    for (const auto& option : line.options)
        winning.insert_or_assign(option.row, Source{cat("--", option.row->name), option.value});

    Settings settings;
    use_loglevel(environment, settings);
    const auto given = [&winning](std::string_view option) -> std::optional<std::string_view> {
        const auto found = winning.find(find_option(option));
        return found == winning.end() ? std::nullopt : std::optional<std::string_view>(found->second.value);
    };
    auto scheduler = scheduler_defaults(environment, given, hosts_file);
    if (!scheduler) return usage_error(scheduler.error().context);
    if (!scheduler->nothing_to_do.empty()) return NothingToDo{cat("muster: ", scheduler->nothing_to_do, "\n")};
    for (auto& one : scheduler->values)
        winning.try_emplace(find_option(one.option), Source{std::move(one.source), std::move(one.value)});
    const auto unknown = unknown_variables(environment, variable_names("MUSTER_"));
    settings.warnings.insert(settings.warnings.end(), unknown.begin(), unknown.end());
    settings.warnings.insert(settings.warnings.end(), scheduler->notes.begin(), scheduler->notes.end());
    settings.is_first_host = scheduler->is_host;
    if (const auto wrong = fill(winning, settings)) return usage_error(*wrong);
    if (!line.has_program && !file.program)
        return usage_error(
            "the program is missing: write muster [options] program [arguments...] (muster --help lists all)");
    if (const auto wrong = apply_launch_rules(settings, environment)) return usage_error(*wrong);
    settings.config.script = line.has_program ? line.program : *file.program;
    settings.config.arguments = line.has_program ? line.arguments : file.arguments;
    auto meeting = meeting_options(winning, settings);
    return Launch{std::move(settings.config), std::move(settings.warnings), std::move(scheduler->own_addresses),
                  std::move(meeting)};
}

std::vector<std::string> option_variables() {
    auto names = variable_names("MUSTER_");
    for (auto& name : variable_names("PET_")) names.push_back(std::move(name));
    return names;
}

}  // namespace muster::launcher
