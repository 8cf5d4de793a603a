#include "launcher/options/entry.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>

#include "launcher/options/option_table.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using exit_codes::not_executable;
using exit_codes::not_found;
constexpr std::string_view run_path_program =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";

bool is_directory(const std::string& path) {
    std::error_code failure;
    return std::filesystem::is_directory(path, failure);
}

bool is_executable_file(const std::string& path) {
    return ::access(path.c_str(), X_OK) == 0 && !is_directory(path);
}

/// Searches PATH as execvp does. `seen` is set to a file of that name that cannot be executed.
std::optional<std::string> search_path(const std::string& name, const Environment& environment, std::string& seen) {
    const auto path = lookup(environment, "PATH").value_or("/bin:/usr/bin");
    for (const auto directory : split(path, ':')) {
        auto candidate = directory.empty() ? cat("./", name) : cat(directory, '/', name);
        if (is_executable_file(candidate)) return candidate;
        if (::access(candidate.c_str(), F_OK) == 0 && !is_directory(candidate)) seen = std::move(candidate);
    }
    return std::nullopt;
}

/// Returns nothing if `program` can be executed, as a path or through PATH.
std::optional<NotRunnable> why_not_executable(const std::string& program, const Environment& environment,
                                              std::string_view what) {
    const bool is_path = program.find('/') != std::string::npos;
    std::string seen = program;
    if (is_path) {
        if (is_executable_file(program)) return std::nullopt;
        if (::access(program.c_str(), F_OK) != 0)
            return NotRunnable{not_found, cat(what, " '", program, "': ", errno_text(errno))};
    } else {
        seen.clear();
        if (search_path(program, environment, seen)) return std::nullopt;
        if (seen.empty()) return NotRunnable{not_found, cat(what, " '", program, "' is not in any directory of PATH")};
    }
    if (is_directory(seen)) return NotRunnable{not_executable, cat(what, " '", seen, "' is a directory")};
    return NotRunnable{not_executable, cat(what, " '", seen, "' is not executable (chmod +x makes it so)")};
}

/// The Python of the virtual environment that this program is installed in, or nothing.
std::optional<std::string> own_python() {
    std::error_code failure;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
    auto python = (folder / "python3").string();
    if (failure || !std::filesystem::exists(folder.parent_path() / "pyvenv.cfg", failure)) return std::nullopt;
    return is_executable_file(python) ? std::optional(std::move(python)) : std::nullopt;
}

std::variant<std::string, NotRunnable> find_python(const Environment& environment) {
    if (const auto given = lookup(environment, "PYTHON_EXEC"); given && !given->empty()) {
        std::string python(*given);
        if (auto wrong = why_not_executable(python, environment, "the interpreter of PYTHON_EXEC")) return *wrong;
        return python;
    }
    for (const std::string_view variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        const auto prefix = value_or_empty(environment, variable);
        auto python = cat(prefix, "/bin/python3");
        if (!prefix.empty() && is_executable_file(python)) return python;
    }
    if (auto python = own_python()) return *python;
    std::string seen;
    for (const char* name : {"python3", "python"})
        if (auto python = search_path(name, environment, seen)) return *python;
    return NotRunnable{not_found,
                       "no Python interpreter: python3 is not in any directory of PATH; set PYTHON_EXEC, or write "
                       "--no-python if the program is not Python"};
}

/// The first bytes of a file, enough for its type and its "#!" line. Empty if it cannot be read.
std::string start_of(const std::string& path) {
    return read_start_of_file(path, 256);  // as much as the kernel reads
}

bool is_elf(std::string_view start) {
    return start.starts_with(
        "\x7f"
        "ELF");
}

/// For "#!/usr/bin/env -S bash -e": the interpreter "/usr/bin/env" and the program "bash".
struct Shebang {
    std::string interpreter;
    std::string program;
    bool from_path = false;  ///< True if env looks `program` up in PATH: no options and no assignments.
};

