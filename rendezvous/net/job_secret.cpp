#include "rendezvous/net/job_secret.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rendezvous/base/check.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t secret_bytes_max = 4096;
constexpr std::size_t hash_bytes = 32;

}  // namespace

native::KeyedHash keyed_hash(std::string key) {
    return [key = std::move(key)](std::string_view text) {
        std::array<unsigned char, hash_bytes> out{};
        unsigned size = 0;
        const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
        const auto* made =
            ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, text.size(), out.data(), &size);
        MUSTER_CHECK(made != nullptr && size == hash_bytes, size);
        return std::string(out.begin(), out.end());
    };
}

std::string random_nonce() {
    std::string nonce(32, '\0');
    MUSTER_CHECK(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()), errno);
    return nonce;
}

Result<native::KeyedHash> read_job_secret(const std::string& path) {
    if (path.empty()) return native::KeyedHash{};
    const auto wrong = [&](std::string why) {
        return Error{Errc::permission_denied, cat("the secret's file ", path, " ", why)};
    };
    // The descriptor is asked, not the path: between two looks another file could take its place.
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return error_from_errno(errno, cat("read the secret's file ", path));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat("look at the secret's file ", path));
    if (!S_ISREG(facts.st_mode)) return wrong("is no file");
    if ((facts.st_mode & 0077) != 0)
        return wrong(
            "may be used by others than its owner; run chmod 600 on it, and make a new secret if others have "
            "accounts here");
    if (facts.st_uid != ::geteuid() && facts.st_uid != 0) return wrong("belongs to another user");
    std::string secret(secret_bytes_max + 1, '\0');
    const auto size = ::read(file.get(), secret.data(), secret.size());
    if (size < 0) return error_from_errno(errno, cat("read the secret's file ", path));
    if (static_cast<std::size_t>(size) > secret_bytes_max)
        return wrong(cat("has more than ", secret_bytes_max, " bytes"));
    secret.resize(static_cast<std::size_t>(size));
    while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
    if (secret.empty()) return wrong("is empty; write 32 random bytes into it: head -c 32 /dev/urandom | base64");
    return keyed_hash(std::move(secret));
}

}  // namespace muster::rendezvous
