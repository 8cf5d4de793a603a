#include "worker_runtime/checkpoint/files/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/names.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

constexpr std::size_t alignment = 8;  // size of the largest element
constexpr std::size_t digits = 5;

std::uint64_t bytes_of(const ManifestTensor& tensor) {
    return *element_count(tensor.shape) * size_of(tensor.type);
}

std::string file_name(std::size_t index, std::size_t count) {
    return cat("model-", in_digits(index + 1, digits), "-of-", in_digits(count, digits), ".safetensors");
}

/// Appends all elements of a tensor, in order.
Result<void> copy_tensor(const std::string& folder, const Manifest& manifest, const ManifestTensor& tensor,
                         GrowingFile& to) {
    for (const auto& piece : tensor.pieces) {
        const auto path = cat(folder, '/', manifest.files[piece.file].name);
        std::uint32_t sum = 0;
        const auto read =
            read_ranges(path, {{piece.offset, piece.offset + piece.count * size_of(tensor.type)}}, [&](auto bytes) {
                sum = crc32c(bytes, sum);
                return to.append(bytes);
            });
        if (!read) return read;
        if (sum != piece.crc32c) {
            return Error{Errc::bad_frame, cat(path, ": tensor ", tensor.name, " is damaged (checksum)")};
        }
    }
    return {};
}

Result<void> write_model_file(const std::string& folder, const Manifest& manifest,
                              const std::vector<ManifestTensor>& tensors, const std::string& path,
                              std::size_t prefix_size) {
    SafetensorsHeader header;
    header.metadata = {{"format", "pt"}};  // Hugging Face's transformers refuses files without it
    std::uint64_t at = 0;
    for (const auto& tensor : tensors) {
        const auto end = at + bytes_of(tensor);
        header.tensors.push_back({.name = tensor.name.substr(prefix_size),
                                  .type = tensor.type,
                                  .shape = tensor.shape,
                                  .begin = at,
                                  .end = end});
        at = end;
    }
    const auto head = make_safetensors_header(header, alignment);
    if (head.size() - safetensors_length_bytes > safetensors_header_bytes_max) {
        return Error{Errc::limit_exceeded, cat(path, ": ", tensors.size(),
                                               " tensors are more than the header of one file holds; choose a smaller "
                                               "--max-file-size")};
    }
    auto file = MUSTER_TRY(GrowingFile::create(path));
    if (auto written = file.append(std::as_bytes(std::span(head))); !written) return written;
    for (const auto& tensor : tensors) {
        if (auto copied = copy_tensor(folder, manifest, tensor, file); !copied) return copied;
    }
    return file.finish();
}

/// Writes all files to the draft folder.
Result<Exported> write_draft(const std::string& folder, const Manifest& manifest, const std::string& draft,
                             const ExportOptions& options) {
    const auto plan = export_plan(manifest, options);
    Exported done{.file_count = plan.size()};
    nlohmann::json names = nlohmann::json::object();
    for (std::size_t i = 0; i < plan.size(); ++i) {
        const auto name = file_name(i, plan.size());
        MUSTER_TRY(write_model_file(folder, manifest, plan[i], cat(draft, '/', name), options.prefix.size()));
        for (const auto& tensor : plan[i]) {
            names[tensor.name.substr(options.prefix.size())] = name;
            done.bytes += bytes_of(tensor);
            ++done.tensor_count;
        }
    }
    const nlohmann::json index = {{"metadata", {{"total_size", done.bytes}}}, {"weight_map", std::move(names)}};
    MUSTER_TRY(write_new_text(draft + "/model.safetensors.index.json", index.dump(2) + "\n"));
    if (auto flushed = flush_folder(draft); !flushed) return flushed.error();
    return done;
}

/// Renames the draft to its final name, unless that name exists by now.
Result<void> put_in_place(const std::string& draft, const std::string& out) {
    if (::renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, out.c_str(), RENAME_NOREPLACE) != 0) {
        // Some file systems (NFS) do not support the flag; a plain rename replaces nothing but an empty folder.
        if (errno != EINVAL || ::rename(draft.c_str(), out.c_str()) != 0) {
            return error_from_errno(errno, cat("rename to ", out));
        }
    }
    const auto parent = std::filesystem::path(out).parent_path().string();
    return flush_folder(parent.empty() ? "." : parent);
}

}  // namespace

std::vector<std::vector<ManifestTensor>> export_plan(const Manifest& manifest, const ExportOptions& options) {
    std::vector<std::vector<ManifestTensor>> files;
    std::uint64_t room = 0;
    for (const auto& tensor : manifest.tensors) {
        if (!tensor.name.starts_with(options.prefix) || tensor.name == options.prefix) continue;
        if (is_rank_bytes(tensor.name)) continue;
        const auto bytes = bytes_of(tensor);
        if (files.empty() || bytes > room) {
            files.emplace_back();
            room = std::max(options.file_bytes_max, bytes);
        }
        files.back().push_back(tensor);
        room -= bytes;
    }
    for (auto& file : files) {
        std::stable_sort(file.begin(), file.end(), [](const ManifestTensor& a, const ManifestTensor& b) {
            return size_of(a.type) > size_of(b.type);
        });
    }
    return files;
}

Result<Exported> export_checkpoint(const std::string& folder, const Manifest& manifest, const std::string& out_given,
                                   const ExportOptions& options) {
    // A trailing slash would make the folder its own parent.
    const auto out = out_given.substr(0, out_given.find_last_not_of('/') + 1);
    if (export_plan(manifest, options).empty()) {
        return Error{Errc::not_found, options.prefix.empty()
                                          ? cat(folder, " holds no tensors")
                                          : cat(folder, " holds no tensor whose name begins with ", options.prefix)};
    }
    if (out.empty() || exists(out)) {
        return Error{Errc::already_exists, cat(out_given, " exists already; name a new folder")};
    }
    const auto draft = cat(out, ".tmp-", ::getpid());
    std::error_code ignored;  // the draft is useless, and the first failure is the one to report
    std::filesystem::remove_all(draft, ignored);
    if (auto made = make_folder(draft); !made) return made.error();
    auto done = write_draft(folder, manifest, draft, options);
    if (done) {
        if (auto placed = put_in_place(draft, out); !placed) done = placed.error();
    }
    if (!done) std::filesystem::remove_all(draft, ignored);
    return done;
}

}  // namespace muster::runtime