std::optional<Shebang> shebang_of(std::string_view start) {
    if (!start.starts_with("#!")) return std::nullopt;
    std::string line(start.substr(2, start.find('\n') - 2));
    std::ranges::replace(line, '\t', ' ');
    Shebang shebang;
    bool plain = true;
    for (const auto word : split(line, ' ')) {
        if (word.empty()) continue;
        if (shebang.interpreter.empty()) {
            shebang.interpreter = shebang.program = word;
            if (base_name(word) != "env") break;
        } else if (word.starts_with('-') || word.find('=') != std::string_view::npos) {
            plain = plain && word == "-S";
        } else {
            shebang.program = trim(word);
            shebang.from_path = plain;
            break;
        }
    }
    return shebang;
}

/// Checks the interpreter of an executable script's "#!" line. Otherwise execve would fail only when workers start.
std::optional<NotRunnable> why_not_interpreted(const std::string& script, const Shebang& shebang,
                                               const Environment& environment) {
    const auto named = [&script](const NotRunnable& wrong) {
        return NotRunnable{wrong.exit_code, cat("'", script, "': ", wrong.why, ", named in its first line")};
    };
    if (shebang.interpreter.ends_with('\r'))
        return NotRunnable{not_found, cat("'", script,
                                          "': its first line ends with a carriage return, which becomes part of the "
                                          "interpreter's name; save it with Unix line ends")};
    // The kernel does not search PATH for it.
    const bool is_path = shebang.interpreter.find('/') != std::string::npos;
    const auto interpreter = is_path ? shebang.interpreter : cat("./", shebang.interpreter);
    if (const auto wrong = why_not_executable(interpreter, environment, "interpreter")) return named(*wrong);
    if (!shebang.from_path) return std::nullopt;
    if (const auto wrong = why_not_executable(shebang.program, environment, "interpreter")) return named(*wrong);
    return std::nullopt;
}

/// Handlers registered with the kernel (binfmt_misc) may run files without a "#!" line.
bool kernel_knows_more_formats() {
    std::error_code failure;
    const std::filesystem::directory_iterator entries("/proc/sys/fs/binfmt_misc", failure);
    constexpr auto own_files = 2;  // "register" and "status"
    return !failure && std::distance(begin(entries), end(entries)) > own_files;
}

/// Returns nothing if the kernel can execute this file. The caller has checked its execute permission.
std::optional<NotRunnable> why_not_loadable(const std::string& file, const Environment& environment) {
    const auto start = start_of(file);
    if (const auto shebang = shebang_of(start)) return why_not_interpreted(file, *shebang, environment);
    const bool is_text = !start.empty() && start.find('\0') == std::string::npos && !is_elf(start);
    if (!is_text || kernel_knows_more_formats()) return std::nullopt;
    return NotRunnable{not_executable, cat("'", file,
                                           "' is a text file without a '#!' line, so it has no interpreter; add one, "
                                           "or remove --no-python if it is a Python script")};
}

enum class Content { python, program };

/// Chooses by the file's content, without --no-python, -m and --run-path.
std::variant<Content, NotRunnable> look_at(const std::string& path) {
    if (is_directory(path)) {
        if (::access(cat(path, "/__main__.py").c_str(), F_OK) == 0) return Content::python;
        return NotRunnable{not_executable, cat("'", path, "' is a directory without __main__.py")};
    }
    if (::access(path.c_str(), R_OK) != 0) {
        const int error = errno;
        // A program may be executable but not readable.
        if (error == EACCES && is_executable_file(path)) return Content::program;
        return NotRunnable{error == ENOENT || error == ENOTDIR ? not_found : not_executable,
                           cat("script '", path, "': ", errno_text(error))};
    }
    const auto start = start_of(path);
    if (is_elf(start)) return Content::program;
    const auto shebang = shebang_of(start);
    if (!shebang || path.ends_with(".py") || path.ends_with(".pyc")) return Content::python;
    const auto name = base_name(shebang->program);
    return name.starts_with("python") || name.starts_with("pypy") ? Content::python : Content::program;
}

