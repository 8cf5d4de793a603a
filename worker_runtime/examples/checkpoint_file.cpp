#include "worker_runtime/examples/checkpoint_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/text.h"

namespace muster::runtime {

namespace {

constexpr std::string_view magic = "MUSTERCK";
constexpr std::uint32_t version = 3;
/// A count beyond this is damage, not a model.
constexpr std::uint64_t value_count_max = 1 << 20;
constexpr std::size_t sampler_bytes_max = 4096;

std::string encode(const Checkpoint& checkpoint) {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.raw(magic);
    writer.number(version);
    writer.number(checkpoint.step);
    writer.number(static_cast<std::uint64_t>(checkpoint.values.size()));
    for (const float value : checkpoint.values) writer.number(std::bit_cast<std::uint32_t>(value));
    writer.blob<std::uint32_t>(checkpoint.sampler);
    writer.number(fingerprint(bytes));
    return bytes;
}

bool decode(std::string_view bytes, Checkpoint& checkpoint) {
    if (bytes.size() < sizeof(std::uint64_t)) return false;
    const auto body = bytes.substr(0, bytes.size() - sizeof(std::uint64_t));
    if (ByteReader(bytes.substr(body.size())).number<std::uint64_t>() != fingerprint(body)) return false;
    ByteReader reader(body);
    if (reader.raw(magic.size()) != magic || reader.number<std::uint32_t>() != version) return false;
    checkpoint.step = reader.number<std::uint64_t>();
    const auto count = reader.number<std::uint64_t>();
    if (!reader.ok() || count > value_count_max) return false;
    checkpoint.values.resize(count);
    for (auto& value : checkpoint.values) value = std::bit_cast<float>(reader.number<std::uint32_t>());
    checkpoint.sampler = reader.blob<std::uint32_t>(sampler_bytes_max);
    return reader.finished();
}

/// A file descriptor that closes itself.
struct File {
    int descriptor;
    ~File() {
        if (descriptor >= 0) ::close(descriptor);
    }
};

Result<void> write_durably(const std::string& path, std::string_view bytes) {
    const File file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.descriptor < 0) return error_from_errno(errno, cat("open ", path));
    while (!bytes.empty()) {
        const auto written = ::write(file.descriptor, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return error_from_errno(errno, cat("write ", path));
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(file.descriptor) != 0) return error_from_errno(errno, cat("flush ", path));
    return {};
}

}  // namespace

std::uint64_t fingerprint(std::string_view bytes) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
    return hash;
}

Result<void> save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
    const std::string fresh = path + ".new";
    if (auto written = write_durably(fresh, encode(checkpoint)); !written) return written;
    if (std::rename(fresh.c_str(), path.c_str()) != 0) return error_from_errno(errno, cat("rename to ", path));
    // The name itself is only durable once the folder is.
    const auto parent = std::filesystem::path(path).parent_path();
    const File folder{::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (folder.descriptor < 0 || ::fsync(folder.descriptor) != 0)
        return error_from_errno(errno, cat("flush the folder of ", path));
    return {};
}

Result<std::optional<Checkpoint>> load_checkpoint(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        if (!std::filesystem::exists(path)) return std::optional<Checkpoint>{};
        return Error{Errc::permission_denied, cat(path, ": the checkpoint is there but cannot be read")};
    }
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    Checkpoint checkpoint;
    if (!decode(bytes, checkpoint))
        return Error{Errc::bad_frame,
                     cat(path, ": no checkpoint of this program, or damaged; move it away to start over")};
    return std::optional(std::move(checkpoint));
}

}  // namespace muster::runtime
