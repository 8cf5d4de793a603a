#include "launcher/commands/commands.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "launcher/commands/command_words.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/export.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/verify.h"

namespace muster::launcher {

namespace {

using runtime::CheckpointName;
using runtime::Manifest;

constexpr std::string_view checkpoint_usage = R"(usage: muster checkpoint DIR [--verify]
       muster checkpoint export DIR OUT [--step N] [--max-file-size GIB] [--prefix PREFIX]

Lists the checkpoints in DIR, the newest first: step, folder, round, number of ranks, size, and whether it is
complete. Exit code 0 if the newest checkpoint is complete, else 1.
  --verify             read every byte and compare checksums (default: check manifests and file sizes)

export merges the newest checkpoint into the new folder OUT: whole tensors in safetensors files with Hugging
Face's index. It compares checksums while reading.
  --step N             export the checkpoint of step N
  --max-file-size GIB  maximum size of one file, a decimal number (default 5)
  --prefix PREFIX      export only tensors whose names begin with PREFIX, such as 'model.', and remove the prefix
)";

constexpr int not_whole = 1;

void print_text(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
}

/// "1.50 GiB"; "812 B".
std::string size_text(std::uint64_t bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto amount = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (amount >= 1024 && unit + 1 < std::size(units)) amount /= 1024, ++unit;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", amount, units[unit]);
    return text;
}

enum class Verification { at_sizes, at_every_byte };

/// The manifest, after the files have been compared with it.
Result<Manifest> inspect(const std::string& folder, Verification verification) {
    auto manifest = runtime::read_manifest(folder);
    if (!manifest || verification == Verification::at_sizes) return manifest;
    for (const auto& file : manifest->files) {
        auto sum = MUSTER_TRY(runtime::verify_rank_file(cat(folder, '/', file.name)));
        if (sum != file.crc32c) {
            return Error{Errc::bad_frame, cat(folder, '/', file.name, " is damaged (checksum of the file)")};
        }
    }
    return manifest;
}

std::uint64_t bytes_of(const Manifest& manifest) {
    std::uint64_t bytes = 0;
    for (const auto& file : manifest.files) bytes += file.bytes;
    return bytes;
}

struct Request {
    bool export_it = false;
    std::vector<std::string> places;  ///< DIR, or DIR and OUT.
    Verification verification = Verification::at_sizes;
    std::optional<std::int64_t> step;
    runtime::ExportOptions options;
};

/// A decimal number of GiB.
Result<std::uint64_t> read_size(const std::string& text) {
    constexpr double gib = 1u << 30, most = 1e9;
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(value) || value <= 0 || value > most) {
        return wrong(cat("--max-file-size: '", text, "' is not a number of GiB above 0"));
    }
    return static_cast<std::uint64_t>(std::ceil(value * gib));
}

Result<Request> read_request(const std::vector<std::string>& arguments) {
    Request request;
    const auto take_step = [&](const std::string& value) -> Result<void> {
        std::int64_t step = 0;
        if (!parse_number(value, step) || step < 0) return wrong(cat("--step: '", value, "' is not a step number"));
        request.step = step;
        return {};
    };
    const auto take_size = [&](const std::string& value) -> Result<void> {
        request.options.file_bytes_max = MUSTER_TRY(read_size(value));
        return {};
    };
    bool every_byte = false;
    request.export_it = !arguments.empty() && arguments[0] == "export";
    auto places =
        MUSTER_TRY(read_words("checkpoint", arguments,
                              request.export_it ? std::vector<WordOption>{{"--step", take_step},
                                                                          {"--max-file-size", take_size},
                                                                          {"--prefix", &request.options.prefix}}
                                                : std::vector<WordOption>{{"--verify", &every_byte}}));
    if (request.export_it) places.erase(places.begin());
    if (places.size() != (request.export_it ? 2 : 1))
        return wrong(cat("write: muster checkpoint ", request.export_it ? "export DIR OUT" : "DIR",
                         " (see muster checkpoint --help)"));
    if (every_byte) request.verification = Verification::at_every_byte;
    request.places = std::move(places);
    return request;
}

int list(const std::string& directory, const std::vector<CheckpointName>& checkpoints, Verification verification) {
    bool newest_whole = false;
    for (std::size_t i = 0; i < checkpoints.size(); ++i) {
        const auto name = to_string(checkpoints[i]);
        const auto manifest = inspect(cat(directory, '/', name), verification);
        if (i == 0) newest_whole = manifest.has_value();
        if (manifest) {
            print_text(cat("step ", manifest->step, "  ", name, "  round ", manifest->round, "  ranks ",
                           manifest->files.size(), "  ", size_text(bytes_of(*manifest)), "  ",
                           verification == Verification::at_every_byte ? "complete: every byte verified"
                                                                       : "complete by its manifest",
                           "\n"));
        } else {
            print_text(cat("step ", checkpoints[i].step, "  ", name, "  incomplete: ", manifest.error().context, "\n"));
        }
    }
    return answer("checkpoint", {}, newest_whole ? exit_codes::success : not_whole);
}

int export_one(const Request& request, const std::vector<CheckpointName>& checkpoints) {
    const auto& directory = request.places[0];
    for (const auto& name : checkpoints) {
        if (request.step && name.step != *request.step) continue;
        const auto folder = cat(directory, '/', to_string(name));
        const auto manifest = runtime::read_manifest(folder);
        // Exporting another step than the requested one would go unnoticed.
        if (!manifest)
            return print_error("checkpoint", not_whole,
                               cat(folder, ": ", manifest.error().context, "; write --step N to export another step"));
        const auto done = runtime::export_checkpoint(folder, *manifest, request.places[1], request.options);
        if (!done) return print_error("checkpoint", not_whole, done.error().context);
        return answer("checkpoint", cat(folder, ": ", done->tensor_count, " tensors, ", size_text(done->bytes), ", in ",
                                        done->file_count, done->file_count == 1 ? " file" : " files", " of ",
                                        request.places[1], "\n"));
    }
    return print_error("checkpoint", not_whole, cat(directory, ": no checkpoint of step ", *request.step));
}

}  // namespace

int run_checkpoint(const std::vector<std::string>& arguments) {
    if (asks_for_help(arguments)) return answer("checkpoint", checkpoint_usage);
    const auto request = read_request(arguments);
    if (!request) return print_error("checkpoint", exit_codes::usage, request.error().context);
    const auto& directory = request->places[0];
    const auto listing = runtime::list_directory(directory);
    if (!listing) return print_error("checkpoint", not_whole, listing.error().context);
    if (listing->checkpoints.empty())
        return print_error("checkpoint", not_whole, cat(directory, ": no checkpoint in it"));
    return request->export_it ? export_one(*request, listing->checkpoints)
                              : list(directory, listing->checkpoints, request->verification);
}

}  // namespace muster::launcher