/// Builds argv from the command and the user's arguments. With --local-rank-argument a shell inserts each worker's
/// local rank and then execs the program, so signals and exit codes are the program's own.
Entry entry_of(const std::vector<std::string>& words, const LaunchConfig& config) {
    Entry entry;
    if (config.local_rank_argument) {
        std::string line = "exec";
        for (const auto& word : words) {
            line += " '";
            for (const char letter : word) line += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
            line += '\'';
        }
        entry.argv = {"/bin/sh", "-c", line + " \"--local-rank=$LOCAL_RANK\" \"$@\"", "sh"};
    } else {
        entry.argv = words;
    }
    entry.argv.insert(entry.argv.end(), config.arguments.begin(), config.arguments.end());
    return entry;
}

/// A missing script may be a misspelt command: "muster drian node3".
std::string command_meant(const std::string& script) {
    std::vector<std::string> commands;
    for (const auto& command : command_table()) commands.emplace_back(command.name);
    const auto near = nearest(script, commands);
    if (near.empty()) return {};
    if (near == script) return cat("; to run the command, write muster ", near, " before any option");
    return cat("; the nearest command is muster ", near);
}

std::variant<Entry, NotRunnable> program_entry(const LaunchConfig& config, std::string program,
                                               const Environment& environment) {
    if (auto wrong = why_not_executable(program, environment, "program")) return *wrong;
    std::string seen;
    const bool is_path = program.find('/') != std::string::npos;
    const auto file = is_path ? program : search_path(program, environment, seen).value_or(program);
    if (auto wrong = why_not_loadable(file, environment)) return *wrong;
    return entry_of({std::move(program)}, config);
}

std::variant<Entry, NotRunnable> python_entry(const LaunchConfig& config, std::vector<std::string> flags,
                                              const Environment& environment) {
    auto python = find_python(environment);
    if (const auto* wrong = std::get_if<NotRunnable>(&python)) return *wrong;
    std::vector<std::string> words = {std::get<std::string>(python), "-u"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back(config.script);
    auto entry = entry_of(words, config);
    // A compiled file, an archive and a directory are left to the interpreter, as is what a shell starts.
    const bool is_text = !is_directory(config.script) && !config.script.ends_with(".pyc") &&
                         start_of(config.script).find('\0') == std::string::npos;
    entry.may_be_warm = !config.local_rank_argument &&
                        (config.entry == EntryKind::module || (config.entry == EntryKind::by_content && is_text));
    return entry;
}

}  // namespace

std::variant<Entry, NotRunnable> resolve_entry(const LaunchConfig& config, const Environment& environment) {
    if (config.entry == EntryKind::program) return program_entry(config, config.script, environment);
    if (config.entry == EntryKind::module) return python_entry(config, {"-m"}, environment);
    auto look = look_at(config.script);
    if (auto* wrong = std::get_if<NotRunnable>(&look)) {
        std::string seen;
        const bool in_path =
            config.script.find('/') == std::string::npos && search_path(config.script, environment, seen).has_value();
        if (in_path) wrong->why += "; PATH has a program of that name: write --no-python to run it";
        if (wrong->exit_code == not_found) wrong->why += command_meant(config.script);
        return *wrong;
    }
    if (config.entry == EntryKind::run_path)
        return python_entry(config, {"-c", std::string(run_path_program)}, environment);
    if (std::get<Content>(look) == Content::python) return python_entry(config, {}, environment);
    // Without a slash execvp would search PATH instead of the working directory.
    const bool is_path = config.script.find('/') != std::string::npos;
    return program_entry(config, is_path ? config.script : cat("./", config.script), environment);
}

}  // namespace muster::launcher
