#include "launcher/entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

constexpr int not_found = 127;
constexpr int not_executable = 126;
constexpr std::string_view run_path_program =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";

bool is_directory(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

bool is_executable_file(const std::string& path) {
    return ::access(path.c_str(), X_OK) == 0 && !is_directory(path);
}

/// Where execvp would find `name`; `seen` becomes a file of that name that cannot be executed.
std::optional<std::string> search_path(const std::string& name, const Environment& environment, std::string& seen) {
    const auto path = lookup(environment, "PATH").value_or("/bin:/usr/bin");
    for (const auto directory : split(path, ':')) {
        auto candidate = directory.empty() ? cat("./", name) : cat(directory, '/', name);
        if (is_executable_file(candidate)) return candidate;
        if (::access(candidate.c_str(), F_OK) == 0 && !is_directory(candidate)) seen = std::move(candidate);
    }
    return std::nullopt;
}

/// Nothing when `program` can be executed, as a path or through PATH.
std::optional<NotRunnable> why_not_executable(const std::string& program, const Environment& environment,
                                              std::string_view what) {
    const bool is_path = program.find('/') != std::string::npos;
    std::string seen = program;
    if (is_path) {
        if (is_executable_file(program)) return std::nullopt;
        if (::access(program.c_str(), F_OK) != 0)
            return NotRunnable{not_found, cat(what, " '", program, "': ", std::strerror(errno))};
    } else {
        seen.clear();
        if (search_path(program, environment, seen)) return std::nullopt;
        if (seen.empty()) return NotRunnable{not_found, cat(what, " '", program, "' is not in any directory of PATH")};
    }
    if (is_directory(seen)) return NotRunnable{not_executable, cat(what, " '", seen, "' is a directory")};
    return NotRunnable{not_executable, cat(what, " '", seen, "' is not executable (chmod +x makes it so)")};
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
    std::string seen;
    for (const char* name : {"python3", "python"})
        if (auto python = search_path(name, environment, seen)) return *python;
    return NotRunnable{not_found,
                       "no Python interpreter: python3 is not in any directory of PATH; set PYTHON_EXEC, or write "
                       "--no-python if the program needs none"};
}

enum class Content { python, program };

struct Look {
    Content content = Content::python;
    std::string interpreter;  ///< of a shebang that is not Python's
};

std::string_view base_name(std::string_view path) {
    const auto slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// "#!/usr/bin/env -S bash -e" -> the path "/usr/bin/env" and the program "bash".
Look look_at_shebang(std::string_view line) {
    std::string_view path;
    std::string_view program;
    for (const auto word : split(line, ' ')) {
        if (trim(word).empty()) continue;
        if (path.empty()) {
            path = program = trim(word);
            if (base_name(path) != "env") break;
        } else if (!word.starts_with('-') && word.find('=') == std::string_view::npos) {
            program = trim(word);
            break;
        }
    }
    const auto name = base_name(program);
    if (name.starts_with("python") || name.starts_with("pypy")) return {};
    return {Content::program, std::string(path)};
}

std::variant<Look, NotRunnable> look_at(const std::string& path) {
    if (is_directory(path)) {
        if (::access(cat(path, "/__main__.py").c_str(), F_OK) == 0) return Look{};
        return NotRunnable{not_executable, cat("'", path, "' is a directory without __main__.py")};
    }
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    // A program may be executable and yet not readable.
    if (fd < 0 && errno == EACCES && is_executable_file(path)) return Look{Content::program, {}};
    if (fd < 0) {
        const int error = errno;
        return NotRunnable{error == ENOENT || error == ENOTDIR ? not_found : not_executable,
                           cat("'", path, "': ", std::strerror(error))};
    }
    std::array<char, 256> start{};
    const auto size = ::read(fd, start.data(), start.size());
    ::close(fd);
    const std::string_view text(start.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    if (text.starts_with("\x7f"
                         "ELF"))
        return Look{Content::program, {}};
    if (path.ends_with(".py") || path.ends_with(".pyc") || !text.starts_with("#!")) return Look{};
    return look_at_shebang(text.substr(2, text.find('\n') - 2));
}

std::variant<Entry, NotRunnable> program_entry(const LaunchConfig& config, std::string program,
                                               const Environment& environment) {
    if (auto wrong = why_not_executable(program, environment, "program")) return *wrong;
    Entry entry;
    entry.argv.push_back(std::move(program));
    entry.argv.insert(entry.argv.end(), config.arguments.begin(), config.arguments.end());
    return entry;
}

std::variant<Entry, NotRunnable> python_entry(const LaunchConfig& config, std::vector<std::string> flags,
                                              const Environment& environment) {
    auto python = find_python(environment);
    if (const auto* wrong = std::get_if<NotRunnable>(&python)) return *wrong;
    Entry entry;
    entry.argv = {std::get<std::string>(python), "-u"};
    entry.argv.insert(entry.argv.end(), flags.begin(), flags.end());
    entry.argv.push_back(config.script);
    entry.argv.insert(entry.argv.end(), config.arguments.begin(), config.arguments.end());
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
        if (in_path) wrong->why += "; a program of that name is in PATH: write --no-python to run it";
        return *wrong;
    }
    if (config.entry == EntryKind::run_path)
        return python_entry(config, {"-c", std::string(run_path_program)}, environment);
    const auto& found = std::get<Look>(look);
    if (found.content == Content::python) return python_entry(config, {}, environment);
    if (!found.interpreter.empty())
        if (const auto wrong = why_not_executable(found.interpreter, environment, "interpreter"))
            return NotRunnable{wrong->exit_code,
                               cat("'", config.script, "': ", wrong->why, ", named in its first line")};
    // Without a slash execvp would look in PATH for what was found in the working directory.
    const bool is_path = config.script.find('/') != std::string::npos;
    return program_entry(config, is_path ? config.script : cat("./", config.script), environment);
}

}  // namespace muster::launcher
