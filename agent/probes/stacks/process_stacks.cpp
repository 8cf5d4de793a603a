#include "agent/probes/stacks/process_stacks.h"

#include <sys/uio.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "agent/probes/stacks/native_frames.h"
#include "agent/probes/stacks/python_frames.h"
#include "agent/probes/stacks/traced_thread.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr Duration hold_limit = 500ms;
constexpr std::size_t native_threads_max = 4;
constexpr std::size_t python_threads_told_max = 8;
constexpr int native_frames_max = 200;  // a recursion's beginning says no more
constexpr int native_lines_max = 16;
constexpr std::size_t python_lines_max = 24;
constexpr std::size_t name_bytes_max = 200;  // of C++ templates the beginning

std::string thread_name(pid_t process, pid_t thread) {
    return std::string(trim(read_file(cat("/proc/", process, "/task/", thread, "/comm"))));
}

/// The main thread first.
std::vector<pid_t> threads_to_unwind(pid_t process) {
    std::vector<pid_t> out{process};
    std::error_code failure;
    for (std::filesystem::directory_iterator at(cat("/proc/", process, "/task"), failure), end; !failure && at != end;
         at.increment(failure)) {
        pid_t thread = 0;
        if (!parse_number(at->path().filename().string(), thread) || thread == process) continue;
        const bool waits_in_collectives = thread_name(process, thread) == "muster-lane";
        if (waits_in_collectives && out.size() < native_threads_max) out.push_back(thread);
    }
    return out;
}

class StackPrinter {
  public:
    StackPrinter(pid_t process, const std::function<void(std::string)>& line) : process_(process), line_(line) {}

    void tell() {
        auto opened = NativeFrames::open(process_);
        if (!opened) return note(opened.error().context);
        native_.emplace(std::move(*opened));
        find_python();
        const auto unwound = threads_to_unwind(process_);
        for (const auto thread : unwound) print_thread(thread);
        std::size_t told = 0;
        for (const auto& thread : read_python()) {
            const auto id = static_cast<pid_t>(thread.native_id);
            const bool is_known = std::ranges::find(unwound, id) != unwound.end();
            if (is_known || thread.frames.empty() || ++told > python_threads_told_max) continue;
            line_(cat("thread ", id, ' ', thread_name(process_, id)));
            print_python(thread.frames);
        }
    }

  private:
    void note(const std::string& text) { line_(cat("note ", text)); }

    void find_python() {
        runtime_ = native_->python_symbol("_PyRuntime");
        const auto version_at = native_->python_symbol("Py_Version");
        std::uint64_t version = 0;
        if (runtime_ == 0 || version_at == 0 || !read(version_at, &version, sizeof version)) return;
        std::vector<std::uint64_t> words(debug_offsets_bytes / sizeof(std::uint64_t));
        if (!read(runtime_, words.data(), debug_offsets_bytes)) return;
        layout_ = python_layout(version, words);
        if (!layout_)
            note(cat("Python ", version >> 24 & 0xff, '.', version >> 16 & 0xff,
                     ": its frames are not known to this version (3.11 to 3.13 are, with the interpreter lock)"));
    }

    bool read(std::uint64_t address, void* into, std::size_t size_bytes) const {
        const iovec here{into, size_bytes};
        const iovec there{reinterpret_cast<void*>(address), size_bytes};  // NOLINT: an address of the other process
        return ::process_vm_readv(process_, &here, 1, &there, 1, 0) == static_cast<ssize_t>(size_bytes);
    }

    [[nodiscard]] std::vector<PythonThread> read_python() const {
        if (!layout_) return {};
        return python_threads(*layout_, runtime_, [this](std::uint64_t address, void* into, std::size_t size_bytes) {
            return read(address, into, size_bytes);
        });
    }

    void print_python(const std::vector<PythonFrame>& frames) {
        for (std::size_t i = 0; i < std::min(frames.size(), python_lines_max); ++i) {
            const auto& frame = frames[i];
            line_(cat("python ", frame.function, " (", frame.file, frame.line > 0 ? cat(':', frame.line) : "", ')'));
        }
    }

    void print_thread(pid_t thread) {
        line_(cat("thread ", thread, ' ', thread_name(process_, thread)));
        auto held = TracedThread::hold(thread, hold_limit);
        for (const auto& python : read_python())
            if (python.native_id == thread) print_python(python.frames);
        if (!held) return note(held.error().context);
        print_native(thread);
    }

    /// Frames of the interpreter itself say nothing beside Python's: their number does.
    void print_native(pid_t thread) {
        int lines = 0, frames = 0, skipped = 0;
        std::string skipped_in;
        const auto print_skipped = [&] {
            if (skipped > 0)
                line_(cat("native ", skipped, skipped == 1 ? " frame in " : " frames in ", skipped_in)), ++lines;
            skipped = 0;
        };
        const auto walked = native_->walk(thread, [&](const NativeFrame& frame) {
            if (layout_ && frame.of_python) {
                ++skipped;
                skipped_in = frame.module;
            } else {
                print_skipped();
                ++lines;
                line_(cat("native ", frame.function.empty() ? "??" : frame.function.substr(0, name_bytes_max), " (",
                          frame.module.empty() ? "no file" : frame.module, ')'));
            }
            return ++frames < native_frames_max && lines < native_lines_max;
        });
        print_skipped();
        if (!walked) note(walked.error().context);
    }

    pid_t process_;
    const std::function<void(std::string)>& line_;
    std::optional<NativeFrames> native_;
    std::uint64_t runtime_ = 0;
    std::optional<PythonLayout> layout_;
};

}  // namespace

void report_stacks(pid_t process, const std::function<void(std::string)>& line) {
    StackPrinter(process, line).tell();
}

}  // namespace muster::agent
