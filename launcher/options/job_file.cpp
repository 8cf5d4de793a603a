#include "launcher/options/job_file.h"

#include <utility>

#include "launcher/options/command_line.h"
#include "rendezvous/base/system/config_text.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using OptionError = std::optional<std::string>;

/// Options that are valid only on a command line.
bool belongs_in_a_file(const OptionRow& row) {
    return row.accept != nullptr && row.name != "config";
}

std::string unknown_file_key(const std::string& key) {
    std::vector<std::string> known{"program", "arguments"};
    for (const auto& row : option_table())
        if (belongs_in_a_file(row)) known.emplace_back(row.name);
    const auto near = nearest(key, known);
    return cat("unknown key '", key, "'", near.empty() ? "" : "; the nearest known key is ", near,
               " (muster --help lists all, without their dashes)");
}

class Filler {
  public:
    Filler(JobFile& file, const std::string& path) : file_(file), path_(path) {}

    void take(const ConfigEntry& entry) {
        if (auto wrong = read(entry)) print_error(entry.line, *wrong);
    }
    void print_error(std::size_t line, std::string_view why) {
        file_.complaints.push_back(cat(path_, ":", line, ": ", why));
    }

  private:
    OptionError read(const ConfigEntry& entry) {
        if (entry.key == "arguments") return add_arguments(entry);
        const bool is_program = entry.key == "program";
        const auto* row = is_program ? nullptr : find_option(entry.key);
        if (!is_program && (row == nullptr || !belongs_in_a_file(*row))) return unknown_file_key(entry.key);
        if (const auto [first, fresh] = lines_.emplace(entry.key, entry.line); !fresh)
            return cat(entry.key, " is a duplicate of line ", first->second, "; remove one of them");
        if (!is_program) return accept(*row, entry);
        if (entry.value.empty()) return "program: the value is missing; write program = train.py";
        file_.program = entry.value;
        return std::nullopt;
    }

    OptionError add_arguments(const ConfigEntry& entry) {
        auto words = split_words(entry.value);
        if (!words) return "arguments: unclosed quote, or \\ at the end of the line";
        for (auto& word : *words) file_.arguments.push_back(std::move(word));
        return std::nullopt;
    }

    OptionError accept(const OptionRow& row, const ConfigEntry& entry) {
        auto value = entry.value;
        if (row.kind == ValueKind::flag) {
            const auto on = config_flag(value);
            if (!on) return cat(row.name, ": got '", value, "'; accepted is yes or no");
            value = *on ? "1" : "0";
        }
        Settings alone;
        if (const auto accepted = row.accept(value, alone))
            return cat(row.name, ": got '", value, "'; accepted is ", *accepted);
        file_.values[&row] = {cat(path_, ":", entry.line, ": ", row.name), std::move(value)};
        return std::nullopt;
    }

    JobFile& file_;
    const std::string& path_;
    std::map<std::string, std::size_t> lines_;
};

}  // namespace

JobFile parse_job_file(std::string_view text, const std::string& path) {
    const auto config = parse_config(text);
    JobFile file;
    Filler filler(file, path);
    for (const auto& [line, why] : config.complaints) filler.print_error(line, why);
    for (const auto& entry : config.entries) filler.take(entry);
    return file;
}

Result<JobFile> named_job_file(const std::vector<std::string>& words) {
    const auto read = read_command_line(words);
    const auto* line = std::get_if<CommandLine>(&read);
    const std::string* path = nullptr;
    if (line != nullptr)
        for (const auto& option : line->options)
            if (option.row->name == "config") path = &option.value;
    if (path == nullptr) return JobFile{};
    const auto text = read_config_file(*path);
    if (!text) return with_context(text.error(), "--config");
    return parse_job_file(*text, *path);
}

}  // namespace muster::launcher
