#include "worker_runtime/tcp/records/record_cipher.h"

#include <dlfcn.h>
#include <string.h>

#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr unsigned char application_data = 0x17;
constexpr std::size_t tag_bytes = 16;
// <openssl/evp.h>; the same in OpenSSL 1.1 and 3.
constexpr int get_tag = 0x10;
constexpr int set_tag = 0x11;

/// Functions of libcrypto, with their types opaque.
struct Libcrypto {
    void* (*context_new)() = nullptr;
    void (*context_free)(void*) = nullptr;
    const void* (*aes_256_gcm)() = nullptr;
    int (*init)(void*, const void*, void*, const unsigned char*, const unsigned char*, int) = nullptr;
    int (*update)(void*, unsigned char*, int*, const unsigned char*, int) = nullptr;
    int (*final)(void*, unsigned char*, int*) = nullptr;
    int (*control)(void*, int, int, void*) = nullptr;
    std::string trouble;

    Libcrypto() {
        for (const char* const name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"}) {
            void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (library == nullptr) {
                if (trouble.empty()) trouble = ::dlerror();
                continue;
            }
            const auto find = [&](auto& function, const char* symbol) {
                function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
                return function != nullptr;
            };
            if (find(context_new, "EVP_CIPHER_CTX_new") && find(context_free, "EVP_CIPHER_CTX_free") &&
                find(aes_256_gcm, "EVP_aes_256_gcm") && find(init, "EVP_CipherInit_ex") &&
                find(update, "EVP_CipherUpdate") && find(final, "EVP_CipherFinal_ex") &&
                find(control, "EVP_CIPHER_CTX_ctrl")) {
                trouble =
                    works() ? "" : cat(name, " offers no AES-256-GCM; its openssl.cnf may leave out the provider");
                return;
            }
            trouble = cat(name, " lacks functions of OpenSSL 1.1");
        }
    }

    /// The providers that openssl.cnf activates decide which ciphers there are.
    [[nodiscard]] bool works() const {
        const std::unique_ptr<void, void (*)(void*)> context(context_new(), context_free);
        constexpr std::array<unsigned char, 32> no_key{};
        return context != nullptr && init(context.get(), aes_256_gcm(), nullptr, no_key.data(), nullptr, 1) == 1;
    }
};

/// Stays open: other code of the process may have it too.
const Libcrypto& libcrypto() {
    static const Libcrypto* const opened = new Libcrypto;
    return *opened;
}

const unsigned char* read(const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
}

unsigned char* write(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}

/// What cannot fail with right arguments.
void must(int done) {
    MUSTER_CHECK(done == 1, done);
}

}  // namespace

Result<void> find_cipher() {
    if (libcrypto().trouble.empty()) return {};
    return Error{Errc::unsupported, cat("encrypted connections need OpenSSL's libcrypto on this host: ",
                                        libcrypto().trouble, "; install it (libssl3, openssl-libs)")};
}

RecordCipher::RecordCipher(Use use, std::string secret, std::uint64_t records_each)
    : use_(use),
      records_each_(records_each),
      secret_(std::move(secret)),
      context_(libcrypto().context_new(), libcrypto().context_free) {
    MUSTER_CHECK(context_ != nullptr, "no memory for a cipher");
    set_key();
}

RecordCipher::~RecordCipher() {
    ::explicit_bzero(secret_.data(), secret_.size());
    ::explicit_bzero(start_.data(), start_.size());
}

void RecordCipher::set_key() {
    auto key = hmac_sha256(secret_, "key");
    hmac_sha256(secret_, "nonce").copy(reinterpret_cast<char*>(start_.data()), start_.size());
    must(libcrypto().init(context_.get(), libcrypto().aes_256_gcm(), nullptr,
                          reinterpret_cast<const unsigned char*>(key.data()), nullptr, use_ == Use::seal ? 1 : 0));
    ::explicit_bzero(key.data(), key.size());
    number_ = 0;
}

std::array<unsigned char, 12> RecordCipher::next_nonce() {
    if (number_ == records_each_) {
        auto next = hmac_sha256(secret_, "next");
        secret_.swap(next);
        ::explicit_bzero(next.data(), next.size());
        set_key();
    }
    auto nonce = start_;
    for (std::size_t i = 0; i < sizeof number_; ++i)
        nonce[nonce.size() - 1 - i] ^= static_cast<unsigned char>(number_ >> (8 * i));
    ++number_;
    return nonce;
}

/// With the next nonce, and the header authenticated.
void RecordCipher::begin(const std::byte* header) {
    const auto nonce = next_nonce();
    int size = 0;
    must(libcrypto().init(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1));
    must(libcrypto().update(context_.get(), nullptr, &size, read(header), record_header_bytes));
}

std::size_t RecordCipher::seal(std::span<const std::span<const std::byte>> data, std::byte* record) {
    std::size_t body = 1 + tag_bytes;
    for (const auto& part : data) body += part.size();
    MUSTER_CHECK(body <= record_data_bytes_max + 1 + tag_bytes, body);
    const std::array<unsigned char, record_header_bytes> header{
        application_data, 3, 3, static_cast<unsigned char>(body >> 8), static_cast<unsigned char>(body)};
    ::memcpy(record, header.data(), header.size());
    begin(record);
    auto* at = write(record + record_header_bytes);
    int size = 0;
    const auto append = [&](const unsigned char* bytes, std::size_t count) {
        if (count == 0) return;
        must(libcrypto().update(context_.get(), at, &size, bytes, static_cast<int>(count)));
        at += size;
    };
    for (const auto& part : data) append(read(part.data()), part.size());
    append(&application_data, 1);
    must(libcrypto().final(context_.get(), at, &size));
    must(libcrypto().control(context_.get(), get_tag, tag_bytes, at));
    return record_header_bytes + body;
}

std::size_t RecordCipher::body_bytes(std::span<const std::byte, record_header_bytes> header) {
    const auto* const bytes = read(header.data());
    const auto body = static_cast<std::size_t>(bytes[3]) << 8 | bytes[4];
    const bool good = bytes[0] == application_data && bytes[1] == 3 && bytes[2] == 3 && body > 1 + tag_bytes &&
                      body <= record_data_bytes_max + 1 + tag_bytes;
    return good ? body : 0;
}

bool RecordCipher::open(std::span<const std::byte> record, std::byte* data) {
    MUSTER_CHECK(record.size() > record_overhead_bytes, record.size());
    begin(record.data());
    const auto data_bytes = record.size() - record_overhead_bytes;
    const auto* const from = read(record.data() + record_header_bytes);
    int size = 0;
    unsigned char type = 0;
    std::array<unsigned char, tag_bytes> tag;
    ::memcpy(tag.data(), from + data_bytes + 1, tag.size());
    return libcrypto().update(context_.get(), write(data), &size, from, static_cast<int>(data_bytes)) == 1 &&
           libcrypto().update(context_.get(), &type, &size, from + data_bytes, 1) == 1 &&
           libcrypto().control(context_.get(), set_tag, tag_bytes, tag.data()) == 1 &&
           libcrypto().final(context_.get(), &type, &size) == 1 && type == application_data;
}

}  // namespace muster::runtime
